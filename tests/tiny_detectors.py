"""Detectors small enough to run for real, whose sizes depend on values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torchvision.models.detection import (  # type: ignore[import-untyped]
    FasterRCNN,
    RetinaNet,
)
from torchvision.models.detection.anchor_utils import (  # type: ignore[import-untyped]
    AnchorGenerator,
)

from exporter.capture.values.initial_values import RememberMoments
from exporter.profiling import profile_built
from exporter.settings import Settings
from exporter.zoo.base import Built
from exporter.zoo.building import build_on_meta
from exporter.zoo.registry import stamped

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.records import Profile

SIDE = 64


class Backbone(nn.Sequential):
    """Two strided convolutions: one map of an eighth of the side."""

    out_channels = 8

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, 4, 1)
        )


def _anchors() -> AnchorGenerator:
    return AnchorGenerator(sizes=((16, 32),), aspect_ratios=((1.0,),))


def tiny_retinanet() -> nn.Module:
    """Return a one-stage detector for images of 64 by 64."""
    model: nn.Module = RetinaNet(Backbone(), 3, SIDE, SIDE, anchor_generator=_anchors())
    return model


def tiny_faster_rcnn() -> nn.Module:
    """Return a two-stage detector for images of 64 by 64."""
    model: nn.Module = FasterRCNN(Backbone(), 3, SIDE, SIDE, rpn_anchor_generator=_anchors())
    return model


def detector_inputs(*, device: str, train: bool) -> tuple[Any, ...]:
    """Return two images, and in training a box in each."""
    images = [torch.rand(3, SIDE, SIDE, device=device) for _ in range(2)]
    box = [SIDE / 4, SIDE / 4, SIDE * 3 / 4, SIDE * 3 / 4]
    targets = [
        {"boxes": torch.tensor([box]), "labels": torch.ones(1, dtype=torch.int64)} for _ in images
    ]
    return (images, targets) if train else (images,)


def drawn_profile(factory: Callable[[], nn.Module], *, train: bool, target: str = "cpu") -> Profile:
    """Return the profile of a detector whose values are drawn."""
    with RememberMoments():
        model = build_on_meta(factory)
    inputs = detector_inputs(device="meta", train=train)
    built = Built(model.train(train), inputs, draws_values=True)
    mode = "train" if train else "eval"
    settings = Settings(mode=mode, backward=train, target=target)
    return profile_built(stamped(built, "tests", factory.__name__, "", settings), settings)
