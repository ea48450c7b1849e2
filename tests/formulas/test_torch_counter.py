"""Multiply-adds against torch's own counter, on every model of torchvision's zoo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from zoo_profiles import MODELS, ZOO, profile_of

from exporter.capture.arguments import tensors_in
from exporter.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

SETTINGS = Settings(batch_size=2, target="meta")  # one image per batch has no batch statistics


def surplus_of_grouped_backward(seen: list[int]) -> Callable[..., None]:
    """Return a hook that notes by how much torch's counter is wrong in a convolution's backward.

    It takes the gradient of the weight for that of a convolution without groups, groups times too
    dear: 2 FLOPs for each output element, each of the weight's elements that it meets, and each
    group too many.
    """

    def hook(module: Any, _args: Any, output: torch.Tensor) -> None:
        if module.groups > 1:
            per_output = module.weight.numel() // module.out_channels
            seen.append(2 * (module.groups - 1) * output.numel() * per_output)

    return hook


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_multiply_adds_equal_torchs_counter(name: str) -> None:
    """2 * macs is torch's count forward, and backward but for what it counts twice in groups."""
    built = ZOO.build(name, SETTINGS)
    surplus: list[int] = []
    for module in built.model.modules():
        if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            module.register_forward_hook(surplus_of_grouped_backward(surplus))
    with FlopCounterMode(display=False) as forward:
        result = built.model(*built.args, **built.kwargs)
    outputs = [t for t in tensors_in(result) if t.requires_grad]
    with FlopCounterMode(display=False) as backward:
        torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])
    totals = profile_of(name, SETTINGS).totals
    assert 2 * totals.fwd_macs == forward.get_total_flops()
    assert 2 * totals.bwd_macs == backward.get_total_flops() - sum(surplus)
    assert totals.unknown_op_count == 0


def test_surplus_of_grouped_backward_is_what_counting_says() -> None:
    """Depthwise 8 channels: torch says 23,328 where 5,184 products are made (F01)."""
    seen: list[int] = []
    layer = nn.Conv2d(8, 8, 3, groups=8, bias=False, device="meta")
    layer.register_forward_hook(surplus_of_grouped_backward(seen))
    x = torch.ones(2, 8, 5, 5, device="meta", requires_grad=True)
    y = layer(x)
    with FlopCounterMode(display=False) as backward:
        y.backward(torch.ones_like(y))
    assert backward.get_total_flops() == 23328
    assert backward.get_total_flops() - sum(seen) == 5184
