"""Known values: what follows from determined values is determined, too.

In an ordinary recording, the storages of index tables, masks and positions hold known values. A
call all of whose operands have them gives its results theirs; a call that writes something else
into a storage takes them away.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from exporter.capture.values.limits import AT_ONCE, FILLED_LATER, is_followed
from exporter.capture.values.storage_value import LazyCall, StorageValue, StorageView, mapped
from exporter.ledger import Facts
from store.columns import changed
from store.records import TENSOR_USE, Op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.capture.signature import Signature
    from exporter.capture.state import Recording, Storage, TensorRecord

aten = torch.ops.aten
Tensor = torch.Tensor
_MUTATES = TENSOR_USE.mutates


def follow(signature: Signature, result: Any) -> None:
    """Give the results of a call on known values theirs, to be worked out when asked for."""
    recording, info = signature.recording, signature.info
    if recording.is_real:
        return
    members = result if isinstance(result, (list, tuple)) else (result,)
    outputs = [member for member in members if isinstance(member, Tensor)]
    if len(signature.knowns) == signature.hosts > 0 and not any(t.is_meta for t in outputs):
        return
    if not outputs or not all(t.is_meta and is_followed(t) for t in outputs):
        forget(signature)
    elif info.is_inplace and not info.memo:
        _keep_reshaped(recording, outputs)
    else:
        fresh = [
            (index, tensor)
            for index, tensor in enumerate(members)
            if isinstance(tensor, Tensor) and _lacks_value(recording, tensor, signature.op_id)
        ]
        written = [known.storage for known in _written(signature)]
        if fresh or written:  # else views of what is known
            _give(signature, members, fresh, written)


def _written(signature: Signature) -> list[TensorRecord]:
    """Return the operands that a call writes to."""
    pairs = zip(signature.uses, signature.knowns, strict=True)
    return [known for use, known in pairs if use[_MUTATES]]


def _keep_reshaped(recording: Recording, outputs: list[Tensor]) -> None:
    """Keep the values of storages on which a tensor got another geometry, if they suffice."""
    for tensor in outputs:
        known = recording.known(tensor)
        value = known.storage.value
        if value is not None and known.spec.span_bytes > value.elements * value.dtype.itemsize:
            known.storage.value = None


def _give(
    signature: Signature,
    members: Sequence[Any],
    fresh: list[tuple[int, Tensor]],
    written: list[Storage],
) -> None:
    """Give new and written storages the values that the call leaves there."""
    call = lazy_call(signature)
    given = []
    for index, tensor in fresh:
        known = signature.recording.known(tensor)
        elements = tensor.untyped_storage().nbytes() // tensor.itemsize
        value = StorageValue(elements, tensor.dtype)
        call.gives(index, known.spec, value)
        given.append((known.storage, value))
    for storage in dict.fromkeys(written):
        before = storage.value
        if before is not None:  # else it is in host memory: see below
            value = StorageValue(before.elements, before.dtype)
            call.writes(before, value)
            given.append((storage, value))
    given += _grown(signature, members, call)
    for storage, value in given:
        storage.value = value
    in_host_memory = [
        (tensor, read)
        for tensor, read in zip(signature.tensors, call.reads, strict=True)
        if read.writes and not tensor.is_meta
    ]
    if in_host_memory or _is_cheap(call, given):
        try:
            found = call.run()
            for tensor, read in in_host_memory:
                tensor.detach().copy_(read.of(found[id(read.value)]))
        except Exception:  # noqa: BLE001  # without a value the tensor is merely unknown
            for storage, _ in given:
                storage.value = None


def _grown(
    signature: Signature, members: Sequence[Any], call: LazyCall
) -> list[tuple[Storage, StorageValue]]:
    """Return the values of operands that the call has resized, such as an empty ``out``."""
    found = []
    for index, tensor in enumerate(members):
        if not isinstance(tensor, Tensor) or not tensor.is_meta:
            continue
        storage = signature.recording.known(tensor).storage
        elements = tensor.untyped_storage().nbytes() // tensor.itemsize
        before = storage.value
        if storage.birth < signature.op_id and before is not None and before.elements < elements:
            tensor.__dict__.pop("_ep", None)  # it has another geometry now
            value = StorageValue(elements, tensor.dtype)
            call.gives(index, signature.recording.known(tensor).spec, value)
            found.append((storage, value))
    return found


def _is_cheap(call: LazyCall, given: list[tuple[Storage, StorageValue]]) -> bool:
    """Return whether a call is rather run now than remembered.

    A number that is counted up, such as the batches that a normalisation has seen, can wait: few
    models ask for it, and all that it keeps are numbers.
    """
    if call.written and all(read.value.elements == 1 for read in call.reads):
        return False
    is_small = sum(value.elements for _, value in given) <= AT_ONCE
    return is_small and all(_is_at_hand(read.value) for read in call.reads)


def _is_at_hand(value: StorageValue) -> bool:
    """Return whether a value is there, or as good as there."""
    return value.flat is not None or value.elements <= AT_ONCE


def _lacks_value(recording: Recording, tensor: Tensor, op_id: int) -> bool:
    """Return whether an operator made the storage of a tensor and did not state its value."""
    storage = recording.known(tensor).storage
    return storage.birth == op_id and storage.value is None


def lazy_call(signature: Signature) -> LazyCall:
    """Return a call whose every operand has a value, to be run on the host when need be."""
    info = signature.info
    knowns, tensors, uses = signature.knowns, signature.tensors, signature.uses
    reads: list[StorageView] = []

    def read(tensor: Tensor) -> StorageView:
        position = len(reads)  # operands come in the order in which they were flattened
        known = knowns[position]
        value = known.storage.value
        if value is None:  # in host memory, where it may be written again
            value = StorageValue.given(tensor, known.spec, tensors[position].clone())
        view = StorageView(value, known.spec, tensor, writes=bool(uses[position][_MUTATES]))
        reads.append(view)
        return view

    args = mapped(Tensor, read, signature.args)
    return LazyCall(info.func, args, mapped(Tensor, read, signature.kwargs), reads)


def follow_geometry(signature: Signature, result: Any) -> None:
    """State the values of ``zeros_like`` and its kin, which do not read their operand.

    A guard against overflow compares with infinity, or a tensor with itself. Its branch is one
    that a healthy model does not take: the values are taken to be finite, and the operator says so.
    """
    recording, func, args = signature.recording, signature.info.func, signature.args
    if recording.is_real or result.device.type != "meta" or not is_followed(result):
        return
    known = recording.known(result)
    shape = tuple(result.shape)
    if func in FILLED_LATER_OPERATORS:
        # Whatever reads it has written it before, and each value that is written is followed.
        if result.numel() <= FILLED_LATER:
            set_value(recording, result, torch.zeros(shape, dtype=result.dtype))
        return
    finite = _if_finite(func, args)
    if finite is not None:
        call = LazyCall(torch.full, (shape, finite), {}, [])
        recording.ops[-1] = changed(Op, recording.ops[-1], assumption="finite")
    elif func in GUARDS:
        return
    else:
        base = torch.empty((), dtype=args[0].dtype).expand(args[0].shape)
        call = LazyCall(func, (base, *args[1:]), dict(signature.kwargs), [])
    elements = result.untyped_storage().nbytes() // result.itemsize
    value = known.storage.value = StorageValue(elements, result.dtype)
    call.gives(0, known.spec, value)


FILLED_LATER_OPERATORS = Facts[bool](
    __name__,
    "a place among what is filled later",
    "says that its result holds nothing until it is written",
)
FILLED_LATER_OPERATORS.state(
    True, aten.empty.memory_format, aten.new_empty.default, aten.empty_like.default
)

GUARDS = Facts[bool](
    __name__,
    "an answer for finite numbers",
    "answers what guards against infinity or a missing number ask",
)
GUARDS.state(False, aten.isinf.default, aten.isnan.default)
GUARDS.state(True, aten.eq.Tensor, aten.ne.Scalar)  # with itself; with infinity
GUARDS.state(False, aten.ne.Tensor, aten.eq.Scalar)


def _if_finite(func: Any, args: Any) -> bool | None:
    """Return what a guard answers for every finite value, None for any other operator."""
    if func not in GUARDS or not args[0].is_floating_point():
        return None
    if len(args) > 1:
        other = args[1]
        guards = other is args[0] if isinstance(other, Tensor) else other in (math.inf, -math.inf)
        if not guards:
            return None
    return GUARDS.of(func)


def forget(signature: Signature) -> None:
    """Drop the values of what was just written with something unknown."""
    for known in _written(signature):
        known.storage.value = None


def set_value(recording: Recording, tensor: Tensor, values: Tensor) -> None:
    """State what a tensor on the meta device holds."""
    known = recording.known(tensor)
    known.storage.value = StorageValue.given(tensor, known.spec, values, known.storage.value)


def set_values(recording: Recording, tensors: Sequence[Any], values: Sequence[Any]) -> None:
    """State what the tensors among an operator's results hold."""
    for tensor, value in zip(tensors, values, strict=True):
        if isinstance(tensor, Tensor):
            set_value(recording, tensor, value)
