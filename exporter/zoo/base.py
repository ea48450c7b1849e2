"""What a zoo is: named models, built on the meta device with inputs that suit them.

A zoo is found through the entry point group ``export_profiles.zoos``; each entry names an object
that satisfies :class:`Zoo`. Nothing here imports torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

    from torch import nn

    from exporter.settings import Settings


@dataclass(frozen=True, slots=True)
class Built:
    """A model that is ready to run, with its inputs: what a zoo returns."""

    model: nn.Module  # on the meta device, in the asked mode and dtype
    args: tuple[Any, ...] = ()  # meta tensors; those whose values matter (targets) are on the CPU
    kwargs: dict[str, Any] = field(default_factory=dict)
    # Sizes inside depend on the values of weights and inputs, which no meta tensor has: they may be
    # drawn, seeded, as the initialisation would (``exporter.capture.drawn``).
    draws_values: bool = False
    batch_size: int = 0  # samples in the inputs; 0: as the settings ask
    dtype: str = ""  # of the parameters; "": as the settings ask


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooModel(Built):
    """A model that a zoo has built, with what the registry knows of it."""

    zoo: str
    name: str
    package: str  # distribution that defines the model, "" for a file that is not installed
    package_version: str
    config: str  # JSON object: what was asked of the model, ``Settings.config()``
    built_on: str  # "meta", "cpu": where the constructor ran
    input_spec: tuple[str, ...]  # such as "float32[4, 3, 224, 224]"


class Zoo(Protocol):
    """A collection of models.

    ``name``, ``package`` and ``takes`` are plain attributes, and ``names`` answers without
    importing torch: listing models and finding out what a database lacks must not wait for it.
    """

    name: str
    package: str  # distribution whose version identifies the models

    @property
    def takes(self) -> Collection[str]:
        """What may be asked of a model's configuration, of ``exporter.settings.OF_MODEL``.

        The rest is refused before anything is built. A zoo without this attribute takes none.
        """
        ...

    def names(self) -> tuple[str, ...]:
        """Return the names of all models, in alphabetical order."""
        ...

    def build(self, name: str, settings: Settings) -> Built:
        """Return the model of that name, built as the settings ask.

        Raises:
            exporter.zoo.errors.BuildError: if the model cannot take the settings.
        """
        ...
