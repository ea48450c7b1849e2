"""The installed zoos, and the choice among a zoo's models."""

from __future__ import annotations

import difflib
from fnmatch import fnmatchcase
from importlib.metadata import EntryPoint, entry_points, version
from typing import TYPE_CHECKING, cast

from exporter.zoo.errors import UnknownZooError, ZooError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.zoo.base import Zoo

GROUP = "export_profiles.zoos"


def _entries() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def load_zoo(name: str) -> Zoo:
    """Return the zoo of that name.

    Raises:
        UnknownZooError: if no installed package offers it, or its package is not installed.
    """
    entries = _entries()
    if name not in entries:
        near = difflib.get_close_matches(name, entries, n=1, cutoff=0.5)
        hint = (
            f"did you mean {near[0]!r}?" if near else f"installed are: {', '.join(sorted(entries))}"
        )
        raise UnknownZooError(f"no zoo is called {name!r}; {hint}")
    zoo = cast("Zoo", entries[name].load())
    try:
        version(zoo.package)
    except ImportError:  # PackageNotFoundError
        raise UnknownZooError(
            f"zoo {name!r} needs the package {zoo.package}, which is not installed"
        ) from None
    return zoo


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
