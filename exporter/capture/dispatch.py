"""The dispatch mode: every aten operator of forward, backward and optimizer passes here.

This is the hot path. Nothing in it depends on FLOP formulas, on the database or on the kind of
model; what can be known once per operator is in ``OpInfo``, once per signature in ``Entry``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode

from exporter.capture import execute, memo, specs
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
from exporter.capture.operators import INFOS as _INFOS
from exporter.capture.operators import op_info
from exporter.capture.state import Recording, StorageFinalizer, TensorRecord
from exporter.capture.values import known as known_values
from store import records
from store.columns import check_order
from store.records import OP, TENSOR_USE

if TYPE_CHECKING:
    from exporter.capture.calls import CallTracker
    from exporter.capture.memo import Entry, Memo

Tensor = torch.Tensor
_empty_strided = torch.empty_strided
_sequence_number = torch._C._autograd._get_sequence_nr
_current_node = torch._C._current_autograd_node
_grad_enabled = torch.is_grad_enabled
_DisableTorchFunction = torch._C.DisableTorchFunction
_ACCUMULATOR = 1 << 62  # gradient accumulation carries the largest sequence number there is
META = torch.device("meta")
_NODE_ID, _MUTATES = OP.node_id, TENSOR_USE.mutates

# The columns of the rows below, in the order in which they are written down there.
_PLACE = "exporter/capture/dispatch.py"
check_order(
    records.Op,
    ("op_id", "node_id", "phase", "operator", "fwd_op_id", *memo.COLUMNS, "assumption",
     "live_bytes"),
    _PLACE,
)  # fmt: skip
check_order(
    records.Tensor,
    ("tensor_id", "op_id", "output_index", "storage_id", *specs.COLUMNS, "role", "name"),
    _PLACE,
)
check_order(records.TensorUse, ("op_id", "arg_position", "tensor_id", "mutates"), _PLACE)


class Signature:
    """The operands of one call, flattened, and the key under which its result is remembered."""

    __slots__ = ("hosts", "key", "knowns", "op_id", "recording", "tensors", "unknown", "uses")

    def __init__(
        self,
        recording: Recording,
        key: tuple[Any, ...],
        knowns: list[TensorRecord],
        tensors: list[Tensor],
        uses: list[tuple[int, int, int, bool]],
        *,
        valued: bool,
    ) -> None:
        self.recording = recording
        self.op_id = recording.op_count
        self.key = key
        self.knowns = knowns
        self.tensors = tensors
        self.uses = uses  # rows of tensor_uses
        self.hosts = 0  # operands in host memory
        self.unknown = not valued  # the result's values do not follow from known values
        for known in knowns:
            if known.spec.host:
                self.hosts += 1
            elif known.value is None or not known.storage.valued:
                self.unknown = True


class OpMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records operators, tensors, uses and storages; makes outputs from the memo where it can."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # its guard costs more than the lookup; nothing is compiled while recording

    def __init__(
        self, recording: Recording, memo: Memo, calls: CallTracker, *, use_memo: bool = True
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.recording = recording
        self.memo = memo
        self.calls = calls
        self.use_memo = use_memo
        self.assumption = ""
        self._last_forward_op = -1  # of the autograd node that ran last: engine sums follow it

    def __torch_dispatch__(  # noqa: C901, PLR0912, PLR0915  # one function: calls cost more
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run one operator and record it."""
        recording = self.recording
        info = _INFOS.get(id(func)) or op_info(func)
        # Some kernels keep a workspace for backward only while gradients are recorded.
        parts: list[Any] = [info, _grad_enabled()]
        knowns: list[TensorRecord] = []
        tensors: list[Tensor] = []
        uses: list[tuple[int, int, int, bool]] = []
        op_id = recording.op_count
        writes = info.writes
        leaf = i = 0
        for value in args:
            cls = type(value)
            if cls is Tensor or cls is Parameter:
                try:
                    known = value._ep
                    if known.storage.recording is not recording:
                        known = recording.identify(value)
                except AttributeError:
                    known = recording.identify(value)
                parts.append(known.spec.spec_id)
                knowns.append(known)
                tensors.append(value)
                uses.append((op_id, leaf, known.tensor_id, i in writes))
                leaf += 1
            elif cls is list or isinstance(value, Tensor):
                leaf = self._add(value, i in writes, leaf, parts, knowns, tensors, uses)
            else:
                parts.append(cls)  # 1, 1.0 and True are equal keys but different operands
                parts.append(value)
                leaf += 1
            i += 1  # noqa: SIM113  # enumerate makes a tuple per operand
        if kwargs:
            for name, value in kwargs.items():
                parts.append(name)
                leaf = self._add(
                    value, name in info.written_names, leaf, parts, knowns, tensors, uses
                )
        count = len(knowns)
        if count > 1 and (knowns[0] is knowns[1] if count == 2 else len(set(knowns)) < count):
            # `x * x` reads fewer bytes than `x * y`: which operands are the same one.
            first: dict[TensorRecord, int] = {}
            parts.append(tuple([first.setdefault(known, i) for i, known in enumerate(knowns)]))
        key = tuple(parts)
        with _DisableTorchFunction():
            entry = self.memo.entries.get(key) if self.use_memo else None
            if entry is not None and knowns and not recording.has_hosts:
                if recording.phase != "forward":
                    return self.replay(entry, op_id, knowns, tensors, uses)
                for known in knowns:
                    if known.storage.valued:
                        break
                else:  # nothing has values that the result could have or that could be written
                    if not info.geometry_only:
                        return self.replay(entry, op_id, knowns, tensors, uses)
            signature = Signature(recording, key, knowns, tensors, uses, valued=info.valued)
            on_device = signature.hosts == 0 and (knowns or not execute.on_host(kwargs))
            if entry is not None and on_device:
                result = self.replay(entry, op_id, knowns, tensors, uses)
            elif self.use_memo and info.memo and on_device:
                result = execute.first_run(self, func, info, signature, args, kwargs or {})
            else:
                result = execute.plain_run(self, func, info, signature, args, kwargs or {})
            if recording.phase == "forward":
                if not signature.unknown:
                    known_values.carry_values(
                        recording, func, signature, args, kwargs or {}, result
                    )
                elif info.geometry_only:
                    known_values.carry_geometry(recording, func, args, kwargs or {}, result)
                elif writes:
                    known_values.forget_values(signature)
        return result

    def _add(
        self,
        value: Any,
        write: bool,
        leaf: int,
        parts: list[Any],
        knowns: list[TensorRecord],
        tensors: list[Tensor],
        uses: list[tuple[int, int, int, bool]],
    ) -> int:
        """Add any operand to the signature; return the number of leaves so far."""
        cls = type(value)
        if cls is list or cls is tuple:
            parts.append(len(value))
            for member in value:
                if type(member) is int:
                    parts.append(member)
                    leaf += 1
                else:
                    leaf = self._add(member, write, leaf, parts, knowns, tensors, uses)
            return leaf
        if isinstance(value, Tensor):
            known = self.recording.known(value)
            parts.append(known.spec.spec_id)
            knowns.append(known)
            tensors.append(value)
            uses.append((self.recording.op_count, leaf, known.tensor_id, write))
        else:
            parts.append(cls)
            parts.append(value)
        return leaf + 1

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
