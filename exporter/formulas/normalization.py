"""Norms: five per element of the input, forward and backward, with or without affine parameters.

The five are the published convention's estimate: subtract, scale, shift and the two statistics.
A root-mean-square norm has no mean to find and subtract and no shift: four.
"""

from __future__ import annotations

import torch

from exporter.formulas.operands import Args, Kwargs, Outputs, first_tensor
from exporter.formulas.registry import register

aten = torch.ops.aten


@register(
    aten.native_batch_norm, aten._native_batch_norm_legit, aten.cudnn_batch_norm,
    aten.miopen_batch_norm, aten._native_batch_norm_legit_no_training,
    aten._native_batch_norm_legit_functional, aten._batch_norm_with_update,
    aten._batch_norm_with_update_functional, aten._batch_norm_no_update,
    aten._batch_norm_impl_index, aten.quantized_batch_norm,
    aten.native_batch_norm_backward, aten.cudnn_batch_norm_backward,
    aten.miopen_batch_norm_backward, aten.batch_norm_backward,
    aten.native_layer_norm, aten.native_layer_norm_backward,
    aten.native_group_norm, aten.native_group_norm_backward,
    aten.batch_norm, aten.layer_norm, aten.group_norm, aten.instance_norm,
    counts="pointwise_flops",
)  # fmt: skip
def norm_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """5 x elements of the input (in backward: of the first operand, which is as large).

    Source: the published table's convention; fvcore uses the same estimate.
    """
    return 5 * first_tensor(args, kwargs).numel


@register(aten._batch_norm_impl_index_backward, counts="pointwise_flops")
def indexed_norm_backward_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """5 x elements of the input, the second operand."""
    return 5 * int(args[1].numel)


@register(aten._fused_rms_norm, aten.rms_norm, counts="pointwise_flops")
def rms_norm_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """4 x elements of the input: square, mean, scale, weight, as the unfused operators count."""
    return 4 * first_tensor(args, kwargs).numel


@register(aten._fused_rms_norm_backward, counts="pointwise_flops")
def rms_norm_backward_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """4 x elements of the input."""
    return 4 * first_tensor(args, kwargs).numel


@register(
    aten.batch_norm_stats,
    aten.batch_norm_update_stats,
    aten.batch_norm_backward_reduce,
    counts="pointwise_flops",
)
def statistics_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """2 x elements of the input: the statistics' part of a norm's five."""
    return 2 * first_tensor(args, kwargs).numel


@register(aten.batch_norm_elemt, aten.batch_norm_backward_elemt, counts="pointwise_flops")
def applied_statistics_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """3 x elements of the input: the part of a norm's five that applies the statistics."""
    return 3 * first_tensor(args, kwargs).numel


@register(
    aten.batch_norm_gather_stats,
    aten.batch_norm_gather_stats_with_counts,
    counts="pointwise_flops",
)
def gathered_stats_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the gathered means and of the gathered deviations."""
    return int(args[1].numel + args[2].numel)


@register(aten._weight_norm_interface, aten._weight_norm, counts="pointwise_flops")
def weight_norm_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """2 x elements of the direction: its norm, and the scaling."""
    return 2 * first_tensor(args, kwargs).numel


@register(
    aten._weight_norm_interface_backward,
    aten._weight_norm_differentiable_backward,
    counts="pointwise_flops",
)
def weight_norm_backward_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """4 x elements of the weight's gradient: its products with direction and norm, two sums."""
    return 4 * first_tensor(args, kwargs).numel


@register(aten.renorm, counts="pointwise_flops")
def renorm_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """2 x elements of the operand: its norms, and the scaling."""
    return 2 * first_tensor(args, kwargs).numel


@register(aten.embedding_renorm, counts="pointwise_flops")
def embedding_renorm_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """2 x indices x width: the norms of the rows looked up, and the scaling."""
    return 2 * int(args[1].numel * args[0].shape[-1])


@register(aten.linalg_vector_norm, aten.norm, aten.native_norm, aten.linalg__powsum,
          aten.norm_except_dim, aten.dist,
          aten.frobenius_norm, counts="pointwise_flops")  # fmt: skip
def vector_norm_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the operand, as in the other reductions."""
    return first_tensor(args, kwargs).numel
