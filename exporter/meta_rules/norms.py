"""Rules of normalisation layers and softmax.

Their meta kernels are decompositions of up to thirty operators; what is left of them here is how
each step arranges its result in memory. Sources: ``torch/_decomp/decompositions.py`` and
``torch/_refs/__init__.py``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from exporter.formulas.spec import TensorSpec
from exporter.meta_rules.dtypes import FLOATS, computation_dtype
from exporter.meta_rules.layout import (
    Ints,
    Layout,
    contiguous,
    is_simple,
    made_contiguous,
    mixed,
    reduced,
)
from exporter.meta_rules.pointwise import cast

if TYPE_CHECKING:
    from exporter.meta_rules.dtypes import Rules

aten = torch.ops.aten
_CACHE = 1 << 13


def _vectors_fit(size: int, compute: torch.dtype, spec: TensorSpec, *vectors: Any) -> bool:
    """Whether per-channel vectors are dense, of that size, and of a dtype that is only widened."""
    for vector in vectors:
        if vector is not None and (
            vector.shape != (size,)
            or vector.stride != (1,)
            or (vector.dtype is not spec.dtype and vector.dtype is not compute)
        ):
            return False
    return True


@lru_cache(_CACHE)
def _batch_norm_layout(x: Layout, affine: int, *, training: bool) -> tuple[Ints, int, int]:
    """Strides of the output and of the two saved vectors; x is already widened."""
    if is_simple(x):
        return x[1], 1, 1
    shape = x[0]
    trailing = (shape[1], *(1,) * (len(shape) - 2))
    vector: Layout = trailing, (1,) * len(trailing)
    mean_step = rstd_step = 1
    if training:
        dims = (0, *range(2, len(shape)))
        kept = reduced(shape, dims, keepdim=True)
        mean = mixed(kept)
        rstd = mixed(mixed(kept))
        mean_step, rstd_step = mean[1][1], rstd[1][1]
        out = mixed(mixed(x, mean), rstd)
    else:
        out = mixed(mixed(x, vector), vector)
    for _ in range(affine):
        out = mixed(out, vector)
    return out[1], mean_step, rstd_step


def _native_batch_norm(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[TensorSpec, ...] | None:
    # In evaluation the kernel on meta is not always torch's: devices save nothing there.
    return _batch_norm(args, kwargs) if args[5] else None


def _batch_norm(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    x, weight, bias, running_mean, running_var, training = args[:6]
    shape = x.shape
    if kwargs or x.dtype not in FLOATS or len(shape) < 2 or 0 in shape:
        return None
    compute, channels = computation_dtype(x.dtype), shape[1]
    if not _vectors_fit(channels, compute, x, weight, bias, running_mean, running_var):
        return None
    # One value per channel has no unbiased variance; without statistics there is no evaluation.
    if training and running_var is not None and x.numel == channels:
        return None
    if not training and (running_mean is None or running_var is None):
        return None
    affine = (weight is not None) + (bias is not None)
    stride, mean, rstd = _batch_norm_layout(cast(x, compute), affine, training=bool(training))
    return (
        TensorSpec(shape, stride, 0, x.dtype),
        TensorSpec((channels,), (mean,), 0, compute),
        TensorSpec((channels,), (rstd,), 0, compute),
    )


def _cudnn_batch_norm(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[TensorSpec, ...] | None:
    native = _batch_norm(args, kwargs)
    if native is None:
        return None
    reserve = TensorSpec((0,), (1,), 0, torch.uint8)
    if args[5]:
        return (*native, reserve)
    unused = TensorSpec((0,), (1,), 0, args[1].dtype)
    return native[0], unused, unused, reserve


@lru_cache(_CACHE)
def _batch_norm_backward_layout(g: Layout, x: Layout, *, affine: bool, training: bool) -> Ints:
    if is_simple(g):
        return g[1]
    shape = x[0]
    spread = (1, shape[1], *(1,) * (len(shape) - 2))
    vector: Layout = spread, contiguous(spread)
    scale = vector if affine else mixed(vector)
    if not training:
        return mixed(g, scale)[1]
    projection = mixed(mixed(x, vector), vector)
    return mixed(mixed(mixed(g, projection), vector), scale)[1]


def _batch_norm_backward(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[TensorSpec | None, ...] | None:
    g, x, weight, running_mean, running_var, save_mean, save_rstd, training, _, mask = args
    shape = x.shape
    if kwargs or x.dtype not in FLOATS or g.shape != shape or g.dtype is not x.dtype:
        return None
    if len(shape) < 2 or 0 in shape:
        return None
    statistics = (save_mean, save_rstd) if training else (running_mean, running_var)
    compute = computation_dtype(x.dtype)
    if None in statistics or not _vectors_fit(shape[1], compute, x, weight, *statistics):
        return None
    stride = _batch_norm_backward_layout(
        cast(g, compute), cast(x, compute), affine=weight is not None, training=bool(training)
    )
    vector = TensorSpec((shape[1],), (1,), 0, x.dtype if weight is None else weight.dtype)
    return (
        TensorSpec(shape, stride, 0, x.dtype),
        vector if mask[1] else None,
        vector if mask[2] else None,
    )


def _cudnn_batch_norm_backward(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[TensorSpec | None, ...] | None:
    x, g, *rest, epsilon, _ = args
    return _batch_norm_backward((g, x, *rest, True, epsilon, (True, True, True)), kwargs)


@lru_cache(_CACHE)
def _layer_norm_layout(x: Layout, axis: int, affine: int) -> tuple[Ints, Layout, Ints]:
    """Strides of the output, layout of the mean, strides of 1/std."""
    shape = x[0]
    kept = reduced(shape, tuple(range(axis, len(shape))), keepdim=True)
    mean, rstd = mixed(kept), mixed(mixed(kept))
    if is_simple(x):
        return x[1], mean, rstd[1]
    out = mixed(mixed(x, mean), rstd)
    inner = shape[axis:]
    for _ in range(affine):
        out = mixed(out, (inner, contiguous(inner)))
    return out[1], mean, rstd[1]


def _layer_norm(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    x, normalized, weight, bias, _ = args
    shape, inner = x.shape, tuple(normalized)
    axis = len(shape) - len(inner)
    if kwargs or x.dtype not in FLOATS or 0 in shape or not inner or shape[axis:] != inner:
        return None
    compute, row_major = computation_dtype(x.dtype), contiguous(inner)
    for vector in (weight, bias):
        if vector is not None and (
            vector.shape != inner or vector.stride != row_major or vector.dtype is not x.dtype
        ):
            return None
    affine = (weight is not None) + (bias is not None)
    # Widening keeps the strides of what contiguous() returned.
    flat = shape, made_contiguous(shape, x.stride)
    stride, mean, rstd = _layer_norm_layout(flat, axis, affine)
    return (
        TensorSpec(shape, stride, 0, x.dtype),
        TensorSpec(*mean, 0, compute),
        TensorSpec(mean[0], rstd, 0, compute),
    )


def _layer_norm_backward(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[TensorSpec | None, ...] | None:
    g, x, normalized, mean, rstd, weight, bias, mask = args
    shape, dtype = x.shape, x.dtype
    axis = len(shape) - len(normalized)
    if kwargs or dtype not in FLOATS or 0 in shape or g.shape != shape or g.dtype is not dtype:
        return None
    compute, inner = computation_dtype(dtype), shape[axis:]
    outer = shape[:axis] + (1,) * len(inner)
    for saved in (mean, rstd):
        if saved.shape != outer or saved.dtype is not compute:
            return None
    for vector in (weight, bias):
        if vector is not None and (vector.shape != inner or vector.dtype is not dtype):
            return None
    # Devices return row-major gradients whatever the strides of the operands; so does the kernel
    # that ``exporter.targets`` puts in the place of torch's on meta, which keeps those of ``g``.
    flat = contiguous(inner)
    return (
        TensorSpec(shape, contiguous(shape), 0, dtype) if mask[0] else None,
        TensorSpec(inner, flat, 0, dtype) if mask[1] and weight is not None else None,
        TensorSpec(inner, flat, 0, dtype) if mask[2] and bias is not None else None,
    )


@lru_cache(_CACHE)
def _group_norm_layout(shape: Ints, groups: Ints, affine: int) -> tuple[Ints, Ints, Ints] | None:
    """Strides of output, mean and 1/std of a row-major input; None if it cannot be viewed."""
    kept = reduced(groups, (2, 3), keepdim=True)
    mean, rstd = mixed(kept), mixed(mixed(kept))
    out = mixed(mixed((groups, contiguous(groups)), mean), rstd)
    if out[1] != contiguous(groups):
        return None
    out = shape, contiguous(shape)
    spread = (1, shape[1], *(1,) * (len(shape) - 2))
    for _ in range(affine):
        out = mixed(out, (spread, contiguous(spread)))
    return out[1], mean[1][:2], rstd[1][:2]


def _group_norm(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    x, weight, bias, batch, channels, inner, group, _ = args
    shape, dtype = x.shape, x.dtype
    if kwargs or dtype not in FLOATS or 0 in shape or shape[:2] != (batch, channels):
        return None
    if channels % group or made_contiguous(shape, x.stride) != contiguous(shape):
        return None
    if not _vectors_fit(channels, dtype, x, weight, bias):
        return None
    affine = (weight is not None) + (bias is not None)
    found = _group_norm_layout(shape, (batch, group, channels // group, inner), affine)
    if found is None:
        return None
    stride, mean, rstd = found
    return (
        TensorSpec(shape, stride, 0, dtype),
        TensorSpec((batch, group), mean, 0, dtype),
        TensorSpec((batch, group), rstd, 0, dtype),
    )


@lru_cache(_CACHE)
def _group_norm_backward_keeps(groups: Ints) -> bool:
    """Whether the gradient of a row-major input comes out row-major."""
    batch, group, width, _ = groups
    whole: Layout = groups, contiguous(groups)
    scale = mixed(
        ((batch, group, 1), (group, 1, 1)), ((1, group, width), (group * width, width, 1))
    )
    spread: Layout = (*scale[0], 1), (*scale[1], 1)
    shift: Layout = (batch, group, 1, 1), (group, 1, 1, 1)
    return mixed(mixed(mixed(whole, spread), mixed(whole, shift)), shift) == whole


def _group_norm_backward(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[TensorSpec | None, ...] | None:
    g, x, mean, rstd, weight, batch, channels, inner, group, mask = args
    shape, dtype = x.shape, x.dtype
    flat = contiguous(shape)
    if kwargs or dtype not in FLOATS or 0 in shape or shape[:2] != (batch, channels):
        return None
    if x.stride != flat or g.shape != shape or g.stride != flat or channels % group:
        return None
    if not _vectors_fit(channels, dtype, x, weight) or g.dtype is not dtype:
        return None
    saved = (batch, group), (group, 1), dtype
    if any((spec.shape, spec.stride, spec.dtype) != saved for spec in (mean, rstd)):
        return None
    if not _group_norm_backward_keeps((batch, group, channels // group, inner)):
        return None
    vector = TensorSpec((channels,), (1,), 0, dtype)
    return (
        TensorSpec(shape, flat, 0, dtype) if mask[0] else None,
        vector if mask[1] else None,
        vector if mask[2] else None,
    )


RULES: Rules = {
    aten.native_batch_norm.default: _native_batch_norm,
    aten.native_batch_norm_backward.default: _batch_norm_backward,
    aten.cudnn_batch_norm.default: _cudnn_batch_norm,
    aten.cudnn_batch_norm_backward.default: _cudnn_batch_norm_backward,
    aten.native_layer_norm.default: _layer_norm,
    aten.native_layer_norm_backward.default: _layer_norm_backward,
    aten.native_group_norm.default: _group_norm,
    aten.native_group_norm_backward.default: _group_norm_backward,
}
