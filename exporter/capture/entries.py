"""What the memo remembers of one call: made from the call's real or predicted results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from exporter.capture.arguments import arguments_text
from exporter.capture.memo import (
    CONSTANT,
    DETACHED,
    FRESH,
    LIST,
    NOTHING,
    SAME,
    SHARED,
    SINGLE,
    TUPLE,
    VIEW,
    Entry,
    Template,
)
from exporter.formulas.registry import cost
from exporter.targets.storage_sizes import held_bytes
from store.records import TENSOR_USE

if TYPE_CHECKING:
    from exporter.capture.signature import Signature
    from exporter.capture.state import Recording

Tensor = torch.Tensor
_MUTATES = TENSOR_USE.mutates


def as_specs(recording: Recording, structure: Any) -> Any:
    """Return the arguments as formulas see them."""
    if isinstance(structure, Tensor):
        known = getattr(structure, "_ep", None)
        if known is None or known.storage.recording is not recording:
            return recording.spec_of(structure).tensor
        return known.spec.tensor
    if isinstance(structure, (list, tuple)):
        return type(structure)(as_specs(recording, member) for member in structure)
    if isinstance(structure, dict):
        return {name: as_specs(recording, member) for name, member in structure.items()}
    return structure


def flatten_result(result: Any) -> tuple[list[Any], int]:
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


def classify(signature: Signature, flat: list[Any]) -> tuple[tuple[Template, ...], bool]:
    """Return where each output lives, by the storages that are really there.

    Args:
        signature: the call.
        flat: its outputs.

    Returns:
        The outputs' templates, and whether they suffice to make such outputs again.
    """
    recording = signature.recording
    made_view = DETACHED if signature.info.func is torch.ops.aten.detach.default else VIEW
    homes = {id(known.storage): i for i, known in reversed(list(enumerate(signature.knowns)))}
    objects = {id(tensor): i for i, tensor in reversed(list(enumerate(signature.tensors)))}
    outputs: list[Template] = []
    fresh: dict[int, int] = {}  # storages of outputs, and which output was the first there
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
            outputs.append((made_view, spec, home, None))
            # A view in another type (real parts of complex numbers) is no as_strided().
            replayable = replayable and output.dtype == signature.tensors[home].dtype
            continue
        first = fresh.get(untyped._cdata)
        if first is not None:
            outputs.append((SHARED, spec, first, None))
            replayable = False
            continue
        size = untyped.nbytes()
        fresh[untyped._cdata] = len(outputs)
        outputs.append((FRESH, spec, -1, None if size == spec.span_bytes else size))
        replayable = replayable and not spec.host and size == spec.span_bytes
    return tuple(outputs), replayable


def _null(_: Tensor) -> str:
    return "null"  # which tensor it is stands in tensor_uses


# What an entry fills in of an operator's row.
COLUMNS = (
    "arguments", "macs", "pointwise_flops", "flops_status", "bytes_read", "bytes_written",
    "is_view", "is_inplace", "is_random",
)  # fmt: skip


def make_entry(
    signature: Signature,
    outputs: tuple[Template, ...],
    container: int,
    args: tuple[Any, ...] | None = None,
    kwargs: dict[str, Any] | None = None,
    specs: tuple[Any, Any] | None = None,
) -> Entry:
    """Return the memo's entry for one signature, with its cost.

    Args:
        signature: the call.
        outputs: where each of its outputs lives.
        container: what they come in.
        args: with which the kernel was run, where these are others than the call's.
        kwargs: the same.
        specs: both as formulas see them, where the caller has them.
    """
    info = signature.info
    func = info.func
    args = signature.args if args is None else args
    kwargs = signature.kwargs if kwargs is None else kwargs
    recording = signature.recording
    seen_args, seen_kwargs = specs or (as_specs(recording, args), as_specs(recording, kwargs))
    operands = [known.spec for known in signature.knowns]
    seen = [
        spec.tensor
        if spec is not None
        else (operands[operand].tensor if code == SAME else constant)
        for code, spec, operand, constant in outputs
    ]
    if not recording.target_is_meta and len(outputs) == 1 and outputs[0][0] == FRESH:
        held = held_bytes(func, seen_args, seen[0])
        if held is not None:
            outputs = ((FRESH, outputs[0][1], -1, held),)
    counted = cost(func, seen_args, seen_kwargs, tuple(seen))
    moves = not all(code in (VIEW, DETACHED) for code, *_ in outputs) if outputs else True
    read = written = 0
    if moves:
        distinct = {known.tensor_id: known.spec.size_bytes for known in signature.knowns}
        read = sum(distinct.values())
        written = sum(
            spec.size_bytes
            for code, spec, *_ in outputs
            if code in (FRESH, SHARED) and spec is not None
        ) + sum(operands[i].size_bytes for i, use in enumerate(signature.uses) if use[_MUTATES])
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
        info.is_inplace,
        (  # COLUMNS
            arguments_text(args, kwargs, _null),
            counted.macs,
            counted.pointwise_flops,
            counted.flops_status,
            read,
            written,
            is_view,
            info.is_inplace,
            info.is_random,
        ),
    )
