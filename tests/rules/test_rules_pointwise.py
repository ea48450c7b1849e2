"""Pointwise rules and activations against the meta kernels."""

from __future__ import annotations

import pytest
import torch
from hypothesis import strategies as st
from rules_cases import FLOATS, INTS, broadcastable, check, shapes, tensors

from exporter.meta_rules import activations, pointwise

aten = torch.ops.aten
ALL = (*FLOATS, *INTS, torch.bool)
NUMBERS = st.sampled_from((2, 1, 0.5, 2.0, 3, True))
TRAILING = {
    aten.hardtanh_backward.default: (-1.0, 1.0),
    aten.threshold_backward.default: (0,),
    aten.leaky_relu_backward.default: (0.1, False),
}


def _arguments(draw, op):
    """Tensors and numbers for an operator, by the names and types in its schema."""
    shape, args = draw(shapes()), []
    gradient = op in activations.RULES
    dtypes = FLOATS if gradient or draw(st.booleans()) else ALL
    if op in (aten.bitwise_not.default, *(getattr(aten, n).Tensor for n in pointwise._BITWISE)):
        dtypes = (*INTS, torch.bool)
    alike = gradient or op._schema.name in ("aten::addcmul", "aten::addcdiv", "aten::lerp")
    if alike or draw(st.booleans()):
        dtypes = (draw(st.sampled_from(dtypes)),)
    for argument in op._schema.arguments:
        kind = str(argument.type)
        if kind == "Tensor":
            own = shape if gradient else draw(broadcastable(shape))
            condition = argument.name in ("condition", "mask")
            logical = op._schema.name.startswith("aten::logical")
            scalar = op is aten.masked_fill.Tensor and argument.name == "value"
            args.append(
                draw(
                    tensors(
                        shape=() if scalar else own,
                        dtypes=(torch.bool,) if condition or logical else dtypes,
                    )
                )
            )
            if argument.name == "other" and not logical and draw(st.integers(0, 4)) == 0:
                args[-1] = draw(NUMBERS)
        elif not argument.has_default_value() and not argument.kwarg_only:
            args.append(draw(NUMBERS))
    return args


@pytest.mark.parametrize("op", sorted({**pointwise.RULES, **activations.RULES}, key=str), ids=str)
def test_pointwise_rules_equal_the_meta_kernel(op):
    """Every answer equals the kernel's outputs, and most cases are answered."""

    def case(draw):
        args, kwargs = _arguments(draw, op), {}
        if op in TRAILING:
            args = [*args[:2], *TRAILING[op]]
        if op in (aten.add.Tensor, aten.sub.Tensor) and draw(st.booleans()):
            kwargs = {"alpha": draw(st.sampled_from((1, 2)))}
        if op in (aten.gelu.default, aten.gelu_backward.default):
            kwargs = {"approximate": draw(st.sampled_from(("none", "tanh")))}
        if op is aten.clamp.default:
            args = [args[0], draw(st.sampled_from((None, 0.0))), 2.0]
        elif op._schema.name in ("aten::clamp_min", "aten::clamp_max"):
            args = [args[0], 0.0]
        return args, kwargs

    check(op, case)
