"""What is run: seven models of torchvision, the bare step, and a stack of any depth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from exporter.capture.arguments import tensors_in
from exporter.settings import Settings
from exporter.zoo.registry import build_model, load_zoo

if TYPE_CHECKING:
    from exporter.zoo.base import ZooModel

SEVEN = (
    "resnet50", "densenet201", "vit_b_16", "swin_v2_t", "mobilenet_v3_large", "efficientnet_b0",
    "convnext_tiny",
)  # fmt: skip
SETTINGS = Settings()  # batch 4, training, float32, target cuda
OPS_PER_LAYER = 16  # of ``Stack``, of forward and backward


def build(name: str) -> ZooModel:
    """Return a model of torchvision on the meta device, with its inputs."""
    return build_model(load_zoo("torchvision"), name, SETTINGS)


def bare_step(model: nn.Module, args: tuple[Any, ...]) -> None:
    """Run forward, and backward from ones for every differentiable output."""
    outputs = [t for t in tensors_in(model(*args)) if t.requires_grad]
    torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])


class Layer(nn.Module):
    """A residual layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.activation = nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x`` plus what the layer makes of it, of the same shape."""
        summed: torch.Tensor = x + self.activation(self.linear(x))
        return summed


class Stack(nn.Sequential):
    """As many residual layers as give about so many operators, on the meta device."""

    def __init__(self, ops: int, width: int = 64) -> None:
        with torch.device("meta"):
            super().__init__(*(Layer(width) for _ in range(max(1, ops // OPS_PER_LAYER))))
