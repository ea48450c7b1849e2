"""How a model is profiled: the settings that one run of the command asks for.

Standard library only: the command reads and checks them long before torch is imported.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from store.records import MODES, TARGETS

if TYPE_CHECKING:
    from exporter.zoo.user.inputs import OwnModel

DTYPES = ("float32", "bfloat16", "float16", "float64")
ATTENTIONS = ("auto", "flash", "efficient", "math")
AUTOCASTS = ("", "bfloat16", "float16")
OPTIMIZERS = ("", "sgd", "momentum", "adam", "adamw")
CAPTURES = ("auto", "meta", "concrete")
ASSUMPTIONS = ("", "keep-all")

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
    own: OwnModel | None = None  # how a model of the user's own is built and fed

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
        if self.own:
            asked |= self.own.config()
        return json.dumps(asked)

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
