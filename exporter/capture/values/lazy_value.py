"""A known value that is worked out when somebody asks for it.

Attention masks of many megabytes are determined, but seldom does a model decide anything by them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes


class LazyValue:
    """The result of a pure operator on known values, not computed yet.

    ``sources`` are the storages that it reads: before one is written in place, it must be computed.
    """

    __slots__ = ("__weakref__", "_args", "_func", "_kwargs", "_value", "sources")

    def __init__(self, func: Any, args: Any, kwargs: Any, sources: frozenset[int]) -> None:
        self._func = func
        self._args = args
        self._kwargs = kwargs
        self._value: torch.Tensor | None = None
        self.sources = sources

    def get(self) -> torch.Tensor:
        """Return the value, computed now if need be."""
        if self._value is None:
            with torch._C.DisableTorchFunction(), _disable_current_modes():
                value = self._func(*resolved(self._args), **resolved(self._kwargs))
            self._value = value
            self._args = self._kwargs = None
            return value  # type: ignore[no-any-return]
        return self._value

    @property
    def is_pending(self) -> bool:
        """Whether it has not been computed."""
        return self._value is None


def resolved(structure: Any) -> Any:
    """Return a structure with the values of what was lazy."""
    if isinstance(structure, LazyValue):
        return structure.get()
    if isinstance(structure, (list, tuple)):
        return type(structure)([resolved(member) for member in structure])
    if isinstance(structure, dict):
        return {name: resolved(member) for name, member in structure.items()}
    return structure
