"""Functions that make tensors from Python data, and functions that read values back.

A factory without a device makes its tensor where the model runs; what a Python list said stays
known beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

from exporter.capture.values.known import set_value
from exporter.errors import UnknownValueError

if TYPE_CHECKING:
    from collections.abc import Callable

    from exporter.capture.state import Recording

_Call = tuple[Any, tuple[Any, ...], dict[str, Any]]
_NUMBERS = (bool, int, float)
_SINGLE_INDICES = frozenset({int, slice, type(None), type(...), bool})
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
    if recording.target_is_host:
        return identity, (_in_place_of(recording, host),), {}
    return torch.Tensor.to, (host, recording.device), {}


def _new_from_data(
    recording: Recording, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> _Call:
    """Make the tensor as ``torch.tensor`` does, of the type and on the device of another."""
    like, *data = args
    if not like.is_meta or "device" in kwargs:
        return func, args, kwargs
    named = {"dtype": like.dtype, "device": recording.device, **kwargs}
    return _from_data(recording, torch.tensor, tuple(data), named)


def _in_place_of(recording: Recording, host: torch.Tensor) -> torch.Tensor:
    """Return a meta tensor that stands for a host tensor where the host is the target."""
    with _disable_current_modes():
        tensor = torch.empty_strided(host.shape, host.stride(), dtype=host.dtype, device="meta")
        value = host.clone()
    recording.replace(host, tensor)
    set_value(recording, tensor, value)
    return tensor


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
    """Read a tensor back from its known values.

    Raises:
        UnknownValueError: if nobody knows them.
    """
    tensor = args[0]
    if tensor.device.type != "meta":
        return func, args, kwargs
    value = recording.value_of(tensor)
    if value is None:
        raise UnknownValueError(
            f"{func.__name__}() needs the values of a tensor that has none on the meta device"
        )
    return func, (value.clone(), *args[1:]), kwargs  # an array shares its tensor's memory


def _get_item(
    recording: Recording, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> _Call:
    """Read an item; what Python data among its index becomes can be seen."""
    if _has_tables(recording, *args):
        return _get_by_tables, args, kwargs
    return func, args, kwargs


def _set_item(
    recording: Recording, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> _Call:
    """Write an item; what Python data among its index becomes can be seen.

    The CPU writes a number from a host scalar, by ``fill_`` instead of ``copy_``.
    """
    tables = _has_tables(recording, *args[:2])
    if recording.target_is_host and not recording.is_real and isinstance(args[2], _NUMBERS):
        return _fill_by_tables if tables else _fill_item, args, kwargs
    return _set_by_tables if tables else func, args, kwargs


def _get_by_tables(tensor: torch.Tensor, index: Any) -> torch.Tensor:
    return tensor[_without_tables(tensor, index)]


def _set_by_tables(tensor: torch.Tensor, index: Any, value: Any) -> None:
    tensor[_without_tables(tensor, index)] = value


def _fill_by_tables(tensor: torch.Tensor, index: Any, value: float) -> None:
    _fill_item(tensor, _without_tables(tensor, index), value)


def _fill_item(tensor: torch.Tensor, index: Any, value: float) -> None:
    tensor[index] = torch.tensor(value, dtype=tensor.dtype)


# What a person calls them.
_get_by_tables.__name__ = "__getitem__"
for _writes in (_set_by_tables, _fill_by_tables, _fill_item):
    _writes.__name__ = "__setitem__"


def _members(index: Any) -> tuple[Any, ...]:
    """Return an index by dimensions: a list of anything but numbers stands for a tuple."""
    if isinstance(index, list) and not all(isinstance(member, _NUMBERS) for member in index):
        return tuple(index)
    return index if type(index) is tuple else (index,)


def _has_tables(recording: Recording, tensor: torch.Tensor, index: Any) -> bool:
    """Return whether an index of a tensor of the device has tables; the tensor is known then.

    Inside ``vmap`` a tensor stands for slices of another, which has no storage to be known by.
    """
    if tensor.device.type != recording.device.type or not any(map(_is_table, _members(index))):
        return False
    if torch._C._functorch.maybe_current_level() is not None:
        return False
    recording.known(tensor)
    return True


def _is_table(member: Any) -> bool:
    """Return whether a member of an index holds several: a list, a range, a NumPy array."""
    if type(member) in _SINGLE_INDICES or isinstance(member, torch.Tensor):
        return False
    return isinstance(member, (list, tuple, range)) or getattr(member, "ndim", 0) > 0


def _without_tables(tensor: torch.Tensor, index: Any) -> tuple[Any, ...]:
    """Return an index with tensors in place of tables of Python's or NumPy's.

    Torch makes these tensors in C++; what is seen of it is that they are lifted.
    """
    recording: Recording = tensor._ep.storage.recording  # type: ignore[attr-defined]
    return tuple(_lifted(recording, m) if _is_table(m) else m for m in _members(index))


def _lifted(recording: Recording, table: Any) -> torch.Tensor:
    with _disable_current_modes():
        host = torch.as_tensor(table, device="cpu").clone()  # an array may be written later
        host = host if host.numel() else host.long()
        tensor = host.to(recording.device, copy=True)
    recording.born(tensor)
    set_value(recording, tensor, host)
    lifted: torch.Tensor = torch.ops.aten.lift_fresh.default(tensor)
    return lifted


SPECIAL: dict[Any, Callable[[Recording, Any, tuple[Any, ...], dict[str, Any]], _Call]] = {
    **dict.fromkeys(_device_constructors(), _place),
    **dict.fromkeys(_FROM_DATA, _from_data),
    torch.Tensor.new_tensor: _new_from_data,
    torch.Tensor.__getitem__: _get_item,
    torch.Tensor.__setitem__: _set_item,
    torch.Tensor.tolist: _read,
    torch.Tensor.numpy: _read,
    torch.Tensor.__array__: _read,
}
