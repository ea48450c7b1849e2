"""Memory layouts of results: those of real kernels, so that copies and views are the real ones."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
import torch
from case_models import profile_call
from torch import nn

from exporter import profile_model
from exporter.targets.rules import device_rules
from store.settings import RunSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.records import Profile

aten = torch.ops.aten


def image(kind: str, *shape: int) -> torch.Tensor:
    """Return an image of a layout: batch, channels, sizes."""
    if kind == "channels last":
        order = (0, *range(2, len(shape)), 1)
        back = (0, len(shape) - 1, *range(1, len(shape) - 1))
        return torch.randn([shape[i] for i in order]).permute(back)
    if kind == "sliced":
        return torch.randn(*shape[:-1], shape[-1] + 2)[..., : shape[-1]]
    return torch.randn(shape)


CONVOLUTIONS = {  # shape of the image, of the weight, stride, transposed, groups
    "plain": ((2, 6, 8, 8), (4, 6, 3, 3), 1, False, 1),
    "grouped": ((2, 6, 8, 8), (4, 3, 3, 3), 1, False, 2),
    "depthwise": ((2, 6, 8, 8), (6, 1, 3, 3), 1, False, 6),
    "pointwise": ((2, 6, 8, 8), (4, 6, 1, 1), 1, False, 1),
    "strided": ((2, 6, 8, 8), (4, 6, 2, 2), 2, False, 1),
    "one channel": ((2, 1, 8, 8), (4, 1, 3, 3), 1, False, 1),
    "one result": ((2, 6, 3, 3), (4, 6, 3, 3), 1, False, 1),
    "transposed": ((2, 6, 5, 5), (6, 4, 2, 2), 2, True, 1),
    "3d": ((2, 6, 4, 5, 5), (4, 6, 3, 3, 3), 1, False, 1),
    "1d": ((2, 6, 8), (4, 6, 3), 1, False, 1),
}


@pytest.mark.parametrize("target", ["cpu", "cuda", "meta"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution_passes_the_layout_on_as_real_kernels_do(name: str, target: str) -> None:
    """Strides of the result and of all gradients are those of a real CPU, whatever goes in."""
    shape, weight_shape, stride, transposed, groups = CONVOLUTIONS[name]
    rank = len(shape) - 2
    rest = ([stride] * rank, [0] * rank, [1] * rank, transposed, [0] * rank, groups)
    kinds = ("row-major", "channels last", "sliced")

    def run(x: torch.Tensor, w: torch.Tensor, g_kind: str, move: Callable[..., Any]) -> Any:
        y = aten.convolution(x, w, None, *rest)
        g = move(image(g_kind, *y.shape))
        grads = aten.convolution_backward(g, x, w, None, *rest, [True, True, False])
        return [(t.shape, t.stride()) for t in (y, *grads[:2])]

    def to_meta(t: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(t.shape, t.stride(), device="meta")

    # Weights of one dimension have no such format.
    for x_kind, w_kind, g_kind in product(kinds, kinds[: 1 if rank == 1 else 2], kinds):
        x, w = image(x_kind, *shape), image(w_kind, *weight_shape)
        real = run(x, w, g_kind, lambda t: t)
        with device_rules(RunSettings(target=target)):
            assert run(to_meta(x), to_meta(w), g_kind, to_meta) == real, (x_kind, w_kind, g_kind)


def _rows(profile: Profile) -> list[tuple[Any, ...]]:
    return [(t.op_id, t.shape, t.stride, t.dtype, t.storage_id) for t in profile.tensors]


ROW_MAJOR_ONLY = "of all kinds"
NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolutions and norms": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, groups=8), nn.SiLU(), nn.AvgPool2d(2),
            nn.Flatten(), nn.Linear(8, 4),
        ), (2, 3, 12, 12)),
    "down and up": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 2, 2), nn.ConvTranspose2d(4, 4, 2, 2), nn.Dropout2d(0.5),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 2),
        ), (2, 3, 8, 8)),
    # Kernels of these keep the layout on a CPU, not on a GPU, and are modelled as on a GPU.
    ROW_MAJOR_ONLY: (
        lambda: nn.Sequential(
            nn.ReflectionPad2d(1), nn.Conv2d(3, 4, 3), nn.ZeroPad2d(1), nn.GroupNorm(2, 4),
            nn.InstanceNorm2d(4, affine=True), nn.Softmax2d(), nn.PReLU(4),
            nn.Upsample(scale_factor=2), nn.PixelUnshuffle(2),
        ), (2, 3, 6, 6)),
}  # fmt: skip


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", NETS)
def test_nets_in_either_layout_run_on_meta_as_on_a_cpu(
    name: str, layout: torch.memory_format
) -> None:
    """Operators, strides and lives agree with a real run, for models in channels-last too."""
    if name == ROW_MAJOR_ONLY and layout is torch.channels_last:
        pytest.skip("padding, group norm and resampling are modelled row-major")
    build, shape = NETS[name]
    torch.manual_seed(0)
    model = build().to(memory_format=layout)
    x = torch.randn(shape).contiguous(memory_format=layout)
    meta, real = (
        profile_model(model, (x,), target="cpu", capture=capture) for capture in ("meta", "real")
    )
    assert meta.ops.column("operator") == real.ops.column("operator")
    assert _rows(meta) == _rows(real)
    lives = [
        [(s.size_bytes, s.birth_op_id, s.death_op_id) for s in profile.storages]
        for profile in (meta, real)
    ]
    assert lives[0] == lives[1]


def test_contiguous_copies_nothing_that_already_is() -> None:
    """Images that a convolution returns channels-last permute to row-major without a copy."""

    def forward(conv: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return conv(x).permute(0, 2, 3, 1).contiguous()

    x = torch.randn(2, 8, 8, 3).permute(0, 3, 1, 2)
    profile = profile_call(forward, x, members={"conv": nn.Conv2d(3, 4, 1)}, backward=False)
    assert "aten.clone.default" not in profile.ops.column("operator")
