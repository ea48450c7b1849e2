"""What is a call of its own, and what it is called."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_CONTAINERS = (
    nn.Sequential,
    nn.ModuleList,
    nn.ModuleDict,
    nn.Transformer,
    nn.TransformerEncoder,
    nn.TransformerDecoder,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
)
# Methods behind Python's operators: a person writes `a + b` and sees a function.
_OPERATORS = frozenset(
    {
        "add",
        "sub",
        "mul",
        "div",
        "true_divide",
        "floor_divide",
        "remainder",
        "pow",
        "matmul",
        "neg",
        "abs",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "bitwise_not",
        "iadd",
        "isub",
        "imul",
        "idiv",
        "itruediv",
        "ipow",
        "radd",
        "rsub",
        "rmul",
        "rdiv",
        "rpow",
        "rmatmul",
        "getitem",
        "setitem",
        "invert",
    }
)
FUNCTIONS: dict[Any, tuple[str, str]] = {}


def name_function(func: Any) -> tuple[str, str]:
    """Return a function's name and kind of node; kind "" for access to a tensor's attribute."""
    name = getattr(func, "__name__", type(func).__name__)
    if name in {"__get__", "__set__"}:
        return name, ""  # not remembered: Python makes these objects anew at every access
    name = name.strip("_")
    is_method = name not in _OPERATORS and getattr(torch.Tensor, name, None) is func
    named = FUNCTIONS[func] = name, "call_method" if is_method else "call_function"
    return named


def is_leaf(module: nn.Module) -> bool:
    """Return whether a module is one call: torch.fx's rule, transformer layers excepted."""
    home = type(module).__module__
    return (home.startswith(("torch.nn", "torch.ao.nn"))) and not isinstance(module, _CONTAINERS)
