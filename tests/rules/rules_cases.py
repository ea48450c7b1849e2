"""Random tensors on meta, and a mode that holds every rule against the real meta kernel."""

from __future__ import annotations

from collections import Counter

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from exporter.formulas.spec import TensorSpec
from exporter.meta_rules import RULES

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
INTS = (torch.int64, torch.int32, torch.uint8)
SIZES = st.sampled_from((0, 1, 1, 2, 2, 3, 4, 5))


def spec_of(value):
    """Spec of a tensor; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    return TensorSpec(tuple(value.shape), value.stride(), value.storage_offset(), value.dtype)


class AgainstKernel(TorchDispatchMode):
    """Runs every operator for real and compares what its rule says."""

    def __init__(self):
        super().__init__()
        self.calls, self.answers = Counter(), Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        rule = RULES.of(func)
        if rule is None:
            return func(*args, **(kwargs or {}))
        self.calls[func] += 1
        said = rule(tree_map(spec_of, args), tree_map(spec_of, kwargs or {}))
        out = func(*args, **(kwargs or {}))
        if said is not None:
            self.answers[func] += 1
            flat = out if isinstance(out, (tuple, list)) else (out,)
            inputs = [id(x) for x in _tensors((args, kwargs))]
            assert not any(id(x) in inputs for x in _tensors(flat)), f"{func} returns an operand"
            assert said == tuple(map(spec_of, flat)), f"{func}: {tree_map(spec_of, (args, kwargs))}"
        return out


def _tensors(tree):
    return [x for x in torch.utils._pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


@st.composite
def shapes(draw, least=0, most=5):
    """A short list of small sizes, 0 and 1 among them."""
    return tuple(draw(st.lists(SIZES, min_size=least, max_size=most)))


@st.composite
def tensors(draw, shape=None, dtypes=FLOATS, expand=True):
    """A meta tensor of a shape in any memory format that a program can give it."""
    shape = draw(shapes()) if shape is None else tuple(shape)
    dtype = draw(st.sampled_from(dtypes))
    kinds = ["contiguous", "contiguous", "permuted", "sliced", "padded"]
    if len(shape) in (4, 5):
        kinds += ["channels_last"] * 2
    if expand and shape:
        kinds.append("expanded")
    kind = draw(st.sampled_from(kinds))
    if kind == "channels_last":
        last = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
        return torch.empty(shape, dtype=dtype, device="meta", memory_format=last)
    if kind == "permuted":
        order = draw(st.permutations(range(len(shape))))
        stored = torch.empty([shape[i] for i in order], dtype=dtype, device="meta")
        return stored.permute([order.index(i) for i in range(len(shape))])
    if kind == "sliced" and shape:
        dim = draw(st.integers(0, len(shape) - 1))
        wide = [size + 2 * (i == dim) for i, size in enumerate(shape)]
        return torch.empty(wide, dtype=dtype, device="meta").narrow(dim, 1, shape[dim])
    if kind == "padded" and shape:
        wide = [size * 2 for size in shape]
        stored = torch.empty(wide, dtype=dtype, device="meta")
        return stored[tuple(slice(0, None, 2) for _ in shape)]
    if kind == "expanded":
        mask = draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
        base = [1 if wide else size for wide, size in zip(mask, shape, strict=True)]
        return torch.empty(base, dtype=dtype, device="meta").expand(shape)
    return torch.empty(shape, dtype=dtype, device="meta")


@st.composite
def broadcastable(draw, shape):
    """A shape that broadcasts to the given one, often the same."""
    if draw(st.booleans()):
        return shape
    kept = shape[draw(st.integers(0, len(shape))) :]
    return tuple(1 if draw(st.booleans()) else size for size in kept)


def check(op, case, share=0.4, rounds=30):
    """Hold an operator's rule against its kernel on drawn cases, most of which it must answer.

    ``case(draw)`` returns arguments and named arguments; what the kernel refuses does not count.
    """
    mode, ran = AgainstKernel(), []

    @settings(
        max_examples=rounds,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def compare(data):
        args, kwargs = case(data.draw)
        try:
            op(*args, **kwargs)
        except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError):
            return
        except (AssertionError, ZeroDivisionError):
            return
        ran.append(1)
        with mode:
            op(*args, **kwargs)

    compare()
    assert len(ran) >= rounds // 5, "the cases are refused by the kernel"
    assert mode.answers[op] >= share * len(ran), "the rule hardly ever answers"
