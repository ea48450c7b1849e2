"""Outputs of hot operators in closed form, where torch's meta kernels are slow.

``RULES.of(op)(args, kwargs)`` gets the arguments that a ``TorchDispatchMode`` sees, with a
``TensorSpec`` in place of each tensor, and returns one spec per output (shape, stride and dtype
exactly as the meta kernel decides, offset 0, storage of its own; None for an output that is not
computed), or None if it does not know: then the kernel has to run. Tensors with dimensions must
be on meta; a rule never answers for an operator whose outputs share storage with its operands.
"""

from __future__ import annotations

from exporter.ledger import Facts
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
from exporter.meta_rules.dtypes import Rule

__all__ = ["RULES", "Rule"]

RULES = Facts[Rule](
    __name__,
    "a rule for outputs",
    "gives geometries and types of outputs in closed form, without a kernel",
)
for _module in (pointwise, activations, norms, reductions, linear, tensors, vision, training):
    for _operator, _rule in _module.RULES.items():
        RULES(_operator)(_rule)
