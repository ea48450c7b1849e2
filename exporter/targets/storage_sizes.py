"""Storages that kernels leave larger than the result that lies in them."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from exporter.formulas.spec import TensorSpec

aten = torch.ops.aten

# Their loss per element and the sum or mean of it share a storage: the result is made for all
# elements, then resized to one (``ATen/native/Loss.cpp``, ``ATen/native/cuda/Loss.cu``).
_REDUCED_IN_PLACE = frozenset({
    aten.binary_cross_entropy.default,
    aten.mse_loss.default,
    aten.smooth_l1_loss.default,
    aten.soft_margin_loss.default,
})  # fmt: skip


def held_bytes(func: Any, args: tuple[Any, ...], output: TensorSpec) -> int | None:
    """Return the bytes of the storage of an operator's result, None if the result spans it.

    Args:
        func: the operator.
        args: its arguments, tensors as specs.
        output: its only result.
    """
    if func not in _REDUCED_IN_PLACE or output.shape:
        return None
    shape = torch.broadcast_shapes(args[0].shape, args[1].shape)  # type: ignore[no-untyped-call]
    size = prod(shape) * output.dtype.itemsize
    return size if size > output.size_bytes else None
