"""What a formula sees of a tensor, and what it says."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """The outside of a tensor: no storage, no values."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    storage_offset: int
    dtype: torch.dtype

    @property
    def numel(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Bytes of the elements: numel * element size."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Cost:
    """Arithmetic of one operator call.

    ``macs``: multiply-adds of contractions. ``pointwise_flops``: everything else that computes.
    ``flops_status``: "formula", "zero_cost" or "unknown" (both counts are then 0).
    """

    macs: int
    pointwise_flops: int
    flops_status: str
