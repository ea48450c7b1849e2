"""Rules of operators that make, copy, join and index tensors, against the meta kernels."""

from __future__ import annotations

import pytest
import torch
from hypothesis import strategies as st
from rules_cases import FLOATS, INTS, check, shapes, tensors

from exporter.formulas.spec import TensorSpec
from exporter.meta_rules import (
    RULES,
    activations,
    linear,
    norms,
    pointwise,
    reductions,
    training,
    vision,
)
from exporter.meta_rules import tensors as tensor_rules

aten = torch.ops.aten
ALL = (*FLOATS, *INTS, torch.bool)
FLAGS = st.booleans()
SIZES = st.sampled_from((1, 1, 2, 3, 4))
DTYPES = st.sampled_from((None, torch.float16, torch.float32, torch.int64))


def _options(draw, **more):
    dtype = draw(DTYPES)
    return {**({} if dtype is None else {"dtype": dtype}), **more}


def _made(draw, op):
    """Factories: sizes or limits, and a device."""
    options = _options(draw, device=torch.device("meta"))
    name = op._schema.name
    if "arange" in name:
        numbers = st.sampled_from((0, 1, 2, 3, 7, 0.5, 2.5))
        return [draw(numbers) for _ in range(len(op._schema.arguments) - 4)], options
    if "scalar_tensor" in name:
        return [draw(st.sampled_from((1, 0.5, True)))], options
    shape = list(draw(shapes()))
    if "strided" in name:
        return [shape, list(range(1, len(shape) + 1))], options
    fill = [draw(st.sampled_from((1, 0.5, True)))] if name == "aten::full" else []
    return [shape, *fill], options


def _derived(draw, op):
    """New tensors with an existing one as the model."""
    x, options = draw(tensors(dtypes=ALL)), _options(draw)
    name = op._schema.name
    if "new_empty_strided" in name:
        return [x, [2, 3], [1, 2]], options
    if "new" in name:
        return [x, list(draw(shapes())), *([1] if "full" in name else [])], options
    formats = [torch.preserve_format, torch.contiguous_format]
    if x.dim() in (4, 5):
        formats.append(torch.channels_last if x.dim() == 4 else torch.channels_last_3d)
    if draw(FLAGS):
        options["memory_format"] = draw(st.sampled_from(formats))
    if name == "aten::clone":
        options.pop("dtype", None)
    return [x, *([1] if "full" in name else [])], options


def _joined(draw, op):
    rank, count = draw(st.sampled_from((1, 2, 4, 4, 5))), draw(st.integers(1, 3))
    dtypes = (draw(st.sampled_from(ALL)),) if draw(st.integers(0, 4)) else FLOATS
    shape, dim = [draw(SIZES) for _ in range(rank)], draw(st.integers(-rank, rank - 1))
    parts = []
    for _ in range(count):
        if op is aten.cat.default:
            shape[dim] = draw(st.sampled_from((0, 1, 2, 3)))
        parts.append(draw(tensors(shape, dtypes)))
    return [parts, dim], {}


def _indexed(draw, op):
    """Indices for some dimensions, neighbours or not."""
    shape = [draw(SIZES) for _ in range(draw(st.integers(1, 4)))]
    x = draw(tensors(shape, ALL))
    found = tuple(draw(st.lists(SIZES, min_size=1, max_size=2)))
    indices = [
        draw(tensors(draw(st.sampled_from((found, found[1:]))), (torch.int64,)))
        if draw(FLAGS)
        else None
        for _ in shape
    ]
    if "put" not in str(op):
        return [x, indices], {}
    return [x, indices, draw(tensors((), (x.dtype,)))], {}


def _picked(draw, op):
    """Gather, scatter and index_select along one dimension."""
    shape = [draw(SIZES) for _ in range(draw(st.integers(1, 4)))]
    dim = draw(st.integers(-len(shape), len(shape) - 1))
    x = draw(tensors(shape, ALL, expand=False))
    if op is aten.index_select.default:
        return [x, dim, draw(tensors((draw(SIZES),), (torch.int64,)))], {}
    index = draw(tensors([min(size, draw(SIZES)) for size in shape], (torch.int64,)))
    if op is aten.gather.default:
        return [x, dim, index], {}
    source = 1 if op is aten.scatter.value else draw(tensors(shape, (x.dtype,)))
    return [x, dim, index, source], {}


def _moved(draw, op):
    """Repeat, roll, padding, triangles and the gradients of slices."""
    x = draw(tensors(draw(shapes(least=1)), ALL))
    rank, name = len(x.shape), op._schema.name
    if "repeat" in name:
        return [x, draw(st.lists(st.integers(0, 3), min_size=rank, max_size=rank + 2))], {}
    if "roll" in name:
        dims = draw(st.lists(st.integers(0, rank - 1), max_size=2, unique=True))
        return [x, [1] * (len(dims) or 1), *([dims] if dims else [])], {}
    if "pad" in name:
        widths = st.integers(-1, 2)
        count = 2 * draw(st.integers(1, rank))
        return [x, draw(st.lists(widths, min_size=count, max_size=count)), 0], {}
    if "tri" in name:
        return [x, draw(st.integers(-1, 1))], {}
    whole = [size + 3 for size in x.shape]
    if "slice" in name:
        whole[1:] = x.shape[1:]
        return [x, whole, 0, 1, 1 + x.shape[0], 1], {}
    return [x, [4, *x.shape], 0, 1], {}


_FAMILIES = {
    _made: (
        "empty.",
        "empty_strided",
        "zeros.",
        "ones.",
        "rand.",
        "randn.",
        "full.",
        "scalar_",
        "arange",
    ),
    _derived: ("new_", "_like", "clone", "_to_copy"),
    _joined: ("cat", "stack"),
    _indexed: ("index.", "index_put", "_unsafe_index"),
    _picked: ("index_select", "gather", "scatter"),
    _moved: ("repeat", "roll", "pad", "tri", "slice", "select_backward"),
}


def _family(op):
    name = str(op).removeprefix("aten.")
    starts = {case for case, names in _FAMILIES.items() if name.startswith(names)}
    cases = starts or {
        case for case, names in _FAMILIES.items() if any(part in name for part in names)
    }
    assert cases, f"no samples for the rule of {name}: name it in _FAMILIES, with what makes them"
    return cases.pop()


@pytest.mark.parametrize("op", sorted(tensor_rules.RULES, key=str), ids=str)
def test_tensor_rules_equal_the_meta_kernel(op):
    """Every answer equals the kernel's outputs, and most cases are answered."""
    case = _family(op)
    share = {_moved: 0.15, _indexed: 0.25}.get(case, 0.4)
    check(op, lambda draw: case(draw, op), share)


def test_rules_leave_other_devices_and_aliases_alone():
    """A factory of another device, a copy to one, and dropout that returns its operand."""
    x = TensorSpec((2, 3), (3, 1), 0, torch.float32)
    cpu = torch.device("cpu")
    assert RULES.of(aten.zeros.default)(([2],), {"device": cpu}) is None
    assert RULES.of(aten.zeros.default)(([2],), {}) is None
    assert RULES.of(aten._to_copy.default)((x,), {"device": cpu}) is None
    assert RULES.of(aten.native_dropout.default)((x, 0.5, False), {}) is None
    assert RULES.of(aten.add.Tensor)((x, TensorSpec((4,), (1,), 0, torch.float32)), {}) is None


def test_rules_cover_operators_that_share_no_storage():
    """No registered operator's schema aliases or writes an operand."""
    modules = (pointwise, activations, norms, reductions, linear, tensor_rules, vision, training)
    operators = [op for module in modules for op in module.RULES]
    assert len(operators) == len(set(operators)) == len(RULES.stated)
    for op in operators:
        assert not any(argument.alias_info for argument in op._schema.arguments), op
        assert not any(returned.alias_info for returned in op._schema.returns), op
