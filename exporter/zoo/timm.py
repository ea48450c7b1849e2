"""The zoo of timm: every model that ``timm.list_models()`` lists, without weights.

Images have the size of the model's own configuration (``input_size``), which is the size that its
weights were trained at. A configuration that fixes the size is told the one that is asked for, as
timm's own scripts do. ``--set`` gives keyword arguments of ``timm.create_model``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from exporter.zoo.base import Built
from exporter.zoo.errors import BuildError
from exporter.zoo.options import refuse_build
from exporter.zoo.sources import models_folder

if TYPE_CHECKING:
    from torch import nn

    from exporter.settings import Settings

_REGISTRATION = re.compile(r"^@register_model\b.*\n(?:(?!def ).*\n)*?def (\w+)", re.MULTILINE)


class TimmZoo:
    """Every model that ``timm.list_models()`` lists: architectures, not their tagged weights."""

    name = "timm"
    package = "timm"
    takes = frozenset({"image_size", "set"})

    def names(self) -> tuple[str, ...]:
        """Return the names of all models, read from the installed source without importing it."""
        return tuple(
            sorted(
                {
                    name
                    for path in models_folder("timm").rglob("*.py")
                    for name in _REGISTRATION.findall(path.read_text("utf-8"))
                }
            )
        )

    def build(self, name: str, settings: Settings) -> Built:
        """Return the model of that name, with a batch of images.

        Raises:
            BuildError: if the model cannot take the settings.
        """
        import timm
        import torch

        from exporter.zoo.building import build_on_meta, prepared

        released = timm.models.get_pretrained_cfg(name) if timm.is_model(name) else None
        if released is None:
            raise BuildError(f"timm has no model {name!r}")
        options = settings.options()
        asked = settings.image_size
        channels, height, width = released.input_size
        if asked:
            height = width = asked
            if released.fixed_input_size:
                options.setdefault("img_size", asked)
        channels = options.get("in_chans", channels)

        def create(**options: Any) -> nn.Module:
            model: nn.Module = timm.create_model(name, pretrained=False, **options)
            return model

        try:
            model = build_on_meta(lambda: create(**options))
        except (RuntimeError, ValueError, TypeError, AssertionError) as error:
            plain = lambda: build_on_meta(create)  # noqa: E731 - only to learn what it takes
            raise refuse_build(name, options, error, plain) from error
        prepared(model, settings)
        dtype = getattr(torch, settings.dtype)
        args = (
            torch.empty(settings.batch_size, channels, height, width, dtype=dtype, device="meta"),
        )
        return Built(
            model=model,
            args=args,
        )


zoo = TimmZoo()
