"""Rules of dropout, losses, and the multi-tensor operators of optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from exporter.formulas.spec import TensorSpec
from exporter.meta_rules.dtypes import FLOATS, Kind, computation_dtype
from exporter.meta_rules.layout import (
    contiguous,
    in_format_of,
    mixed,
)
from exporter.meta_rules.pointwise import NUMBERS, cast, elementwise

if TYPE_CHECKING:
    from exporter.meta_rules.dtypes import Rule, Rules

aten = torch.ops.aten


def _dropout(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    x, p, train = args
    # Switched off it returns its operand; with p = 1 it makes zeros.
    if kwargs or not train or p in (0, 1) or x.dtype not in FLOATS:
        return None
    shape = x.shape
    mask = mixed(mixed((shape, x.stride)))
    out = mixed(mixed(mask, cast(x, computation_dtype(x.dtype))))
    return TensorSpec(*out, 0, x.dtype), TensorSpec(*mask, 0, torch.bool)


def _dropout_backward(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[TensorSpec, ...] | None:
    g, mask, _ = args
    shape = g.shape
    if kwargs or g.dtype not in FLOATS or mask.shape != shape or 0 in shape:
        return None
    return (TensorSpec(shape, in_format_of(shape, shape, g.stride), 0, g.dtype),)


def _nll(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    x, target, weight, reduction, _ = args
    if kwargs or len(x.shape) != 2 or x.dtype not in FLOATS or target.shape != x.shape[:1]:
        return None
    if weight is not None or 0 in x.shape or reduction == 0:
        return None
    scalar = TensorSpec((), (), 0, x.dtype)
    return scalar, scalar


def _nll_backward(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    g, x, target, weight, reduction, _, total = args
    if kwargs or len(x.shape) != 2 or x.dtype not in FLOATS or target.shape != x.shape[:1]:
        return None
    # Dimensions of size 1 may be ordered differently by the product with the gradient.
    if weight is not None or min(x.shape) < 2 or reduction == 0 or g.shape:
        return None
    if g.dtype is not x.dtype or total.dtype is not x.dtype:
        return None
    return (TensorSpec(x.shape, contiguous(x.shape), 0, x.dtype),)


def _mse(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    x, target = args[:2]
    reduction = args[2] if len(args) > 2 else 1
    if kwargs or x.dtype not in FLOATS or target.dtype is not x.dtype or x.shape != target.shape:
        return None
    if reduction:
        return (TensorSpec((), (), 0, x.dtype),)
    compute = computation_dtype(x.dtype)
    out = mixed(mixed(cast(x, compute), cast(target, compute)))
    return (TensorSpec(*out, 0, x.dtype),)


def _mse_backward(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    g, x, target, _ = args
    if kwargs or x.dtype not in FLOATS or target.dtype is not x.dtype or x.shape != target.shape:
        return None
    if g.dtype is not x.dtype or not x.shape or (g.shape and g.shape != x.shape):
        return None
    compute = computation_dtype(x.dtype)
    difference = mixed(mixed(cast(x, compute), cast(target, compute)))
    return (TensorSpec(*mixed(difference, cast(g, compute)), 0, x.dtype),)


def _foreach(kind: Kind) -> Rule:
    """One output per tensor of the first list, as the operator on single tensors gives it."""

    def rule(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
        if kwargs:
            return None
        lists = []
        for arg in args:
            if type(arg) in NUMBERS:
                lists.append([arg] * len(args[0]))
            elif type(arg) is list and len(arg) == len(args[0]):
                lists.append(arg)
            else:
                return None
        outs = []
        for operands in zip(*lists, strict=True):
            for operand in operands:
                if type(operand) is TensorSpec and operand.dtype is not operands[0].dtype:
                    return None
            out = elementwise(kind, *operands) if operands[0].dtype in FLOATS else None
            if out is None:
                return None
            outs.append(out)
        return tuple(outs)

    return rule


_FOREACH = {
    "add": ("Scalar", "List", "ScalarList"),
    "sub": ("Scalar", "List", "ScalarList"),
    "mul": ("Scalar", "List", "ScalarList"),
    "div": ("Scalar", "List", "ScalarList"),
    "sqrt": ("default",),
    "neg": ("default",),
    "abs": ("default",),
    "exp": ("default",),
    "reciprocal": ("default",),
    "sign": ("default",),
}

RULES: Rules = {
    aten.native_dropout.default: _dropout,
    aten.native_dropout_backward.default: _dropout_backward,
    aten.nll_loss_forward.default: _nll,
    aten.nll_loss_backward.default: _nll_backward,
    aten.mse_loss.default: _mse,
    aten.mse_loss_backward.default: _mse_backward,
    **{
        getattr(getattr(aten, f"_foreach_{name}"), overload): _foreach(Kind.DEFAULT)
        for name, overloads in _FOREACH.items()
        for overload in overloads
    },
}
