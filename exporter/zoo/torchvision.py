"""The zoo of torchvision: every registered model, without weights.

Inputs are the sizes that torchvision evaluates its released weights at, so that its published
figures can be compared:

- classification: square images, 224 unless ``_IMAGE_SIZES`` says otherwise
- segmentation: 520
- detection: images of 800 by 1088 (300 and 320 for the small ones), with one box each in training
- optical flow: two images of 368 by 496, the crop that training begins with
- video: 16 frames, of 112 for the ResNets and 224 for the others

Models with auxiliary classifiers have them, as the released ones do. ``quantized_*`` are the
quantizable variants in floating point. ``--set`` gives keyword arguments of a model's builder.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from exporter.zoo.base import Built
from exporter.zoo.errors import BuildError
from exporter.zoo.options import refuse_build
from exporter.zoo.sources import models_folder

if TYPE_CHECKING:
    import torch

    from exporter.settings import Settings

_REGISTRATION = re.compile(
    r'^@register_model\((?:(?:name=)?"(\w+)")?\)\n(?:(?!def ).*\n)*?def (\w+)', re.MULTILINE
)

_IMAGE_SIZES = {
    "efficientnet_b1": 240,
    "efficientnet_b2": 288,
    "efficientnet_b3": 300,
    "efficientnet_b4": 380,
    "efficientnet_b5": 456,
    "efficientnet_b6": 528,
    "efficientnet_b7": 600,
    "efficientnet_v2_s": 384,
    "efficientnet_v2_m": 480,
    "efficientnet_v2_l": 480,
    "inception_v3": 299,
    "quantized_inception_v3": 299,
    "swin_v2_*": 256,
    "r3d_18": 112,
    "mc3_18": 112,
    "r2plus1d_18": 112,
    "ssd300_vgg16": 300,
    "*_320*": 320,
    "ssdlite320_*": 320,
}
_KIND_SIZES = {
    "detection": (800, 1088),
    "optical_flow": (368, 496),
    "segmentation": (520, 520),
}
_FRAMES = 16
# Models that resize, or have positions for, one size only.
_FIXED_SIZE = ("ssd*", "mvit_*")


class TorchvisionZoo:
    """Every model that ``torchvision.models.list_models()`` lists."""

    name = "torchvision"
    package = "torchvision"
    takes = frozenset({"image_size", "set"})

    def names(self) -> tuple[str, ...]:
        """Return the names of all models, read from the installed source without importing it."""
        return tuple(
            sorted(
                registered or function
                for path in models_folder("torchvision").rglob("*.py")
                for registered, function in _REGISTRATION.findall(path.read_text("utf-8"))
            )
        )

    def build(self, name: str, settings: Settings) -> Built:
        """Return the model of that name, with inputs as the module's docstring says.

        Raises:
            BuildError: if the model cannot take the settings.
        """
        import torch
        from torchvision.models import get_model_builder  # type: ignore[import-untyped]

        from exporter.capture.values.initial_values import RememberMoments
        from exporter.zoo.building import build_on_meta, prepared

        try:
            builder = get_model_builder(name)
        except ValueError as error:
            raise BuildError(f"torchvision has no model {name!r}") from error
        kind = _kind(builder.__module__)
        height, width = _image_size(name, kind, settings)
        asked = settings.options()
        if weights := [key for key in asked if key.startswith("weights")]:
            raise BuildError(f"{name} is built without weights: leave out {weights[0]}")
        options = _options(name, kind, settings) | asked
        try:
            with RememberMoments() if kind == "detection" else nullcontext():
                model = build_on_meta(lambda: builder(weights=None, **options))
        except (RuntimeError, ValueError, TypeError, AssertionError) as error:
            plain = lambda: build_on_meta(lambda: builder(weights=None))  # noqa: E731
            raise refuse_build(name, options, error, plain) from error
        prepared(model, settings)
        dtype = getattr(torch, settings.dtype)

        def images(*shape: int) -> torch.Tensor:
            return torch.empty(shape, dtype=dtype, device="meta")

        batch = settings.batch_size
        args: tuple[Any, ...]
        if kind == "video":
            args = (images(batch, 3, _FRAMES, height, width),)
        elif kind == "optical_flow":
            args = (images(batch, 3, height, width), images(batch, 3, height, width))
        elif kind == "detection":
            args = ([images(3, height, width) for _ in range(batch)],)
            if settings.mode == "train":
                args += ([_target(name, height, width, dtype) for _ in range(batch)],)
        else:
            args = (images(batch, 3, height, width),)
        return Built(
            model=model,
            args=args,
            draws_values=kind == "detection",
        )


def _kind(module: str) -> str:
    """Return the subpackage of torchvision.models that a builder is from, or "classification"."""
    parts = module.split(".")
    return parts[2] if len(parts) > 3 and parts[2] != "quantization" else "classification"


def _image_size(name: str, kind: str, settings: Settings) -> tuple[int, int]:
    """Return height and width of the images.

    Raises:
        BuildError: if the asked size does not suit the model.
    """
    asked = settings.image_size
    if asked and any(fnmatchcase(name, pattern) for pattern in _FIXED_SIZE):
        raise BuildError(f"{name} has a fixed image size and takes no other")
    if asked and kind == "optical_flow" and (asked % 8 or asked < 128):
        raise BuildError(f"{name} takes images of at least 128 in multiples of 8, not {asked}")
    if asked:
        return asked, asked
    for pattern, size in _IMAGE_SIZES.items():
        if fnmatchcase(name, pattern):
            return size, size
    return _KIND_SIZES.get(kind, (224, 224))


def _options(name: str, kind: str, settings: Settings) -> dict[str, Any]:
    """Return the constructor's options: nothing downloaded, no slow initialisation, sizes."""
    options: dict[str, Any] = {}
    if kind in ("segmentation", "detection"):
        options["weights_backbone"] = None
    if kind == "segmentation" and not name.startswith("lraspp"):
        options["aux_loss"] = True
    if name.removeprefix("quantized_") in ("googlenet", "inception_v3"):
        options["init_weights"] = False
    if asked := settings.image_size:
        if name.startswith("vit_"):
            options["image_size"] = asked
        elif name.startswith("maxvit_"):
            options["input_size"] = (asked, asked)
        elif kind == "detection":  # else images would be resized to the model's own
            options |= {"min_size": asked, "max_size": asked}
    return options


def _target(name: str, height: int, width: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Return what a detector is trained on: one object in the middle half of the image.

    The values matter (a detector matches boxes with anchors), so they are on the CPU.
    """
    import torch

    box = [width / 4, height / 4, width * 3 / 4, height * 3 / 4]
    target = {
        "boxes": torch.tensor([box], dtype=dtype),
        "labels": torch.ones(1, dtype=torch.int64),
    }
    if name.startswith("maskrcnn"):
        target["masks"] = torch.ones(1, height, width, dtype=torch.uint8)
    if name.startswith("keypointrcnn"):
        target["keypoints"] = torch.tensor([[[width / 2, height / 2, 1.0]] * 17], dtype=dtype)
    return target


zoo = TorchvisionZoo()
