"""Rules of operators that work element by element, with broadcasting and type promotion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from exporter.formulas.spec import TensorSpec
from exporter.meta_rules.dtypes import FLOATS, INTS, KNOWN, Kind, promoted
from exporter.meta_rules.layout import (
    Layout,
    broadcast_shape,
    combine,
    expanded,
    like,
    made_contiguous,
    pointwise,
)

if TYPE_CHECKING:
    from exporter.meta_rules.dtypes import Rule, Rules

aten = torch.ops.aten
NUMBERS = (bool, int, float)


def cast(spec: TensorSpec, dtype: torch.dtype) -> Layout:
    """Layout of ``t.to(dtype)``, which is ``t`` itself when it has that dtype."""
    if spec.dtype is dtype:
        return spec.shape, spec.stride
    return spec.shape, like(spec.shape, spec.stride)


def elementwise(kind: Kind, *operands: Any, to_result: bool = False) -> TensorSpec | None:
    """Result of a primitive of tensors and numbers, cast to the dtype of computation first."""
    dtypes = promoted(kind, *operands)
    if dtypes is None:
        return None
    compute, result = dtypes
    if to_result:
        compute = result
    layout = combine(*(cast(spec, compute) for spec in operands if type(spec) is TensorSpec))
    return None if layout is None else TensorSpec(*layout, 0, result)


def _unary(kind: Kind, dtypes: frozenset[torch.dtype] = KNOWN) -> Rule:
    def rule(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
        if kwargs or len(args) != 1 or args[0].dtype not in dtypes:
            return None
        out = elementwise(kind, args[0])
        return None if out is None else (out,)

    return rule


def _binary(kind: Kind, dtypes: frozenset[torch.dtype] = KNOWN) -> Rule:
    def rule(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
        if kwargs or len(args) != 2:
            return None
        for operand in args:
            if type(operand) is TensorSpec and operand.dtype not in dtypes:
                return None
        out = elementwise(kind, *args)
        return None if out is None else (out,)

    return rule


def _sum(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    """``add.Tensor`` and ``sub.Tensor``; a factor alpha is a multiplication of its own."""
    alpha = kwargs.get("alpha", 1)
    a, b = args
    if alpha == 1 or type(b) is not TensorSpec:
        out = elementwise(Kind.DEFAULT, a, b)
        return None if out is None else (out,)
    dtypes = promoted(Kind.DEFAULT, a, b)
    if type(a) is not TensorSpec or dtypes is None or dtypes[1] not in FLOATS:
        return None
    left, right = cast(a, dtypes[0]), cast(b, dtypes[0])
    shape = broadcast_shape((left[0], right[0]))
    if shape is None or not left[0] or not right[0]:
        return None
    scaled = pointwise(shape, (expanded(shape, *right),))
    stride = pointwise(shape, (expanded(shape, *left), scaled))
    return (TensorSpec(shape, stride, 0, dtypes[1]),)


def _difference(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    if any(type(operand) is TensorSpec and operand.dtype is torch.bool for operand in args):
        return None
    return _sum(args, kwargs)


def _number_sum(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    """``add.Scalar`` and ``sub.Scalar``."""
    if kwargs or len(args) != 2:
        return None
    out = elementwise(Kind.DEFAULT, *args, to_result=True)
    return None if out is None else (out,)


def _reversed_difference(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[TensorSpec, ...] | None:
    if kwargs or len(args) != 2 or args[0].dtype not in FLOATS:
        return None
    return _difference((args[1], args[0]), {})


def _fused_multiply(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec] | None:
    """``addcmul`` and ``addcdiv``; their factor changes nothing outside."""
    if any(type(operand) is not TensorSpec or operand.dtype not in FLOATS for operand in args):
        return None
    if kwargs.keys() - {"value"}:
        return None
    out = elementwise(Kind.DEFAULT, *args, to_result=True)
    return None if out is None else (out,)


def _lerp(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec] | None:
    start, end, weight = args
    if kwargs or start.dtype is not end.dtype or start.dtype not in FLOATS:
        return None
    if type(weight) is TensorSpec:
        if weight.dtype is not start.dtype:
            return None
        out = elementwise(Kind.DEFAULT, start, end, weight, to_result=True)
    else:
        out = elementwise(Kind.DEFAULT, start, end, to_result=True)
    return None if out is None else (out,)


def _power(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    base, exponent = args
    if kwargs or type(exponent) not in NUMBERS or base.dtype not in FLOATS:
        return None
    if exponent == 1:
        return (TensorSpec(base.shape, like(base.shape, base.stride), 0, base.dtype),)
    out = elementwise(Kind.BOOL_TO_LONG, base)
    return None if out is None else (out,)


def _power_of_number(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[TensorSpec, ...] | None:
    base, exponent = args
    if kwargs or type(base) not in NUMBERS or base == 1 or exponent.dtype not in FLOATS:
        return None
    out = elementwise(Kind.BOOL_TO_LONG, exponent)
    return None if out is None else (out,)


def _where(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    condition, a, b = args
    dtypes = promoted(Kind.NO_OPMATH, a, b)
    if kwargs or condition.dtype is not torch.bool or dtypes is None:
        return None
    layout = combine(
        (condition.shape, condition.stride),
        *(cast(spec, dtypes[0]) for spec in (a, b) if type(spec) is TensorSpec),
    )
    return None if layout is None else (TensorSpec(*layout, 0, dtypes[1]),)


def _masked_fill(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    tensor, mask, value = args
    if kwargs or tensor.dtype not in KNOWN or mask.dtype is not torch.bool:
        return None
    if type(value) is TensorSpec and value.shape:
        return None
    shape = broadcast_shape((mask.shape, tensor.shape))
    if shape is None or not mask.shape or not tensor.shape:
        return None
    # The value is a 0-dimensional tensor on meta and takes part, expanded.
    operands = (expanded(shape, mask.shape, mask.stride), (0,) * len(shape))
    stride = pointwise(shape, (*operands, expanded(shape, tensor.shape, tensor.stride)))
    return (TensorSpec(shape, made_contiguous(shape, stride), 0, tensor.dtype),)


def _sigmoid(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    dtypes = promoted(Kind.INT_TO_FLOAT, args[0])
    if kwargs or dtypes is None:
        return None
    shape = args[0].shape
    return (TensorSpec(shape, pointwise(shape, (args[0].stride,)), 0, dtypes[1]),)


_UNARY = {
    Kind.DEFAULT: ("neg", "abs", "sign"),
    Kind.INT_TO_FLOAT: (
        "acos", "asin", "atan", "cos", "cosh", "erf", "erfc", "exp", "exp2", "expm1", "lgamma",
        "log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sin", "sinh", "sqrt", "tan",
        "tanh",
    ),
}  # fmt: skip
_FLOAT_UNARY = ("ceil", "floor", "frac", "trunc", "round")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor")
_EXTREMES = ("maximum", "minimum", "fmax", "fmin")

RULES: Rules = {
    aten.add.Tensor: _sum,
    aten.sub.Tensor: _difference,
    aten.add.Scalar: _number_sum,
    aten.sub.Scalar: _number_sum,
    aten.rsub.Scalar: _reversed_difference,
    aten.mul.Tensor: _binary(Kind.DEFAULT),
    aten.mul.Scalar: _binary(Kind.DEFAULT),
    aten.div.Tensor: _binary(Kind.INT_TO_FLOAT),
    aten.div.Scalar: _binary(Kind.INT_TO_FLOAT),
    aten.pow.Tensor_Scalar: _power,
    aten.pow.Scalar: _power_of_number,
    aten.pow.Tensor_Tensor: _binary(Kind.BOOL_TO_LONG, FLOATS),
    aten.atan2.default: _binary(Kind.INT_TO_FLOAT, FLOATS),
    aten.where.self: _where,
    aten.masked_fill.Scalar: _masked_fill,
    aten.masked_fill.Tensor: _masked_fill,
    aten.addcmul.default: _fused_multiply,
    aten.addcdiv.default: _fused_multiply,
    aten.lerp.Scalar: _lerp,
    aten.lerp.Tensor: _lerp,
    aten.sigmoid.default: _sigmoid,
    aten.silu.default: _unary(Kind.DEFAULT, FLOATS),
    aten.bitwise_not.default: _unary(Kind.DEFAULT, INTS | {torch.bool}),
    aten.logical_not.default: _unary(Kind.ALWAYS_BOOL, frozenset((torch.bool,))),
    aten.logical_and.default: _binary(Kind.ALWAYS_BOOL, frozenset((torch.bool,))),
    aten.logical_or.default: _binary(Kind.ALWAYS_BOOL, frozenset((torch.bool,))),
    aten.isnan.default: _unary(Kind.ALWAYS_BOOL, FLOATS),
    **{
        getattr(aten, name).default: _unary(kind)
        for kind, names in _UNARY.items()
        for name in names
    },
    **{getattr(aten, name).default: _unary(Kind.DEFAULT, FLOATS) for name in _FLOAT_UNARY},
    **{
        getattr(getattr(aten, name), form): _binary(Kind.ALWAYS_BOOL)
        for name in _COMPARISONS
        for form in ("Tensor", "Scalar")
    },
    **{getattr(aten, name).Tensor: _binary(Kind.DEFAULT, INTS | {torch.bool}) for name in _BITWISE},
    **{getattr(aten, name).default: _binary(Kind.DEFAULT) for name in _EXTREMES},
    **{
        getattr(getattr(aten, name), form): _binary(Kind.DEFAULT, FLOATS)
        for name in ("remainder", "fmod")
        for form in ("Tensor", "Scalar")
    },
}
