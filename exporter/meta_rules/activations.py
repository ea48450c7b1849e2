"""Rules of activations, whose meta kernels are chains of pointwise primitives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from exporter.formulas.spec import TensorSpec
from exporter.meta_rules.dtypes import FLOATS
from exporter.meta_rules.layout import Ints, Layout, pointwise
from exporter.meta_rules.pointwise import NUMBERS, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from exporter.meta_rules.dtypes import Rule, Rules

aten = torch.ops.aten


def _one(*operands: Layout) -> Layout:
    """``combine`` of operands of one shape, which always has an answer."""
    shape = operands[0][0]
    return shape, pointwise(shape, tuple(stride for _, stride in operands))


def _number(layout: Layout) -> Layout:
    """A number as an operand of ``where``: a 0-dimensional tensor that is expanded."""
    return layout[0], (0,) * len(layout[0])


# Layouts of decompositions of one tensor x, or of a gradient g and a tensor x of the same shape.
# Each mirrors torch/_decomp/decompositions.py or torch/_refs/nn/functional/__init__.py.
def _clamped(x: Layout, bounds: int = 1) -> Layout:
    for _ in range(bounds):
        x = _one(_one(_one(x), _one(x)), x, _number(x))
    return x


def _gelu(x: Layout) -> Layout:
    return _one(_one(x), _one(_one(_one(x))))


def _gelu_tanh(x: Layout) -> Layout:
    cube = _one(_one(x, x), x)
    inner = _one(_one(x, _one(cube)))
    return _one(_one(x), _one(_one(inner)))


def _gelu_backward(g: Layout, x: Layout) -> Layout:
    cdf = _one(_one(_one(_one(x))))
    pdf = _one(_one(_one(_one(x))))
    return _one(g, _one(cdf, _one(x, pdf)))


def _gelu_tanh_backward(g: Layout, x: Layout) -> Layout:
    square = _one(x, x)
    tanh = _one(_one(_one(x, _one(_one(square, x)))))
    left, right = _one(x), _one(tanh)
    derivative = _one(_one(left, _one(_one(tanh, tanh))), _one(_one(_one(square))))
    return _one(g, _one(_one(right), derivative))


def _silu_backward(g: Layout, x: Layout) -> Layout:
    sigmoid = _one(x)
    return _one(_one(g, sigmoid), _one(_one(x, _one(sigmoid))))


def _hardswish(x: Layout) -> Layout:
    return _one(_one(x, _clamped(_clamped(_one(x)))))


def _hardswish_backward(g: Layout, x: Layout) -> Layout:
    return _one(_one(x), _number(x), _one(_one(x), _one(g, _one(_one(x))), g))


def _elu(x: Layout) -> Layout:
    return _one(_one(x), _one(x), _one(_one(_one(x))))


def _softplus(x: Layout) -> Layout:
    scaled = _one(x)
    return _one(_one(scaled), x, _one(_one(_one(scaled))))


_ONE_TENSOR: dict[str, Callable[[Layout], Layout]] = {
    "relu": lambda x: _one(_one(x), _number(x), x),
    "hardsigmoid": lambda x: _one(_clamped(_clamped(_one(x)))),
    "hardswish": _hardswish,
    "leaky_relu": lambda x: _one(_one(x), x, _one(x)),
    "elu": _elu,
    "softplus": _softplus,
}
_TWO_TENSORS: dict[str, Callable[[Layout, Layout], Layout]] = {
    "threshold_backward": lambda g, x: _one(_one(x), _number(x), g),
    "sigmoid_backward": lambda g, x: _one(g, _one(x, _one(x))),
    "tanh_backward": lambda g, x: _one(g, _one(_one(x, x))),
    "hardsigmoid_backward": lambda g, x: _one(_one(_one(x), _one(x)), _one(g), _number(x)),
    "hardtanh_backward": lambda g, x: _one(_one(_one(x), _one(x)), _number(x), g),
    "leaky_relu_backward": lambda g, x: _one(_one(x), g, _one(g)),
    "hardswish_backward": _hardswish_backward,
    "silu_backward": _silu_backward,
}


def _activation(*layouts: Layout, chain: Callable[..., Layout]) -> Ints:
    """Stride of a decomposition's result."""
    first = layouts[0]
    # Operands of one layout that the primitive keeps give that layout at every step; only without
    # elements a number among the operands may change it.
    if (
        0 not in first[0]
        and all(layout == first for layout in layouts)
        and pointwise(first[0], (first[1],)) == first[1]
    ):
        return first[1]
    return chain(*layouts)[1]


def _rule(count: int, chain: Callable[..., Layout], *, opmath: bool = True) -> Rule:
    def rule(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
        return None if kwargs else _applied(args[:count], chain, opmath=opmath)

    return rule


def _applied(
    operands: tuple[TensorSpec, ...], chain: Callable[..., Layout], *, opmath: bool = True
) -> tuple[TensorSpec, ...] | None:
    """Result of a decomposition of floating operands of one shape and dtype, else None."""
    first = operands[0]
    dtype, shape = first.dtype, first.shape
    if dtype not in FLOATS:
        return None
    for operand in operands:
        if operand.dtype is not dtype or operand.shape != shape:
            return None
    compute = torch.float32 if opmath and dtype.itemsize == 2 else dtype
    stride = _activation(*(cast(operand, compute) for operand in operands), chain=chain)
    return (TensorSpec(shape, stride, 0, dtype),)


def _gelus(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    tanh = kwargs.get("approximate", "none") == "tanh"
    return _applied(args[:1], _gelu_tanh if tanh else _gelu)


def _gelu_gradients(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    tanh = kwargs.get("approximate", "none") == "tanh"
    return _applied(args[:2], _gelu_tanh_backward if tanh else _gelu_backward)


def _clamp(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    bounds = [bound for bound in (*args[1:], *kwargs.values()) if bound is not None]
    if not bounds or any(type(bound) not in NUMBERS for bound in bounds):
        return None
    return _applied(args[:1], lambda x: _clamped(x, len(bounds)))


def _hardtanh(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[TensorSpec, ...] | None:
    return None if kwargs else _applied(args[:1], lambda x: _clamped(x, 2))


RULES: Rules = {
    aten.gelu.default: _gelus,
    aten.gelu_backward.default: _gelu_gradients,
    aten.clamp.default: _clamp,
    aten.clamp_min.default: _clamp,
    aten.clamp_max.default: _clamp,
    aten.hardtanh.default: _hardtanh,
    **{getattr(aten, name).default: _rule(1, chain) for name, chain in _ONE_TENSOR.items()},
    **{getattr(aten, name).default: _rule(2, chain) for name, chain in _TWO_TENSORS.items()},
    aten.threshold_backward.default: _rule(2, _TWO_TENSORS["threshold_backward"], opmath=False),
}
