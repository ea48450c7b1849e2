"""Operator -> formula, and the cost of one call.

Every operator is in exactly one of three sets: it has a formula, it is on the zero-cost list
(zero_cost.py; views are on it by rule), or it is unknown.
A formula is a plain function of the call's arguments and results to an integer.
It counts either ``macs`` or ``pointwise_flops``; an operator that does both has two.

One registration covers all overloads, the in-place variant (trailing underscore) and the ``out``
variants; an overload registered by itself goes first. A ``prims`` operator without an entry is
counted like the ``aten`` operator of its name.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from torch._ops import OpOverload, OpOverloadPacket

from exporter.formulas.spec import Cost
from exporter.formulas.zero_cost import ZERO_COST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from exporter.formulas.operands import Formula, Outputs

Counts = Literal["macs", "pointwise_flops"]

_FORMULAS: dict[str, dict[Counts, Formula]] = {}

# Their operators exist only once their library is imported, which costs seconds.
_LATE_MODULES = {"torchvision": "exporter.formulas.vision"}

ZERO = Cost(0, 0, "zero_cost")
UNKNOWN = Cost(0, 0, "unknown")

# What a formula meets when the arguments are not those of the operator's schema.
_ODD_INPUT = (AttributeError, IndexError, KeyError, TypeError, ValueError, ZeroDivisionError)


class _Entry(NamedTuple):
    status: str
    macs: Formula | None
    pointwise_flops: Formula | None


def target_name(target: Any) -> str:
    """Return the name that a formula is kept under: "aten::mm", or "aten::mm.out" for an overload.

    Raises:
        TypeError: if the target is neither an operator nor one of its overloads.
    """
    if isinstance(target, OpOverloadPacket):
        return str(target._qualified_op_name)
    if isinstance(target, OpOverload):
        return f"{target._schema.name}.{target._overloadname}"
    raise TypeError(
        f"{target!r} is no operator: register torch.ops.<namespace>.<name> or one of its overloads"
    )


def register(*targets: Any, counts: Counts) -> Callable[[Formula], Formula]:
    """Return a decorator that makes a function the formula of the targets.

    Args:
        targets: operators such as ``torch.ops.aten.mm``, or overloads of them.
        counts: what the function's result is.

    Raises:
        TypeError: if a target is no operator.
        ValueError: if a target has such a formula already, or is on the zero-cost list.
    """

    def decorate(formula: Formula) -> Formula:
        for target in targets:
            name = target_name(target)
            if name in ZERO_COST:
                raise ValueError(f"{name} is on the zero-cost list: it cannot have a formula too")
            if counts in _FORMULAS.get(name, {}):
                raise ValueError(f"{name} has a formula for {counts} already")
            _FORMULAS.setdefault(name, {})[counts] = formula
        _entry.cache_clear()
        return formula

    return decorate


def formulas() -> Mapping[str, Mapping[Counts, Formula]]:
    """Return every registered formula by operator name, those of late libraries included."""
    for module in _LATE_MODULES.values():
        importlib.import_module(module)
    return _FORMULAS


def formulas_of(target: Any) -> Mapping[Counts, Formula]:
    """Return the formulas of one operator, for formulas that build on them.

    Raises:
        KeyError: if it has none.
    """
    return _FORMULAS[target_name(target)]


def is_view(func: OpOverload) -> bool:
    """Return whether the schema says that a result aliases an operand and nothing is written."""
    schema = func._schema
    return any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns) and (
        not schema.is_mutable
    )


def _names(func: OpOverload) -> list[str]:
    """Return the names to look an overload up under, the most special first."""
    name = func._schema.name
    names = [f"{name}.{func._overloadname}", name]
    if name.endswith("_") and not name.endswith("__"):
        names.append(name[:-1])
    if name.startswith("prims::"):
        names.append("aten::" + name.removeprefix("prims::"))
    return names


@cache
def _entry(func: OpOverload) -> _Entry:
    late_module = _LATE_MODULES.get(func.namespace)
    if late_module is not None:
        importlib.import_module(late_module)
    if is_view(func):
        return _Entry("zero_cost", None, None)
    for name in _names(func):
        if name in ZERO_COST:
            return _Entry("zero_cost", None, None)
        if name in _FORMULAS:
            found = _FORMULAS[name]
            return _Entry("formula", found.get("macs"), found.get("pointwise_flops"))
    return _Entry("unknown", None, None)


def flops_status(func: OpOverload) -> str:
    """Return the set that an operator is in: "formula", "zero_cost" or "unknown"."""
    return _entry(func).status


def cost(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], outputs: Outputs) -> Cost:
    """Return the arithmetic of one operator call.

    Never raises: a call that its formula cannot read is unknown.

    Args:
        func: the overload that was called.
        args: positional arguments, every tensor a TensorSpec.
        kwargs: named arguments, likewise.
        outputs: the results, likewise; a list among them may be given whole or spread out.
    """
    if not isinstance(func, OpOverload):
        return UNKNOWN
    entry = _entry(func)
    if entry.status == "zero_cost":
        return ZERO
    if entry.status == "unknown":
        return UNKNOWN
    try:
        return Cost(
            entry.macs(args, kwargs, outputs) if entry.macs else 0,
            entry.pointwise_flops(args, kwargs, outputs) if entry.pointwise_flops else 0,
            "formula",
        )
    except _ODD_INPUT:
        return UNKNOWN
