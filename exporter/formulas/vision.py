"""Operators of torchvision. Those whose work depends on values count what is certain or dense."""

from __future__ import annotations

from math import prod

import torch
import torchvision.ops  # type: ignore[import-untyped]  # noqa: F401  # defines the operators

from exporter.formulas.operands import (
    Args,
    Kwargs,
    Outputs,
    argument,
    first_tensor,
    output_elements,
    result,
)
from exporter.formulas.registry import register

vision = torch.ops.torchvision

_TAPS = 4  # neighbours that a bilinear sample weighs


def _samples(ratio: int) -> int:
    # below 1, the number follows the size of each region, a value: at least one
    return max(int(ratio), 1) ** 2


@register(vision.roi_align, vision.ps_roi_align, counts="pointwise_flops")
def roi_align_flops(args: Args, kwargs: Kwargs, outputs: Outputs) -> int:
    """Output elements x samples (ratio^2, 1 if adaptive) x 4 neighbours."""
    ratio = argument(args, kwargs, 5, "sampling_ratio")
    return output_elements(args, kwargs, outputs) * _samples(ratio) * _TAPS


@register(vision._roi_align_backward, counts="pointwise_flops")
def roi_align_backward_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the output's gradient x samples x 4 neighbours."""
    ratio = argument(args, kwargs, 9, "sampling_ratio")
    return first_tensor(args, kwargs).numel * _samples(ratio) * _TAPS


@register(vision._ps_roi_align_backward, counts="pointwise_flops")
def ps_roi_align_backward_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the output's gradient x samples x 4 neighbours."""
    ratio = argument(args, kwargs, 6, "sampling_ratio")
    return first_tensor(args, kwargs).numel * _samples(ratio) * _TAPS


@register(vision.roi_pool, vision.ps_roi_pool, counts="pointwise_flops")
def roi_pool_flops(args: Args, kwargs: Kwargs, outputs: Outputs) -> int:
    """Output elements; the sizes of the regions are values."""
    return output_elements(args, kwargs, outputs)


@register(vision._roi_pool_backward, vision._ps_roi_pool_backward, counts="pointwise_flops")
def roi_pool_backward_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the output's gradient: each is added where it came from."""
    return first_tensor(args, kwargs).numel


@register(vision.nms, counts="pointwise_flops")
def nms_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """12 per pair of boxes and 3 per box, as if none were dropped early.

    Pair: 4 corners of the overlap, 2 sides, 2 clamps, area, sum and difference for the union,
    quotient. Box: 2 sides and the area.
    """
    boxes = int(args[0].shape[0])
    return boxes * (boxes - 1) // 2 * 12 + 3 * boxes


@register(vision.deform_conv2d, counts="macs")
def deform_conv_macs(args: Args, _kwargs: Kwargs, outputs: Outputs) -> int:
    """Output elements x input channels / groups x kernel taps, as in a plain convolution."""
    return int(result(outputs).numel * prod(args[1].shape[1:]))


def _sampled(args: Args, shift: int, output_numel: int) -> int:
    """Elements of the sampled columns: batch x input channels x kernel taps x positions."""
    features, weight = args[shift], args[shift + 1]
    positions = output_numel // int(weight.shape[0])  # batch x positions
    return int(positions * features.shape[1] * prod(weight.shape[2:]))


@register(vision.deform_conv2d, counts="pointwise_flops")
def deform_conv_flops(args: Args, _kwargs: Kwargs, outputs: Outputs) -> int:
    """Sampled elements x 4 neighbours, and again once if a mask weighs them."""
    return _sampled(args, 0, result(outputs).numel) * (_TAPS + bool(args[-1]))


@register(vision._deform_conv2d_backward, counts="macs")
def deform_conv_backward_macs(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Twice as many as forward: for the sampled columns and for the weight."""
    return int(2 * int(args[0].numel) * prod(args[2].shape[1:]))


@register(vision._deform_conv2d_backward, counts="pointwise_flops")
def deform_conv_backward_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Sampled elements x (4 neighbours for the input, 4 for each of two offsets, 1 for a mask)."""
    return _sampled(args, 1, int(args[0].numel)) * (3 * _TAPS + bool(args[-1]))
