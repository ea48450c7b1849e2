"""Convolutions of any rank: every position of the side that is walked meets every kernel tap.

Padding counts like data. Bias counts nothing, in backward either.
"""

from __future__ import annotations

from math import prod

import torch

from exporter.formulas.operands import (
    Args,
    Kwargs,
    Outputs,
    argument,
    dtype_factor,
    first_output,
    result,
)
from exporter.formulas.registry import register
from exporter.formulas.spec import TensorSpec

aten = torch.ops.aten


def convolution_macs(walked: TensorSpec, features: TensorSpec, weight: TensorSpec) -> int:
    """Return elements of the walked side x (channels of the other side / groups) x kernel taps.

    Args:
        walked: the output, or the input if transposed.
        features: the input, for its dtype.
        weight: (channels of the walked side, channels of the other side / groups, *kernel).
    """
    return walked.numel * prod(weight.shape[1:]) * dtype_factor(features, weight)


@register(aten.convolution, aten._convolution, aten.convolution_overrideable, counts="macs")
def forward_macs(args: Args, kwargs: Kwargs, outputs: Outputs) -> int:
    """Output elements (transposed: input elements) x input channels / groups x kernel taps."""
    features, weight = args[0], args[1]
    transposed = argument(args, kwargs, 6, "transposed")
    walked = features if transposed else result(outputs)
    return convolution_macs(walked, features, weight)


@register(
    aten.cudnn_convolution, aten.cudnn_convolution_relu, aten.cudnn_convolution_add_relu,
    aten.mkldnn_convolution, aten.miopen_convolution, aten.miopen_convolution_relu,
    aten.miopen_convolution_add_relu, aten.miopen_depthwise_convolution, aten._mps_convolution,
    aten._nnpack_spatial_convolution, aten._slow_conv2d_forward, aten.slow_conv3d_forward,
    aten.slow_conv3d, aten.thnn_conv2d, aten.slow_conv_dilated2d, aten.slow_conv_dilated3d,
    aten._conv_depthwise2d, aten.conv_depthwise3d, aten.conv1d, aten.conv2d, aten.conv3d,
    aten._convolution_mode,
    counts="macs",
)  # fmt: skip
def plain_macs(args: Args, _kwargs: Kwargs, outputs: Outputs) -> int:
    """Output elements x input channels / groups x kernel taps."""
    return convolution_macs(result(outputs), args[0], args[1])


@register(
    aten.cudnn_convolution_transpose, aten.miopen_convolution_transpose,
    aten._mps_convolution_transpose, aten.slow_conv_transpose2d, aten.slow_conv_transpose3d,
    aten.conv_transpose1d, aten.conv_transpose2d, aten.conv_transpose3d,
    counts="macs",
)  # fmt: skip
def transposed_macs(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Input elements x output channels / groups x kernel taps."""
    return convolution_macs(args[0], args[0], args[1])


@register(
    aten.cudnn_convolution_relu,
    aten.cudnn_convolution_add_relu,
    aten.miopen_convolution_relu,
    aten.miopen_convolution_add_relu,
    counts="pointwise_flops",
)
def fused_activation_flops(args: Args, kwargs: Kwargs, outputs: Outputs) -> int:
    """Output elements for the activation, and as many for the addition if there is one."""
    third = args[2] if len(args) > 2 else None
    # (self, weight, z, alpha, bias, ...) against (self, weight, bias, stride, ...)
    adds = isinstance(third, TensorSpec) and len(third.shape) > 1
    return first_output(args, kwargs, outputs).numel * (2 if adds else 1)


def _backward(
    grad_output: TensorSpec, features: TensorSpec, weight: TensorSpec, transposed: bool, mask: Args
) -> int:
    walked = features if transposed else grad_output
    return convolution_macs(walked, features, weight) * sum(map(bool, mask[:2]))


@register(aten.convolution_backward, counts="macs")
def backward_macs(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """As many as forward for the input gradient and as many for the weight's, if asked for.

    Each product of the forward pass takes part once in each of the two, groups or not.
    """
    transposed = argument(args, kwargs, 7, "transposed")
    return _backward(
        args[0], args[1], args[2], transposed, argument(args, kwargs, 10, "output_mask")
    )


@register(aten.convolution_backward_overrideable, counts="macs")
def overrideable_backward_macs(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """As many as forward for each of input and weight gradient that is asked for."""
    transposed = argument(args, kwargs, 6, "transposed")
    return _backward(
        args[0], args[1], args[2], transposed, argument(args, kwargs, 9, "output_mask")
    )


@register(
    aten._slow_conv2d_backward.output_mask,
    aten._slow_conv2d_backward.output_mask_out,
    counts="macs",
)
def slow_backward_macs(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """As many as forward for each of input and weight gradient that is asked for."""
    return _backward(args[0], args[1], args[2], False, argument(args, kwargs, 6, "output_mask"))


@register(aten._slow_conv2d_backward.grad_input, counts="macs")
def slow_backward_out_macs(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Twice as many as forward."""
    return _backward(args[0], args[1], args[2], False, (True, True))


@register(aten.mps_convolution_backward, counts="macs")
def mps_backward_macs(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """As many as forward for each of input and weight gradient that is asked for."""
    return _backward(args[1], args[0], args[2], False, args[-1])


@register(aten.mps_convolution_transpose_backward, counts="macs")
def mps_transposed_backward_macs(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """As many as forward for each of input and weight gradient that is asked for."""
    return _backward(args[1], args[0], args[2], True, args[-1])


@register(aten.conv_tbc, counts="macs")
def tbc_macs(args: Args, _kwargs: Kwargs, outputs: Outputs) -> int:
    """Output elements x kernel taps x input channels; the weight is (taps, in, out)."""
    return int(result(outputs).numel * prod(args[1].shape[:2]))


@register(aten.conv_tbc_backward, counts="macs")
def tbc_backward_macs(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Twice as many as forward."""
    return int(2 * int(args[0].numel) * prod(args[2].shape[:2]))
