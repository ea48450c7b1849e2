"""The rows of operators, tensors and uses, and the outputs of remembered calls.

This is hot, too: ``record`` is called once for every operator. Rows are made here and nowhere else;
whoever reads them does so by the names of their columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from exporter.capture import entries, specs
from exporter.capture.memo import (
    DETACHED,
    FRESH,
    LIST,
    NOTHING,
    SAME,
    SHARED,
    SINGLE,
    VIEW,
)
from exporter.capture.state import Recording, StorageFinalizer, TensorRecord
from store import records
from store.columns import check_order
from store.records import OP, TENSOR_USE

if TYPE_CHECKING:
    from exporter.capture.calls import CallTracker
    from exporter.capture.memo import Entry

Tensor = torch.Tensor
_empty_strided = torch.empty_strided
_sequence_number = torch._C._autograd._get_sequence_nr
_current_node = torch._C._current_autograd_node
_grad_enabled = torch.is_grad_enabled
_ACCUMULATOR = 1 << 62  # gradient accumulation carries the largest sequence number there is
META = torch.device("meta")
_NODE_ID, _MUTATES = OP.node_id, TENSOR_USE.mutates

# The columns of the rows below, in the order in which they are written down there.
_PLACE = "exporter/capture/recorder.py"
check_order(
    records.Op,
    ("op_id", "node_id", "phase", "operator", "fwd_op_id", *entries.COLUMNS, "assumption",
     "live_bytes"),
    _PLACE,
)  # fmt: skip
check_order(
    records.Tensor,
    ("tensor_id", "op_id", "output_index", "storage_id", *specs.COLUMNS, "role", "name"),
    _PLACE,
)
check_order(records.TensorUse, ("op_id", "arg_position", "tensor_id", "mutates"), _PLACE)


class Recorder:
    """Makes the outputs of remembered calls, and records every call that has run."""

    def __init__(self, recording: Recording, calls: CallTracker) -> None:
        self.recording = recording
        self.calls = calls
        self.assumption = ""  # of the operator that is being recorded
        self._last_forward_op = -1  # of the autograd node that ran last: engine sums follow it

    def replay(
        self,
        entry: Entry,
        op_id: int,
        knowns: list[TensorRecord],
        tensors: list[Tensor],
        uses: list[tuple[int, int, int, bool]],
    ) -> Any:
        """Return the outputs of a remembered call, recorded."""
        spec = entry.single
        if spec is not None:
            result = _empty_strided(spec.shape, spec.stride, dtype=spec.dtype, device=META)
            self.record(entry, op_id, knowns, uses, (result,))
            return result
        results: list[Any] = []
        for code, template, operand, constant in entry.outputs:
            if code == FRESH and template is not None:
                results.append(
                    _empty_strided(
                        template.shape, template.stride, dtype=template.dtype, device=META
                    )
                )
            elif code == VIEW and template is not None:
                results.append(
                    tensors[operand].as_strided(template.shape, template.stride, template.offset)
                )
            elif code == SAME:
                results.append(tensors[operand])
            elif code == DETACHED:
                results.append(tensors[operand].detach())
            else:
                results.append(constant)
        self.record(entry, op_id, knowns, uses, results)
        container = entry.container
        if container == SINGLE:
            return results[0]
        if container == NOTHING:
            return None
        return results if container == LIST else tuple(results)

    def record(  # noqa: C901, PLR0912  # one function, as above
        self,
        entry: Entry,
        op_id: int,
        knowns: list[TensorRecord],
        uses: list[tuple[int, int, int, bool]],
        results: Any,
    ) -> None:
        """Append the rows of one executed operator."""
        recording = self.recording
        phase = recording.phase
        forward_op = -1
        node_id = -1
        if phase == "forward":
            node_id = recording.node
            if node_id < 0:
                node_id = self.calls.node_for_op(entry.operator)
            if entry.is_inplace:
                recording.written += [
                    known.storage for use, known in zip(uses, knowns, strict=True) if use[_MUTATES]
                ]
            number = _sequence_number()
            if number == recording.sequence + 1:
                recording.sequence_ops[recording.sequence] = op_id
                recording.sequence = number
            elif number != recording.sequence:
                recording.claim_sequence_numbers(op_id)
        elif phase == "backward":
            if _grad_enabled():
                phase = "recompute"
                node_id, forward_op = self.calls.recomputed(entry.operator)
                recording.claim_sequence_numbers(forward_op)
            else:
                forward_op = self._differentiated()
                if forward_op >= 0:
                    node_id = recording.ops[forward_op][_NODE_ID]
        recording.op_count = op_id + 1
        recording.uses += uses
        tensors = recording.tensors
        role = recording.role
        index = 0
        for code, spec, operand, nbytes in entry.outputs:
            if spec is not None:  # it has an identity of its own
                result = results[index]
                tensor_id = len(tensors)
                if code == FRESH:
                    size = spec.span_bytes if nbytes is None else nbytes
                    storage = recording.new_storage(size, "", spec.host, op_id, node_id)
                    result.untyped_storage()._ep = StorageFinalizer(storage)
                    storage.first = known = TensorRecord(tensor_id, spec, storage, node_id)
                else:
                    known = results[operand]._ep if code == SHARED else knowns[operand]
                    storage = known.storage
                    known = TensorRecord(tensor_id, spec, storage, node_id)
                    storage.add(known)
                result._ep = known
                tensors.append(
                    (tensor_id, op_id, index, storage.storage_id, *spec.columns, role, "")
                )
            index += 1  # noqa: SIM113  # enumerate makes a tuple per output
        recording.ops.append(
            (
                op_id,
                node_id,
                phase,
                entry.operator,
                forward_op,
                *entry.columns,
                self.assumption,
                recording.live_bytes,
            )
        )

    def _differentiated(self) -> int:
        """Return the forward operator whose derivative is being computed, -1 for the seeds."""
        node = _current_node()
        if node is not None:
            number = node._sequence_nr()
            if number < _ACCUMULATOR:
                self._last_forward_op = self.recording.sequence_ops.get(number, -1)
            else:
                variable = node.variable  # type: ignore[attr-defined]
                known = getattr(variable, "_ep", None)
                if known is not None:
                    # A recomputed region's own inputs are no parameters.
                    return self.recording.accumulator_ops.get(
                        known.tensor_id, self._last_forward_op
                    )
        return self._last_forward_op
