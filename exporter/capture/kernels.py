"""Running real kernels: the first call of a signature, host tensors, concrete runs, known values.

Everything here is off the hot path.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map_only

from exporter.capture.arguments import arguments_text
from exporter.capture.memo import (
    CONSTANT,
    FRESH,
    LIST,
    NOTHING,
    SAME,
    SINGLE,
    TUPLE,
    VIEW,
    Entry,
    Template,
)
from exporter.capture.rules import RULES
from exporter.capture.state import Life
from exporter.errors import UnknownValueError
from exporter.formulas.registry import cost

if TYPE_CHECKING:
    from exporter.capture.dispatch import OpMode, Signature
    from exporter.capture.opinfo import OpInfo
    from exporter.capture.state import Recording

Tensor = torch.Tensor
_MASKS = frozenset({torch.bool, torch.uint8})
META = torch.device("meta")
CPU = torch.device("cpu")

# Values are carried for tensors up to this many elements: masks and positions, not activations.
VALUE_LIMIT = {True: 1 << 20, False: 1 << 23}  # by "is floating point"


def on_host(kwargs: Any) -> bool:
    """Return whether a factory call makes a host tensor."""
    device = (kwargs or {}).get("device")
    return device is None or device.type == "cpu"


def first_run(
    mode: OpMode,
    func: Any,
    info: OpInfo,
    signature: Signature,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Run a signature that the memo does not hold yet, remember it and record it."""
    rule = RULES.get(func)
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
        entry = make_entry(func, info, signature, args, kwargs, same, SINGLE)
        mode.memo.entries[signature.key] = entry
        return mode.replay(
            entry, signature.op_id, signature.knowns, signature.tensors, signature.uses
        )
    if rule is not None:
        recording = mode.recording
        specs = _as_specs(recording, args), _as_specs(recording, kwargs)
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
            entry = make_entry(func, info, signature, args, kwargs, outputs, _container(func))
            mode.memo.entries[signature.key] = entry
            return mode.replay(
                entry, signature.op_id, signature.knowns, signature.tensors, signature.uses
            )
    return plain_run(mode, func, info, signature, args, kwargs)


def plain_run(
    mode: OpMode,
    func: Any,
    info: OpInfo,
    signature: Signature,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Run the real kernel, record it, and remember it where that is sound."""
    recording = mode.recording
    given = args
    if info.selects and not recording.concrete:
        args = _with_static_indices(func, signature, args)
    if 0 < signature.hosts < len(signature.knowns) and not recording.concrete and not info.is_copy:
        # A device may mix with host scalars only; a model that mixes more runs as if all its
        # tensors had been moved.
        args, kwargs = tree_map_only(Tensor, _to_meta, (args, kwargs))
    try:
        result, values = _execute(mode, func, info, signature, args, kwargs)
    except Exception as error:
        error.operator = info.name  # type: ignore[attr-defined]  # for the message that names it
        raise
    flat, container = _flatten(result)
    outputs, replayable = _classify(recording, signature, flat)
    key = signature.key
    replayable = replayable and args is given
    entry = mode.memo.entries.get(key) if info.memo else None
    if entry is None or entry.outputs != outputs:
        entry = make_entry(func, info, signature, args, kwargs, outputs, container)
        if (
            info.memo
            and replayable
            and not recording.concrete  # what a real run selects, no other run may repeat
            and signature.hosts == 0
            and (signature.knowns or not on_host(kwargs))
        ):
            mode.memo.entries[key] = entry
    for written, tensor in zip(signature.uses, signature.tensors, strict=True):
        if written[3] and not info.memo:
            tensor.__dict__.pop("_ep", None)  # its geometry may have changed
    mode.record(entry, signature.op_id, signature.knowns, signature.uses, flat)
    if values is not None:
        _attach(recording, result, values)
    return result


def _execute(
    mode: OpMode,
    func: Any,
    info: OpInfo,
    signature: Signature,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[Any, Any]:
    """Run the kernel; a result that depends on values comes from them or not at all.

    Returns:
        The result, and its values where they had to be worked out.
    """
    recording = mode.recording
    if recording.concrete or len(signature.knowns) == signature.hosts:
        return func(*args, **kwargs), None
    if info.needs_values or _leaves_device(info, kwargs):
        values = [recording.value_of(tensor) for tensor in signature.tensors]
        if all(value is not None for value in values):
            answers = dict(zip(map(id, signature.tensors), values, strict=True))
            real = tree_map_only(Tensor, lambda tensor: answers[id(tensor)], (args, kwargs))
            result = func(*real[0], **_host_kwargs(real[1]))
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
    except NotImplementedError:
        if signature.unknown:
            raise
        result = func(*_values(args), **_host_kwargs(_values(kwargs)))
        return tree_map_only(Tensor, _to_meta, result), None


def _leaves_device(info: OpInfo, kwargs: dict[str, Any]) -> bool:
    """Return whether the call copies a device tensor to the host."""
    device = kwargs.get("device")
    return info.is_copy and device is not None and device.type == "cpu"


def _to_meta(tensor: Tensor) -> Tensor:
    """Return a meta tensor of the same geometry."""
    if tensor.device.type == "meta":
        return tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=META)


def _as_specs(recording: Recording, structure: Any) -> Any:
    """Return the arguments as formulas see them."""
    if isinstance(structure, Tensor):
        known = getattr(structure, "_ep", None)
        if known is None or known.storage.recording is not recording:
            return recording.spec_of(structure).tensor
        return known.spec.tensor
    if isinstance(structure, (list, tuple)):
        return type(structure)(_as_specs(recording, member) for member in structure)
    if isinstance(structure, dict):
        return {name: _as_specs(recording, member) for name, member in structure.items()}
    return structure


def _container(func: Any) -> int:
    """Return what the schema packs the outputs in."""
    returns = func._schema.returns
    if not returns:
        return NOTHING
    if len(returns) > 1:
        return TUPLE
    return LIST if "[]" in str(returns[0].type) or "List" in str(returns[0].type) else SINGLE


def _flatten(result: Any) -> tuple[list[Any], int]:
    """Return the outputs flat, and what they came in."""
    if result is None:
        return [], NOTHING
    if isinstance(result, list):
        return list(result), LIST
    if isinstance(result, tuple):
        if any(isinstance(member, (list, tuple)) for member in result):
            flat: list[Any] = []
            for member in result:
                flat.extend(member if isinstance(member, (list, tuple)) else (member,))
            return flat, -1  # nested: recorded, never replayed
        return list(result), TUPLE
    return [result], SINGLE


def _classify(
    recording: Recording, signature: Signature, flat: list[Any]
) -> tuple[tuple[Template, ...], bool]:
    """Return where each output lives, by the storages that are really there."""
    homes = {id(known.storage): i for i, known in reversed(list(enumerate(signature.knowns)))}
    objects = {id(tensor): i for i, tensor in reversed(list(enumerate(signature.tensors)))}
    outputs: list[Template] = []
    fresh: set[int] = set()
    replayable = True
    for output in flat:
        if not isinstance(output, Tensor):
            outputs.append((CONSTANT, None, -1, output))
            continue
        same = objects.get(id(output))
        if same is not None:
            outputs.append((SAME, None, same, None))
            continue
        spec = recording.spec_of(output)
        untyped = output.untyped_storage()
        life = getattr(untyped, "_ep", None)
        home = None if life is None else homes.get(id(life.storage))
        if home is not None:
            outputs.append((VIEW, spec, home, None))
            # A view in another type (real parts of complex numbers) is no as_strided().
            replayable = replayable and output.dtype == signature.tensors[home].dtype
            continue
        outputs.append((FRESH, spec, -1, None))
        replayable = (
            replayable
            and untyped._cdata not in fresh
            and not spec.host
            and untyped.nbytes() == spec.span_bytes
        )
        fresh.add(untyped._cdata)
    return tuple(outputs), replayable


def _null(_: Tensor) -> str:
    return "null"  # which tensor it is stands in tensor_uses


def make_entry(
    func: Any,
    info: OpInfo,
    signature: Signature,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    outputs: tuple[Template, ...],
    container: int,
) -> Entry:
    """Return the memo's entry for one signature, with its cost."""
    recording = signature.recording
    operands = [known.spec for known in signature.knowns]
    seen = [
        spec.tensor
        if spec is not None
        else (operands[operand].tensor if code == SAME else constant)
        for code, spec, operand, constant in outputs
    ]
    counted = cost(func, _as_specs(recording, args), _as_specs(recording, kwargs), tuple(seen))
    moves = not all(code == VIEW for code, *_ in outputs) if outputs else True
    read = written = 0
    if moves:
        distinct = {known.tensor_id: known.spec.size_bytes for known in signature.knowns}
        read = sum(distinct.values())
        written = sum(
            spec.size_bytes for code, spec, *_ in outputs if code == FRESH and spec is not None
        ) + sum(operands[i].size_bytes for i, use in enumerate(signature.uses) if use[3])
    is_view = bool(outputs) and not moves
    single = (
        outputs[0][1]
        if container == SINGLE and len(outputs) == 1 and outputs[0][0] == FRESH
        else None
    )
    return Entry(
        single,
        outputs,
        container,
        info.name,
        arguments_text(args, kwargs, _null),
        counted.macs,
        counted.pointwise_flops,
        counted.flops_status,
        read,
        written,
        is_view,
        info.is_inplace,
        info.is_random,
    )


# --- known values -------------------------------------------------------------------------------


def carry_values(
    recording: Recording,
    func: Any,
    signature: Signature,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    result: Any,
) -> None:
    """Compute an operator of known values on the host too, so that its results are known."""
    if recording.concrete:
        return
    outputs = [t for t in _flatten(result)[0] if isinstance(t, Tensor)]
    if len(signature.knowns) == signature.hosts > 0 and not any(t.is_meta for t in outputs):
        return
    if not outputs or any(_too_large(t) or t.device.type != "meta" for t in outputs):
        if signature.uses and any(use[3] for use in signature.uses):
            forget_values(signature)
        return
    # A tensor that an operator reshaped in place is to be recognised anew.
    known = [recording.known(tensor) for tensor in outputs]
    if all(one.value is not None and one.storage.valued for one in known) and not any(
        use[3] for use in signature.uses
    ):
        return
    try:
        values = func(*_values(args), **_host_kwargs(_values(kwargs)))
    except Exception:  # noqa: BLE001  # without a value the tensor is merely unknown
        forget_values(signature)
        return
    _attach(recording, result, values)


def carry_geometry(recording: Recording, func: Any, args: Any, kwargs: Any, result: Any) -> None:
    """State the values of ``zeros_like`` and its kin, which do not read their operand.

    A guard against overflow compares with infinity, or a tensor with itself. Its branch is one
    that a healthy model does not take: the values are taken to be finite, and the operator says so.
    """
    if recording.concrete or result.device.type != "meta" or _too_large(result):
        return
    if func in _EMPTY:
        # Whatever reads it has written it before, and each value that is written is carried.
        if result.numel() <= _MOST_EMPTY:
            set_value(recording, result, torch.zeros(result.shape, dtype=result.dtype))
        return
    finite = _if_finite(func, args)
    if finite is not None:
        set_value(recording, result, torch.tensor(finite).expand(result.shape))
        row = recording.ops[-1]
        recording.ops[-1] = (*row[:14], "finite", *row[15:])
    if finite is not None or func in _GUARDS:
        return
    base = torch.empty(args[0].shape, dtype=args[0].dtype)
    _attach(recording, result, func(base, *args[1:], **_host_kwargs(kwargs)))


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
        if use[3] and known.storage.valued:
            known.storage.valued = False
            for other in known.storage.by_spec.values():
                other.value = None


def set_value(recording: Recording, tensor: Tensor, value: Tensor) -> None:
    """State the value of a tensor on the meta device."""
    known = getattr(tensor, "_ep", None)
    if known is None or known.storage.recording is not recording:
        known = recording.identify(tensor)
    known.value = value
    known.storage.valued = True


def _attach(recording: Recording, result: Any, values: Any) -> None:
    """Give every output its value."""
    for tensor, value in zip(_flatten(result)[0], _flatten(values)[0], strict=True):
        if isinstance(tensor, Tensor) and isinstance(value, Tensor):
            set_value(recording, tensor, value)


def _too_large(tensor: Tensor) -> bool:
    return tensor.numel() > VALUE_LIMIT[tensor.is_floating_point() or tensor.is_complex()]


def _values(structure: Any) -> Any:
    """Return the arguments with their values in place of meta tensors."""
    if isinstance(structure, Tensor):
        return structure if structure.device.type == "cpu" else structure._ep.value  # type: ignore[attr-defined]
    if isinstance(structure, (list, tuple)):
        return type(structure)(_values(member) for member in structure)
    if isinstance(structure, dict):
        return {name: _values(member) for name, member in structure.items()}
    return structure


def _host_kwargs(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the named arguments with the host as device."""
    return {**kwargs, "device": CPU} if kwargs.get("device") is not None else kwargs


def _born(recording: Recording, tensor: Tensor) -> None:
    """Register a tensor that the next operator makes for itself."""
    spec = recording.spec_of(tensor)
    storage = recording.new_storage(spec.span_bytes, "", spec.host, recording.op_count, -1)
    tensor.untyped_storage()._ep = Life(storage)  # type: ignore[attr-defined]
    tensor._ep = recording.new_tensor(spec, storage, -1, 0, "activation")  # type: ignore[attr-defined]


def _with_static_indices(func: Any, signature: Signature, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments with known boolean masks as the indices that they select.

    Raises:
        UnknownValueError: if a mask's values are not known: the size of the result is not either.
    """
    if not any(index is not None and index.dtype in _MASKS for index in args[1]):
        return args
    recording = signature.recording
    indices: list[Tensor | None] = []
    for index in args[1]:
        if index is None or index.dtype not in _MASKS:
            indices.append(index)
            continue
        mask = recording.value_of(index)
        if mask is None:
            raise UnknownValueError(
                f"{func} selects with a mask whose values are unknown on the meta device"
            )
        for column in mask.nonzero(as_tuple=True):
            position = _to_meta(column)
            _born(recording, position)
            set_value(recording, position, column)
            indices.append(position)
    return (args[0], indices, *args[2:])
