"""What a zoo is: named models, built on the meta device with inputs that suit them.

A zoo is found through the entry point group ``export_profiles.zoos``; each entry names an object
that satisfies :class:`Zoo`. Nothing here imports torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import nn

    from exporter.settings import Settings


@dataclass(frozen=True, slots=True)
class Built:
    """A model that is ready to run, with its inputs."""

    model: nn.Module  # on the meta device, in the asked mode and dtype
    args: tuple[Any, ...]  # meta tensors; tensors whose values matter (targets) are on the CPU
    kwargs: dict[str, Any]
    built_on: str  # "meta", "cpu": where the constructor ran
    zoo: str
    name: str
    package: str  # distribution that defines the model
    package_version: str
    config: str  # JSON object: what was asked of the model, ``Settings.config()``
    input_spec: tuple[str, ...]  # such as "float32[4, 3, 224, 224]"
    # Sizes inside depend on the values of weights and inputs, which no meta tensor has: they may be
    # drawn, seeded, as the initialisation would (``exporter.capture.drawn``).
    draws_values: bool = False
    batch_size: int = 0  # samples in the inputs; 0: as the settings ask
    dtype: str = ""  # of the parameters; "": as the settings ask


class Zoo(Protocol):
    """A collection of models.

    ``name`` and ``package`` are plain attributes, and ``names`` answers without importing torch:
    listing models and finding out what a database lacks must not wait for it.
    """

    name: str
    package: str  # distribution whose version identifies the models

    def names(self) -> tuple[str, ...]:
        """Return the names of all models, in alphabetical order."""
        ...

    def build(self, name: str, settings: Settings) -> Built:
        """Return the model of that name, built as the settings ask.

        Raises:
            exporter.zoo.errors.BuildError: if the model cannot take the settings.
        """
        ...
