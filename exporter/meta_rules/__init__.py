"""Outputs of hot operators in closed form, where torch's meta kernels are slow.

``RULES[op](args, kwargs)`` gets the arguments that a ``TorchDispatchMode`` sees, with a
``TensorSpec`` in place of each tensor, and returns one spec per output (shape, stride and dtype
exactly as the meta kernel decides, offset 0, storage of its own; None for an output that is not
computed), or None if it does not know: then the kernel has to run. Tensors with dimensions must
be on meta; a rule never answers for an operator whose outputs share storage with its operands.
"""

from __future__ import annotations

from exporter.meta_rules import (
    activations,
    linear,
    norms,
    pointwise,
    reductions,
    tensors,
    training,
    vision,
)
from exporter.meta_rules.dtypes import Rule, Rules

__all__ = ["RULES", "Rule"]

RULES: Rules = {
    **pointwise.RULES,
    **activations.RULES,
    **norms.RULES,
    **reductions.RULES,
    **linear.RULES,
    **tensors.RULES,
    **vision.RULES,
    **training.RULES,
}
