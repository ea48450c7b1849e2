"""What each storage is: parameter, activation, gradient, temporary, ..."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from store.records import OP, TENSOR, TENSOR_USE

if TYPE_CHECKING:
    from exporter.capture.run import Run
    from exporter.capture.state import Storage


def storage_classes(run: Run) -> list[str]:
    """Return each storage's class, one of ``store.records.STORAGE_CLASSES``.

    What existed before the first operator is a parameter, a buffer (tensors in plain attributes
    among them) or an input. An activation is born in forward, or in recomputation, and outlives
    its call; a gradient is born in backward and handed to another call's backward or left as
    ``.grad``; what an optimizer keeps is its state. Everything else is temporary.
    """
    handed = _handed_on(run)
    ends = {span.node_id: span.op_end for span in run.calls.spans}
    count = run.recording.op_count
    found = []
    for storage in run.recording.storages:
        if storage.storage_class:
            storage_class = storage.storage_class
        elif storage.birth < run.forward_ops or storage.birth >= count:
            left = storage.death < 0 or storage.death >= ends.get(storage.node, 0)
            storage_class = "activation" if left else "temporary"
        else:
            storage_class = _later_class(run, storage, handed)
        found.append(storage_class)
    return found


def _later_class(run: Run, storage: Storage, handed: set[int]) -> str:
    """Return the class of a storage born after the forward pass."""
    ops = run.recording.ops
    born = ops[storage.birth]
    phase = born[OP.phase]
    if phase == "recompute":
        died = ops[storage.death] if 0 <= storage.death < len(ops) else None
        inside = died is not None and _place(died) == _place(born)
        return "temporary" if inside else "activation"
    if phase == "backward":
        return "gradient" if storage.storage_id in handed else "temporary"
    return "optimizer" if storage.storage_id in run.optimizer_state else "temporary"


def _place(row: tuple[Any, ...]) -> tuple[int, str]:
    """Return the call and the phase of an operator."""
    return row[OP.node_id], row[OP.phase]


def _handed_on(run: Run) -> set[int]:
    """Return the storages that backward hands from one operator's derivative to another's."""
    recording = run.recording
    ops = recording.ops
    handed = set(run.gradients)
    makers = {
        storage.storage_id: ops[storage.birth][OP.fwd_op_id]
        for storage in recording.storages
        if run.forward_ops <= storage.birth < len(ops)
    }
    if makers:
        homes = [row[TENSOR.storage_id] for row in recording.tensors]
        for use in recording.uses:
            home = homes[use[TENSOR_USE.tensor_id]]
            if home in makers and ops[use[TENSOR_USE.op_id]][OP.fwd_op_id] != makers[home]:
                handed.add(home)
    return handed
