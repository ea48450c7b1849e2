"""What a recording knows while it grows: tensors, storages with their lives, rows in final form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from exporter.capture import specs
from exporter.capture.values.initial_values import remembered_value
from exporter.capture.values.storage_value import StorageValue, StorageView
from store.columns import changed, check_order
from store.records import OP, Op, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from exporter.capture.specs import Spec, SpecTable

OUTLIVES = -2  # death of a storage that is still alive

check_order(
    Tensor,
    ("tensor_id", "op_id", "output_index", "storage_id", *specs.COLUMNS, "role", "name"),
    "exporter/capture/state.py",
)


class Storage:
    """One storage: bytes, birth and death. Kept by the recording, not by the tensors."""

    __slots__ = (
        "birth",
        "death",
        "first",
        "host",
        "last_writer",
        "node",
        "others",
        "readers",
        "recording",
        "size_bytes",
        "storage_class",
        "storage_id",
        "value",
    )

    def __init__(
        self,
        recording: Recording,
        storage_id: int,
        size_bytes: int,
        birth: int,
        node: int,
        storage_class: str,
        host: bool,
    ) -> None:
        self.recording = recording
        self.storage_id = storage_id
        self.size_bytes = size_bytes
        self.birth = birth
        self.node = node
        self.storage_class = storage_class  # parameter, buffer, input; "" is decided at the end
        self.host = host
        self.death = OUTLIVES
        self.first: TensorRecord | None = None  # the tensor that came with it
        self.others: dict[int, TensorRecord] | None = None  # further geometries on it, by spec_id
        self.value: StorageValue | None = None  # what it holds, where that is followed
        self.last_writer = -1  # the call that last wrote it in place
        self.readers: list[int] | None = None  # calls that read it since

    def find(self, spec_id: int) -> TensorRecord | None:
        """Return the first tensor of a geometry."""
        first = self.first
        if first is not None and first.spec.spec_id == spec_id:
            return first
        return None if self.others is None else self.others.get(spec_id)

    def add(self, known: TensorRecord) -> None:
        """Note a tensor, unless one of its geometry was there before."""
        if self.first is None:
            self.first = known
        elif self.first.spec is not known.spec:
            if self.others is None:
                self.others = {}
            self.others.setdefault(known.spec.spec_id, known)

    def tensors(self) -> list[TensorRecord]:
        """Return one tensor of each geometry."""
        first = [] if self.first is None else [self.first]
        return first if self.others is None else [*first, *self.others.values()]


class TensorRecord:
    """One tensor: a geometry on a storage. Hung on the tensor object as ``_ep``."""

    __slots__ = ("node", "spec", "storage", "tensor_id")

    def __init__(self, tensor_id: int, spec: Spec, storage: Storage, node: int) -> None:
        self.tensor_id = tensor_id
        self.spec = spec
        self.storage = storage
        self.node = node  # the call that last returned it

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Return what makes None: a copy of a tensor is another tensor, which will be identified.

        So it is for a deep copy, and for one that is pickled and read again.
        """
        return type(None), ()


class StorageFinalizer:
    """Hung on a storage object: its end is the storage's end.

    The Python object of a storage lives as long as the storage itself, so this needs no address
    and no identifier that a later storage could inherit.
    """

    __slots__ = ("storage",)

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def __del__(self) -> None:
        storage = self.storage
        recording = storage.recording
        if recording.open:
            storage.death = recording.op_count - 1
            if not storage.host:
                recording.live_bytes -= storage.size_bytes
        storage.value = None


class Recording:
    """The raw recording of one run.

    Rows are tuples in the column order of ``store.records``; what is only known at the end is
    filled in by ``exporter.records.profile``.
    """

    def __init__(self, specs: SpecTable, device: torch.device, *, target: str) -> None:
        self.specs = specs
        self.device = device
        self.is_real = device.type == "cpu"
        self.has_hosts = False  # a host tensor has been an operand beside the device's
        self.target_is_host = target == "cpu"  # host memory is the target's memory
        self.target_is_meta = target == "meta"  # what runs are meta kernels and no device's
        self.open = True
        self.phase = "forward"
        self.role = "activation"
        self.node = -1  # the current call; -1: none, or none that has run an operator yet
        self.op_count = 0
        self.live_bytes = 0
        self.ops: list[tuple[Any, ...]] = []
        self.tensors: list[tuple[Any, ...]] = []
        self.uses: list[tuple[int, int, int, bool]] = []
        # Storages found after their birth: (birth, operators run when found, bytes).
        self.late: list[tuple[int, int, int]] = []
        self.backfilled: list[tuple[int, int, int]] = []
        self.written: list[Storage] = []  # written in place by the current call
        self.storages: list[Storage] = []
        self.sequence_ops: dict[int, int] = {}  # autograd sequence number -> forward op
        self.sequence = torch._C._autograd._get_sequence_nr()
        self.accumulator_ops: dict[int, int] = {}  # parameter's tensor id -> first op that uses it
        # Works out values under an assumption; None: what is not known stays unknown.
        self.answer: Callable[[torch.Tensor], torch.Tensor | None] | None = None

    def close(self) -> None:
        """End the recording: what is alive now outlived it."""
        self.open = False

    def release(self) -> None:
        """Undo the references in circles, so that all goes now and not when the collector runs."""
        for storage in self.storages:
            storage.first = storage.others = None
        self.storages = []

    def value_of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the values of a tensor, None if nobody knows them."""
        if tensor.device.type != "meta":
            return tensor
        if self.answer is not None:
            return self.answer(tensor)
        known = self.known(tensor)
        value = known.storage.value
        if value is None:
            return None
        return StorageView(value, known.spec, tensor, writes=False).worked_out()

    def claim_sequence_numbers(self, op_id: int) -> None:
        """Link the autograd nodes made since the last operator to this one."""
        number = torch._C._autograd._get_sequence_nr()
        for i in range(self.sequence, number):
            self.sequence_ops[i] = op_id
        self.sequence = number

    def new_storage(
        self, size_bytes: int, storage_class: str, host: bool, birth: int, node: int
    ) -> Storage:
        """Return a new storage and count its bytes."""
        self.has_hosts = self.has_hosts or host
        host = host and not self.target_is_host
        storage = Storage(self, len(self.storages), size_bytes, birth, node, storage_class, host)
        self.storages.append(storage)
        if not host:
            self.live_bytes += size_bytes
        return storage

    def new_tensor(
        self, spec: Spec, storage: Storage, op_id: int, index: int, role: str, name: str = ""
    ) -> TensorRecord:
        """Return a new tensor with its row."""
        tensor_id = len(self.tensors)
        self.tensors.append(
            (
                tensor_id,
                op_id,
                index,
                storage.storage_id,
                *spec.columns,
                role,
                name,
            )
        )
        known = TensorRecord(tensor_id, spec, storage, storage.node)
        storage.add(known)
        return known

    def spec_of(self, tensor: torch.Tensor) -> Spec:
        """Return the interned geometry of a strided tensor."""
        host = not self.is_real and tensor.is_cpu
        offset: Any = tensor.storage_offset()  # an int: there are no symbolic sizes here
        return self.specs.intern(tensor.shape, tensor.stride(), offset, tensor.dtype, host)

    def known(self, tensor: torch.Tensor) -> TensorRecord:
        """Return the record of a tensor object."""
        found = getattr(tensor, "_ep", None)
        if found is not None and found.storage.recording is self:
            return found  # type: ignore[no-any-return]
        return self.identify(tensor)

    def identify(self, tensor: torch.Tensor) -> TensorRecord:
        """Return the record of a tensor object that does not carry it yet.

        Views and unpacked saved tensors are new objects on a known storage; a tensor on an unknown
        storage existed before the recording (a constant of the model).
        """
        spec = self.spec_of(tensor)
        if spec.host:
            self.has_hosts = True
        untyped = tensor.untyped_storage()
        life = getattr(untyped, "_ep", None)
        if life is not None and life.storage.recording is self:
            storage: Storage = life.storage
            known = storage.find(spec.spec_id)
            if known is None:  # a view that no operator made, such as a reinterpreting accessor
                known = self.new_tensor(spec, storage, storage.birth, 0, self.role)
        elif tensor.dim() == 0 and tensor.device.type == "cpu":
            # A number that Python code has just made a tensor of, unseen by any mode.
            storage = self.new_storage(untyped.nbytes(), "", spec.host, self.op_count, -1)
            untyped._ep = StorageFinalizer(storage)  # type: ignore[attr-defined]
            known = self.new_tensor(spec, storage, -1, 0, "constant")
        else:
            known = self.adopt(tensor, "buffer", "constant", "")
            if not known.storage.host:
                self.late.append((-1, self.op_count, known.storage.size_bytes))
        tensor._ep = known  # type: ignore[attr-defined]
        return known

    def adopt(self, tensor: torch.Tensor, storage_class: str, role: str, name: str) -> TensorRecord:
        """Return the record of a tensor that exists before the first operator."""
        spec = self.spec_of(tensor)
        untyped = tensor.untyped_storage()
        life = getattr(untyped, "_ep", None)
        if life is not None and life.storage.recording is self:
            storage = life.storage
        else:
            storage = self.new_storage(untyped.nbytes(), storage_class, spec.host, -1, -1)
            untyped._ep = StorageFinalizer(storage)  # type: ignore[attr-defined]
        known = self.new_tensor(spec, storage, -1, 0, role, name)
        tensor._ep = known  # type: ignore[attr-defined]
        value = remembered_value(tensor)
        if value is not None:
            storage.value = StorageValue.given(tensor, spec, value, storage.value)
        return known

    def adopt_late(self, tensor: torch.Tensor, op_id: int) -> TensorRecord:
        """Return the record of a tensor that an earlier operator made unseen."""
        spec = self.spec_of(tensor)
        untyped = tensor.untyped_storage()
        storage = self.new_storage(
            untyped.nbytes(), "activation", spec.host, op_id, self.ops[op_id][OP.node_id]
        )
        untyped._ep = StorageFinalizer(storage)  # type: ignore[attr-defined]
        if not storage.host:
            self.late.append((op_id, self.op_count, storage.size_bytes))
        known = self.new_tensor(spec, storage, op_id, 0, "activation")
        tensor._ep = known  # type: ignore[attr-defined]
        return known

    def born(self, tensor: torch.Tensor) -> None:
        """Register a tensor that the next operator makes for itself."""
        spec = self.spec_of(tensor)
        storage = self.new_storage(spec.span_bytes, "", spec.host, self.op_count, -1)
        tensor.untyped_storage()._ep = StorageFinalizer(storage)  # type: ignore[attr-defined]
        tensor._ep = self.new_tensor(spec, storage, -1, 0, "activation")  # type: ignore[attr-defined]

    def replace(self, host: torch.Tensor, tensor: torch.Tensor) -> None:
        """Let a tensor take the place of a host tensor: its record, and the life of its storage."""
        known = self.known(host)
        known.spec = self.spec_of(tensor)
        tensor._ep = known  # type: ignore[attr-defined]
        ours, theirs = tensor.untyped_storage(), host.untyped_storage()
        ours._ep = theirs._ep  # type: ignore[attr-defined]
        del theirs._ep  # type: ignore[attr-defined]

    def backfill_late_storages(self) -> None:
        """Settle what was found after its birth: its call, and the live bytes since."""
        for storage in self.storages:
            if storage.node < 0 <= storage.birth < len(self.ops):
                storage.node = self.ops[storage.birth][OP.node_id]
        if not self.late:
            return
        changes = [0] * (len(self.ops) + 1)
        for birth, found, size in self.late:
            changes[max(birth, 0)] += size
            changes[found] -= size
        added = 0
        for op_id, (row, change) in enumerate(zip(self.ops, changes, strict=False)):
            added += change
            if added:
                self.ops[op_id] = changed(Op, row, live_bytes=row[OP.live_bytes] + added)
        self.backfilled += self.late
        self.late.clear()
