"""How a model is profiled: the settings that one run of the command asks for.

Standard library only: the command reads and checks them long before torch is imported.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from store import records
from store.records import MODES, TARGETS

DTYPES = ("float32", "bfloat16", "float16", "float64")
ATTENTIONS = ("auto", "flash", "efficient", "math")
AUTOCASTS = ("", "bfloat16", "float16")
OPTIMIZERS = ("", "sgd", "momentum", "adam", "adamw")
CAPTURES = ("auto", *records.CAPTURES)
ASSUMPTIONS = ("", "keep-all")

# What may be asked of a model's configuration: the name in ``config``, and the field that holds it.
OF_MODEL = {"image_size": "image_size", "seq_len": "seq_len", "set": "overrides"}

_CHOICES = {
    "mode": MODES,
    "target": TARGETS,
    "dtype": DTYPES,
    "attention": ATTENTIONS,
    "autocast": AUTOCASTS,
    "optimizer": OPTIMIZERS,
    "capture": CAPTURES,
    "assume": ASSUMPTIONS,
}


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


@dataclass(frozen=True, slots=True)
class Settings:
    """One configuration of a profile.

    Raises:
        ValueError: if a value is none of its choices, or a size is out of range.
    """

    batch_size: int = 4
    image_size: int = 0  # height and width of images in pixels; 0: the model's own
    seq_len: int = 0  # length of sequences in tokens; 0: the model's own
    overrides: tuple[tuple[str, str], ...] = ()  # configuration keys and values, as written
    mode: str = "train"
    backward: bool = True
    input_grad: bool = False
    dtype: str = "float32"
    target: str = "cuda"
    attention: str = "auto"
    autocast: str = ""
    optimizer: str = ""
    capture: str = "auto"
    assume: str = ""  # of values that nobody knows, where a size depends on them
    user: UserModel | None = None  # how a user's model is built and fed

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch size {self.batch_size} is below 1")
        if self.image_size < 0:
            raise ValueError(f"image size {self.image_size} is below 0")
        if self.seq_len < 0:
            raise ValueError(f"sequence length {self.seq_len} is below 0")
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"{name} {value!r} is none of {', '.join(map(repr, choices))}")
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
        if self.image_size:
            asked["image_size"] = self.image_size
        if self.seq_len:
            asked["seq_len"] = self.seq_len
        if self.overrides:
            asked["set"] = {key: stored_value(text) for key, text in sorted(self.overrides)}
        if self.user:
            asked |= self.user.config()
        return json.dumps(asked)

    def asked_of_model(self) -> list[str]:
        """Return the names of what is asked of the model's configuration, of ``OF_MODEL``."""
        return [name for name, field in OF_MODEL.items() if getattr(self, field)]

    def options(self) -> dict[str, Any]:
        """Return the configuration's overrides: what is written as JSON has its type."""
        return {key: value_of(text) for key, text in self.overrides}


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
