"""Tensors and plain values in the arguments and results of calls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from exporter.capture.state import Recording

_PLAIN = (int, float, bool, str, type(None))


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors of an argument or result, in order, however they are packed.

    Looks into lists, tuples, dicts, dataclasses, named tuples and registered pytree nodes.
    """
    found: list[torch.Tensor] = []
    _collect(value, found, 0)
    return found


def _collect(value: Any, found: list[torch.Tensor], depth: int) -> None:
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, _PLAIN) or depth > 16:
        return
    elif isinstance(value, (list, tuple)):
        for member in value:
            _collect(member, found, depth + 1)
    elif isinstance(value, dict):
        for member in value.values():
            _collect(member, found, depth + 1)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            _collect(getattr(value, name, None), found, depth + 1)
    elif type(value) in pytree.SUPPORTED_NODES:
        for member in pytree.SUPPORTED_NODES[type(value)].flatten_fn(value)[0]:
            _collect(member, found, depth + 1)


def call_arguments(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return a call's arguments as JSON: tensors as ``{"tensor": id}``, named ones last."""
    if len(args) == 1 and not kwargs and isinstance(args[0], torch.Tensor):
        return f'[{{"tensor": {recording.known(args[0]).tensor_id}}}]'

    def plain(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return {"tensor": recording.known(value).tensor_id}
        if hasattr(value, "__dataclass_fields__"):
            return {name: getattr(value, name, None) for name in value.__dataclass_fields__}
        if isinstance(value, (torch.dtype, torch.device, torch.memory_format, slice)):
            return str(value).removeprefix("torch.")
        return f"<{type(value).__name__}>"  # an object's own text may hold an address

    values: list[Any] = [*args, kwargs] if kwargs else [*args]
    try:
        return json.dumps(values, default=plain)
    except (TypeError, ValueError):  # keys that are no text, or a structure that holds itself
        return json.dumps([plain(v) if not isinstance(v, _PLAIN) else v for v in args])
