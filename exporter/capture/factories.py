"""Functions that make tensors from Python data, and functions that read values back.

A factory without a device makes its tensor where the model runs; what a Python list said stays
known beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._device import _device_constructors
from torch.utils._pytree import tree_map_only

if TYPE_CHECKING:
    from collections.abc import Callable

    from exporter.capture.state import Recording

_Call = tuple[Any, tuple[Any, ...], dict[str, Any]]
_NUMBERS = (bool, int, float)
_RANDOM = frozenset({torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal})
_FROM_DATA = frozenset({torch.tensor, torch.as_tensor, torch.asarray})


def _place(recording: Recording, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
    """Make the tensor on the recording's device unless the call names another."""
    if kwargs.get("device") is None:
        if func in _RANDOM:  # a draw that Python code decides by: seeded, on the host
            return func, args, kwargs
        kwargs = {**kwargs, "device": recording.device}
    return func, args, kwargs


def _from_data(
    recording: Recording, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> _Call:
    """Make the tensor on the host, where its values are known, then copy it to the device."""
    device = kwargs.get("device")
    if recording.device.type != "meta" or (args and isinstance(args[0], torch.Tensor)):
        return func, args, kwargs
    if device is not None and torch.device(device).type != "meta":
        return func, args, kwargs
    args = tree_map_only(torch.Tensor, _values_of(recording), args)
    host = func(*args, **{**kwargs, "device": "cpu"})
    if device is None and host.dim() == 0:
        return identity, (host,), {}
    return torch.Tensor.to, (host, recording.device), {}


def _values_of(recording: Recording) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what gives a number in a list its value, where that is known."""

    def value_of(tensor: torch.Tensor) -> torch.Tensor:
        value = recording.value_of(tensor)
        return tensor if value is None else value

    return value_of


def identity(tensor: torch.Tensor) -> torch.Tensor:
    """Return a host scalar as it is: no call of the model's."""
    return tensor


def _read(recording: Recording, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
    """Read a tensor back from its known values."""
    tensor = args[0]
    if tensor.device.type == "meta":
        value = recording.value_of(tensor)
        if value is not None:
            # An array shares its tensor's memory and may be written.
            return func, (value.clone(), *args[1:]), kwargs
    return func, args, kwargs


def _set_item(
    recording: Recording, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> _Call:
    """Write a number as the CPU does: from a host scalar, by ``fill_`` instead of ``copy_``."""
    if recording.target_is_host and not recording.concrete and isinstance(args[2], _NUMBERS):
        return _fill_item, args, kwargs
    return func, args, kwargs


def _fill_item(tensor: torch.Tensor, index: Any, value: float) -> None:
    tensor[index] = torch.tensor(value, dtype=tensor.dtype)


_fill_item.__name__ = "__setitem__"

SPECIAL: dict[Any, Callable[[Recording, Any, tuple[Any, ...], dict[str, Any]], _Call]] = {
    **dict.fromkeys(_device_constructors(), _place),
    **dict.fromkeys(_FROM_DATA, _from_data),
    torch.Tensor.__setitem__: _set_item,
    torch.Tensor.tolist: _read,
    torch.Tensor.numpy: _read,
    torch.Tensor.__array__: _read,
}
