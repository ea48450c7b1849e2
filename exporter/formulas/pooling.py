"""Pooling: elements of the input forward, elements of the result backward."""

from __future__ import annotations

import torch

from exporter.formulas.operands import (
    Args,
    Kwargs,
    Outputs,
    first_operand_elements,
    output_elements,
)
from exporter.formulas.registry import register

aten = torch.ops.aten


@register(
    aten.avg_pool1d, aten.avg_pool2d, aten.avg_pool3d, aten.max_pool1d, aten.max_pool2d,
    aten.max_pool3d, aten.max_pool1d_with_indices, aten.max_pool2d_with_indices,
    aten.max_pool3d_with_indices, aten._adaptive_avg_pool2d, aten._adaptive_avg_pool3d,
    aten.adaptive_avg_pool1d, aten.adaptive_avg_pool2d, aten.adaptive_avg_pool3d,
    aten.adaptive_max_pool1d, aten.adaptive_max_pool2d, aten.adaptive_max_pool3d,
    aten.fractional_max_pool2d, aten.fractional_max_pool3d, aten.mkldnn_max_pool2d,
    aten.mkldnn_max_pool3d, aten.mkldnn_adaptive_avg_pool2d, aten.quantized_max_pool1d,
    aten.quantized_max_pool2d, aten.quantized_max_pool3d,
    counts="pointwise_flops",
)  # fmt: skip
def pooling_flops(args: Args, kwargs: Kwargs, outputs: Outputs) -> int:
    """Elements of the input. Source: the published table's convention."""
    return first_operand_elements(args, kwargs, outputs)


@register(
    aten.avg_pool2d_backward, aten.avg_pool3d_backward, aten.max_pool2d_backward,
    aten.max_pool2d_with_indices_backward, aten.max_pool3d_with_indices_backward,
    aten._adaptive_avg_pool2d_backward, aten._adaptive_avg_pool3d_backward,
    aten.adaptive_avg_pool3d_backward, aten.adaptive_max_pool2d_backward,
    aten.adaptive_max_pool3d_backward, aten.fractional_max_pool2d_backward,
    aten.fractional_max_pool3d_backward, aten.mkldnn_max_pool2d_backward,
    aten.mkldnn_max_pool3d_backward, aten.mkldnn_adaptive_avg_pool2d_backward,
    counts="pointwise_flops",
)  # fmt: skip
def pooling_backward_flops(args: Args, kwargs: Kwargs, outputs: Outputs) -> int:
    """Elements of the result. Source: the published table's convention."""
    return output_elements(args, kwargs, outputs)
