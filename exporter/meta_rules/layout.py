"""Strides of outputs, computed as torch's meta kernels compute them.

A *layout* is a pair ``(shape, stride)``. Everything here is pure and cached by value: a model has
few distinct layouts. Sources: ``torch/_prims_common`` (``compute_elementwise_output_*``) for
pointwise operators, ``at::infer_dense_strides`` and ``TensorImpl`` for copies.
"""

from __future__ import annotations

from functools import lru_cache

Ints = tuple[int, ...]
Layout = tuple[Ints, Ints]

_CACHE = 1 << 14


@lru_cache(_CACHE)
def contiguous(shape: Ints) -> Ints:
    """Row-major strides; a size of 0 counts as 1, as in torch."""
    stride = 1
    out = []
    for size in reversed(shape):
        out.append(stride)
        stride *= size or 1
    return tuple(reversed(out))


@lru_cache(_CACHE)
def channels_last(shape: Ints) -> Ints:
    """Strides of (N, C, [D,] H, W) with C innermost."""
    return permuted(shape, (0, *range(2, len(shape)), 1))


def permuted(shape: Ints, perm: tuple[int, ...] | list[int]) -> Ints:
    """Strides of a dense tensor whose dimensions lie in memory in the order ``perm``."""
    stride = 1
    out = [0] * len(shape)
    for dim in reversed(perm):
        out[dim] = stride
        stride *= shape[dim] or 1
    return tuple(out)


@lru_cache(_CACHE)
def is_contiguous(shape: Ints, stride: Ints) -> bool:
    """Row-major up to dimensions of size 1; a tensor without elements always is."""
    return 0 in shape or _nested(shape, stride, range(len(shape) - 1, -1, -1))


@lru_cache(_CACHE)
def is_channels_last(shape: Ints, stride: Ints) -> bool:
    """Contiguous as (N, H, W, C); false unless four-dimensional."""
    return len(shape) == 4 and _nested(shape, stride, (1, 3, 2, 0))


def _nested(shape: Ints, stride: Ints, order: range | Ints) -> bool:
    expected = 1
    for dim in order:
        if shape[dim] != 1:
            if stride[dim] != expected:
                return False
            expected *= shape[dim]
    return True


@lru_cache(_CACHE)
def is_dense(shape: Ints, stride: Ints) -> bool:
    """Whether every element of a memory block is used exactly once."""
    if 0 in shape:
        return True
    expected = 1
    for step, size in sorted((st, si) for si, st in zip(shape, stride, strict=True) if si != 1):
        if step != expected:
            return False
        expected *= size
    return True


@lru_cache(_CACHE)
def like(shape: Ints, stride: Ints) -> Ints:
    """Strides of a copy that preserves the format: ``clone``, ``to(dtype)``."""
    if is_dense(shape, stride):
        return stride
    if len(shape) == 1:
        return (1,)
    return permuted(shape, _sorted_dims(shape, (stride,)))


@lru_cache(_CACHE)
def made_contiguous(shape: Ints, stride: Ints) -> Ints:
    """Strides of ``t.contiguous()``, which returns ``t`` itself when it can."""
    return stride if is_contiguous(shape, stride) else contiguous(shape)


@lru_cache(_CACHE)
def suggests_channels_last(shape: Ints, stride: Ints) -> bool:
    """Whether ``suggest_memory_format`` is channels_last (4 dimensions) or channels_last_3d (5)."""
    if len(shape) == 4:
        order: Ints = (1, 3, 2, 0)
    elif len(shape) == 5:
        order = (1, 4, 3, 2, 0)
    else:
        return False
    if stride[1] == 0:
        return False
    least = 0
    for dim in order:
        if shape[dim] == 0 or stride[dim] < least or (dim == 0 and least == stride[1]):
            return False
        least = stride[dim] * shape[dim]
    return True


def in_format_of(shape: Ints, model_shape: Ints, model_stride: Ints) -> Ints:
    """Strides of a new tensor in the memory format that the model tensor suggests."""
    if len(shape) == len(model_shape) and suggests_channels_last(model_shape, model_stride):
        return channels_last(shape)
    return contiguous(shape)


def _sorted_dims(shape: Ints, strides: tuple[Ints, ...]) -> list[int]:
    """Outermost-first order of dimensions: insertion sort that tolerates ambiguous pairs."""
    perm = list(range(len(shape) - 1, -1, -1))
    for i in range(1, len(shape)):
        upper = i
        for lower in range(i - 1, -1, -1):
            verdict = _compare(shape, strides, perm[lower], perm[upper])
            if verdict > 0:
                perm[lower], perm[upper] = perm[upper], perm[lower]
                upper = lower
            elif verdict < 0:
                break
    perm.reverse()
    return perm


def _compare(shape: Ints, strides: tuple[Ints, ...], a: int, b: int) -> int:
    for stride in strides:
        step_a, step_b = stride[a], stride[b]
        if step_a == 0 or step_b == 0:
            continue
        if step_a < step_b:
            return -1
        if step_a > step_b:
            return 1
        if shape[a] > shape[b]:
            return 1
    return 0


def broadcast_shape(shapes: tuple[Ints, ...]) -> Ints | None:
    """Common shape, or None if there is none."""
    first = shapes[0]
    if all(shape == first for shape in shapes):
        return first
    out = [1] * max(map(len, shapes))
    for shape in shapes:
        for i in range(-len(shape), 0):
            size = shape[i]
            if size != 1:
                if out[i] not in (1, size):
                    return None
                out[i] = size
    return tuple(out)


def expanded(shape: Ints, old_shape: Ints, old_stride: Ints) -> Ints:
    """Strides of ``t.expand(shape)``."""
    if shape == old_shape:
        return old_stride
    return expanded_always(shape, old_shape, old_stride)


def expanded_always(shape: Ints, old_shape: Ints, old_stride: Ints) -> Ints:
    """Strides that ``expand`` computes, from the last dimension to the first."""
    out = [0] * len(shape)
    ahead = len(shape) - len(old_shape)
    for dim in range(len(shape) - 1, -1, -1):
        if dim >= ahead:
            size, step = old_shape[dim - ahead], old_stride[dim - ahead]
        else:
            # A new dimension of size 1 continues the row-major pattern of those after it.
            size = 1
            step = shape[dim + 1] * out[dim + 1] if dim + 1 < len(shape) else 1
        out[dim] = step if size == shape[dim] else 0
    return tuple(out)


@lru_cache(_CACHE)
def pointwise(shape: Ints, strides: tuple[Ints, ...]) -> Ints:
    """Strides of the output of a pointwise operator whose operands were expanded to ``shape``.

    Those of ``empty_like`` too, which on meta takes the same path with one operand.
    """
    if len(shape) < 2:
        return (1,) if shape else ()
    row_major = contiguous(shape)
    if 0 not in shape and all(stride == row_major for stride in strides):
        return row_major
    flat = all(is_contiguous(shape, stride) for stride in strides)
    last = all(is_channels_last(shape, stride) for stride in strides)
    if flat and not last:
        return row_major
    if last and not flat:
        return channels_last(shape)
    return permuted(shape, _sorted_dims(shape, strides))


@lru_cache(_CACHE)
def combine(*operands: Layout) -> Layout | None:
    """Layout of a pointwise result of operands that broadcast, or None if it is not determined.

    A 0-dimensional operand may live on the CPU, where torch leaves it out of the comparison, or
    on meta, where it is expanded; an answer is given only if both agree.
    """
    first = operands[0]
    if all(operand == first for operand in operands):
        return first[0], pointwise(first[0], first[1:])
    shape = broadcast_shape(tuple(operand[0] for operand in operands))
    if shape is None:
        return None
    out = pointwise(shape, tuple(expanded(shape, *operand) for operand in operands))
    if shape and any(not operand[0] for operand in operands):
        dimensioned = [operand for operand in operands if operand[0]]
        if out != pointwise(shape, tuple(expanded(shape, *operand) for operand in dimensioned)):
            return None
    return shape, out


def mixed(*operands: Layout) -> Layout:
    """Layout of a pointwise result of operands that are all on meta and known to broadcast."""
    first = operands[0]
    shape = first[0]
    for operand in operands:
        if operand[0] != shape:
            shape = broadcast_shape(tuple(other[0] for other in operands)) or ()
            break
    return shape, pointwise(shape, tuple(expanded(shape, *operand) for operand in operands))


def is_simple(*layouts: Layout) -> bool:
    """Row-major without sizes of 0 or 1: such a first operand alone orders the dimensions."""
    return all(
        min(shape, default=1) > 1 and stride == contiguous(shape) for shape, stride in layouts
    )


@lru_cache(_CACHE)
def reduced(shape: Ints, dims: tuple[int, ...], *, keepdim: bool) -> Layout:
    """Layout of a reduction over ``dims`` (not negative)."""
    kept = tuple(size for dim, size in enumerate(shape) if dim not in dims)
    stride = contiguous(kept)
    if not keepdim:
        return kept, stride
    # A view of the result: a reduced dimension steps over what the next kept one spans.
    out_shape, out_stride, position = [], [], 0
    for dim, size in enumerate(shape):
        if dim not in dims:
            out_shape.append(size)
            out_stride.append(stride[position])
            position += 1
        else:
            out_shape.append(1)
            past = position == len(kept)
            out_stride.append(1 if past else stride[position] * kept[position])
    return tuple(out_shape), tuple(out_stride)
