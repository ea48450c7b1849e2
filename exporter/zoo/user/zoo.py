"""The zoo of the user's models: whatever ``package.module:factory`` makes.

The factory is a class, a function, or a module that stands already. It is imported from the folders
of ``--module-path`` or from what is installed, called with ``--arg`` and ``--kwarg``, and may read
values while it constructs. What goes wrong in the user's code is told with their file and line.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from exporter.failures import said
from exporter.settings import UserModel, value_of
from exporter.zoo.base import Built
from exporter.zoo.errors import BuildError
from exporter.zoo.user.inputs import TensorInput, parsed_inputs
from exporter.zoo.user.source import SourceFinder, is_installed, split_name
from exporter.zoo.user.user_errors import described, refuse_network, shown_path

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import nn

    from exporter.settings import Settings

# More values than these are not remembered, see ``exporter.capture.values.initial_values``.
_MOST_VALUES = 1 << 23

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class UserZoo:
    """The user's models, each named ``package.module:factory``."""

    name = "user"
    takes = frozenset[str]()
    package = ""  # each model's own, see ``UserModel.package``

    def names(self) -> tuple[str, ...]:
        """Return nothing: a user's models are named, not listed."""
        return ()

    def build(self, name: str, settings: Settings) -> Built:
        """Return what the factory of that name makes, with the inputs that the settings describe.

        Raises:
            BuildError: if the factory or the inputs are not to be had, or do not fit.
        """
        import torch

        from exporter.zoo.building import build_on_meta

        user = settings.user or UserModel()
        sys.path[:0] = [folder for folder in user.module_path if folder not in sys.path]
        refuse_network()
        factory = _load(name, user)
        make = _bound(factory, user)
        try:
            model = build_on_meta(make)
        except BuildError:
            raise
        except Exception as error:
            raise BuildError(described("the factory", error)) from error
        if settings.user is None or not user.user_dtype:
            model.to(getattr(torch, settings.dtype))
        model.train(settings.mode == "train")
        args, kwargs = _made_inputs(user, settings) if user.inputs_from else _inputs(user, settings)
        _check_fit(model, args, kwargs)
        tensors = _tensors((args, kwargs))
        first = next((t for t in tensors if t.dim()), None)
        return Built(
            model=model,
            args=args,
            kwargs=kwargs,
            batch_size=0 if first is None or not user.user_batch else max(1, first.shape[0]),
            dtype=_dtype(model) if user.user_dtype else "",
        )


def _load(name: str, user: UserModel) -> Any:
    """Return what ``package.module:attribute`` names.

    Raises:
        BuildError: if importing the module fails, or it lacks the attribute.
    """
    module_name, attribute = split_name(name)
    _refuse_taken(module_name.partition(".")[0], user)
    try:
        module = importlib.import_module(module_name)
    except BaseException as error:
        raise BuildError(described(f"importing {module_name}", error)) from error
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise BuildError(_missing(module_name if value is module else name, part, value))
        value = getattr(value, part)
    return value


def _refuse_taken(name: str, user: UserModel) -> None:
    """Do nothing, unless another module than the user's has a name already.

    Raises:
        BuildError: if it has; importing would find that one.
    """
    there = sys.modules.get(name)
    if there is None:
        return
    mine = SourceFinder(user.module_path).find(name)
    homes = [getattr(there, "__file__", None), *getattr(there, "__path__", ())]
    wanted = [mine.origin, *(mine.submodule_search_locations or ())]
    if any(home and home in homes for home in wanted):
        return
    folder = next((shown_path(home) for home in wanted if home), name)
    raise BuildError(f"the name {name!r} is taken by {homes[0] or 'Python'}; rename {folder}")


def _missing(owner: str, name: str, value: Any) -> str:
    """Return the message for an attribute that is not there, with near names."""
    known = [one for one in vars(value) if not one.startswith("_")] if vars(value) else []
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        return f"{owner} has no {name!r}; did you mean {', '.join(near)}?"
    home = getattr(value, "__name__", "")
    defined = [one for one in known if getattr(getattr(value, one), "__module__", "") == home]
    return f"{owner} has no {name!r}; it defines {', '.join(defined) or 'nothing'}"


def _bound(factory: Any, user: UserModel) -> Callable[[], nn.Module]:
    """Return a function without arguments that makes the model.

    Raises:
        BuildError: if the factory is none, or its arguments do not fit.
    """
    from torch import nn

    args = [value_of(text) for text in user.args]
    kwargs = {key: value_of(text) for key, text in user.kwargs}
    if isinstance(factory, nn.Module):
        if args or kwargs:
            raise BuildError("it is a module that stands already, and takes no --arg or --kwarg")
        return lambda: factory
    if not callable(factory):
        raise BuildError(
            f"it is of type {type(factory).__name__}; a factory is a function or a class that "
            "makes a torch.nn.Module"
        )
    misfit = _misfit(factory, tuple(args), kwargs)
    if misfit:
        raise BuildError(
            f"the factory {misfit}; its arguments are {_signature(factory)}, give them with --arg "
            "VALUE or --kwarg NAME=VALUE"
        )

    def make() -> nn.Module:
        try:
            model = factory(*args, **kwargs)
        except (SystemExit, KeyboardInterrupt) as error:  # as a script may that reads arguments
            raise BuildError(described("the factory", error)) from error
        if not isinstance(model, nn.Module):
            raise BuildError(
                f"the factory returns an object of type {type(model).__name__}, no torch.nn.Module"
            )
        return model

    return make


def _misfit(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return why a function cannot be called like this, "" if it can or nobody knows."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C
        return ""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        parameters = signature.parameters.values()
        by_position = [one for one in parameters if one.kind in _BY_POSITION]
        takes_more = any(one.kind is one.VAR_POSITIONAL for one in parameters)
        if len(args) > len(by_position) and not takes_more:
            return f"is given too many positional arguments: {len(args)}"
        if not any(one.kind is one.VAR_KEYWORD for one in parameters):
            for name in kwargs:
                if name not in signature.parameters:
                    near = difflib.get_close_matches(name, signature.parameters, n=1, cutoff=0.5)
                    return f"has no {name!r}" + (f", did you mean {near[0]}?" if near else "")
        wanted = [
            repr(one.name)
            for one in (*by_position[len(args) :], *_named_only(signature))
            if one.default is one.empty and one.name not in kwargs
        ]
        return f"wants {', '.join(wanted)}" if wanted else f"cannot be called so: {error}"
    return ""


def _named_only(signature: inspect.Signature) -> list[inspect.Parameter]:
    """Return the parameters that are given by name or not at all."""
    return [one for one in signature.parameters.values() if one.kind is one.KEYWORD_ONLY]


def _signature(function: Any) -> str:
    """Return the arguments of a function as they are declared, in one line."""
    return " ".join(str(inspect.signature(function)).split("->")[0].split())


def _inputs(user: UserModel, settings: Settings) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the inputs that are written out: positional and named ones.

    Raises:
        BuildError: if one cannot be made.
    """
    import torch

    generator = torch.Generator().manual_seed(0)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for text, one in zip(user.inputs, parsed_inputs(user), strict=True):
        value = one.value
        if isinstance(value, TensorInput):
            try:
                value = _tensor(value, settings, generator)
            except (RuntimeError, OverflowError, TypeError) as error:
                raise BuildError(f"--input {text!r} cannot be made: {said(error)}") from error
        if one.name:
            kwargs[one.name] = value
        else:
            args.append(value)
    return tuple(args), kwargs


def _tensor(wanted: TensorInput, settings: Settings, generator: torch.Generator) -> torch.Tensor:
    """Return a tensor: on meta, or with seeded values on the CPU where a range is given."""
    import torch

    name = settings.dtype if wanted.dtype == "float" else wanted.dtype
    shape, dtype = wanted.shape(settings.batch_size), getattr(torch, name)
    empty = torch.empty(shape, dtype=dtype, device="meta")
    if wanted.low == wanted.high or empty.numel() > _MOST_VALUES:
        return empty
    return torch.randint(wanted.low, wanted.high, shape, generator=generator).to(dtype)


def _made_inputs(user: UserModel, settings: Settings) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what the user's function makes: positional and named inputs.

    Raises:
        BuildError: if it fails, or returns something else.
    """
    make = _load(user.inputs_from, user)
    if not callable(make):
        raise BuildError(f"{user.inputs_from} is of type {type(make).__name__}, no function")
    takes_batch = "batch_size" in _parameters(make)
    if not takes_batch and not user.user_batch:
        raise BuildError(
            f"{user.inputs_from} takes no batch_size: give it that argument, or leave out "
            "--batch-size"
        )
    named = {"batch_size": settings.batch_size} if takes_batch else {}
    misfit = _misfit(make, (), named)
    if misfit:
        raise BuildError(f"{user.inputs_from} {misfit}; it may take batch_size only")
    try:
        made = make(**named)
    except BaseException as error:
        raise BuildError(described(user.inputs_from, error)) from error
    match made:
        case (tuple() | list() as args, dict() as kwargs):
            return tuple(args), {str(name): value for name, value in kwargs.items()}
        case tuple():
            return made, {}
        case Mapping():
            return (), {str(name): value for name, value in made.items()}
        case None:
            raise BuildError(
                f"{user.inputs_from} returns None; it returns a tuple of positional inputs, a dict "
                "of named ones, or both as (tuple, dict)"
            )
    return (made,), {}


def _parameters(function: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def _check_fit(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Do nothing if ``forward`` can be called with these inputs.

    Raises:
        BuildError: if it cannot; the text says what it wants.
    """
    misfit = _misfit(model.forward, args, kwargs)
    if not misfit:
        return
    code = getattr(type(model).forward, "__code__", None)
    place = ""
    if code is not None and not is_installed(code.co_filename):
        place = f" ({shown_path(code.co_filename)}:{code.co_firstlineno})"
    named = [one.name for one in _named_only(inspect.signature(model.forward))]
    name = next((f"{one}=" for one in named if one not in kwargs), "")
    raise BuildError(
        f"forward {misfit}; its inputs are {_signature(model.forward)}, give each with --input, "
        f"such as --input '{name}float32[batch,3,224,224]', or all with --inputs{place}"
    )


def _tensors(value: Any) -> list[torch.Tensor]:
    from exporter.capture.arguments import tensors_in

    return tensors_in(value)


def _dtype(model: nn.Module) -> str:
    import torch

    floating = (p.dtype for p in model.parameters() if p.is_floating_point())
    return str(next(floating, torch.float32)).removeprefix("torch.")
