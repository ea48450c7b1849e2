"""How large a tensor may be for its values to be kept or worked out, in elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

WORKED_OUT = 1 << 27  # of one storage: 512 MiB of single precision
_FOLLOWED = {True: 1 << 20, False: 1 << 23}  # by "is floating point": masks and positions, no
_GIVEN = {True: 1 << 16, False: 1 << 23}  # activations; tables of indices, no weights
AT_ONCE = 1 << 12  # worked out when they come: cheaper than to remember how
FILLED_LATER = 1 << 12  # of uninitialised tables that code fills one by one


def _is_real_number(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def is_followed(tensor: torch.Tensor) -> bool:
    """Return whether values are carried to a tensor from those of an operator's operands."""
    return tensor.numel() <= _FOLLOWED[_is_real_number(tensor)]


def is_kept(tensor: torch.Tensor) -> bool:
    """Return whether what a tensor holds is kept when it goes to meta."""
    return tensor.numel() <= _GIVEN[_is_real_number(tensor)]
