"""Dtypes of outputs: torch's promotion of tensors, 0-dimensional tensors and Python numbers.

Source: ``torch._prims_common.elementwise_dtypes``. Only real, unquantised dtypes are known here;
for any other the caller gets None and asks the real kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from typing import Any

import torch

from exporter.formulas.spec import TensorSpec

# The arguments of an operator, with specs in place of tensors, to the specs of its outputs; None
# if the case is not covered. An output that is not computed (a gradient masked off) is None.
Rule = Callable[[tuple[Any, ...], dict[str, Any]], "tuple[TensorSpec | None, ...] | None"]
Rules = dict[torch._ops.OpOverload[..., Any], Rule]

FLOATS = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))
INTS = frozenset((torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64))
KNOWN = FLOATS | INTS | {torch.bool}
_NUMBERS = (bool, int, float)
# A dtype and whether it belongs to a 0-dimensional tensor, or a number's type and None.
_Operand = tuple[Any, bool | None]


class Kind(Enum):
    """How an operator turns its operands' dtypes into that of its result."""

    DEFAULT = 0
    NO_OPMATH = 1
    INT_TO_FLOAT = 2
    BOOL_TO_LONG = 3
    ALWAYS_BOOL = 4


def computation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype that a kernel computes in: half precision is widened to float32."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def promoted(kind: Kind, *operands: Any) -> tuple[torch.dtype, torch.dtype] | None:
    """Dtypes of computation and result for tensors and numbers, or None if one is not known."""
    key: list[_Operand] = []
    for operand in operands:
        if type(operand) is TensorSpec:
            key.append((operand.dtype, not operand.shape))
        elif type(operand) in _NUMBERS:
            key.append((type(operand), None))
        else:
            return None
    return _promoted(kind, torch.get_default_dtype(), *key)


@lru_cache(4096)
def _promoted(
    kind: Kind, default: torch.dtype, *operands: _Operand
) -> tuple[torch.dtype, torch.dtype] | None:
    highest = 0
    for dtype, scalar in operands:
        if scalar is None:
            rank = _NUMBERS.index(dtype)
        elif dtype in KNOWN:
            rank = _rank(dtype)
        else:
            return None
        highest = max(highest, rank)
    result = torch.bool
    if highest:
        # Tensors with dimensions decide among those of the highest category, then 0-dimensional
        # ones; a number only raises the category.
        chosen: dict[bool, torch.dtype | None] = {True: None, False: None}
        for dtype, scalar in operands:
            if scalar is not None and _rank(dtype) == highest:
                before = chosen[scalar]
                chosen[scalar] = dtype if before is None else torch.promote_types(before, dtype)
        result = chosen[False] or chosen[True] or (torch.int64 if highest == 1 else default)
    if kind is Kind.INT_TO_FLOAT and highest < 2:
        result = default
    elif kind is Kind.BOOL_TO_LONG and highest == 0:
        result = torch.int64
    compute = result if kind is Kind.NO_OPMATH else computation_dtype(result)
    return compute, torch.bool if kind is Kind.ALWAYS_BOOL else result


def _rank(dtype: torch.dtype) -> int:
    return 2 if dtype in FLOATS else 1 if dtype in INTS else 0
