"""Rules of contractions, pooling, dropout, losses and optimizers against the meta kernels."""

from __future__ import annotations

import pytest
import torch
from hypothesis import strategies as st
from rules_cases import FLOATS, check, shapes, tensors

from exporter.meta_rules import linear, training, vision
from exporter.targets.rules import device_rules
from store.settings import RunSettings

aten = torch.ops.aten
FLAGS = st.booleans()
SIZES = st.sampled_from((1, 1, 2, 3, 4))
WIDE = st.sampled_from((1, 4, 5, 7, 8))


def _one_dtype(draw):
    return (draw(st.sampled_from(FLOATS)),)


def _matrices(draw, op):
    """Operands of matrix products, now and then empty."""
    dtypes = _one_dtype(draw)
    size = st.sampled_from((0, 1, 2, 3, 4))
    n, k, m, batch = draw(size), draw(size), draw(size), draw(size)
    batched = (batch,) if "bmm" in str(op) else ()
    args = [draw(tensors((*batched, n, k), dtypes)), draw(tensors((*batched, k, m), dtypes))]
    if op not in (aten.addmm.default, aten.baddbmm.default):
        return args, {}
    out = (*batched, n, m)
    bias = draw(st.sampled_from((out, out[-1:], (1, *out[1:]))))
    if batched:
        bias = out
    kwargs = {"beta": draw(st.sampled_from((0, 1))), "alpha": 2} if draw(FLAGS) else {}
    return [draw(tensors(bias, dtypes)), *args], kwargs


def _convolution(draw, op):
    rank = draw(st.sampled_from((1, 2, 2, 3)))
    dtypes, transposed = _one_dtype(draw), draw(FLAGS)
    groups, inner, outer = draw(SIZES), draw(SIZES), draw(SIZES)
    each = st.lists(st.integers(1, 3), min_size=rank, max_size=rank)
    kernel, stride, dilation = draw(each), draw(each), draw(each)
    padding = draw(st.lists(st.integers(0, 2), min_size=rank, max_size=rank))
    x = draw(tensors((draw(SIZES), groups * inner, *(draw(WIDE) for _ in range(rank))), dtypes))
    shape = (groups * inner, outer) if transposed else (groups * outer, inner)
    weight = draw(tensors((*shape, *kernel), dtypes))
    bias = torch.empty(groups * outer, dtype=dtypes[0], device="meta") if draw(FLAGS) else None
    extra = [0] * rank if not transposed else [min(stride) - 1] * rank
    args = [x, weight, bias, stride, padding, dilation, transposed, extra, groups]
    if op is aten.convolution.default:
        return args, {}
    try:
        out = aten.convolution.default(*args)
    except RuntimeError:
        return [], {}
    mask = list(draw(st.tuples(FLAGS, FLAGS, FLAGS)))
    return [draw(tensors(out.shape, dtypes)), x, weight, [groups * outer], *args[3:], mask], {}


def _embedding(draw, op):
    indices = draw(tensors(draw(shapes(most=3)), (torch.int64, torch.int32)))
    weight = draw(tensors((draw(SIZES), draw(SIZES))))
    if op is aten.embedding.default:
        return [weight, indices], {}
    g = draw(tensors((*indices.shape, weight.shape[1])))
    return [g, indices, 7, -1, False], {}


def _attention(draw, op):
    dtypes = _one_dtype(draw)
    batch, heads, width = draw(SIZES), draw(SIZES), draw(SIZES)
    tokens, others = draw(st.sampled_from((1, 5, 32, 40))), draw(SIZES)
    query, key, value = (
        draw(tensors((batch, heads, length, width), dtypes)) for length in (tokens, others, others)
    )
    kwargs = {"scale": 0.5} if draw(FLAGS) else {}
    if op is aten._scaled_dot_product_efficient_attention.default:
        return [query, key, value, None, draw(FLAGS), 0.0, draw(FLAGS)], kwargs
    out = torch.empty_like(query)
    rows = torch.empty(batch, heads, tokens, device="meta")
    seed = torch.empty((), dtype=torch.int64, device="meta")
    if op is aten._scaled_dot_product_flash_attention_backward.default:
        sizes = [None, None, tokens, others, 0.0, False, seed, seed]
        return [out, query, key, value, out, rows, *sizes], kwargs
    bias = draw(tensors((batch, heads, tokens, others), dtypes)) if draw(FLAGS) else None
    mask = [True, True, True, draw(FLAGS)]
    return [out, query, key, value, bias, out, rows, seed, seed, 0.0, mask], kwargs


def _grouped(draw, _op):
    """Rows split among groups, in the one type and alignment that the kernel takes on meta."""
    groups, rows = draw(SIZES), draw(SIZES) * 8
    inner, columns = draw(SIZES) * 8, draw(SIZES) * 8
    many = draw(st.sampled_from(("rows", "inner", "neither")))
    left = (rows, inner) if many != "neither" else (groups, rows, inner)
    right = (inner, columns) if many == "inner" else (groups, inner, columns)
    a, b = (torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in (left, right))
    if many == "neither":
        return [a, b], {}
    return [a, b], {"offs": torch.empty(groups, dtype=torch.int32, device="meta")}


def _linear_case(op):
    name = op._schema.name
    if "attention" in name:
        return _attention
    if "embedding" in name:
        return _embedding
    if "grouped" in name:
        return _grouped
    return _convolution if "convolution" in name else _matrices


@pytest.mark.parametrize("op", sorted(linear.RULES, key=str), ids=str)
def test_contraction_rules_equal_the_meta_kernel(op):
    """Every answer equals the kernel's outputs, and most cases are answered.

    That of convolutions is the one that every target has in place of torch's.
    """
    with device_rules(RunSettings(target="meta")):
        check(op, lambda draw: _linear_case(op)(draw, op))


def _pooling(draw, op):
    shape = (draw(SIZES), draw(SIZES), draw(WIDE), draw(WIDE))
    x = draw(tensors(shape if draw(st.integers(0, 4)) else shape[1:]))
    many = st.lists(st.integers(1, 3), min_size=1, max_size=2)
    kernel, stride = draw(many), draw(st.one_of(st.just([]), many))
    padding, ceil_mode = draw(st.sampled_from(([0], [1], [1, 0]))), draw(FLAGS)
    largest = "max" in str(op)
    options = [draw(many), ceil_mode] if largest else [ceil_mode, draw(FLAGS), None]
    args = [x, kernel, stride, padding, *options]
    if "backward" not in str(op):
        return (args if draw(FLAGS) else args[: 1 + draw(st.integers(1, 3))]), {}
    forward = aten.max_pool2d_with_indices.default if largest else aten.avg_pool2d.default
    try:
        out = forward(*args)
    except RuntimeError:
        return [], {}
    out, *indices = out if largest else (out,)
    return [draw(tensors(out.shape, (x.dtype,))), *args, *indices], {}


def _resampling(draw, op):
    # Resampling by two lines answers only where no size is 1: such cases come now and then.
    least = 2 if "bilinear" in str(op) and draw(st.integers(0, 3)) else 1
    sizes = st.integers(least, 5)
    x = draw(tensors([draw(sizes) for _ in range(4)]))
    size = [draw(sizes), draw(sizes)]
    if "adaptive" in str(op):
        if "backward" not in str(op):
            return [x, size], {}
        return [draw(tensors((*x.shape[:2], *size), (x.dtype,))), x], {}
    if "backward" in str(op):
        return [draw(tensors((*x.shape[:2], *size))), size, list(x.shape)], {}
    return [x, size, *([draw(FLAGS)] if "linear" in str(op) or "cubic" in str(op) else [])], {}


@pytest.mark.parametrize("op", sorted(vision.RULES, key=str), ids=str)
def test_pooling_and_resampling_rules_equal_the_meta_kernel(op):
    """Every answer equals the kernel's outputs, and most cases are answered."""
    adaptive = "adaptive" in str(op) or "upsample" in str(op)
    share = 0.1 if "bicubic" in str(op) else 0.4  # it answers for row-major images only
    check(op, lambda draw: (_resampling if adaptive else _pooling)(draw, op), share)


def _dropout(draw, op):
    x = draw(tensors())
    if op is aten.native_dropout.default:
        return [
            x,
            draw(st.sampled_from((0.5, 0.1, 0.5, 0.0, 1.0))),
            draw(st.integers(0, 3)) > 0,
        ], {}
    return [x, draw(tensors(x.shape, (torch.bool,))), 2.0], {}


def _loss(draw, op):
    dtypes = _one_dtype(draw)
    reduction = draw(st.sampled_from((1, 1, 2, 0)))
    scalar = torch.empty((), dtype=dtypes[0], device="meta")
    if "mse" in str(op):
        x = draw(tensors(dtypes=dtypes))
        target = draw(tensors(x.shape, dtypes))
        g = draw(tensors(x.shape, dtypes)) if reduction == 0 else scalar
        return [*([g] if "backward" in str(op) else []), x, target, reduction], {}
    x = draw(tensors((draw(st.sampled_from((1, 2, 3))), draw(WIDE)), dtypes))
    target = draw(tensors(x.shape[:1], (torch.int64,)))
    if "backward" in str(op):
        g = scalar if reduction else torch.empty(x.shape[:1], dtype=dtypes[0], device="meta")
        return [g, x, target, None, reduction, -100, scalar], {}
    return [x, target, None, reduction, -100], {}


def _foreach(draw, op):
    count, dtypes = draw(st.integers(1, 3)), _one_dtype(draw)
    sizes = [draw(shapes(most=4)) for _ in range(count)]
    args = [[draw(tensors(shape, dtypes)) for shape in sizes]]
    overload = op._overloadname
    if overload == "List":
        args.append([draw(tensors(shape, dtypes)) for shape in sizes])
    elif overload == "ScalarList":
        args.append([0.5] * count)
    elif overload == "Scalar":
        args.append(draw(st.sampled_from((2, 0.5))))
    return args, {}


@pytest.mark.parametrize("op", sorted(training.RULES, key=str), ids=str)
def test_training_rules_equal_the_meta_kernel(op):
    """Every answer equals the kernel's outputs, and most cases are answered."""
    name = str(op)
    case = _dropout if "dropout" in name else _foreach if "foreach" in name else _loss
    check(op, lambda draw: case(draw, op), 0.25)
