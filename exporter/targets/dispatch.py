"""What the rules are made of: kernels, the keys they are registered at, and the originals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function to run instead of an aten operator's own, at one dispatch key.

    ``AutogradMeta`` replaces a composite operator before autograd records anything, so what the
    function calls is recorded; ``Meta`` says what an operator returns, below autograd.
    """

    operator: str  # "dropout", "lstm.input", ...
    key: str  # "AutogradMeta" or "Meta"
    function: Function
    with_keyset: bool = False  # the function also wants the dispatch keys, first


def composite(operator: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Return what torch's own composite kernel makes of the arguments.

    ``OpOverload.decompose`` is no substitute: it prefers decompositions written in Python.
    """
    return operator._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
