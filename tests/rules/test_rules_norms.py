"""Rules of norms, softmax and reductions against the meta kernels."""

from __future__ import annotations

import pytest
import torch
from hypothesis import strategies as st
from rules_cases import FLOATS, INTS, check, shapes, tensors

from exporter.meta_rules import norms, reductions
from exporter.targets.rules import device_rules
from store.settings import RunSettings

aten = torch.ops.aten
FLAGS = st.booleans()
SIZES = st.sampled_from((1, 1, 2, 3, 4))


def _shape(draw, least=1, most=5):
    """Sizes of at least 1, and now and then a 0."""
    return (
        tuple(draw(st.lists(SIZES, min_size=least, max_size=most)))
        if draw(st.integers(0, 9))
        else draw(shapes(least=least, most=most))
    )


def _vector(draw, size, dtype):
    return torch.empty(size, dtype=dtype, device="meta") if draw(st.integers(0, 3)) else None


def _statistics(dtype):
    return torch.float64 if dtype is torch.float64 else torch.float32


def _batch_norm(draw, training=None):
    x = draw(tensors(_shape(draw, 2)))
    channels = x.shape[1]
    affine = draw(st.sampled_from((x.dtype, _statistics(x.dtype))))
    training = draw(FLAGS) if training is None else training
    running = draw(FLAGS) or not training
    saved = [torch.empty(channels, dtype=_statistics(x.dtype), device="meta") for _ in range(2)]
    vectors = [_vector(draw, channels, affine), _vector(draw, channels, affine)]
    return x, vectors, saved if running else [None, None], training


def _native_batch_norm(draw):
    x, vectors, running, training = _batch_norm(draw, training=draw(st.integers(0, 5)) > 0)
    return [x, *vectors, *running, training, 0.1, 1e-5], {}


def _cudnn_batch_norm(draw):
    x, vectors, running, training = _batch_norm(draw)
    weight = torch.empty(x.shape[1], dtype=_statistics(x.dtype), device="meta")
    return [x, weight, vectors[1], *running, training, 0.1, 1e-5], {}


def _native_batch_norm_backward(draw):
    x, vectors, running, training = _batch_norm(draw)
    g = draw(tensors(x.shape, (x.dtype,)))
    saved = [torch.empty(x.shape[1], dtype=_statistics(x.dtype), device="meta") for _ in range(2)]
    mask = [True, *draw(st.tuples(FLAGS, FLAGS))]
    return [g, x, vectors[0], *running, *saved, training, 1e-5, mask], {}


def _cudnn_batch_norm_backward(draw):
    x, _, running, _ = _batch_norm(draw, training=True)
    g = draw(tensors(x.shape, (x.dtype,)))
    weight, *saved = [
        torch.empty(x.shape[1], dtype=_statistics(x.dtype), device="meta") for _ in range(3)
    ]
    reserve = torch.empty(0, dtype=torch.uint8, device="meta")
    return [x, g, weight, *running, *saved, 1e-5, reserve], {}


def _layer_norm(draw):
    x = draw(tensors(_shape(draw)))
    inner = x.shape[draw(st.integers(0, len(x.shape) - 1)) :]
    return [x, list(inner), _vector(draw, inner, x.dtype), _vector(draw, inner, x.dtype), 1e-5], {}


def _layer_norm_backward(draw):
    (x, inner, weight, bias, _), _ = _layer_norm(draw)
    outer = (*x.shape[: len(x.shape) - len(inner)], *(1 for _ in inner))
    g = draw(tensors(x.shape, (x.dtype,)))
    saved = [torch.empty(outer, dtype=_statistics(x.dtype), device="meta") for _ in range(2)]
    return [g, x, inner, *saved, weight, bias, list(draw(st.tuples(FLAGS, FLAGS, FLAGS)))], {}


def _group_norm(draw):
    group, width = draw(SIZES), draw(SIZES)
    shape = (draw(SIZES), group * width, *draw(st.lists(SIZES, min_size=1, max_size=3)))
    x = draw(tensors(shape))
    inner = x.numel() // (shape[0] * shape[1])
    vectors = [_vector(draw, shape[1], x.dtype) for _ in range(2)]
    return [x, *vectors, shape[0], shape[1], inner, group, 1e-5], {}


def _group_norm_backward(draw):
    (x, weight, _, batch, channels, inner, group, _), _ = _group_norm(draw)
    if draw(st.integers(0, 3)):
        x = x.contiguous()
    g = torch.empty(x.shape, dtype=x.dtype, device="meta")
    saved = [torch.empty(batch, group, dtype=x.dtype, device="meta") for _ in range(2)]
    mask = list(draw(st.tuples(FLAGS, FLAGS, FLAGS)))
    return [g, x, *saved, weight, batch, channels, inner, group, mask], {}


NORMS = {
    aten.native_batch_norm.default: _native_batch_norm,
    aten.native_batch_norm_backward.default: _native_batch_norm_backward,
    aten.cudnn_batch_norm.default: _cudnn_batch_norm,
    aten.cudnn_batch_norm_backward.default: _cudnn_batch_norm_backward,
    aten.native_layer_norm.default: _layer_norm,
    aten.native_layer_norm_backward.default: _layer_norm_backward,
    aten.native_group_norm.default: _group_norm,
    aten.native_group_norm_backward.default: _group_norm_backward,
}


@pytest.mark.parametrize("op", sorted(norms.RULES, key=str), ids=str)
def test_norm_rules_equal_the_meta_kernel(op):
    """Every answer equals the kernel's outputs, and most cases are answered.

    That of layer norm's backward is the one that every target has in place of torch's, which
    returns the strides of the gradient that comes in where devices return row-major ones.
    """
    with device_rules(RunSettings(target="meta")):
        check(op, NORMS[op])


KINDS = {
    "row-major": lambda *shape: torch.randn(shape),
    "transposed": lambda a, b, *rest: torch.randn(b, a, *rest).transpose(0, 1),
    "channels last": lambda *shape: torch.randn(shape).contiguous(
        memory_format=torch.channels_last
    ),
    "permuted": lambda a, b, c, d: torch.randn(a, d, b, c).permute(0, 2, 3, 1),
    "expanded": lambda a, *rest: torch.randn(1, *rest).expand(a, *rest),
    "sliced": lambda a, b, c, d: torch.randn(a, b, c, d + 3)[..., :d],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gradient", KINDS)
def test_layer_norm_has_the_layout_of_a_real_device(kind, gradient):
    """Shapes, strides and dtypes of both directions are those of the CPU's kernels."""

    def run(move):
        x, g = move(KINDS[kind](2, 3, 4, 5)), move(KINDS[gradient](2, 3, 4, 5))
        weight, bias = move(torch.randn(5)), move(torch.randn(5))
        forward = aten.native_layer_norm(x, [5], weight, bias, 1e-5)
        backward = aten.native_layer_norm_backward(
            g, x, [5], *forward[1:], weight, bias, [True, True, True]
        )
        return [(t.shape, t.stride(), t.dtype) for t in (*forward, *backward)]

    def to_meta(t):
        return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")

    with device_rules(RunSettings(target="meta")):
        assert run(to_meta) == run(lambda t: t)


def _dims(draw, rank):
    """A list of dimensions from either end."""
    dims = draw(st.lists(st.integers(0, rank - 1), unique=True)) if rank else []
    return [dim - rank if draw(FLAGS) else dim for dim in dims]


def _reduction(draw, op):
    schema = op._schema
    kinds = (*FLOATS, *INTS, torch.bool) if draw(FLAGS) else FLOATS
    x = draw(tensors(_shape(draw, 0), kinds))
    args, kwargs = [x], {}
    for argument in schema.arguments[1:]:
        kind = str(argument.type)
        value = None
        if argument.name == "ord":
            value = 2
        elif argument.name == "dim":
            dims = _dims(draw, len(x.shape))
            single = kind in ("int", "Optional[int]")
            value = (dims or [-1])[0] if single else dims
        elif argument.name == "keepdim":
            value = draw(FLAGS)
        elif argument.name == "correction":
            value = draw(st.sampled_from((0, 1)))
        elif argument.name == "dtype" and schema.name == "aten::sum":
            value = draw(st.sampled_from((None, torch.float32, torch.float64)))
        else:
            continue
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    return args, {name: value for name, value in kwargs.items() if value is not None}


def _softmax(draw, op):
    x = draw(tensors(_shape(draw)))
    widen = draw(FLAGS) and x.dtype is torch.float16
    dim = draw(st.integers(-len(x.shape), len(x.shape) - 1))
    if op is aten._safe_softmax.default:
        return [x, dim], {}
    if "backward" not in str(op):
        return [x, dim, widen], {}
    y = draw(tensors(x.shape, (x.dtype,)))
    dtype = torch.float16 if x.dtype is torch.float32 and draw(FLAGS) else x.dtype
    return [x, y, dim, dtype], {}


@pytest.mark.parametrize("op", sorted(reductions.RULES, key=str), ids=str)
def test_reduction_rules_equal_the_meta_kernel(op):
    """Every answer equals the kernel's outputs, and most cases are answered."""
    case = _softmax if "softmax" in str(op) else _reduction
    check(op, lambda draw: case(draw, op))
