"""What autograd keeps for backward when forward ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from exporter.capture.state import Recording, TensorRecord

_FIELDS: dict[type, tuple[str, ...]] = {}


def saved_tensors(
    recording: Recording, outputs: list[torch.Tensor]
) -> tuple[list[tuple[int, TensorRecord]], list[Any]]:
    """Return what the graph keeps, and its nodes.

    Walks the graph from the outputs. Tensors that hooks have packed away (activation
    checkpointing, offloading) are not kept and not listed.

    Returns:
        (autograd sequence number, tensor) for every tensor that is kept, and the graph's nodes in
        the order of their numbers. Once Python has seen a node, the graph's own way of dismantling
        itself recurses and ends the process some 100,000 nodes deep: whoever has the nodes must
        keep them until the outputs are gone, and then drop them from the last to the first.
    """
    found: list[tuple[int, TensorRecord]] = []
    stack: list[Any] = [t.grad_fn for t in outputs if t.grad_fn is not None]
    seen = set(stack)
    while stack:
        node = stack.pop()
        fields = _FIELDS.get(type(node))
        if fields is None:
            fields = _FIELDS[type(node)] = tuple(
                name for name in dir(node) if name.startswith("_raw_saved_")
            )
        for name in fields:
            try:
                packed = getattr(node, name)
            except RuntimeError:  # already released
                continue
            for one in packed if isinstance(packed, (tuple, list)) else (packed,):
                data = one.data if one is not None else None
                if isinstance(data, torch.Tensor):  # else what a hook made of it
                    number = node._sequence_nr()
                    known = getattr(data, "_ep", None)
                    if known is None or known.storage.recording is not recording:
                        known = _known(recording, data, number)
                    found.append((number, known))
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                stack.append(following)
    return found, sorted(seen, key=lambda node: node._sequence_nr())


def _known(recording: Recording, data: torch.Tensor, number: int) -> TensorRecord:
    """Return the record of a saved tensor.

    A Python number among an operator's operands is saved as a host scalar that no operator
    returned: it was born with the operator that saved it.
    """
    life = getattr(data.untyped_storage(), "_ep", None)
    if life is None or life.storage.recording is not recording:
        op_id = recording.sequence_ops.get(number, -1)
        if op_id >= 0 and data.device.type == "cpu" and data.dim() == 0:
            return recording.adopt_late(data, op_id)
    return recording.known(data)
