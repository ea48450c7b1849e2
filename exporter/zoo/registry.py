"""The installed zoos, and the choice among a zoo's models."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import fields
from fnmatch import fnmatchcase
from importlib.metadata import EntryPoint, entry_points, version
from typing import TYPE_CHECKING, cast

from exporter.settings import OF_MODEL
from exporter.zoo.base import Built, ZooModel
from exporter.zoo.errors import UnknownZooError, ZooError
from store.errors import ProfileError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.pipeline.jobs import Job
    from exporter.settings import Settings
    from exporter.zoo.base import Zoo

GROUP = "export_profiles.zoos"


USER = "user"  # the zoo of models that are named, not listed


def _entries() -> dict[str, list[EntryPoint]]:
    found: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group=GROUP):
        found.setdefault(entry.name, []).append(entry)
    return found


def load_zoo(name: str) -> Zoo:
    """Return the zoo of that name.

    Raises:
        UnknownZooError: if no installed package offers it, or its package is not installed.
        ZooError: if what is offered under that name is no zoo.
    """
    if name == USER:
        from exporter.zoo.user.zoo import UserZoo

        return UserZoo()
    entries = _entries()
    if name not in entries:
        known = sorted([*entries, USER])
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
        raise UnknownZooError(f"no zoo is called {name!r}; {hint}")
    offers = {entry.value: entry for entry in entries[name]}
    if len(offers) > 1:
        packages = sorted(entry.dist.name for entry in offers.values() if entry.dist)
        raise ZooError(
            f"zoo {name!r} is offered by {' and '.join(packages)}; uninstall one of them"
        )
    (entry,) = offers.values()
    zoo = _checked(name, entry)
    try:
        version(zoo.package)
    except (ImportError, ValueError):  # PackageNotFoundError; no name at all
        raise UnknownZooError(
            f"zoo {name!r} needs the package {zoo.package}, which is not installed: "
            f"pip install {_requirement(zoo.package, entry)}"
        ) from None
    return zoo


def _requirement(package: str, entry: EntryPoint) -> str:
    """Return what to install for a zoo: the extra of who offers it, if there is one."""
    offered_by = entry.dist
    if offered_by and package in (offered_by.metadata.get_all("Provides-Extra") or ()):
        return f"'{offered_by.name}[{package}]'"
    return package


def _checked(name: str, entry: EntryPoint) -> Zoo:
    """Return what an entry point offers as a zoo.

    Raises:
        ZooError: if it cannot be imported, or is no zoo.
    """
    try:
        offered = entry.load()
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ZooError(f"zoo {name!r} cannot be loaded from {entry.value}: {reason}") from error
    lacks = [one for one in ("name", "package", "names", "build") if not hasattr(offered, one)]
    if lacks:
        raise ZooError(f"zoo {name!r}: {entry.value} is no zoo, it lacks {', '.join(lacks)}")
    if offered.name != name:
        raise ZooError(
            f"zoo {name!r}: {entry.value} calls itself {offered.name!r}; the entry point must have "
            "the same name"
        )
    taken = getattr(offered, "takes", ())
    if isinstance(taken, str) or not isinstance(taken, Collection):
        raise ZooError(
            f"zoo {name!r}: {entry.value} has takes = {taken!r}; it is a set of "
            f"{', '.join(map(repr, OF_MODEL))}"
        )
    unknown = sorted(set(takes(offered)) - set(OF_MODEL))
    if unknown:
        raise ZooError(
            f"zoo {name!r}: {entry.value} takes {unknown[0]!r}, which is none of "
            f"{', '.join(OF_MODEL)}"
        )
    return cast("Zoo", offered)


def takes(zoo: object) -> tuple[str, ...]:
    """Return what may be asked of the models of a zoo, of ``exporter.settings.OF_MODEL``."""
    return tuple(getattr(zoo, "takes", ()))


def refuse_untaken(zoo: Zoo, settings: Settings) -> None:
    """Check that a zoo heeds all that is asked of its models.

    Raises:
        ZooError: if it does not say so of something; the text names it and what the zoo takes.
    """
    taken = takes(zoo)
    for name in settings.asked_of_model():
        if name not in taken:
            known = ", ".join(map(_option, sorted(taken))) or "none of these options"
            raise ZooError(f"zoo {zoo.name!r} takes no {_option(name)}; it takes {known}")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def build(job: Job) -> ZooModel:
    """Return the model of a job, built by its zoo.

    Raises:
        ZooError: if the zoo does not take the settings, or returns something else than a model.
    """
    return build_model(load_zoo(job.zoo), job.model, job.settings, job.package)


def build_model(zoo: Zoo, name: str, settings: Settings, package: str | None = None) -> ZooModel:
    """Return a model, built by its zoo.

    Args:
        zoo: the zoo.
        name: of the model.
        settings: how it is to be built.
        package: distribution that defines the model; None for the zoo's.

    Raises:
        ZooError: if the zoo does not take the settings, or returns something else than a model.
    """
    refuse_untaken(zoo, settings)
    built: object = zoo.build(name, settings)
    if not isinstance(built, Built):
        kind = type(built).__name__
        raise ZooError(f"zoo {zoo.name!r} returns an object of type {kind}, no Built")
    package = zoo.package if package is None else package
    return stamped(built, zoo.name, name, package, settings)


def stamped(built: Built, zoo: str, name: str, package: str, settings: Settings) -> ZooModel:
    """Return what a zoo has built, with all that identifies it."""
    from exporter.zoo.building import built_on, input_spec

    return ZooModel(
        **{field.name: getattr(built, field.name) for field in fields(Built)},
        zoo=zoo,
        name=name,
        package=package,
        package_version=version(package) if package else "",
        config=settings.config(),
        built_on=built_on(built.model),
        input_spec=input_spec(built.args, built.kwargs),
    )


def names_of(zoo: Zoo) -> tuple[str, ...]:
    """Return the names of a zoo's models, in alphabetical order.

    Raises:
        ZooError: if the zoo cannot tell, or has none.
    """
    try:
        names = tuple(sorted(set(zoo.names())))
    except ProfileError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ZooError(f"zoo {zoo.name!r} cannot list its models: {reason}") from error
    if not names:
        raise ZooError(f"zoo {zoo.name!r} has no models")
    return names


def select_models(
    names: Sequence[str], include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the names that match a pattern of ``include`` (all, if empty) and none of ``exclude``.

    Patterns are globs and case matters.

    Raises:
        ZooError: if a pattern of ``include`` matches nothing, or nothing is left.
    """
    for pattern in include:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = difflib.get_close_matches(pattern, names, n=3, cutoff=0.5)
            hint = f"; did you mean {', '.join(near)}?" if near else ", see --list"
            raise ZooError(f"no model matches {pattern!r}{hint}")
    chosen = tuple(
        name
        for name in names
        if (not include or any(fnmatchcase(name, pattern) for pattern in include))
        and not any(fnmatchcase(name, pattern) for pattern in exclude)
    )
    if not chosen:
        raise ZooError("the patterns to exclude leave no model")
    return chosen
