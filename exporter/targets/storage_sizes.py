"""Storages that kernels leave larger than the result that lies in them."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import torch

from exporter.ledger import Facts

if TYPE_CHECKING:
    from collections.abc import Callable

    from exporter.formulas.spec import TensorSpec

    Size = Callable[[tuple[Any, ...], TensorSpec], int | None]

aten = torch.ops.aten

STORAGE_SIZES = Facts["Size"](
    __name__,
    "a size of its result's storage",
    "gives the bytes of a storage that is larger than the result",
)


def held_bytes(func: Any, args: tuple[Any, ...], output: TensorSpec) -> int | None:
    """Return the bytes of the storage of an operator's result, None if the result spans it.

    Args:
        func: the operator.
        args: its arguments, tensors as specs.
        output: its only result.
    """
    size = STORAGE_SIZES.of(func)
    return None if size is None else size(args, output)


@STORAGE_SIZES(
    aten.binary_cross_entropy.default,
    aten.mse_loss.default,
    aten.smooth_l1_loss.default,
    aten.soft_margin_loss.default,
)
def _reduced_in_place(args: tuple[Any, ...], output: TensorSpec) -> int | None:
    """Return the bytes of the loss per element, in whose storage its sum or mean lies.

    The result is made for all elements, then resized to one (``ATen/native/Loss.cpp``,
    ``ATen/native/cuda/Loss.cu``).
    """
    if output.shape:
        return None
    shape = torch.broadcast_shapes(args[0].shape, args[1].shape)  # type: ignore[no-untyped-call]
    size = prod(shape) * output.dtype.itemsize
    return size if size > output.size_bytes else None
