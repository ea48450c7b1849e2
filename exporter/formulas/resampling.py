"""Resampling: one per neighbour that an output element weighs, which is fvcore's convention.

Backward weighs the same neighbours of each element of the output's gradient.
Nearest-neighbour resampling only moves; its backward adds.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

import torch

from exporter.formulas.operands import (
    Args,
    Formula,
    Kwargs,
    Outputs,
    argument,
    first_output,
    first_tensor,
)
from exporter.formulas.registry import register

if TYPE_CHECKING:
    from collections.abc import Callable

    from exporter.formulas.spec import TensorSpec

aten = torch.ops.aten


def _larger(args: Args, kwargs: Kwargs, outputs: Outputs, backward: bool) -> TensorSpec:
    return first_tensor(args, kwargs) if backward else first_output(args, kwargs, outputs)


@register(
    aten.upsample_nearest1d_backward, aten.upsample_nearest2d_backward,
    aten.upsample_nearest3d_backward, aten._upsample_nearest_exact1d_backward,
    aten._upsample_nearest_exact2d_backward, aten._upsample_nearest_exact3d_backward,
    counts="pointwise_flops",
)  # fmt: skip
def nearest_backward_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the output's gradient: each is added to its neighbour."""
    return first_tensor(args, kwargs).numel


def _weighing(taps: int, backward: bool) -> Formula:
    def formula(args: Args, kwargs: Kwargs, outputs: Outputs) -> int:
        return taps * _larger(args, kwargs, outputs, backward).numel

    of = "the output's gradient" if backward else "the output"
    formula.__doc__ = f"{taps} neighbours x elements of {of}."
    return formula


for _taps, _forward, _backward in (
    (2, aten.upsample_linear1d, aten.upsample_linear1d_backward),
    (4, aten.upsample_bilinear2d, aten.upsample_bilinear2d_backward),
    (8, aten.upsample_trilinear3d, aten.upsample_trilinear3d_backward),
    (16, aten.upsample_bicubic2d, aten.upsample_bicubic2d_backward),
):
    register(_forward, counts="pointwise_flops")(_weighing(_taps, backward=False))
    register(_backward, counts="pointwise_flops")(_weighing(_taps, backward=True))


def _antialias_taps(size_in: int, size_out: int, support: int) -> int:
    # the filter widens with the step between output elements
    return ceil(2 * support * max(Fraction(size_in, max(size_out, 1)), Fraction(1)))


def _antialiased(support: int, backward: bool) -> Callable[[Args, Kwargs, Outputs], int]:
    def formula(args: Args, kwargs: Kwargs, outputs: Outputs) -> int:
        first, last = first_tensor(args, kwargs), first_output(args, kwargs, outputs)
        small, large = (last, first) if backward else (first, last)
        (h_in, w_in), (h_out, w_out) = small.shape[-2:], large.shape[-2:]
        planes = large.numel // max(h_out * w_out, 1)
        rows = h_in * w_out * _antialias_taps(w_in, w_out, support)
        columns = h_out * w_out * _antialias_taps(h_in, h_out, support)
        return planes * (rows + columns)

    formula.__doc__ = (
        f"Rows, then columns: elements after each step x {2 * support} neighbours, "
        "more where the image shrinks."
    )
    return formula


for _support, _forward, _backward in (
    (1, aten._upsample_bilinear2d_aa, aten._upsample_bilinear2d_aa_backward),
    (2, aten._upsample_bicubic2d_aa, aten._upsample_bicubic2d_aa_backward),
    (3, aten._upsample_lanczos2d_aa, aten._upsample_lanczos2d_aa_backward),
):
    register(_forward, counts="pointwise_flops")(_antialiased(_support, backward=False))
    register(_backward, counts="pointwise_flops")(_antialiased(_support, backward=True))


def _grid_taps(rank: int, mode: int) -> int:
    # modes: 0 linear, 1 nearest, 2 cubic
    return int((2, 1, 4)[mode] ** rank)


@register(
    aten.grid_sampler_2d, aten.grid_sampler_3d, aten._grid_sampler_2d_cpu_fallback,
    aten.grid_sampler, counts="pointwise_flops",
)  # fmt: skip
def grid_sampler_flops(args: Args, kwargs: Kwargs, outputs: Outputs) -> int:
    """Output elements x neighbours: 2 (linear), 1 (nearest) or 4 (cubic) per dimension."""
    rank = len(args[0].shape) - 2
    mode = argument(args, kwargs, 2, "interpolation_mode", 0)
    return first_output(args, kwargs, outputs).numel * _grid_taps(rank, mode)


@register(
    aten.grid_sampler_2d_backward, aten.grid_sampler_3d_backward,
    aten._grid_sampler_2d_cpu_fallback_backward, counts="pointwise_flops",
)  # fmt: skip
def grid_sampler_backward_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the output's gradient x neighbours, for the input and again for the grid.

    The grid's gradient is always computed; the input's if asked for.
    """
    rank = len(args[1].shape) - 2
    mode = argument(args, kwargs, 3, "interpolation_mode", 0)
    mask = argument(args, kwargs, 6, "output_mask", (True, True))
    return int(args[0].numel * _grid_taps(rank, mode) * (1 + bool(mask[0])))


@register(aten.cudnn_grid_sampler, counts="pointwise_flops")
def cudnn_grid_sampler_flops(args: Args, kwargs: Kwargs, outputs: Outputs) -> int:
    """Output elements x 4 neighbours."""
    return first_output(args, kwargs, outputs).numel * 4


@register(aten.cudnn_grid_sampler_backward, counts="pointwise_flops")
def cudnn_grid_sampler_backward_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the output's gradient x 4 neighbours, for the input and again for the grid."""
    return int(args[2].numel) * 4 * 2


@register(aten.affine_grid_generator, aten.cudnn_affine_grid_generator, counts="macs")
def affine_grid_macs(args: Args, kwargs: Kwargs, outputs: Outputs) -> int:
    """Grid elements x length of a homogeneous coordinate (3 in the plane, 4 in space)."""
    return first_output(args, kwargs, outputs).numel * int(args[0].shape[-1])


@register(
    aten.affine_grid_generator_backward, aten.cudnn_affine_grid_generator_backward, counts="macs"
)
def affine_grid_backward_macs(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the grid's gradient x length of a homogeneous coordinate."""
    return int(args[0].numel) * int(args[0].shape[-1] + 1)
