"""Known values: small tensors whose values are determined carry them beside the meta tensor."""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any

import torch

from exporter.capture.entries import flatten_result
from exporter.capture.values.lazy_value import LazyValue, resolved
from store.columns import changed
from store.records import TENSOR_USE, Op

if TYPE_CHECKING:
    from exporter.capture.signature import Signature
    from exporter.capture.state import Recording, TensorRecord

Tensor = torch.Tensor
_MUTATES = TENSOR_USE.mutates
_EAGER = 1 << 12  # elements of a value that is worked out at once
CPU = torch.device("cpu")

# Values are carried for tensors up to this many elements: masks and positions, not activations.
VALUE_LIMIT = {True: 1 << 20, False: 1 << 23}  # by "is floating point"


def carry_values(signature: Signature, result: Any) -> None:  # noqa: C901  # hot: one function
    """Compute an operator of known values on the host too, so that its results are known."""
    recording = signature.recording
    if recording.is_real:
        return
    single = isinstance(result, Tensor)
    outputs = (
        [result] if single else [t for t in flatten_result(result)[0] if isinstance(t, Tensor)]
    )
    if len(signature.knowns) == signature.hosts > 0 and not any(t.is_meta for t in outputs):
        return
    writes = any([use[_MUTATES] for use in signature.uses])  # noqa: C419  # a generator is slower
    if not outputs or any(not t.is_meta or _too_large(t) for t in outputs):
        if writes:
            forget_values(signature)
        return
    # A tensor that an operator reshaped in place is to be recognised anew.
    known = [recording.known(tensor) for tensor in outputs]
    if writes:
        if recording.lazy_values:
            _compute_readers(recording, signature)
    elif all(one.value is not None and one.storage.valued for one in known):
        return
    func = signature.info.func
    given = known_values(signature.args), host_kwargs(known_values(signature.kwargs))
    if not writes and single and (result.numel() > _EAGER or _has_lazy(signature)):
        sources = frozenset().union(*map(_sources, signature.knowns))
        lazy = LazyValue(func, *given, sources)
        recording.lazy_values.append(weakref.ref(lazy))
        set_value(recording, result, lazy)
        return
    try:
        values = func(*resolved(given[0]), **resolved(given[1]))
    except Exception:  # noqa: BLE001  # without a value the tensor is merely unknown
        forget_values(signature)
        return
    if single and isinstance(values, Tensor):
        set_value(recording, result, values)
    else:
        attach_values(recording, result, values)


def carry_geometry(signature: Signature, result: Any) -> None:
    """State the values of ``zeros_like`` and its kin, which do not read their operand.

    A guard against overflow compares with infinity, or a tensor with itself. Its branch is one
    that a healthy model does not take: the values are taken to be finite, and the operator says so.
    """
    recording, func, args = signature.recording, signature.info.func, signature.args
    if recording.is_real or result.device.type != "meta" or _too_large(result):
        return
    if func in _EMPTY:
        # Whatever reads it has written it before, and each value that is written is carried.
        if result.numel() <= _MOST_EMPTY:
            set_value(recording, result, torch.zeros(result.shape, dtype=result.dtype))
        return
    finite = _if_finite(func, args)
    if finite is not None:
        set_value(recording, result, torch.tensor(finite).expand(result.shape))
        recording.ops[-1] = changed(Op, recording.ops[-1], assumption="finite")
    if finite is not None or func in _GUARDS:
        return
    base = torch.empty(args[0].shape, dtype=args[0].dtype)
    attach_values(recording, result, func(base, *args[1:], **host_kwargs(signature.kwargs)))


_MOST_EMPTY = 1 << 12  # elements of tables that code fills one by one
_EMPTY = {
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.new_empty.default,
    torch.ops.aten.empty_like.default,
}
_GUARDS = {
    torch.ops.aten.isinf.default: False,
    torch.ops.aten.isnan.default: False,
    torch.ops.aten.eq.Tensor: True,  # with itself
    torch.ops.aten.ne.Tensor: False,
    torch.ops.aten.eq.Scalar: False,  # with infinity
    torch.ops.aten.ne.Scalar: True,
}


def _if_finite(func: Any, args: Any) -> bool | None:
    """Return what a guard answers for every finite value, None for any other operator."""
    if func not in _GUARDS or not args[0].is_floating_point():
        return None
    if len(args) > 1:
        other = args[1]
        guards = other is args[0] if isinstance(other, Tensor) else other in (math.inf, -math.inf)
        if not guards:
            return None
    return _GUARDS[func]


def forget_values(signature: Signature) -> None:
    """Drop the values of what was just written with something unknown."""
    for use, known in zip(signature.uses, signature.knowns, strict=True):
        if use[_MUTATES] and known.storage.valued:
            known.storage.forget_values()


def _has_lazy(signature: Signature) -> bool:
    return any(type(known.value) is LazyValue for known in signature.knowns)


def _sources(known: TensorRecord) -> frozenset[int]:
    """Return the storages that a value depends on."""
    own = frozenset((known.storage.storage_id,))
    return own | known.value.sources if type(known.value) is LazyValue else own


def _compute_readers(recording: Recording, signature: Signature) -> None:
    """Compute what was deferred and reads a storage that is about to be written."""
    written = {
        known.storage.storage_id
        for use, known in zip(signature.uses, signature.knowns, strict=True)
        if use[_MUTATES]
    }
    waiting = []
    for reference in recording.lazy_values:
        lazy = reference()
        if lazy is None or not lazy.is_pending:
            continue
        if lazy.sources & written:
            lazy.get()
        else:
            waiting.append(reference)
    recording.lazy_values = waiting


def set_value(recording: Recording, tensor: Tensor, value: Tensor | LazyValue) -> None:
    """State the value of a tensor on the meta device."""
    known = getattr(tensor, "_ep", None)
    if known is None or known.storage.recording is not recording:
        known = recording.identify(tensor)
    known.value = value
    known.storage.valued = True


def attach_values(recording: Recording, result: Any, values: Any) -> None:
    """Give every output its value."""
    for tensor, value in zip(flatten_result(result)[0], flatten_result(values)[0], strict=True):
        if isinstance(tensor, Tensor) and isinstance(value, Tensor):
            set_value(recording, tensor, value)


def _too_large(tensor: Tensor) -> bool:
    return tensor.numel() > VALUE_LIMIT[tensor.is_floating_point() or tensor.is_complex()]


def known_values(structure: Any) -> Any:
    """Return the arguments with their values, possibly deferred, in place of meta tensors."""
    if isinstance(structure, Tensor):
        return structure if structure.is_cpu else structure._ep.value  # type: ignore[attr-defined]
    if isinstance(structure, (list, tuple)):
        return type(structure)([known_values(member) for member in structure])
    if isinstance(structure, dict):
        return {name: known_values(member) for name, member in structure.items()}
    return structure


def host_kwargs(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the named arguments with the host as device."""
    return {**kwargs, "device": CPU} if kwargs and kwargs.get("device") is not None else kwargs
