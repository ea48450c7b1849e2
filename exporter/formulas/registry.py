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

from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from torch._ops import OpOverload

from exporter.errors import TraceError
from exporter.formulas.spec import Cost, TensorSpec
from exporter.formulas.zero_cost import ZERO_COST
from exporter.ledger import NOTHING, Facts, load_late, target_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from exporter.formulas.operands import Formula, Outputs

Counts = Literal["macs", "pointwise_flops"]

FORMULAS: Mapping[Counts, Facts[Formula]] = {
    "macs": Facts(
        __name__,
        "a formula for macs",
        "counts the multiply-adds of a contraction",
        covers_variants=True,
    ),
    "pointwise_flops": Facts(
        __name__,
        "a formula for pointwise_flops",
        "counts the floating-point operations of anything else that computes",
        covers_variants=True,
    ),
}

ZERO = Cost(0, 0, "zero_cost")
UNKNOWN = Cost(0, 0, "unknown")


class FormulaError(TraceError):
    """A formula failed on a call that is as its operator's schema says: the formula is wrong."""


class _Entry(NamedTuple):
    status: str
    macs: Formula | None
    pointwise_flops: Formula | None


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
            if name in ZERO_COST.stated:
                raise ValueError(f"{name} is on the zero-cost list: it cannot have a formula too")
        FORMULAS[counts](*targets)(formula)
        _entry.cache_clear()
        return formula

    return decorate


def formulas() -> Mapping[str, Mapping[Counts, Formula]]:
    """Return every registered formula by operator name, those of late libraries included."""
    load_late()
    found: dict[str, dict[Counts, Formula]] = {}
    for counts, facts in FORMULAS.items():
        for name, formula in facts.stated.items():
            found.setdefault(name, {})[counts] = formula
    return found


def formulas_of(target: Any) -> Mapping[Counts, Formula]:
    """Return the formulas of one operator, for formulas that build on them.

    Raises:
        KeyError: if it has none.
    """
    name = target_name(target)
    found = {c: facts.stated[name] for c, facts in FORMULAS.items() if name in facts.stated}
    if not found:
        raise KeyError(name)
    return found


def is_view(func: OpOverload) -> bool:
    """Return whether the schema says that a result aliases an operand and nothing is written."""
    schema = func._schema
    return any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns) and (
        not schema.is_mutable
    )


@cache
def _entry(func: OpOverload) -> _Entry:
    if is_view(func):
        return _Entry("zero_cost", None, None)
    macs, pointwise_flops = (facts.found(func) for facts in FORMULAS.values())
    zero = ZERO_COST.found(func)
    closest = min(macs, pointwise_flops, zero, key=lambda one: one.rank).rank
    if closest == NOTHING.rank:
        return _Entry("unknown", None, None)
    if zero.rank == closest:
        return _Entry("zero_cost", None, None)
    return _Entry(
        "formula",
        macs.value if macs.rank == closest else None,
        pointwise_flops.value if pointwise_flops.rank == closest else None,
    )


def flops_status(func: OpOverload) -> str:
    """Return the set that an operator is in: "formula", "zero_cost" or "unknown"."""
    return _entry(func).status


def cost(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], outputs: Outputs) -> Cost:
    """Return the arithmetic of one operator call.

    A call that is not as the operator's schema says is unknown.

    Args:
        func: the overload that was called.
        args: positional arguments, every tensor a TensorSpec.
        kwargs: named arguments, likewise.
        outputs: the results, likewise; a list among them may be given whole or spread out.

    Raises:
        FormulaError: if the formula fails; the text names it and the operator.
    """
    if not isinstance(func, OpOverload):
        return UNKNOWN
    entry = _entry(func)
    if entry.status == "zero_cost":
        return ZERO
    if entry.status == "unknown":
        return UNKNOWN
    counts = [0, 0]
    for i, formula in enumerate((entry.macs, entry.pointwise_flops)):
        if formula is None:
            continue
        try:
            counts[i] = formula(args, kwargs, outputs)
        except Exception as error:
            if not _is_as_declared(func, args, kwargs, outputs):
                return UNKNOWN
            name = getattr(formula, "__qualname__", type(formula).__name__)
            reason = f"{type(error).__name__}: {error}"
            raise FormulaError(
                f"the formula {formula.__module__}.{name} cannot count {func}: {reason}; "
                "mend it, or report it"
            ) from error
    return Cost(counts[0], counts[1], "formula")


def _is_as_declared(
    func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], outputs: Outputs
) -> bool:
    """Return whether a call has the tensors that its operator's schema asks for, and a result."""
    arguments = func._schema.arguments
    if len(args) > len(arguments) or (func._schema.returns and not outputs):
        return False
    for i, argument in enumerate(arguments):
        value = args[i] if i < len(args) else kwargs.get(argument.name)
        is_missing = i >= len(args) and argument.name not in kwargs
        if is_missing and not argument.has_default_value():
            return False
        kind = str(argument.type)
        if kind == "Tensor" and not isinstance(value, TensorSpec):
            return False
        if kind == "List[Tensor]" and not (
            isinstance(value, (list, tuple)) and all(isinstance(v, TensorSpec) for v in value)
        ):
            return False
    return True
