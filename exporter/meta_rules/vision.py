"""Rules of pooling and resampling. Source: ``torch/_meta_registrations.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from exporter.formulas.spec import TensorSpec
from exporter.meta_rules.dtypes import FLOATS
from exporter.meta_rules.layout import (
    Ints,
    channels_last,
    contiguous,
    in_format_of,
    is_channels_last,
    suggests_channels_last,
)

if TYPE_CHECKING:
    from exporter.meta_rules.dtypes import Rules

aten = torch.ops.aten


def _pooled_size(
    size: int, kernel: int, stride: int, pad: int, dilation: int, *, ceil_mode: bool
) -> int:
    reach = size + 2 * pad - dilation * (kernel - 1) - 1
    out = (reach + (stride - 1 if ceil_mode else 0)) // stride + 1
    # The last window has to start inside the input or its left padding.
    return out - 1 if ceil_mode and (out - 1) * stride >= size + pad else out


def _pair(values: Any, default: Ints = (1, 1)) -> Ints:
    if not values:
        return default
    return (values[0], values[0]) if len(values) == 1 else tuple(values)


def _pooled(
    x: TensorSpec, kernel: Any, stride: Any, padding: Any, dilation: Any, *, ceil_mode: bool
) -> Ints | None:
    """Shape of the output, or None if the kernel would refuse or the case is unusual."""
    if len(x.shape) not in (3, 4) or 0 in x.shape or x.dtype not in FLOATS:
        return None
    kernels = _pair(kernel)
    steps, pads, spread = _pair(stride, kernels), _pair(padding, (0, 0)), _pair(dilation)
    if any(2 * pad > width for pad, width in zip(pads, kernels, strict=True)) or min(pads) < 0:
        return None
    sizes = [
        _pooled_size(*sizes, ceil_mode=ceil_mode)
        for sizes in zip(x.shape[-2:], kernels, steps, pads, spread, strict=True)
    ]
    return (*x.shape[:-2], *sizes) if min(sizes) > 0 else None


def _max_pool(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    x, kernel, *options = args
    defaults: list[Any] = [(), (0,), (1,), False]
    stride, padding, dilation, ceil_mode = options + defaults[len(options) :]
    shape = _pooled(x, kernel, stride, padding, dilation, ceil_mode=ceil_mode)
    if shape is None or kwargs:
        return None
    strides = in_format_of(shape, x.shape, x.stride)
    return TensorSpec(shape, strides, 0, x.dtype), TensorSpec(shape, strides, 0, torch.int64)


def _max_pool_backward(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[TensorSpec, ...] | None:
    g, x, kernel, stride, padding, dilation, ceil_mode, indices = args
    shape = _pooled(x, kernel, stride, padding, dilation, ceil_mode=ceil_mode)
    if kwargs or shape is None or shape != g.shape or shape != indices.shape:
        return None
    return _gradient(g, x)


def _gradient(g: TensorSpec, x: TensorSpec) -> tuple[TensorSpec, ...] | None:
    """A gradient in the memory format of the input."""
    if g.dtype is not x.dtype:
        return None
    return (TensorSpec(x.shape, in_format_of(x.shape, x.shape, x.stride), 0, x.dtype),)


def _avg_pool(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    x, kernel, *options = args[:5]
    defaults: list[Any] = [(), (0,), False]
    stride, padding, ceil_mode = options + defaults[len(options) :]
    shape = _pooled(x, kernel, stride, padding, (1,), ceil_mode=ceil_mode)
    if shape is None or kwargs:
        return None
    return (TensorSpec(shape, in_format_of(shape, x.shape, x.stride), 0, x.dtype),)


def _avg_pool_backward(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[TensorSpec, ...] | None:
    g, x, kernel, stride, padding, ceil_mode = args[:6]
    shape = _pooled(x, kernel, stride, padding, (1,), ceil_mode=ceil_mode)
    return None if kwargs or shape is None or shape != g.shape else _gradient(g, x)


def _adaptive_pool(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    x, size = args
    shape = (*x.shape[:-2], *size)
    if kwargs or len(x.shape) not in (3, 4) or 0 in x.shape or 0 in shape:
        return None
    return (TensorSpec(shape, in_format_of(shape, x.shape, x.stride), 0, x.dtype),)


def _adaptive_pool_backward(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[TensorSpec, ...] | None:
    g, x = args
    return None if kwargs or 0 in x.shape or 0 in g.shape else _gradient(g, x)


def _resized(x: TensorSpec, size: Any) -> Ints | None:
    if len(x.shape) != 4 or 0 in x.shape or not size or 0 in size or x.dtype not in FLOATS:
        return None
    return (*x.shape[:2], *size)


def _nearest(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    x = args[0]
    shape = _resized(x, args[1])
    if kwargs or shape is None:
        return None
    stride = contiguous(shape)
    if suggests_channels_last(x.shape, x.stride) and not is_channels_last(shape, stride):
        stride = channels_last(shape)
    return (TensorSpec(shape, stride, 0, x.dtype),)


def _bilinear(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    x = args[0]
    shape = _resized(x, args[1])
    # Dimensions of size 1 keep arbitrary strides when they are made contiguous.
    if kwargs or shape is None or 1 in shape or 1 in x.shape:
        return None
    return (TensorSpec(shape, in_format_of(shape, x.shape, x.stride), 0, x.dtype),)


def _bicubic(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    x = args[0]
    shape = _resized(x, args[1])
    if kwargs or shape is None or x.stride != contiguous(x.shape):
        return None
    return (TensorSpec(shape, contiguous(shape), 0, x.dtype),)


def _nearest_backward(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[TensorSpec, ...] | None:
    g, size, input_size = args[:3]
    shape = tuple(input_size)
    if kwargs or 0 in shape or g.shape != (*shape[:2], *size):
        return None
    return (TensorSpec(shape, in_format_of(shape, g.shape, g.stride), 0, g.dtype),)


RULES: Rules = {
    aten.max_pool2d_with_indices.default: _max_pool,
    aten.max_pool2d_with_indices_backward.default: _max_pool_backward,
    aten.avg_pool2d.default: _avg_pool,
    aten.avg_pool2d_backward.default: _avg_pool_backward,
    aten._adaptive_avg_pool2d.default: _adaptive_pool,
    aten._adaptive_avg_pool2d_backward.default: _adaptive_pool_backward,
    aten.upsample_nearest2d.default: _nearest,
    aten.upsample_nearest2d_backward.default: _nearest_backward,
    aten.upsample_bilinear2d.default: _bilinear,
    aten.upsample_bicubic2d.default: _bicubic,
}
