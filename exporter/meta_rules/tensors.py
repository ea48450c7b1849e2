"""Rules of operators that make, copy, join and index tensors."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import torch

from exporter.formulas.spec import TensorSpec
from exporter.meta_rules.dtypes import KNOWN
from exporter.meta_rules.layout import (
    Ints,
    broadcast_shape,
    channels_last,
    contiguous,
    in_format_of,
    like,
    pointwise,
    suggests_channels_last,
)

if TYPE_CHECKING:
    from exporter.meta_rules.dtypes import Rule, Rules

aten = torch.ops.aten
_META = torch.device("meta")
_OPTIONS = frozenset(("dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking"))


def _plain(kwargs: dict[str, Any], *, device: bool) -> bool:
    """Whether the options ask for an ordinary tensor on meta; must they name the device?"""
    if not kwargs:
        return not device
    wanted = kwargs.get("device")
    return (
        (wanted == _META or (wanted is None and not device))
        and kwargs.get("layout") in (None, torch.strided)
        and not kwargs.get("pin_memory")
        and not kwargs.keys() - _OPTIONS
    )


def _row_major(sizes: Any, dtype: torch.dtype) -> tuple[TensorSpec]:
    shape = tuple(sizes)
    return (TensorSpec(shape, contiguous(shape), 0, dtype),)


def _in_format(shape: Ints, memory_format: Any) -> Ints | None:
    """Strides in an explicit memory format."""
    if memory_format is torch.contiguous_format:
        return contiguous(shape)
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(len(shape))
    return channels_last(shape) if memory_format is last and 0 not in shape else None


def _filled(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec] | None:
    """``empty``, ``zeros``, ``ones``, ``rand``, ``randn``."""
    if not _plain(kwargs, device=True) or kwargs.get("memory_format") or len(args) != 1:
        return None
    return _row_major(args[0], kwargs.get("dtype") or torch.get_default_dtype())


def _dtype_of(value: Any) -> torch.dtype | None:
    if type(value) is float:
        return torch.get_default_dtype()
    return {bool: torch.bool, int: torch.int64}.get(type(value))


def _full(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec] | None:
    dtype = kwargs.get("dtype") or _dtype_of(args[1])
    return _row_major(args[0], dtype) if dtype and _plain(kwargs, device=True) else None


def _scalar_tensor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec] | None:
    if not _plain(kwargs, device=True) or type(args[0]) is TensorSpec:
        return None
    return _row_major((), kwargs.get("dtype") or torch.get_default_dtype())


def _arange(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec] | None:
    start, end, step = (0, *args, 1) if len(args) == 1 else (*args, 1)[:3]
    if not _plain(kwargs, device=True) or not all(type(v) in (int, float) for v in args):
        return None
    dtype = kwargs.get("dtype")
    if step == 0 or (end - start) * step < 0:
        return None
    if all(type(value) is int for value in args):
        return _row_major((-((start - end) // step),), dtype or torch.int64)
    return _row_major((ceil((end - start) / step),), dtype or torch.get_default_dtype())


def _empty_strided(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec] | None:
    sizes, stride = args
    if not _plain(kwargs, device=True):
        return None
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    return (TensorSpec(tuple(sizes), tuple(stride), 0, dtype),)


def _new_strided(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec] | None:
    spec, sizes, stride = args
    if not _plain(kwargs, device=False):
        return None
    return (TensorSpec(tuple(sizes), tuple(stride), 0, kwargs.get("dtype") or spec.dtype),)


def _new(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec] | None:
    """``new_empty``, ``new_zeros``, ``new_ones``, ``new_full``."""
    if not _plain(kwargs, device=False):
        return None
    return _row_major(args[1], kwargs.get("dtype") or args[0].dtype)


def _new_like(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec] | None:
    """``empty_like`` and its kin."""
    spec, memory_format = args[0], kwargs.get("memory_format")
    if not _plain(kwargs, device=False):
        return None
    shape = spec.shape
    if memory_format in (None, torch.preserve_format):
        stride: Ints | None = pointwise(shape, (spec.stride,))
    else:
        stride = _in_format(shape, memory_format)
    dtype = kwargs.get("dtype") or spec.dtype
    return None if stride is None else (TensorSpec(shape, stride, 0, dtype),)


def _copy(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec] | None:
    """``clone`` and ``_to_copy``."""
    spec, memory_format = args[0], kwargs.get("memory_format")
    if not _plain(kwargs, device=False):
        return None
    shape = spec.shape
    if memory_format in (None, torch.preserve_format):
        stride: Ints | None = like(shape, spec.stride)
    else:
        stride = _in_format(shape, memory_format)
    dtype = kwargs.get("dtype") or spec.dtype
    return None if stride is None else (TensorSpec(shape, stride, 0, dtype),)


def _cat(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec] | None:
    specs, dim = args[0], args[1] if len(args) > 1 else 0
    first = specs[0]
    rank, dtype = len(first.shape), first.dtype
    dim = dim + rank if dim < 0 else dim
    if kwargs or not 0 <= dim < rank:
        return None
    before, after, total = first.shape[:dim], first.shape[dim + 1 :], 0
    arranged_last = True
    for spec in specs:
        shape = spec.shape
        # An empty vector may join tensors of any rank: left to the kernel.
        if spec.dtype is not dtype or len(shape) != rank or shape == (0,):
            return None
        if shape[:dim] != before or shape[dim + 1 :] != after:
            return None
        total += shape[dim]
        arranged_last = arranged_last and suggests_channels_last(shape, spec.stride)
    out = (*before, total, *after)
    return (TensorSpec(out, channels_last(out) if arranged_last else contiguous(out), 0, dtype),)


def _stack(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec] | None:
    specs, dim = args[0], args[1] if len(args) > 1 else 0
    shape, dtype = specs[0].shape, specs[0].dtype
    dim = dim + len(shape) + 1 if dim < 0 else dim
    if kwargs or any(spec.shape != shape or spec.dtype is not dtype for spec in specs):
        return None
    # The kernel joins and views, and channels-last operands are joined as such.
    more = (1,) if dim == len(shape) else ()
    if all(suggests_channels_last(shape + more, spec.stride + more) for spec in specs):
        return None
    return _row_major((*shape[:dim], len(specs), *shape[dim:]), dtype)


def _repeat(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec] | None:
    spec, repeats = args
    if kwargs or len(repeats) < len(spec.shape):
        return None
    shape = (1,) * (len(repeats) - len(spec.shape)) + spec.shape
    return _row_major((s * r for s, r in zip(shape, repeats, strict=True)), spec.dtype)


def _roll(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec] | None:
    spec = args[0]
    dims = args[2] if len(args) > 2 else ()
    if kwargs or 0 in spec.shape or not spec.shape or len(args[1]) != (len(dims) or 1):
        return None
    return _row_major(spec.shape, spec.dtype)


def _pad(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec] | None:
    spec, pad = args[:2]
    shape = list(spec.shape)
    if kwargs or len(pad) % 2 or len(pad) > 2 * len(shape):
        return None
    for i in range(len(pad) // 2):
        shape[-1 - i] += pad[2 * i] + pad[2 * i + 1]
    out = tuple(shape)
    if 0 in spec.shape or min(out, default=1) <= 0:
        return None
    if all(width <= 0 for width in pad):
        return (TensorSpec(out, like(out, spec.stride), 0, spec.dtype),)
    return (TensorSpec(out, in_format_of(out, spec.shape, spec.stride), 0, spec.dtype),)


def _spread_gradient(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec] | None:
    """``slice_backward`` and ``select_backward``: zeros with the gradient written into them."""
    return None if kwargs or 0 in args[1] else _row_major(args[1], args[0].dtype)


_INDICES = (torch.int64, torch.int32)


def _index(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec] | None:
    spec, given = args
    rank = len(spec.shape)
    if kwargs or len(given) > rank or 0 in spec.shape:
        return None
    at = [dim for dim, index in enumerate(given) if index is not None]
    if not at or any(given[dim].dtype not in _INDICES for dim in at):
        return None
    found = broadcast_shape(tuple(given[dim].shape for dim in at))
    if not found or 0 in found:
        return None
    # Indexed dimensions that are not neighbours move to the front together.
    start = at[0] if at[-1] - at[0] == len(at) - 1 else 0
    rest = [dim for dim in range(rank) if dim not in at]
    shape = [spec.shape[dim] for dim in rest]
    stride = [spec.stride[dim] for dim in rest]
    shape[start:start] = found
    stride[start:start] = [0] * len(found)
    out = tuple(shape)
    return (TensorSpec(out, pointwise(out, (tuple(stride),)), 0, spec.dtype),)


def _index_put(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec] | None:
    spec, given = args[:2]
    if kwargs or args[2].dtype is not spec.dtype:
        return None
    if any(index is not None and index.dtype not in _INDICES for index in given):
        return None  # a mask becomes indices first, which need memory
    return (TensorSpec(spec.shape, pointwise(spec.shape, (spec.stride,)), 0, spec.dtype),)


def _index_select(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec] | None:
    spec, dim, index = args
    if kwargs or not spec.shape or 0 in spec.shape or len(index.shape) > 1:
        return None
    shape = list(spec.shape)
    shape[dim] = index.numel
    return _row_major(shape, spec.dtype)


def _gather(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec] | None:
    spec, _, index = args[:3]
    if kwargs or len(spec.shape) != len(index.shape) or 0 in index.shape:
        return None
    return _row_major(index.shape, spec.dtype)


def _scatter(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec] | None:
    spec, _, index, source = args
    if kwargs or len(index.shape) != len(spec.shape) or 0 in index.shape:
        return None
    if type(source) is TensorSpec and source.dtype is not spec.dtype:
        return None
    return _row_major(spec.shape, spec.dtype)


def _triangle(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec] | None:
    spec = args[0]
    # Dimensions of size 1 keep arbitrary strides when they are made contiguous.
    if kwargs or len(spec.shape) < 2 or min(spec.shape) < 2 or spec.dtype not in KNOWN:
        return None
    return _row_major(spec.shape, spec.dtype)


_MADE: dict[Rule, tuple[str, ...]] = {
    _filled: (
        "empty.memory_format", "zeros.default", "ones.default", "rand.default", "randn.default",
    ),
    _full: ("full.default",),
    _scalar_tensor: ("scalar_tensor.default",),
    _arange: ("arange.default", "arange.start", "arange.start_step"),
    _empty_strided: ("empty_strided.default",),
    _new_strided: ("new_empty_strided.default",),
    _new: ("new_empty.default", "new_zeros.default", "new_ones.default", "new_full.default"),
    _new_like: (
        "empty_like.default", "zeros_like.default", "ones_like.default", "full_like.default",
        "rand_like.default", "randn_like.default",
    ),
    _copy: ("clone.default", "_to_copy.default"),
    _cat: ("cat.default",),
    _stack: ("stack.default",),
    _repeat: ("repeat.default",),
    _roll: ("roll.default",),
    _pad: ("constant_pad_nd.default",),
    _spread_gradient: ("slice_backward.default", "select_backward.default"),
    _index: ("index.Tensor", "_unsafe_index.Tensor"),
    _index_put: ("index_put.default", "_unsafe_index_put.default"),
    _index_select: ("index_select.default",),
    _gather: ("gather.default",),
    _scatter: ("scatter.src", "scatter.value", "scatter_add.default"),
    _triangle: ("tril.default", "triu.default"),
}  # fmt: skip

RULES: Rules = {
    getattr(getattr(aten, packet), overload): rule
    for rule, names in _MADE.items()
    for packet, overload in (name.split(".") for name in names)
}
