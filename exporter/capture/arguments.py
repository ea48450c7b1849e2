"""Tensors and plain values in the arguments and results of calls."""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable

_DEEPEST = 16  # a structure that holds itself ends here
_NAMED = (torch.dtype, torch.device, torch.memory_format, torch.layout, slice, complex)
_PLAIN = (int, float, bool, str, type(None))


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors of an argument or result, in order, however they are packed.

    Looks into lists, tuples, dicts, dataclasses, named tuples and registered pytree nodes.
    """
    if isinstance(value, torch.Tensor):
        return [value]
    found: list[torch.Tensor] = []
    _collect(value, found, 0)
    return found


def _collect(  # noqa: C901  # a table of types
    value: Any, found: list[torch.Tensor], depth: int
) -> None:
    if isinstance(value, (list, tuple)):
        for member in value:
            if isinstance(member, torch.Tensor):
                found.append(member)
            elif not isinstance(member, _PLAIN):
                _collect(member, found, depth + 1)
    elif isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, _PLAIN) or depth > _DEEPEST:
        return
    elif isinstance(value, dict):
        for member in value.values():
            _collect(member, found, depth + 1)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            _collect(getattr(value, name, None), found, depth + 1)
    elif type(value) in pytree.SUPPORTED_NODES:
        for member in pytree.SUPPORTED_NODES[type(value)].flatten_fn(value)[0]:
            _collect(member, found, depth + 1)


def arguments_text(
    args: tuple[Any, ...], kwargs: dict[str, Any], tensor_text: Callable[[torch.Tensor], str]
) -> str:
    """Return arguments as a JSON list, named ones in an object at its end."""
    texts = [argument_text(value, tensor_text) for value in args]
    if kwargs:
        texts.append(argument_text(kwargs, tensor_text))
    return f"[{', '.join(texts)}]"


def _key(name: Any) -> str:
    text = str(name)
    return f'"{text}"' if text.isidentifier() else json.dumps(text)


def argument_text(  # noqa: C901, PLR0911  # a table of types
    value: Any, tensor_text: Callable[[torch.Tensor], str], depth: int = 0
) -> str:
    """Return one value as JSON; what is no data appears by the name of its class."""
    if isinstance(value, torch.Tensor):
        return tensor_text(value)
    if value is None:
        return "null"
    cls = type(value)
    if cls is int:
        return str(value)
    if cls is bool:
        return "true" if value else "false"
    if cls is float:
        return repr(value) if isfinite(value) else f'"{value}"'  # JSON has no infinity
    if cls is str:
        return json.dumps(value)
    if depth > _DEEPEST:
        return '"..."'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join([argument_text(member, tensor_text, depth + 1) for member in value])}]"
    if isinstance(value, dict):
        members = [
            f"{_key(name)}: {argument_text(member, tensor_text, depth + 1)}"
            for name, member in value.items()
        ]
        return f"{{{', '.join(members)}}}"
    if hasattr(value, "__dataclass_fields__"):
        fields = {name: getattr(value, name, None) for name in value.__dataclass_fields__}
        return argument_text(fields, tensor_text, depth + 1)
    if isinstance(value, _NAMED):
        return f'"{str(value).removeprefix("torch.").replace(chr(34), "")}"'
    return json.dumps(f"<{cls.__name__}>")  # an object's own text may hold an address
