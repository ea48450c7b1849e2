"""What an operator call on known geometries yields: remembered once, replayed from then on.

The result of a meta kernel depends only on its operands' geometries and scalar arguments. An entry
says how to make the outputs without the kernel, and everything that the operator's row holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from exporter.capture.specs import Spec, SpecTable
from exporter.ledger import version

# Detaching is a view that is made above autograd, too: there, ``as_strided`` would be recorded.
# Shared are outputs on the storage of an earlier one, such as the gradients of a layer's weights.
FRESH, VIEW, SAME, CONSTANT, DETACHED, SHARED = range(6)
NOTHING, SINGLE, TUPLE, LIST = range(4)

# (code, geometry, position of the aliased operand or output, constant); the constant of a fresh
# output is the size of its storage, where that is not what its geometry spans
Template = tuple[int, Spec | None, int, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """How to replay one operator call, and its cost."""

    single: Spec | None  # the one fresh output: the commonest case, kept apart
    outputs: tuple[Template, ...]
    container: int  # NOTHING, SINGLE, TUPLE, LIST
    operator: str
    is_inplace: bool
    columns: tuple[Any, ...]  # of the operator's row: ``entries.COLUMNS``


class Memo:
    """Entries by signature, and the geometries that they refer to; bounded in memory.

    One per process serves all models: architectures repeat each other's layers.
    """

    def __init__(self, limit: int = 50_000) -> None:
        self.specs = SpecTable()
        self.ledger_version = version()  # of the facts that the entries rest on
        self.limit = limit
        self.entries: dict[tuple[Any, ...], Entry] = {}

    def trim(self) -> None:
        """Forget everything once the bound is passed, or a fact has changed; between recordings."""
        is_full = len(self.entries) > self.limit or len(self.specs) > self.limit
        if is_full or self.ledger_version != version():
            self.clear()

    def clear(self) -> None:
        """Forget everything; between recordings only."""
        self.entries.clear()
        self.specs.clear()
        self.ledger_version = version()


# One per target and default dtype, as these decide what kernels return.
_MEMOS: dict[tuple[str, torch.dtype], Memo] = {}


def memo_of(target: str) -> Memo:
    """Return this process's memo for a target and the default dtype of now."""
    memo = _MEMOS.setdefault((target, torch.get_default_dtype()), Memo())
    memo.trim()
    return memo


def forget() -> None:
    """Forget every call of every target, such as when what is told of an operator has changed."""
    for memo in _MEMOS.values():
        memo.clear()
