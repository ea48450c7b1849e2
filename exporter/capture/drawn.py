"""Answers to questions about values that the meta device does not have, within a stated assumption.

The operators, their order and the storages stay those of the meta run, under the target's rules;
only where a size or a branch depends on a value is that value worked out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map_only

from exporter.capture.dispatch import OpMode
from exporter.capture.operators import op_info
from exporter.capture.values.initial_values import remembered_moments
from exporter.capture.values.known import follow_geometry
from exporter.capture.values.moments import (
    DRAWN,
    IMAGES,
    carried_moments,
    parameter_moments,
)
from exporter.capture.values.storage_value import (
    KNOWN,
    STATED,
    UNKNOWN,
    LazyCall,
    Moments,
    StorageValue,
    StorageView,
)
from store.records import OP

if TYPE_CHECKING:
    from exporter.capture.calls import CallTracker
    from exporter.capture.memo import Memo
    from exporter.capture.operators import OpInfo
    from exporter.capture.signature import Signature
    from exporter.capture.state import Recording

Tensor = torch.Tensor
DRAW, KEEP_ALL = "drawn-values", "keep-all"
_DisableTorchFunction = torch._C.DisableTorchFunction


class DrawnMode(OpMode):  # type: ignore[no-untyped-call]
    """Records as ``OpMode`` does, follows what storages hold, and answers for values.

    With the policy ``DRAW``, inputs, parameters and the outputs of contractions and norms without
    values are drawn. With ``KEEP_ALL`` they stay unknown, and a predicate over them is true
    everywhere: whatever selects by it keeps everything.
    """

    def __init__(
        self,
        recording: Recording,
        memo: Memo,
        calls: CallTracker,
        *,
        use_memo: bool = True,
        policy: str = DRAW,
    ) -> None:
        super().__init__(recording, memo, calls, use_memo=use_memo)
        self.policy = policy
        self.used = False  # whether any answer rested on the assumption
        self._guess = STATED if policy == DRAW else UNKNOWN
        recording.answer = self.answer

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run one operator, record it, and remember how its results could be worked out."""
        kwargs = kwargs or {}
        info = op_info(func)
        op_id = self.recording.op_count
        operands: list[tuple[StorageView, Tensor]] = []
        with _DisableTorchFunction():
            seen = self._seen(info, args, kwargs, operands)
        self.recorder.assumption = ""
        result = super().__torch_dispatch__(func, types, args, kwargs)
        with _DisableTorchFunction():
            self._follow(func, info, seen, operands, result, op_id)
        return result

    def __exit__(self, *error: object) -> None:
        """End the recording of operators, and with it the answers."""
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        # The model's storages refer to the recording, and this mode to the model: a circle that the
        # cycle collector cannot see, as part of it is in C++.
        self.recording.answer = None

    # --- answers --------------------------------------------------------------------------------

    def answer(self, tensor: Tensor) -> Tensor | None:
        """Return the values of a meta tensor, or None if the policy has none for it.

        They are not the caller's to write.
        """
        value = self._value(tensor)
        if value.certainty == UNKNOWN:
            if tensor.dtype is not torch.bool:
                return None
            value.flat = torch.ones(value.elements, dtype=torch.bool)
            value.certainty = STATED
            value.call = None
        if value.certainty == STATED:
            self.recorder.assumption = self.policy
            self.used = True
        spec = self.recording.known(tensor).spec
        return StorageView(value, spec, tensor, writes=False).worked_out()

    def follow_values(self, signature: Signature, result: Any) -> None:
        """Note which operators guard against numbers that are not finite; ``_follow`` does more."""
        if signature.unknown and signature.info.geometry_only:
            follow_geometry(signature, result)

    # --- values ---------------------------------------------------------------------------------

    def _value(self, tensor: Tensor) -> StorageValue:
        """Return what the tensor's storage holds now."""
        storage = self.recording.known(tensor).storage
        if storage.value is None:
            storage.value = self._initial(tensor)
        return storage.value

    def _initial(self, tensor: Tensor) -> StorageValue:
        """Return the value of a storage that no operator made."""
        known = self.recording.known(tensor)
        if tensor.device.type == "cpu":
            return StorageValue.given(tensor, known.spec, tensor.clone())
        moments = remembered_moments(tensor)
        if moments is None:
            is_parameter = known.storage.storage_class == "parameter"
            moments = parameter_moments(tensor.shape) if is_parameter else IMAGES
        elements = tensor.untyped_storage().nbytes() // tensor.itemsize
        value = StorageValue(elements, tensor.dtype, certainty=self._guess, moments=moments)
        value.seed = -1 - known.storage.storage_id
        return value

    def _seen(
        self,
        info: OpInfo,
        args: Any,
        kwargs: dict[str, Any],
        operands: list[tuple[StorageView, Tensor]],
    ) -> tuple[Any, dict[str, Any]]:
        """Return the arguments with views of what storages hold before the call for tensors."""

        def read(tensor: Tensor, writes: bool) -> StorageView:
            spec = self.recording.known(tensor).spec
            found = StorageView(self._value(tensor), spec, tensor, writes=writes)
            operands.append((found, tensor))
            return found

        def through(value: Any, writes: bool) -> Any:
            if isinstance(value, Tensor):
                return read(value, writes)
            if isinstance(value, (list, tuple)):
                return tree_map_only(Tensor, lambda tensor: read(tensor, writes), value)
            return value

        seen_args = tuple(through(value, i in info.writes) for i, value in enumerate(args))
        seen_kwargs = {
            name: through(value, name in info.written_names) for name, value in kwargs.items()
        }
        return seen_args, seen_kwargs

    def _follow(  # noqa: C901  # one branch per kind of operator
        self,
        func: Any,
        info: OpInfo,
        seen: tuple[Any, dict[str, Any]],
        operands: list[tuple[StorageView, Tensor]],
        result: Any,
        op_id: int,
    ) -> None:
        """Give what the operator made or wrote its value."""
        outputs = result if isinstance(result, (list, tuple)) else [result]
        name = func.overloadpacket.__name__
        reads = [read for read, _ in operands]
        certainty = max((read.value.certainty for read in reads), default=KNOWN)
        drawn = DRAWN.of(func)
        is_drawn = drawn is not None or name.endswith("_backward")
        if is_drawn or info.is_random:
            certainty = max(certainty, self._guess)
        moments = drawn(seen[0]) if drawn is not None else carried_moments(func, seen[0])
        call = None
        if not is_drawn and not info.needs_values:
            seed = self._seed(op_id, 0) if info.is_random else None
            call = LazyCall(func, *seen, reads, seed)
        for index, tensor in enumerate(outputs):
            if not isinstance(tensor, Tensor):
                continue
            known = self.recording.known(tensor)
            if known.storage.birth != op_id:
                continue  # a view, or an operand
            value = StorageValue(
                tensor.untyped_storage().nbytes() // tensor.itemsize,
                tensor.dtype,
                certainty=certainty,
                moments=moments,
            )
            value.seed = self._seed(op_id, index)
            if tensor.device.type == "cpu":
                value.flat = tensor.detach().reshape(-1).clone()
            elif info.needs_values:
                if known.storage.value is not None:  # stated when the operator ran
                    value.flat = known.storage.value.worked_out()
            elif call is not None:
                call.gives(index, known.spec, value)
            elif "empty" in name:
                value = StorageValue(value.elements, value.dtype, moments=Moments(0.0, 0.0))
            known.storage.value = value
        if info.is_inplace:
            self._written(operands, call, certainty, moments, op_id)

    def _written(
        self,
        operands: list[tuple[StorageView, Tensor]],
        call: LazyCall | None,
        certainty: int,
        moments: Moments,
        op_id: int,
    ) -> None:
        """Give storages that were written in place their new values."""
        for read, tensor in operands:
            if not read.writes:
                continue
            before = read.value
            after = StorageValue(
                before.elements, before.dtype, certainty=certainty, moments=moments
            )
            after.seed = self._seed(op_id, 0)
            if call is not None:
                call.writes(before, after)
            self.recording.known(tensor).storage.value = after

    def _seed(self, op_id: int, index: int) -> int:
        """Return what an operator's draws start from: repeated work draws the same again."""
        ops = self.recording.ops
        row = ops[op_id] if op_id < len(ops) else None
        repeats = row is not None and row[OP.phase] == "recompute" and row[OP.fwd_op_id] >= 0
        origin: int = row[OP.fwd_op_id] if row is not None and repeats else op_id
        return origin * 8 + index
