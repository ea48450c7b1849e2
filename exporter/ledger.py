"""The ledger of what is known about operators: one mechanism for every kind of fact.

Facts stand where they are used, in the module of their duty; each kind is an object here. A fact
is stated once: a second one for the same operator is refused with the place of the first, and so
is a target that this torch has no operator for, with the names that are near.

An overload by itself goes before its operator, and an operator covers all of its overloads. A kind
that ``covers_variants`` also covers the in-place variant, marked by a trailing underscore, and the
``prims`` operator of the same name.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import torch
from torch._ops import OpOverload, OpOverloadPacket

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

# Their operators exist only once their library is imported, which costs seconds: the module that
# does so and states the facts that need the operators themselves.
_LATE_MODULES = {"torchvision": "exporter.formulas.vision"}


class _Place(NamedTuple):
    module: str
    line: int


class Found(NamedTuple):
    """The fact that holds for an overload."""

    value: Any  # None: nothing was stated
    rank: int  # how general its target is: 0 for the overload itself


NOTHING = Found(None, sys.maxsize)


KINDS: dict[str, Any] = {}  # every kind of fact, by its name


class _Answers:
    version = 0


def version() -> int:
    """Return a number that grows whenever an answer that the ledger has given changes."""
    return _Answers.version


def load_late(namespace: str | None = None) -> None:
    """Import what states the facts of late libraries: of one namespace, or of all.

    Raises:
        ValueError: if a fact is about an operator that its library does not have.
    """
    for space, module in _LATE_MODULES.items():
        if namespace in (None, space) and module not in sys.modules:
            importlib.import_module(module)
            _operator_names.cache_clear()
            for facts in KINDS.values():
                for name in facts.stated:
                    if name.startswith(f"{space}::"):
                        facts.check(name)


def target_name(target: Any) -> str:
    """Return the name that facts are kept under: "aten::mm", or "aten::mm.out" for an overload.

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


def aten_operators(words: str) -> tuple[str, ...]:
    """Return the targets of a list of names without their namespace, such as "mm sum.dim_IntList".

    A name without a dot is the operator, and so all of its overloads.
    """
    return tuple(f"aten::{word}" for word in words.split())


def aten_overload(name: str) -> OpOverload[Any, Any]:
    """Return an overload by its name in torch's dispatcher: "mm", "softmax.int".

    Raises:
        ValueError: if there is none.
    """
    packet, _, overload = name.partition(".")
    try:
        found: OpOverload[Any, Any] = getattr(
            getattr(torch.ops.aten, packet), overload or "default"
        )
    except AttributeError:
        raise _no_operator(f"aten::{packet}.{overload or 'default'}") from None
    return found


def names_of(func: OpOverload[Any, Any], *, variants: bool) -> list[str]:
    """Return the names to look an overload up under, the most special first."""
    name = func._schema.name
    names = [f"{name}.{func._overloadname}", name]
    if variants and name.endswith("_") and not name.endswith("__"):
        names.append(name[:-1])
    if variants and name.startswith("prims::"):
        names.append("aten::" + name.removeprefix("prims::"))
    return names


@cache
def _operator_names() -> frozenset[str]:
    """Return every operator and overload of this torch and of the libraries that are loaded."""
    names: set[str] = set()
    for full_name in torch._C._dispatch_get_all_op_names():
        name, _, overload = full_name.partition(".")
        names |= {name, f"{name}.{overload or 'default'}"}
    return frozenset(names)


def _no_operator(name: str) -> ValueError:
    near = difflib.get_close_matches(name, _operator_names(), n=3)
    hint = f": did you mean {' or '.join(near)}?" if near else ""
    return ValueError(f"{name} is no operator of torch {torch.__version__}{hint}")


class Facts(Generic[T]):
    """One kind of fact: a value for each operator that the fact holds for."""

    def __init__(
        self, home: str, kind: str, meaning: str, *, covers_variants: bool = False
    ) -> None:
        """Open a kind of fact.

        Args:
            home: the module that opens it, ``__name__``.
            kind: its name, in the words of an error: "mm has ``kind`` already".
            meaning: what it is for, in one sentence without a full stop.
            covers_variants: whether a fact also holds for in-place variants and ``prims``.

        Raises:
            ValueError: if there is such a kind already.
        """
        if kind in KINDS:
            raise ValueError(f"{kind} is a kind of fact already")
        self.kind = kind
        self.meaning = meaning
        self.home = home  # the module that opens it
        self.covers_variants = covers_variants
        self.stated: dict[str, T] = {}  # by the name of its target
        self._places: dict[str, _Place] = {}
        self._answers: dict[OpOverload[Any, Any], Found] = {}
        KINDS[kind] = self

    def __call__(self, *targets: Any) -> Callable[[T], T]:
        """Return a decorator that makes a function the fact of the targets.

        Raises: as :meth:`state`.
        """

        def decorate(function: T) -> T:
            code = getattr(function, "__code__", None)  # an object that is called has none
            line = 0 if code is None else code.co_firstlineno
            self._keep(function, _Place(function.__module__, line), targets)
            return function

        return decorate

    def state(self, value: T, *targets: Any) -> None:
        """State a fact that is no function of its own.

        Args:
            value: what holds for the targets.
            targets: operators such as ``torch.ops.aten.mm``, overloads of them, or their names
                where the operators need not exist yet: "torchvision::nms".

        Raises:
            TypeError: if a target is no operator.
            ValueError: if torch has no operator of a name, or it has such a fact already.
        """
        frame = sys._getframe(1)
        self._keep(value, _Place(frame.f_globals["__name__"], frame.f_lineno), targets)

    def _keep(self, value: T, place: _Place, targets: tuple[Any, ...]) -> None:
        names = [t if isinstance(t, str) else target_name(t) for t in targets]
        for name, target in zip(names, targets, strict=True):
            first = self._places.get(name)
            if first is not None:
                raise ValueError(
                    f"{name} has {self.kind} already, in {first.module} line {first.line}"
                )
            if isinstance(target, str):  # else torch has found the operator already
                self.check(name)
            self.stated[name] = value
            self._places[name] = place
        stale = [
            func
            for func in self._answers
            if not set(names).isdisjoint(names_of(func, variants=self.covers_variants))
        ]
        for func in stale:
            del self._answers[func]
        _Answers.version += bool(stale)

    def check(self, name: str) -> None:
        """Refuse a name that no operator has; those of late libraries pass until they are loaded.

        Raises:
            ValueError: if there is no such operator.
        """
        module = _LATE_MODULES.get(name.partition("::")[0])
        if module is not None and module not in sys.modules:
            return
        accepted = {name, f"{name}_"} if self.covers_variants else {name}
        if accepted.isdisjoint(_operator_names()):
            _operator_names.cache_clear()  # a library may have been loaded since they were read
            if accepted.isdisjoint(_operator_names()):
                raise _no_operator(name)

    def of(self, func: OpOverload[Any, Any]) -> T | None:
        """Return what holds for an overload, None if nothing was stated."""
        value: T | None = self.found(func).value
        return value

    def found(self, func: OpOverload[Any, Any]) -> Found:
        """Return what holds for an overload, with how general the target is."""
        answer = self._answers.get(func)
        if answer is None:
            load_late(func.namespace)
            names = names_of(func, variants=self.covers_variants)
            stated = (
                Found(self.stated[name], rank)
                for rank, name in enumerate(names)
                if name in self.stated
            )
            answer = self._answers[func] = next(stated, NOTHING)
        return answer

    def __contains__(self, func: OpOverload[Any, Any]) -> bool:
        return self.of(func) is not None

    def modules(self) -> list[str]:
        """Return the modules that the facts stand in, in order of their names."""
        return sorted({place.module for place in self._places.values()})
