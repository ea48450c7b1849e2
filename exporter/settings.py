"""How a model is profiled: the settings that one run of the command asks for.

Standard library only: the command reads and checks them long before torch is imported.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from store.records import MODES, TARGETS

DTYPES = ("float32", "bfloat16", "float16", "float64")
ATTENTIONS = ("auto", "flash", "efficient", "math")
AUTOCASTS = ("", "bfloat16", "float16")
OPTIMIZERS = ("", "sgd", "momentum", "adam", "adamw")
CAPTURES = ("auto", "meta", "concrete")

_CHOICES = {
    "mode": MODES,
    "target": TARGETS,
    "dtype": DTYPES,
    "attention": ATTENTIONS,
    "autocast": AUTOCASTS,
    "optimizer": OPTIMIZERS,
    "capture": CAPTURES,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """One configuration of a profile.

    Raises:
        ValueError: if a value is none of its choices, or a size is out of range.
    """

    batch_size: int = 4
    image_size: int = 0  # height and width of images in pixels; 0: the model's own
    mode: str = "train"
    backward: bool = True
    input_grad: bool = False
    dtype: str = "float32"
    target: str = "cuda"
    attention: str = "auto"
    autocast: str = ""
    optimizer: str = ""
    capture: str = "auto"

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch size {self.batch_size} is below 1")
        if self.image_size < 0:
            raise ValueError(f"image size {self.image_size} is below 0")
        values = asdict(self)
        for name, choices in _CHOICES.items():
            if values[name] not in choices:
                raise ValueError(
                    f"{name} {values[name]!r} is none of {', '.join(map(repr, choices))}"
                )
        if self.optimizer and not self.backward:
            raise ValueError(f"optimizer {self.optimizer!r} needs a backward pass")

    def config(self) -> str:
        """Return what is asked of the model itself, as a JSON object: ``{}`` for its defaults.

        It is stored as ``ProfileInfo.config`` and tells two builds of one model apart.
        """
        return json.dumps({"image_size": self.image_size} if self.image_size else {})
