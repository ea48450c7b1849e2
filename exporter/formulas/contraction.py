"""Matrix products and other contractions: one multiply-add per output element and summed index.

Bias, scaling factors and dequantisation are part of the contraction and count nothing.
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


def _product(left: TensorSpec, right: TensorSpec, output: TensorSpec) -> int:
    # two values of four bits share an element of this type
    packed = 2 if left.dtype == torch.float4_e2m1fn_x2 else 1
    return output.numel * left.shape[-1] * packed * dtype_factor(left, right)


@register(
    aten.mm, aten.bmm, aten.mv, aten.dot, aten.vdot, aten.matmul, aten.linear, aten.mkldnn_linear,
    aten._int_mm, aten._scaled_mm, aten._scaled_mm_v2, aten._weight_int8pack_mm,
    aten._weight_int4pack_mm, aten._weight_int4pack_mm_for_cpu,
    aten._weight_int4pack_mm_with_scales_and_zeros, aten._mixed_dtypes_linear,
    aten.fbgemm_linear_fp16_weight, aten.fbgemm_linear_fp16_weight_fp32_activation,
    aten.linalg_matmul, aten.inner,
    counts="macs",
)  # fmt: skip
def product_macs(args: Args, _kwargs: Kwargs, outputs: Outputs) -> int:
    """Output elements (after broadcasting) x contracted length, the left operand's last size."""
    return _product(args[0], args[1], result(outputs))


@register(
    aten.addmm, aten.baddbmm, aten.addmv, aten._addmm_activation,
    counts="macs",
)  # fmt: skip
def added_product_macs(args: Args, _kwargs: Kwargs, outputs: Outputs) -> int:
    """As the product of the second and third operand; adding the first one counts nothing."""
    return _product(args[1], args[2], result(outputs))


@register(aten._addmm_activation, counts="pointwise_flops")
def addmm_activation_flops(args: Args, kwargs: Kwargs, outputs: Outputs) -> int:
    """Output elements: the activation that the product is fused with."""
    return first_output(args, kwargs, outputs).numel


@register(aten.addbmm, counts="macs")
def addbmm_macs(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Batch x rows x contracted length x columns: the batch is summed over too."""
    left, right = args[1], args[2]
    return int(left.numel * int(right.shape[-1]) * dtype_factor(left, right))


@register(aten.addr, aten.ger, aten.outer, counts="macs")
def outer_macs(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the one vector x elements of the other."""
    left, right = args[-2:]
    return int(left.numel * right.numel) * dtype_factor(left, right)


@register(aten.mul, aten.multiply, counts="macs")
def outer_product_macs(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Rows x columns where a column (n, 1) meets a row (m) or (1, m), else 0.

    ``torch.outer`` runs so, and so does the gradient of the matrix in a product with a vector; a
    product of the same matrices with ``mm`` counts the same.
    """
    left, right = args[0], args[1]
    if not isinstance(left, TensorSpec) or not isinstance(right, TensorSpec):
        return 0
    is_column = len(left.shape) == 2 and left.shape[1] == 1 < left.shape[0]
    is_row = right.shape and right.shape[-1] == right.numel > 1 and len(right.shape) <= 2
    if not is_column or not is_row:
        return 0
    return int(left.numel * right.numel) * dtype_factor(left, right)


@register(aten._grouped_mm, aten._scaled_grouped_mm, aten._scaled_grouped_mm_v2, counts="macs")
def grouped_product_macs(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Rows x contracted length x columns, x groups where both operands are batched.

    The ragged dimension of the other cases is split among the groups, so it counts once.
    """
    left, right = args[0], args[1]
    groups = left.shape[0] if len(left.shape) == len(right.shape) == 3 else 1
    rows, inner = left.shape[-2:]
    packed = 2 if left.dtype == torch.float4_e2m1fn_x2 else 1
    return int(groups * rows * inner * packed * right.shape[-1])


@register(aten.linear_backward, aten.mkldnn_linear_backward, counts="macs")
def linear_backward_macs(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """Input elements x output features, for each of input and weight gradient that is asked for."""
    features_in, weight = args[0], args[2]
    mask = argument(args, kwargs, 3, "output_mask")
    return int(features_in.numel * int(weight.shape[0]) * sum(map(bool, mask[:2])))


@register(
    aten.mkldnn_linear_backward_input,
    aten.mkldnn_linear_backward_weights,
    counts="macs",
)
def mkldnn_linear_backward_macs(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the output gradient x input features."""
    first, grad_output_or_input, third = args[0], args[1], args[2]
    if isinstance(first, TensorSpec):  # weights: (grad_output, input, weight)
        return first.numel * int(grad_output_or_input.shape[-1])
    return int(grad_output_or_input.numel * third.shape[-1])  # input: (size, grad_output, weight)


@register(aten.matmul_backward, counts="macs")
def matmul_backward_macs(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the output gradient x contracted length, for each gradient asked for."""
    grad, left, right = args[:3]
    mask = argument(args, kwargs, 3, "mask")
    return int(grad.numel * int(left.shape[-1]) * sum(map(bool, mask)) * dtype_factor(left, right))


@register(aten._trilinear, counts="macs")
def trilinear_macs(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """Product of all index sizes: one per term of the sum, as in output elements x summed length.

    Operands are aligned by inserting a size-1 dimension at each of their ``expand`` positions.
    """
    operands = args[:3]
    sizes: dict[int, int] = {}
    for position, operand in enumerate(operands):
        expand = argument(args, kwargs, 3 + position, f"expand{position + 1}")
        rank = len(operand.shape) + len(expand)
        kept = [d for d in range(rank) if d not in expand]
        for dimension, size in zip(kept, operand.shape, strict=True):
            sizes[dimension] = max(sizes.get(dimension, 1), size) if size else 0
    return prod(sizes.values()) * dtype_factor(*operands[:2])


@register(aten.bilinear, counts="macs")
def bilinear_macs(args: Args, _kwargs: Kwargs, outputs: Outputs) -> int:
    """Output elements x both input lengths: one per term of the sum."""
    weight = args[2]
    return int(result(outputs).numel * prod(weight.shape[1:]))


@register(aten.einsum, counts="macs")
def einsum_macs(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Operands taken from left to right: product of the sizes of all indices met, per step.

    An index that no later operand nor the result needs is summed at its step.
    """
    equation, operands = args[0].replace(" ", ""), list(args[1])
    inputs, _, result = equation.partition("->")
    terms = inputs.split(",")
    if "." in equation or len(terms) != len(operands):
        raise ValueError(f"einsum equation {equation!r} has an ellipsis")
    if "->" not in equation:
        result = "".join(i for i in set(inputs) - {","} if inputs.count(i) == 1)
    size = {i: s for term, o in zip(terms, operands, strict=True) for i, s in zip(term, o.shape)}  # noqa: B905  # a wrong equation never ran
    total, live = 0, set(terms[0])
    for step, term in enumerate(terms[1:], start=1):
        met = live | set(term)
        total += prod(size[i] for i in met)
        live = met & (set(result) | set("".join(terms[step + 1 :])))
    return total * dtype_factor(*operands[:2])


@register(aten._cdist_forward, counts="macs")
def cdist_macs(args: Args, kwargs: Kwargs, outputs: Outputs) -> int:
    """Distances x (vector length + 2), if Euclidean by a matrix product, else 0.

    The product is of vectors lengthened by their squared norm and a one.
    """
    return result(outputs).numel * (args[0].shape[-1] + 2) if _by_product(args, kwargs) else 0


@register(aten._cdist_forward, counts="pointwise_flops")
def cdist_flops(args: Args, kwargs: Kwargs, outputs: Outputs) -> int:
    """Distances x vector length, or the roots alone if Euclidean by a matrix product."""
    distances = result(outputs).numel
    return distances if _by_product(args, kwargs) else distances * int(args[0].shape[-1])


def _by_product(args: Args, kwargs: Kwargs) -> bool:
    # the kernel's own choice: mode 1 asks for it, mode 0 or none takes it above 25 vectors
    mode = argument(args, kwargs, 3, "compute_mode") or 0
    many = args[0].shape[-2] > 25 or args[1].shape[-2] > 25
    return bool(args[2] == 2 and (mode == 1 or (mode == 0 and many)))


@register(aten._cdist_backward, counts="pointwise_flops")
def cdist_backward_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Distances x vector length."""
    return int(args[0].numel * args[1].shape[-1])


@register(aten._euclidean_dist, counts="macs")
def euclidean_macs(args: Args, _kwargs: Kwargs, outputs: Outputs) -> int:
    """Distances x (vector length + 2), as the product in cdist."""
    return result(outputs).numel * int(args[0].shape[-1] + 2)


@register(aten._pdist_forward, aten.pdist, counts="pointwise_flops")
def pdist_flops(args: Args, _kwargs: Kwargs, outputs: Outputs) -> int:
    """Distances x vector length."""
    return result(outputs).numel * int(args[0].shape[-1])


@register(aten._pdist_backward, counts="pointwise_flops")
def pdist_backward_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Distances x vector length."""
    return int(args[0].numel * args[1].shape[-1])
