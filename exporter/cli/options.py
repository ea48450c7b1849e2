"""The options of the main command, by what they are about, and what they ask for."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from exporter.settings import OF_MODEL, Settings, UserModel
from store.settings import options

if TYPE_CHECKING:
    from store.columns import Option

Command = TypeVar("Command", bound=Callable[..., Any])

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Memory(click.ParamType[int]):
    """An amount of memory, such as 800M or 16G; it arrives in bytes."""

    name = "memory"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", str(value), re.IGNORECASE)
        size = int(float(match[1]) * _UNITS[match[2].upper()]) if match else 0
        if not size or size >= 1 << 63:
            self.fail(f"{value!r} is no amount of memory, such as 800M or 16G", param, ctx)
        return size


class Seconds(click.FloatRange):
    """A duration; neither endless nor nothing."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True, max=1e9)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds."""
        seconds: float = super().convert(value, param, ctx)
        if seconds != seconds:  # noqa: PLR0124 - not a number, which no range keeps out
            self.fail(f"{value!r} is no duration", param, ctx)
        return seconds


def key_and_value(text: str) -> tuple[str, str]:
    """Return the two sides of ``KEY=VALUE``.

    Raises:
        click.BadParameter: if there is no key, or no equals sign.
    """
    key, sign, value = text.partition("=")
    if not key or not sign:
        raise click.BadParameter(f"{text!r} is not of the form KEY=VALUE")
    return key, value


def keys_and_values(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Return the two sides of each ``KEY=VALUE``, in order.

    Raises:
        click.BadParameter: if one of them has another form, or a key comes twice.
    """
    pairs = tuple(map(key_and_value, values))
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise click.BadParameter(f"{key!r} is given twice")
    return pairs


def _all(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return what adds several options to a command, in this order."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


selection_options = _all(
    click.option(
        "--zoo",
        "zoo_name",
        metavar="NAME",
        default="torchvision",
        show_default=True,
        help="Where the models come from.",
    ),
    click.option(
        "--model",
        "include",
        metavar="GLOB",
        multiple=True,
        help="Profile the models that match, or package.module:factory, a model of your own; "
        "repeatable.  [default: all]",
    ),
    click.option(
        "--exclude",
        metavar="GLOB",
        multiple=True,
        help="Leave out the models that match; repeatable.",
    ),
)


def _declared(name: str, option: Option, kind: str) -> Callable[[Command], Command]:
    """Return what adds an option of the settings to a command; it arrives under its own name.

    Args:
        name: of the field.
        option: what the field says of the option.
        kind: the type of the field, as it is written there.
    """
    flags = option.flags or f"--{name.replace('_', '-')}"
    text = option.help + (f"  [default: {option.default_as}]" if option.default_as else "")
    default = option.default or option.none_as
    shown: dict[str, Any] = {"default": default, "show_default": True} if default else {}
    if "/" in flags:
        return click.option(flags, name, default=True, show_default=True, help=text)
    if kind == "bool":
        return click.option(flags, name, is_flag=True, help=text)
    if kind.startswith("tuple"):
        shown = {"metavar": option.metavar, "multiple": True, "callback": keys_and_values}
    elif option.choices:
        choices = [choice or option.none_as for choice in option.choices]
        shown["type"] = click.Choice([choice for choice in choices if choice])
    else:
        shown |= {"metavar": "N", "type": click.IntRange(min=option.least)}
    if option.is_swept:
        shown |= {"default": (option.default,), "multiple": True}
    return click.option(flags, name, help=text, **shown)


def _value(option: Option, given: Any) -> Any:
    """Return the value of a field of the settings for what an option was given."""
    if "/" in option.flags:
        return option.choices[0 if given else 1]
    if isinstance(option.default, bool):
        return given != option.default
    if given is None or (option.none_as and given == option.none_as):
        return option.default
    return given


_KINDS = {item.name: str(item.type) for item in fields(Settings)}
_OPTIONS = options(Settings)
configuration_options = _all(
    *(_declared(name, option, _KINDS[name]) for name, option in _OPTIONS.items())
)

user_options = _all(
    click.option(
        "--module-path",
        metavar="DIR",
        multiple=True,
        default=(".",),
        show_default=True,
        help="Folder in which modules of your own are; repeatable.",
    ),
    click.option(
        "--arg",
        "args",
        metavar="VALUE",
        multiple=True,
        help="Argument of your factory; repeatable.",
    ),
    click.option(
        "--kwarg",
        "kwargs",
        metavar="NAME=VALUE",
        multiple=True,
        callback=keys_and_values,
        help="Named argument of your factory; repeatable.",
    ),
    click.option(
        "--input",
        "inputs",
        metavar="SPEC",
        multiple=True,
        help="Input of your model: [NAME=]TYPE[SIZE,...]{LOW:HIGH}; repeatable.",
    ),
    click.option(
        "--inputs",
        "inputs_from",
        metavar="FUNCTION",
        default="",
        help="package.module:function that makes the inputs of your model.",
    ),
)

run_options = _all(
    click.option(
        "--workers",
        metavar="N",
        type=click.IntRange(min=1),
        default=None,
        help="Processes that trace.  [default: the number of CPU cores]",
    ),
    click.option(
        "--timeout",
        metavar="SECONDS",
        type=Seconds(),
        default=None,
        help="Give a model up after this time.  [default: never]",
    ),
    click.option(
        "--max-memory",
        metavar="SIZE",
        type=Memory(),
        default=None,
        help="Most memory of a process that traces, such as 8G.  [default: no limit]",
    ),
    click.option("--list", "only_list", is_flag=True, help="List the chosen models and exit."),
    click.option(
        "--force", is_flag=True, help="Replace profiles that are in the database already."
    ),
    click.option("--fail-fast", is_flag=True, help="Stop at the first model that fails."),
    click.option("--quiet", is_flag=True, help="Show failures only."),
    click.option(
        "--json", "as_json", is_flag=True, help="Print a summary in JSON on standard output."
    ),
)


def settings_asked(given: dict[str, Any]) -> list[Settings]:
    """Return a configuration for each value of a swept option, such as the batch size.

    Raises:
        ValueError: if options exclude each other.
    """
    values = {name: _value(one, given[name]) for name, one in _OPTIONS.items() if not one.is_swept}
    swept = [name for name, one in _OPTIONS.items() if one.is_swept]
    sweeps = product(*(dict.fromkeys(given[name]) for name in swept))
    return [Settings(**values, **dict(zip(swept, sweep, strict=True))) for sweep in sweeps]


def is_asked(context: click.Context, name: str) -> bool:
    """Return whether an option was given, rather than left at its default."""
    return context.get_parameter_source(name) is not ParameterSource.DEFAULT


def user_asked(context: click.Context) -> UserModel | None:
    """Return what is asked of the user's models, None if the models come from a zoo.

    Raises:
        click.UsageError: if options do not go together.
    """
    given = context.params
    named = [name for name in given["include"] if ":" in name]
    asks_zoo = is_asked(context, "zoo_name")
    if given["zoo_name"] == "user" or (named and not asks_zoo):
        if not given["include"]:
            raise click.UsageError("--zoo user needs --model package.module:factory")
        if len(named) < len(given["include"]) and not asks_zoo:
            raise click.UsageError(
                f"--model {named[0]} is of your own, and the others are not: profile them one "
                "by one"
            )
        _refuse(context, ("exclude", *OF_MODEL.values()), "is for models of a zoo")
        return UserModel(
            args=given["args"],
            kwargs=given["kwargs"],
            inputs=given["inputs"],
            inputs_from=given["inputs_from"],
            module_path=tuple(str(Path(folder).absolute()) for folder in given["module_path"]),
            user_dtype=not is_asked(context, "dtype"),
        )
    _refuse(
        context,
        ("module_path", "args", "kwargs", "inputs", "inputs_from"),
        "is for a model of your own: --model package.module:factory",
    )
    return None


def _refuse(context: click.Context, names: tuple[str, ...], why: str) -> None:
    """Do nothing if none of the options was given.

    Raises:
        click.UsageError: for the first one that was.
    """
    for option in context.command.params:
        if option.name in names and is_asked(context, str(option.name)):
            raise click.UsageError(f"{option.opts[0]} {why}")
