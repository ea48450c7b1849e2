"""The dispatch mode: every aten operator of forward, backward and optimizer passes here.

It intercepts and looks up. What is remembered is replayed and recorded by the recorder; what is not
is run by ``execute``.

This is the hot path. Nothing in it depends on FLOP formulas, on the database or on the kind of
model; what can be known once per operator is in ``OpInfo``, once per signature in ``Entry``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode

from exporter.capture import execute
from exporter.capture.operators import INFOS as _INFOS
from exporter.capture.operators import op_info
from exporter.capture.recorder import Recorder
from exporter.capture.signature import Signature
from exporter.capture.values import known as values

if TYPE_CHECKING:
    from exporter.capture.calls import CallTracker
    from exporter.capture.memo import Memo
    from exporter.capture.state import Recording, TensorRecord

Tensor = torch.Tensor
_grad_enabled = torch.is_grad_enabled
_DisableTorchFunction = torch._C.DisableTorchFunction


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
        self.recorder = Recorder(recording, calls)
        self.memo = memo
        self.use_memo = use_memo
        self._replay = self.recorder.replay

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
                    return self._replay(entry, op_id, knowns, tensors, uses)
                for known in knowns:
                    if known.storage.value is not None:
                        break
                else:  # nothing has values that the result could have or that could be written
                    if not info.geometry_only:
                        return self._replay(entry, op_id, knowns, tensors, uses)
            signature = Signature(recording, info, key, args, kwargs or {}, knowns, tensors, uses)
            on_device = signature.hosts == 0 and (knowns or not signature.makes_host_tensor)
            if entry is not None and on_device:
                result = self._replay(entry, op_id, knowns, tensors, uses)
            elif self.use_memo and info.memo and on_device:
                result = execute.first_run(self.recorder, self.memo, signature)
            else:
                result = execute.plain_run(self.recorder, self.memo, signature)
            if recording.phase == "forward":
                self.follow_values(signature, result)
        return result

    def follow_values(self, signature: Signature, result: Any) -> None:
        """Carry on what is known of values, of operators of the forward pass."""
        if not signature.unknown:
            values.follow(signature, result)
        elif signature.info.geometry_only:
            values.follow_geometry(signature, result)
        elif signature.info.writes:
            values.forget(signature)

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
