"""Rules of contractions: matrix products, convolutions, attention, embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from exporter.formulas.spec import TensorSpec
from exporter.meta_rules.dtypes import FLOATS, computation_dtype
from exporter.meta_rules.layout import (
    Ints,
    channels_last,
    contiguous,
    mixed,
    permuted,
    pointwise,
    suggests_channels_last,
)
from exporter.meta_rules.pointwise import cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from exporter.meta_rules.dtypes import Rules

aten = torch.ops.aten


def _mm(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    a, b = args
    if kwargs or len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
        return None
    if a.dtype not in FLOATS or a.dtype is not b.dtype:
        return None
    shape = a.shape[0], b.shape[1]
    return (TensorSpec(shape, contiguous(shape), 0, a.dtype),)


def _addmm(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    bias, a, b = args
    product = _mm((a, b), {})
    if product is None or kwargs.keys() - {"beta", "alpha"} or bias.dtype is not a.dtype:
        return None
    out = product[0]
    if kwargs.get("beta", 1) == 0:
        return product
    aligned = zip(reversed(bias.shape), reversed(out.shape), strict=False)
    if len(bias.shape) not in (1, 2) or any(size not in (1, wide) for size, wide in aligned):
        return None
    added = mixed(cast(bias, computation_dtype(bias.dtype)))
    return (TensorSpec(*mixed((out.shape, out.stride), added), 0, out.dtype),)


def _bmm(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    a, b = args
    if kwargs or len(a.shape) != 3 or len(b.shape) != 3 or a.dtype is not b.dtype:
        return None
    if a.dtype not in FLOATS or a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        return None
    shape = a.shape[0], a.shape[1], b.shape[2]
    return (TensorSpec(shape, contiguous(shape), 0, a.dtype),)


def _baddbmm(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    bias, a, b = args
    product = _bmm((a, b), {})
    if product is None or kwargs.keys() - {"beta", "alpha"} or bias.dtype is not a.dtype:
        return None
    return product if bias.shape == product[0].shape else None


def _grouped_mm(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    """Predict what devices compute in every floating type and torch's meta kernel in two only.

    Rows are as far apart as the device's kernel lays them out: in multiples of 16 bytes.
    """
    a, b, offsets = (*args, None)[:3]
    offsets = kwargs.get("offs", offsets)
    extra = {key for key, value in kwargs.items() if value is not None and key != "offs"}
    if extra or len(args) > 3 or a.dtype not in FLOATS or a.dtype is not b.dtype:
        return None
    ranks = len(a.shape), len(b.shape)
    rows, columns = a.shape[-2], b.shape[-1]
    if ranks == (2, 2) and offsets is not None:
        shape: tuple[int, ...] = offsets.shape[0], rows, columns
    elif 2 in ranks:
        shape = rows, columns
    else:
        shape = a.shape[0], rows, columns
    aligned = 16 // a.dtype.itemsize
    row = -(-columns // aligned) * aligned
    stride = (row, 1) if len(shape) == 2 else (shape[1] * row, row, 1)
    return (TensorSpec(shape, stride, 0, a.dtype),)


def _each(values: Any, count: int) -> tuple[int, ...]:
    return tuple(values) * count if len(values) == 1 else tuple(values)


def _convolution(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    x, weight, bias, stride, padding, dilation, transposed, output_padding, groups = args
    rank = len(x.shape) - 2
    if kwargs or rank < 1 or len(weight.shape) != rank + 2 or x.dtype not in FLOATS:
        return None
    if weight.dtype is not x.dtype or (bias is not None and bias.dtype is not x.dtype):
        return None
    if 0 in x.shape or 0 in weight.shape:
        return None
    if x.shape[1] != (weight.shape[0] if transposed else weight.shape[1] * groups):
        return None
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    sizes = [x.shape[0], channels]
    extra = _each(output_padding, rank) if transposed else (0,) * rank
    for size, kernel, step, pad, spread, more in zip(
        x.shape[2:], weight.shape[2:], _each(stride, rank), _each(padding, rank),
        _each(dilation, rank), extra, strict=True,
    ):  # fmt: skip
        span = spread * (kernel - 1)
        if transposed:
            sizes.append((size - 1) * step - 2 * pad + span + more + 1)
        else:
            sizes.append((size + 2 * pad - span - 1) // step + 1)
    shape = tuple(sizes)
    if min(shape) <= 0:
        return None
    # Devices pass the layout on; so does the kernel that ``exporter.targets`` puts in the place of
    # torch's on meta, which does not.
    return (TensorSpec(shape, _image_layout(x, weight)(shape), 0, x.dtype),)


def _image_layout(x: TensorSpec, weight: TensorSpec) -> Callable[[Ints], Ints]:
    """Return what arranges a convolution's results."""
    if suggests_channels_last(x.shape, x.stride) or suggests_channels_last(
        weight.shape, weight.stride
    ):
        return channels_last
    return contiguous


def _convolution_backward(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[TensorSpec | None, ...] | None:
    g, x, weight, bias_sizes, *_, mask = args
    if kwargs or g.dtype not in FLOATS or 0 in x.shape or 0 in weight.shape:
        return None
    arrange = _image_layout(x, weight)
    outs: list[TensorSpec | None] = []
    for wanted, shape in zip(mask, (x.shape, weight.shape), strict=False):
        outs.append(TensorSpec(shape, arrange(shape), 0, g.dtype) if wanted else None)
    outs.append(TensorSpec(tuple(bias_sizes), (1,), 0, g.dtype) if mask[2] else None)
    return tuple(outs)


def _embedding(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    weight, indices = args[:2]
    if kwargs or len(weight.shape) != 2 or indices.dtype not in (torch.int64, torch.int32):
        return None
    shape = (*indices.shape, weight.shape[1])
    return (TensorSpec(shape, contiguous(shape), 0, weight.dtype),)


def _embedding_backward(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[TensorSpec, ...] | None:
    g, _, count = args[:3]
    if kwargs or not g.shape:
        return None
    shape = count, g.shape[-1]
    return (TensorSpec(shape, contiguous(shape), 0, g.dtype),)


_HEADS_INSIDE = (0, 2, 1, 3)


def _heads(shape: Ints, dtype: torch.dtype) -> TensorSpec:
    """A (batch, heads, tokens, width) view of (batch, tokens, heads, width)."""
    return TensorSpec(shape, permuted(shape, _HEADS_INSIDE), 0, dtype)


def _efficient_attention(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[TensorSpec, ...] | None:
    query, key, value, _, with_logsumexp = args[:5]
    if any(len(spec.shape) != 4 or spec.dtype not in FLOATS for spec in (query, key, value)):
        return None
    if kwargs.keys() - {"scale"} or torch.version.hip:
        return None
    batch, heads, tokens, _ = query.shape
    rows = (batch, heads, -(-tokens // 32) * 32 if with_logsumexp else 0)
    counter = TensorSpec((), (), 0, torch.int64)
    return (
        _heads((batch, heads, tokens, value.shape[3]), query.dtype),
        TensorSpec(rows, contiguous(rows), 0, torch.float32),
        counter,
        counter,
    )


def _efficient_attention_backward(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[TensorSpec | None, ...] | None:
    _, query, key, value, bias = args[:5]
    # The gradient of a bias is part of a padded, larger storage.
    if kwargs.keys() - {"scale"} or (bias is not None and args[10][3]):
        return None
    if any(len(spec.shape) != 4 or spec.dtype not in FLOATS for spec in (query, key, value)):
        return None
    shapes = (
        query.shape,
        (*key.shape[:3], query.shape[3]),
        (*value.shape[:2], *key.shape[2:3], value.shape[3]),
    )
    return (
        *(_heads(s, spec.dtype) for s, spec in zip(shapes, (query, key, value), strict=True)),
        None,
    )


def _flash_attention_backward(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[TensorSpec, ...] | None:
    operands = args[1:4]
    if kwargs.keys() - {"scale"} or any(spec.dtype not in FLOATS for spec in operands):
        return None
    return tuple(
        TensorSpec(spec.shape, pointwise(spec.shape, (spec.stride,)), 0, spec.dtype)
        for spec in operands
    )


RULES: Rules = {
    aten.mm.default: _mm,
    aten.addmm.default: _addmm,
    aten.bmm.default: _bmm,
    aten.baddbmm.default: _baddbmm,
    aten._grouped_mm.default: _grouped_mm,
    aten.convolution.default: _convolution,
    aten.convolution_backward.default: _convolution_backward,
    aten.embedding.default: _embedding,
    aten.embedding_dense_backward.default: _embedding_backward,
    aten._scaled_dot_product_efficient_attention.default: _efficient_attention,
    aten._scaled_dot_product_efficient_attention_backward.default: _efficient_attention_backward,
    aten._scaled_dot_product_flash_attention_backward.default: _flash_attention_backward,
}
