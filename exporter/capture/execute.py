"""Running real kernels: the first call of a signature, host tensors, real runs.

Everything here is off the hot path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map_only

from exporter.capture.dtype_checks import refuse
from exporter.capture.entries import as_specs, classify, flatten_result, make_entry
from exporter.capture.memo import CONSTANT, FRESH, SAME, SINGLE, Template
from exporter.capture.values.known import lazy_call, set_value, set_values
from exporter.capture.values.storage_value import on_host
from exporter.errors import UnknownValueError
from exporter.meta_rules import RULES
from store.records import TENSOR_USE

if TYPE_CHECKING:
    from exporter.capture.memo import Memo
    from exporter.capture.operators import OpInfo
    from exporter.capture.recorder import Recorder
    from exporter.capture.signature import Signature
    from exporter.capture.state import Recording

Tensor = torch.Tensor
_MASKS = frozenset({torch.bool, torch.uint8})
META = torch.device("meta")


def first_run(recorder: Recorder, memo: Memo, signature: Signature) -> Any:
    """Run a signature that the memo does not hold yet, remember it and record it."""
    info, args, recording = signature.info, signature.args, signature.recording
    func = info.func
    rule = RULES.of(func)
    if rule is not None:  # else the kernel is run, and what it takes is looked at there
        _look_at(recording, info, args)
    if (
        info.is_inplace
        and len(signature.tensors) == 1
        and len(func._schema.returns) == 1
        and args
        and args[0] is signature.tensors[0]
        and args[0].is_floating_point()
    ):
        # Nothing but the operand decides what `relu_` or `mul_(x, 2)` returns: the operand.
        same: tuple[Template, ...] = ((SAME, None, 0, None),)
        entry = make_entry(signature, same, SINGLE)
        memo.entries[signature.key] = entry
        return recorder.replay(
            entry, signature.op_id, signature.knowns, signature.tensors, signature.uses
        )
    if rule is not None:
        specs = as_specs(recording, args), as_specs(recording, signature.kwargs)
        predicted = rule(*specs)
        if predicted is not None:
            outputs = tuple(
                (CONSTANT, None, -1, None)
                if spec is None
                else (
                    FRESH,
                    recording.specs.intern(
                        spec.shape, spec.stride, spec.storage_offset, spec.dtype, False
                    ),
                    -1,
                    None,
                )
                for spec in predicted
            )
            entry = make_entry(signature, outputs, info.container, specs=specs)
            memo.entries[signature.key] = entry
            return recorder.replay(
                entry, signature.op_id, signature.knowns, signature.tensors, signature.uses
            )
    return plain_run(recorder, memo, signature)


def plain_run(recorder: Recorder, memo: Memo, signature: Signature) -> Any:
    """Run the real kernel, record it, and remember it where that is sound."""
    info, recording = signature.info, signature.recording
    args, kwargs = signature.args, signature.kwargs
    all_on_host = signature.hosts == len(signature.knowns)
    if info.selects and not recording.is_real and not all_on_host:
        args = _with_static_indices(signature)
    if 0 < signature.hosts < len(signature.knowns) and not recording.is_real and not info.is_copy:
        # A device may mix with host scalars only; a model that mixes more runs as if all its
        # tensors had been moved.
        args, kwargs = tree_map_only(Tensor, _to_meta, (args, kwargs))
    _look_at(recording, info, args)
    try:
        result, values = _execute(signature, args, kwargs)
    except Exception as error:
        error.operator = info.name  # type: ignore[attr-defined]  # for the message that names it
        raise
    flat, container = flatten_result(result)
    outputs, replayable = classify(signature, flat)
    key = signature.key
    replayable = replayable and args is signature.args
    entry = memo.entries.get(key) if info.memo else None
    if entry is None or entry.outputs != outputs:
        entry = make_entry(signature, outputs, container, args, kwargs)
        if (
            info.memo
            and replayable
            and not recording.is_real  # what a real run selects, no other run may repeat
            and signature.hosts == 0
            and (signature.knowns or not signature.makes_host_tensor)
        ):
            memo.entries[key] = entry
    for written, tensor in zip(signature.uses, signature.tensors, strict=True):
        if written[TENSOR_USE.mutates] and not info.memo:
            tensor.__dict__.pop("_ep", None)  # its geometry may have changed
    recorder.record(entry, signature.op_id, signature.knowns, signature.uses, flat)
    if values is not None:
        set_values(recording, flat, flatten_result(values)[0])
    return result


def _look_at(recording: Recording, info: OpInfo, args: tuple[Any, ...]) -> None:
    """Refuse operands that the target's kernel refuses; a real run does so itself."""
    if not recording.is_real:
        try:
            refuse(recording, info.func, args)
        except RuntimeError as error:
            error.operator = info.name  # type: ignore[attr-defined]  # for the message that names it
            raise


def _execute(
    signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, Any]:
    """Run the kernel; a result that depends on values comes from them or not at all.

    Returns:
        The result, and its values where they had to be worked out.
    """
    info, recording = signature.info, signature.recording
    func = info.func
    if recording.is_real or len(signature.knowns) == signature.hosts:
        return func(*args, **kwargs), None
    if info.needs_values or _leaves_device(info, kwargs):
        values = [recording.value_of(tensor) for tensor in signature.tensors]
        if all(value is not None for value in values):
            answers = dict(zip(map(id, signature.tensors), values, strict=True))
            real = tree_map_only(Tensor, lambda tensor: answers[id(tensor)], (args, kwargs))
            result = func(*real[0], **on_host(real[1]))
            if _leaves_device(info, kwargs):
                return result, None
            return tree_map_only(Tensor, _to_meta, result), result
        if info.needs_values:
            raise UnknownValueError(
                f"{info.name} needs the values of a tensor that has none on the meta device"
            )
        kwargs = dict(kwargs, device=META)
    try:
        return func(*args, **kwargs), None
    except RuntimeError as error:
        if not _wants_values(error):
            raise
        if signature.unknown:
            raise UnknownValueError(" ".join(str(error).split())) from error
        result, _ = lazy_call(signature).result()
        return tree_map_only(Tensor, _to_meta, result), None


def _wants_values(error: RuntimeError) -> bool:
    """Return whether torch refuses to run a kernel because its operands are on meta.

    It has no kernel for them, or one that reads what they hold.
    """
    return isinstance(error, NotImplementedError) or "meta tensor" in str(error).lower()


def _leaves_device(info: OpInfo, kwargs: dict[str, Any]) -> bool:
    """Return whether the call copies a device tensor to the host."""
    device = kwargs.get("device")
    return info.is_copy and device is not None and device.type == "cpu"


def _to_meta(tensor: Tensor) -> Tensor:
    """Return a meta tensor of the same geometry."""
    if tensor.device.type == "meta":
        return tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=META)


def _with_static_indices(signature: Signature) -> tuple[Any, ...]:
    """Return the arguments with known boolean masks as the indices that they select.

    Raises:
        UnknownValueError: if a mask's values are not known: the size of the result is not either.
    """
    args, recording = signature.args, signature.recording
    if not any(index is not None and index.dtype in _MASKS for index in args[1]):
        return args
    indices: list[Tensor | None] = []
    for index in args[1]:
        if index is None or index.dtype not in _MASKS:
            indices.append(index)
            continue
        mask = recording.value_of(index)
        if mask is None:
            raise UnknownValueError(
                f"{signature.info.name} selects with a mask whose values are unknown on the meta "
                "device"
            )
        for column in mask.nonzero(as_tuple=True):
            position = _to_meta(column)
            recording.born(position)
            set_value(recording, position, column)
            indices.append(position)
    return (args[0], indices, *args[2:])
