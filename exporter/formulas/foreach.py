"""Operators over lists of tensors, and fused optimizer steps.

A ``_foreach`` operator counts what its single counterpart counts for each member of the list.
A fused step counts, per parameter element, the operations of the unfused step.
"""

from __future__ import annotations

from typing import Any

import torch

from exporter.formulas import (  # noqa: F401  # register the single counterparts
    contraction,
    normalization,
    pointwise,
    reduction,
)
from exporter.formulas.operands import Args, Formula, Kwargs, Outputs, tensors
from exporter.formulas.registry import Counts, formulas_of, register
from exporter.formulas.spec import TensorSpec

aten = torch.ops.aten


def _member(value: Any, index: int, count: int) -> Any:
    is_list = isinstance(value, (list, tuple)) and len(value) == count
    return value[index] if is_list else value


def per_member(single: Formula) -> Formula:
    """Return the sum of a formula over the members of the first list."""

    def formula(args: Args, kwargs: Kwargs, outputs: Outputs) -> int:
        lists = [a for a in args if isinstance(a, (list, tuple))]
        count = len(lists[0])
        # results are missing where the list was written in place
        results = list(tensors(outputs)) or list(tensors(lists[0]))
        return sum(
            single(
                tuple(_member(a, i, count) for a in args),
                {k: _member(v, i, count) for k, v in kwargs.items()},
                (results[i],),
            )
            for i in range(count)
        )

    formula.__doc__ = "The sum over the list of what the single operator counts."
    return formula


_FOREACH = (
    "abs", "acos", "add", "addcdiv", "addcmul", "asin", "atan", "ceil", "clamp_max", "clamp_min",
    "cos", "cosh", "div", "erf", "erfc", "exp", "expm1", "floor", "frac", "lerp", "lgamma", "log",
    "log10", "log1p", "log2", "max", "maximum", "minimum", "mm", "mul", "neg", "norm", "pow",
    "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "sub", "tan",
    "tanh", "trunc",
)  # fmt: skip

for _name in _FOREACH:
    _operator = getattr(aten, f"_foreach_{_name}")
    _counts: Counts
    for _counts, _single in formulas_of(getattr(aten, _name)).items():
        register(_operator, counts=_counts)(per_member(_single))
for _counts, _single in formulas_of(aten.linalg__powsum).items():
    register(aten._foreach_powsum, counts=_counts)(per_member(_single))


def _parameters(args: Args) -> int:
    """Elements of all parameters, the first list."""
    return sum(t.numel for t in tensors(args[0]))


def _gradient_flops(kwargs: Kwargs) -> int:
    """Per element: the gradient is negated, unscaled, and grows by the weights' decay."""
    unscaled = isinstance(kwargs.get("grad_scale"), TensorSpec)
    return bool(kwargs.get("maximize")) + unscaled + bool(kwargs.get("weight_decay"))


@register(aten._fused_adam, aten._fused_adamw, counts="pointwise_flops")
def adam_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """Parameter elements x 7.

    Those are: first moment (lerp), second moment (mul, addcmul), root, bias correction, epsilon,
    update (addcdiv); one more each for weight decay, amsgrad's maximum, maximising, unscaling.
    """
    per_element = 7 + bool(kwargs.get("amsgrad")) + _gradient_flops(kwargs)
    return _parameters(args) * per_element


@register(aten._fused_sgd, counts="pointwise_flops")
def sgd_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """Parameter elements x 1 for the update.

    Momentum adds 2 (mul, add) and nothing at the first step, Nesterov's rule 1; one more each for
    weight decay, maximising, unscaling.
    """
    momentum = bool(kwargs.get("momentum"))
    moving = 2 * (momentum and not kwargs.get("is_first_step"))
    nesterov = momentum and bool(kwargs.get("nesterov"))
    return _parameters(args) * (1 + moving + nesterov + _gradient_flops(kwargs))


@register(aten._fused_adagrad, counts="pointwise_flops")
def adagrad_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """Parameter elements x 4: sum of squares (addcmul), root, epsilon, update (addcdiv).

    One more each for weight decay, maximising, unscaling.
    """
    return _parameters(args) * (4 + _gradient_flops(kwargs))
