"""Rules of reductions and of softmax. Sources: ``torch/_refs/__init__.py``, ``torch/_decomp``."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from exporter.formulas.spec import TensorSpec
from exporter.meta_rules.dtypes import FLOATS, KNOWN, computation_dtype
from exporter.meta_rules.layout import (
    Ints,
    Layout,
    contiguous,
    like,
    made_contiguous,
    mixed,
    reduced,
)
from exporter.meta_rules.pointwise import cast

if TYPE_CHECKING:
    from exporter.meta_rules.dtypes import Rule, Rules

aten = torch.ops.aten
_CACHE = 1 << 13


def wrapped(dims: Any, rank: int) -> Ints | None:
    """Dimensions from 0 on, all of them for None or an empty list; None if one is wrong."""
    if dims is None or (type(dims) is not int and not dims):
        return tuple(range(rank))
    if type(dims) is int:
        dims = (dims,)
    out = tuple(dim + rank if dim < 0 else dim for dim in dims)
    if len(set(out)) != len(out) or any(not 0 <= dim < rank for dim in out):
        return None
    return out


def _reduction(spec: TensorSpec, dims: Any, *, keepdim: bool) -> Layout | None:
    wrapped_dims = wrapped(dims, len(spec.shape))
    if wrapped_dims is None:
        return None
    shape, stride = reduced(spec.shape, wrapped_dims, keepdim=keepdim)
    return shape, like(shape, stride)


def _sum(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    spec, dims, keepdim = args[0], _at(args, 1), bool(_at(args, 2))
    dtype = kwargs.get("dtype")
    if spec.dtype not in KNOWN or kwargs.keys() - {"dtype"} or dtype not in {None} | KNOWN:
        return None
    if dtype is None:
        dtype = spec.dtype if spec.dtype in FLOATS else torch.int64
    out = _reduction(spec, dims, keepdim=keepdim)
    return None if out is None else (TensorSpec(*out, 0, dtype),)


def _at(args: tuple[Any, ...], index: int, default: Any = None) -> Any:
    return args[index] if len(args) > index else default


def _mean(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    spec, dims, keepdim = args[0], _at(args, 1), bool(_at(args, 2))
    if spec.dtype not in FLOATS or kwargs:
        return None
    out = _reduction(spec, dims, keepdim=keepdim)
    # The sum is divided, and a division arranges its result anew.
    return None if out is None else (TensorSpec(*mixed(out), 0, spec.dtype),)


def _var_mean(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    spec, dims, keepdim = args[0], _at(args, 1), kwargs.get("keepdim", False)
    if spec.dtype not in FLOATS or kwargs.keys() - {"correction", "keepdim"}:
        return None
    out = _reduction(spec, dims, keepdim=keepdim)
    if out is None:
        return None
    return TensorSpec(*out, 0, spec.dtype), TensorSpec(*mixed(out), 0, spec.dtype)


def _var(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    both = _var_mean(args, kwargs)
    return both and both[:1]


def _std(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    both = _var_mean(args, kwargs)
    return both and both[1:]


def _extreme(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    spec, dims, keepdim = args[0], _at(args, 1), bool(_at(args, 2))
    if spec.dtype not in KNOWN or kwargs or 0 in spec.shape:
        return None
    out = _reduction(spec, dims, keepdim=keepdim)
    return None if out is None else (TensorSpec(*out, 0, spec.dtype),)


def _indexed(*dtypes: torch.dtype | None) -> Rule:
    """Reductions whose kernels allocate row-major outputs; dtype None is that of the operand."""

    def rule(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
        spec, dims, keepdim = args[0], _at(args, 1), bool(_at(args, 2))
        if spec.dtype not in KNOWN or kwargs or 0 in spec.shape:
            return None
        rank = len(spec.shape)
        wrapped_dims = wrapped(dims, rank)
        if wrapped_dims is None:
            return None
        shape = reduced(spec.shape, wrapped_dims, keepdim=keepdim)[0]
        stride = contiguous(shape)
        return tuple(TensorSpec(shape, stride, 0, dtype or spec.dtype) for dtype in dtypes)

    return rule


def _norm(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    spec, order = args[0], _at(args, 1, 2)
    if spec.dtype not in FLOATS or kwargs or order != 2:
        return None
    dims = wrapped(_at(args, 2), len(spec.shape))
    # A norm of single elements is an absolute value, with other strides.
    if dims is None or 0 in spec.shape or all(spec.shape[dim] == 1 for dim in dims):
        return None
    out = reduced(spec.shape, dims, keepdim=bool(_at(args, 3)))
    return (TensorSpec(*mixed(out), 0, spec.dtype),)


def _softmax(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    spec, _, widen = args
    if kwargs or spec.dtype not in FLOATS or (widen and spec.dtype.itemsize != 2):
        return None
    dtype = torch.float32 if widen else spec.dtype
    return (TensorSpec(spec.shape, contiguous(spec.shape), 0, dtype),)


@lru_cache(_CACHE)
def _log_softmax_layout(x: Layout, dim: int) -> Ints:
    kept = reduced(x[0], (dim,), keepdim=True)
    shifted = mixed(x, kept)
    return mixed(shifted, mixed(kept))[1]


def _log_softmax(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    spec, dim, widen = args
    dims = wrapped(dim, len(spec.shape))
    if kwargs or spec.dtype not in FLOATS or (widen and spec.dtype is not torch.float16):
        return None
    if dims is None or 0 in spec.shape or not spec.shape:
        return None
    flat = spec.shape, made_contiguous(spec.shape, spec.stride)
    dtype = torch.float32 if widen else spec.dtype
    return (TensorSpec(spec.shape, _log_softmax_layout(flat, dims[0]), 0, dtype),)


@lru_cache(_CACHE)
def _softmax_backward_layout(g: Layout, y: Layout, dim: int, *, log: bool) -> Layout:
    kept = reduced(y[0], (dim,), keepdim=True)
    if log:
        return mixed(g, mixed(mixed(y), kept))
    product = mixed(g, y)
    out = mixed(product, mixed(y, kept))
    return out[0], made_contiguous(*out)


def _softmax_backward(*, log: bool) -> Rule:
    def rule(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
        g, y, dim, dtype = args
        dims = wrapped(dim, len(y.shape))
        if kwargs or g.dtype not in FLOATS or y.dtype is not g.dtype or g.shape != y.shape:
            return None
        if dims is None or 0 in y.shape or not y.shape:
            return None
        compute = computation_dtype(g.dtype)
        layout = _softmax_backward_layout(cast(g, compute), cast(y, compute), dims[0], log=log)
        return (TensorSpec(*layout, 0, dtype),)

    return rule


def _safe_softmax(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    if len(args) != 2 or kwargs:
        return None
    spec, dim = args
    dims = wrapped(dim, len(spec.shape))
    if spec.dtype not in FLOATS or dims is None or 0 in spec.shape or not spec.shape:
        return None
    rows = mixed(reduced(spec.shape, dims, keepdim=True))
    out = spec.shape, contiguous(spec.shape)
    return (TensorSpec(*mixed(mixed(rows), mixed(out), out), 0, spec.dtype),)


def _logical(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    """``any`` and ``all``."""
    spec, dims, keepdim = args[0], _at(args, 1), bool(_at(args, 2))
    if kwargs or spec.dtype not in KNOWN or spec.dtype is torch.uint8 or dims in ([], ()):
        return None
    out = _reduction(spec, dims, keepdim=keepdim)
    return None if out is None else (TensorSpec(*mixed(mixed(out)), 0, torch.bool),)


RULES: Rules = {
    aten.sum.dim_IntList: _sum,
    aten.sum.default: _sum,
    aten.mean.dim: _mean,
    aten.mean.default: _mean,
    aten.var_mean.correction: _var_mean,
    aten.var.correction: _var,
    aten.std.correction: _std,
    aten.amax.default: _extreme,
    aten.amin.default: _extreme,
    aten.argmax.default: _indexed(torch.int64),
    aten.argmin.default: _indexed(torch.int64),
    aten.max.dim: _indexed(None, torch.int64),
    aten.min.dim: _indexed(None, torch.int64),
    aten.any.default: _logical,
    aten.any.dim: _logical,
    aten.all.default: _logical,
    aten.all.dim: _logical,
    aten.linalg_vector_norm.default: _norm,
    aten._softmax.default: _softmax,
    aten._log_softmax.default: _log_softmax,
    aten._softmax_backward_data.default: _softmax_backward(log=False),
    aten._log_softmax_backward_data.default: _softmax_backward(log=True),
    aten._safe_softmax.default: _safe_softmax,
}
