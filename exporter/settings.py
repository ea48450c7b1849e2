"""How a model is profiled: the settings that one run of the command asks for.

Standard library only: the command reads and checks them long before torch is imported.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from store import records
from store.columns import option
from store.settings import RunSettings, check_options, options


@dataclass(frozen=True, slots=True)
class UserModel:
    """How a user's model is found, built and fed."""

    args: tuple[str, ...] = ()  # of the factory, as written
    kwargs: tuple[tuple[str, str], ...] = ()
    inputs: tuple[str, ...] = ()  # as written, see ``exporter.zoo.user.inputs``
    inputs_from: str = ""  # package.module:function that makes them instead
    module_path: tuple[str, ...] = ()  # folders in which modules are looked for first
    package: str = ""  # distribution that defines the model, "" for a file that is not installed
    source: str = ""  # digest of the source files that are not installed
    user_batch: bool = False  # no batch size is asked: the function that makes the inputs decides
    user_dtype: bool = False  # no type is asked: parameters stay as the factory made them

    def config(self) -> dict[str, Any]:
        """Return what tells two builds of one factory apart, for ``Settings.config``."""
        left = {"batch_size": self.user_batch, "dtype": self.user_dtype}
        asked = {
            "args": [stored_value(text) for text in self.args],
            "kwargs": {key: stored_value(text) for key, text in sorted(self.kwargs)},
            "inputs": self.inputs_from or list(self.inputs),
            "user": [name for name, is_left in left.items() if is_left],
            "source": self.source,
        }
        return {name: value for name, value in asked.items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(RunSettings):
    """One configuration of a profile: how a model is built and run.

    Raises:
        ValueError: if a value is none of its choices, or out of range.
    """

    image_size: int = option(
        default=0,
        least=1,
        of_model="image_size",
        default_as="the model's own",
        help="Height and width of images.",
    )
    seq_len: int = option(
        default=0,
        least=1,
        of_model="seq_len",
        default_as="the zoo's or the model's own",
        help="Tokens in a sequence.",
    )
    overrides: tuple[tuple[str, str], ...] = option(  # keys and values, as written
        default=(),
        of_model="set",
        flags="--set",
        metavar="KEY=VALUE",
        help="Change a model's configuration; repeatable.",
    )
    capture: str = option(
        default="auto",
        choices=("auto", *records.CAPTURES),
        help="Run on the meta device, there with drawn values, or for real on the CPU with seeded "
        "ones.",
    )
    assume: str = option(  # of values that nobody knows, where a size depends on them
        default="",
        choices=("", "keep-all"),
        help="Where a size depends on unknown values: keep-all takes every predicate for true.",
    )
    user: UserModel | None = None  # how a user's model is built and fed

    def __post_init__(self) -> None:
        check_options(self)
        if self.assume and self.capture in {"meta", "real"}:
            raise ValueError(
                f"capture {self.capture!r} assumes nothing; leave out assume {self.assume!r}, or "
                "capture 'drawn'"
            )
        if self.optimizer and not self.backward:
            raise ValueError(f"optimizer {self.optimizer!r} needs a backward pass")

    def config(self) -> str:
        """Return what is asked of the model itself, as a JSON object: ``{}`` for its defaults.

        It is stored as ``ProfileInfo.config`` and tells two builds of one model apart.
        """
        asked: dict[str, Any] = {}
        for key in self.asked_of_model():
            value = getattr(self, OF_MODEL[key])
            if isinstance(value, tuple):
                value = {name: stored_value(text) for name, text in sorted(value)}
            asked[key] = value
        if self.user:
            asked |= self.user.config()
        return json.dumps(asked)

    def asked_of_model(self) -> list[str]:
        """Return the names of what is asked of the model's configuration, of ``OF_MODEL``."""
        return [name for name, field in OF_MODEL.items() if getattr(self, field)]

    def options(self) -> dict[str, Any]:
        """Return the configuration's overrides: what is written as JSON has its type."""
        return {key: value_of(text) for key, text in self.overrides}


# What may be asked of a model's configuration: the name in ``config``, and the field that holds it.
OF_MODEL = {one.of_model: name for name, one in options(Settings).items() if one.of_model}


def value_of(text: str) -> Any:
    """Return a value as JSON reads it, and text that is no JSON as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text, text)


def stored_value(text: str) -> Any:
    """Return a value for a configuration in JSON: as written, if JSON has no such number."""
    value = value_of(text)
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return text
    return value
