"""The dispatch mode: every aten operator of forward, backward and optimizer passes here.

This is the hot path. Nothing in it depends on FLOP formulas, on the database or on the kind of
model; what can be known once per operator is in ``OpInfo``, once per signature in ``Entry``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode

from exporter.capture import kernels
from exporter.capture.memo import FRESH, LIST, NOTHING, SAME, SINGLE, VIEW
from exporter.capture.opinfo import OpInfo, op_info
from exporter.capture.state import Known, Life, Recording

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


class Signature:
    """The operands of one call, flattened, and the key under which its result is remembered."""

    __slots__ = ("hosts", "key", "knowns", "leaf", "op_id", "recording", "tensors", "unknown",
                 "uses", "write")  # fmt: skip

    def __init__(self, recording: Recording, func: Any, unknown: bool) -> None:
        self.recording = recording
        self.op_id = recording.op_count
        self.key: list[Any] = [func]
        self.knowns: list[Known] = []
        self.tensors: list[Tensor] = []
        self.uses: list[tuple[int, int, int, bool]] = []
        self.leaf = 0
        self.hosts = 0
        self.unknown = unknown
        self.write = False  # the argument being added is written

    def add_tensor(self, tensor: Tensor) -> None:
        """Add one tensor operand."""
        try:
            known = tensor._ep  # type: ignore[attr-defined]
            if known.storage.recording is not self.recording:
                known = self.recording.identify(tensor)
        except AttributeError:
            known = self.recording.identify(tensor)
        spec = known.spec
        self.key.append(spec.spec_id)
        self.knowns.append(known)
        self.tensors.append(tensor)
        self.uses.append((self.op_id, self.leaf, known.tensor_id, self.write))
        self.leaf += 1
        if spec.host:
            self.hosts += 1
        elif known.value is None or not known.storage.valued:
            self.unknown = True

    def add(self, value: Any) -> None:
        """Add any operand."""
        cls = type(value)
        if cls is list or cls is tuple:
            self.key.append(len(value))
            for member in value:
                self.add(member)
        elif isinstance(value, Tensor):
            self.add_tensor(value)
        else:
            self.key.append(cls)  # 1, 1.0 and True are equal keys but different operands
            self.key.append(value)
            self.leaf += 1


class OpMode(TorchDispatchMode):
    """Records operators, tensors, uses and storages; makes outputs from the memo where it can."""

    def __init__(
        self, recording: Recording, memo: Memo, calls: CallTracker, *, use_memo: bool = True
    ) -> None:
        super().__init__()
        self.recording = recording
        self.memo = memo
        self.calls = calls
        self.use_memo = use_memo
        self.assumption = ""
        self._last_forward_op = -1  # of the autograd node that ran last: engine sums follow it

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run one operator and record it."""
        info = op_info(func)
        signature = Signature(self.recording, func, not info.valued)
        writes = info.writes
        i = 0
        for value in args:
            if writes:
                signature.write = i in writes
                i += 1
            cls = type(value)
            if cls is Tensor or cls is Parameter:
                signature.add_tensor(value)
            else:
                signature.add(value)
        if kwargs:
            for name, value in kwargs.items():
                signature.write = name in info.written_names
                signature.key.append(name)
                signature.add(value)
        with _DisableTorchFunction():
            if (
                self.use_memo
                and info.memo
                and signature.hosts == 0
                and (signature.knowns or not kernels.on_host(kwargs))
            ):
                entry = self.memo.entries.get(tuple(signature.key))
                if entry is not None:
                    result = self.replay(signature, entry)
                else:
                    result = kernels.first_run(self, func, info, signature, args, kwargs or {})
            else:
                result = kernels.plain_run(self, func, info, signature, args, kwargs or {})
            if self.recording.phase == "forward":
                if not signature.unknown:
                    kernels.carry_values(
                        self.recording, func, signature, args, kwargs or {}, result
                    )
                elif info.geometry_only:
                    kernels.carry_geometry(self.recording, func, args, kwargs or {}, result)
                elif writes:
                    kernels.forget_values(signature)
        return result

    def replay(self, signature: Signature, entry: Entry) -> Any:
        """Return the outputs of a remembered call, recorded."""
        spec = entry.single
        if spec is not None:
            result = _empty_strided(spec.shape, spec.stride, dtype=spec.dtype, device=META)
            self.record(signature, entry, (result,))
            return result
        results: list[Any] = []
        tensors = signature.tensors
        for code, template, operand, constant in entry.outputs:
            if code == FRESH:
                assert template is not None
                results.append(
                    _empty_strided(
                        template.shape, template.stride, dtype=template.dtype, device=META
                    )
                )
            elif code == VIEW:
                assert template is not None
                results.append(
                    tensors[operand].as_strided(template.shape, template.stride, template.offset)
                )
            elif code == SAME:
                results.append(tensors[operand])
            else:
                results.append(constant)
        self.record(signature, entry, results)
        container = entry.container
        if container == SINGLE:
            return results[0]
        if container == NOTHING:
            return None
        return results if container == LIST else tuple(results)

    def record(self, signature: Signature, entry: Entry, results: Any) -> None:
        """Append the rows of one executed operator."""
        recording = self.recording
        op_id = signature.op_id
        phase = recording.phase
        forward_op = -1
        node_id = -1
        if phase == "forward":
            node_id = recording.node
            if node_id < 0:
                node_id = self.calls.node_for_op(entry.operator)
            if entry.is_inplace:
                recording.written += [
                    known.storage
                    for use, known in zip(signature.uses, signature.knowns, strict=True)
                    if use[3]
                ]
            self._claim_sequence_numbers(op_id)
        elif phase == "backward":
            if _grad_enabled():
                phase = "recompute"
                node_id, forward_op = self.calls.recomputed(entry.operator)
                self._claim_sequence_numbers(forward_op)
            else:
                forward_op = self._differentiated()
                if forward_op >= 0:
                    node_id = recording.ops[forward_op][1]
        recording.op_count = op_id + 1
        recording.uses += signature.uses
        self._register(signature, entry, op_id, node_id, results)
        recording.ops.append(
            (
                op_id,
                node_id,
                phase,
                entry.operator,
                forward_op,
                entry.arguments,
                entry.macs,
                entry.pointwise_flops,
                entry.flops_status,
                entry.bytes_read,
                entry.bytes_written,
                entry.is_view,
                entry.is_inplace,
                entry.is_random,
                self.assumption,
                recording.live_bytes,
            )
        )

    def _register(
        self, signature: Signature, entry: Entry, op_id: int, node_id: int, results: Any
    ) -> None:
        """Give the outputs their identity: a new storage, or a place on an operand's."""
        recording = self.recording
        role = recording.role
        tensors = recording.tensors
        index = 0
        for code, spec, operand, _ in entry.outputs:
            if code == FRESH:
                assert spec is not None
                result = results[index]
                host = spec.host
                storage = recording.new_storage(spec.span_bytes, "", host, op_id, node_id)
                result.untyped_storage()._ep = Life(storage)
            elif code == VIEW:
                assert spec is not None
                result = results[index]
                storage = signature.knowns[operand].storage
            else:
                index += 1
                continue
            tensor_id = len(tensors)
            tensors.append(
                (
                    tensor_id,
                    op_id,
                    index,
                    storage.storage_id,
                    spec.shape_json,
                    spec.stride_json,
                    spec.offset,
                    spec.dtype_name,
                    spec.size_bytes,
                    role,
                    "",
                )
            )
            known = Known(tensor_id, spec, storage, node_id)
            storage.by_spec.setdefault(spec.spec_id, known)
            result._ep = known
            index += 1

    def _claim_sequence_numbers(self, op_id: int) -> None:
        """Link the autograd nodes made since the last operator to this one."""
        recording = self.recording
        number = _sequence_number()
        if number != recording.sequence:
            for i in range(recording.sequence, number):
                recording.sequence_ops[i] = op_id
            recording.sequence = number

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
                    return self.recording.accumulator_ops.get(known.tensor_id, -1)
        return self._last_forward_op
