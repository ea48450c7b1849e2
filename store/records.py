"""The records that a profile is made of: frozen, stdlib only, fields in the order of columns.

One rule for what is absent: an integer that names nothing is ``-1``, a text that says nothing is
``""``, a JSON list without members is ``[]``. ``None`` appears nowhere.

Sizes are bytes (``_bytes``), counts are integers, times are seconds (``_seconds``).
Identifiers count from 0 in execution order within their profile.
Shapes and strides are JSON lists of integers, such as ``"[4, 3, 224, 224]"``.

A step is one executed operator. A storage is alive at step ``i`` when
``birth_op_id <= i <= death_op_id``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Generic, TypeVar, overload

MAX_INTEGER = 2**63 - 1

NODE_KINDS = ("placeholder", "call_module", "call_function", "call_method", "output")
EDGE_KINDS = ("data", "alias", "control")
PHASES = ("forward", "backward", "recompute", "optimizer")
FLOPS_STATUSES = ("formula", "zero_cost", "unknown")
MODES = ("train", "eval")
TARGETS = ("cuda", "cpu", "meta")
CAPTURES = ("meta", "concrete")
TENSOR_ROLES = (
    "parameter", "buffer", "input", "constant", "activation", "gradient", "optimizer",
)  # fmt: skip
STORAGE_CLASSES = (
    "parameter", "buffer", "input", "activation", "temporary", "gradient", "optimizer",
)  # fmt: skip
SAVED_REASONS = ("input", "intermediate", "output")

R = TypeVar("R")


class Rows(Sequence[R], Generic[R]):
    """A read-only sequence of records, kept as plain tuples and built when looked at.

    A profile has tens of thousands of rows; the store wants them as tuples, people as records.
    """

    __slots__ = ("record", "tuples")

    def __init__(self, record: type[R], tuples: Iterable[tuple[Any, ...]] = ()) -> None:
        self.record = record
        self.tuples: Sequence[tuple[Any, ...]] = (
            tuples if isinstance(tuples, (list, tuple)) else list(tuples)
        )

    def __len__(self) -> int:
        return len(self.tuples)

    @overload
    def __getitem__(self, index: int) -> R: ...
    @overload
    def __getitem__(self, index: slice) -> Rows[R]: ...
    def __getitem__(self, index: int | slice) -> R | Rows[R]:
        if isinstance(index, slice):
            return Rows(self.record, self.tuples[index])
        return self.record(*self.tuples[index])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rows):
            return NotImplemented
        return self.record is other.record and list(self.tuples) == list(other.tuples)

    __hash__ = None  # type: ignore[assignment]  # a sequence of thousands of rows is no key

    def __repr__(self) -> str:
        return f"Rows({self.record.__name__}, {len(self)} rows)"

    def column(self, name: str) -> list[Any]:
        """Return the values of one field over all rows.

        Raises:
            KeyError: if the record has no such field.
        """
        names = [f.name for f in fields(self.record)]  # type: ignore[arg-type]
        if name not in names:
            raise KeyError(f"{self.record.__name__} has no field {name!r}; it has {names}")
        position = names.index(name)
        return [row[position] for row in self.tuples]


@dataclass(frozen=True, slots=True)
class ProfileInfo:
    """What was profiled: one model under one configuration."""

    zoo: str  # "torchvision", ..., "user"
    model: str
    package: str  # distribution that defines the model, "" if unknown
    package_version: str
    config: str  # JSON object: the model's configuration as asked for
    batch_size: int
    input_spec: str  # JSON: the inputs, such as ["float32[4, 3, 224, 224]"]
    dtype: str  # "float32", ...
    mode: str  # MODES
    backward: bool
    input_grad: bool
    target: str  # TARGETS
    attention: str  # "auto", "flash", "efficient", "math"
    autocast: str  # "", "bfloat16", "float16"
    optimizer: str  # "", "sgd", "momentum", "adam", "adamw"
    capture: str  # CAPTURES
    built_on: str  # "meta", "cpu": where the constructor ran
    assumption: str  # "", or the assumption that a user asked for
    torch_version: str
    exporter_version: str
    structural_hash: str  # equal for equal operator sequences on equal shapes
    created_at: str  # UTC, ISO 8601


@dataclass(frozen=True, slots=True)
class Totals:
    """One row of the view ``profile_totals``."""

    profile_id: int = field(compare=False)  # -1 until stored
    zoo: str
    model: str
    batch_size: int
    dtype: str
    mode: str
    target: str
    capture: str
    node_count: int
    edge_count: int
    op_count: int
    unknown_op_count: int
    fwd_macs: int
    bwd_macs: int
    fwd_pointwise_flops: int
    bwd_pointwise_flops: int
    fwd_flops: int  # 2 * fwd_macs + fwd_pointwise_flops
    bwd_flops: int
    param_count: int
    param_bytes: int
    buffer_bytes: int
    input_bytes: int
    kept_bytes: int
    forward_end_bytes: int
    peak_bytes: int
    model_allocated_bytes: int
    forward_allocated_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    workspace_bytes: int
    seconds: float  # capture to finished records


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the model, in the order of ``named_modules``; shared modules appear once."""

    module_id: int
    path: str  # "" is the model itself
    class_name: str
    parent_id: int
    is_leaf: bool  # recorded as one call
    call_count: int
    fw_pre_order: int  # position of its first entry among all modules' entries, -1: never called
    fw_post_order: int  # position of its first exit
    param_count: (
        int  # its own parameters, not its children's; a shared one counts at its first owner
    )
    param_bytes: int
    buffer_bytes: int


@dataclass(frozen=True, slots=True)
class Node:
    """A call of the forward pass, or an input or the output of the graph."""

    node_id: int
    name: str  # unique: "layer1.0.conv1", "add", "add_1", ...
    kind: str  # NODE_KINDS
    target: str  # module path, function or method name
    module_id: int  # the called module, or the module in whose forward the call happened
    arguments: str  # JSON: positional and named arguments; tensors as {"tensor": tensor_id}
    shape: str  # JSON: shape of the first output tensor
    dtype: str  # of the first output tensor
    stage: int  # number of points before it where a single storage crosses: a chain of stages


@dataclass(frozen=True, slots=True)
class Edge:
    """A tensor that goes from one call to another, or an order that a write imposes."""

    edge_id: int
    src_node_id: int
    dst_node_id: int
    tensor_id: int
    arg_position: int  # position among the tensors of the consumer's flattened arguments
    size_bytes: int
    kind: str  # EDGE_KINDS: data | alias (consumer only views it) | control (write after read)


@dataclass(frozen=True, slots=True)
class FlopCount:
    """Arithmetic of a call."""

    node_id: int
    fwd_macs: int
    fwd_pointwise_flops: int
    bwd_macs: int
    bwd_pointwise_flops: int


@dataclass(frozen=True, slots=True)
class MemStat:
    """Memory of a call: bytes of storages as they live in the eager run."""

    node_id: int
    fwd_in_bytes: int
    fwd_tmp_bytes: int
    fwd_out_bytes: int
    fwd_transient_bytes: int
    kept_bytes: int
    bwd_tmp_bytes: int
    bwd_out_bytes: int
    grad_bytes: int
    param_bytes: int
    buffer_bytes: int


@dataclass(frozen=True, slots=True)
class Op:
    """An executed aten operator."""

    op_id: int
    node_id: int  # the call it belongs to; -1 for gradients of the outputs and the optimizer
    phase: str  # PHASES
    operator: str  # "aten.convolution.default"
    fwd_op_id: int  # backward and recompute: the forward operator it differentiates or repeats
    arguments: str  # JSON: arguments in schema order, tensors as null; their ids are in tensor_uses
    macs: int
    pointwise_flops: int
    flops_status: str  # FLOPS_STATUSES
    bytes_read: int
    bytes_written: int
    is_view: bool
    is_inplace: bool
    is_random: bool
    assumption: str
    live_bytes: int  # requested device bytes alive when it returned, before what dies after it


@dataclass(frozen=True, slots=True)
class Tensor:
    """A view of a storage: what an operator returned, or what existed before the first."""

    tensor_id: int
    op_id: int  # producer, -1 if it existed before
    output_index: int
    storage_id: int
    shape: str
    stride: str
    storage_offset: int  # elements
    dtype: str
    size_bytes: int  # elements * element size
    role: str  # TENSOR_ROLES
    name: str  # of a parameter, buffer or input; else ""


@dataclass(frozen=True, slots=True)
class TensorUse:
    """An operator reads or writes a tensor."""

    op_id: int
    arg_position: int  # position among the flattened leaves of the operator's arguments
    tensor_id: int
    mutates: bool


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """A tensor that autograd keeps for backward when forward ends."""

    saved_id: int
    tensor_id: int
    node_id: int
    op_id: int  # the forward operator that saved it
    reason: str  # SAVED_REASONS, seen from the call: input | intermediate | output


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes with one birth and one death."""

    storage_id: int
    size_bytes: int
    storage_class: str  # STORAGE_CLASSES
    birth_op_id: int  # -1 if it existed before the first operator
    death_op_id: int  # the last step it was alive at; op_count if it outlived the recording
    is_host: bool  # in host memory: counted in no device sum
    block_bytes: int  # allocator block that served it (target cuda), else size_bytes
    address: int  # planned address of that block; -1 for host memory and empty storages


@dataclass(frozen=True, slots=True)
class Profile:
    """One model under one configuration, whole."""

    info: ProfileInfo
    totals: Totals
    modules: Rows[Module]
    nodes: Rows[Node]
    edges: Rows[Edge]
    flop_counts: Rows[FlopCount]
    mem_stats: Rows[MemStat]
    ops: Rows[Op]
    tensors: Rows[Tensor]
    tensor_uses: Rows[TensorUse]
    saved_tensors: Rows[SavedTensor]
    storages: Rows[Storage]

    TABLES: ClassVar[tuple[tuple[str, type[Any]], ...]] = (
        ("modules", Module),
        ("nodes", Node),
        ("edges", Edge),
        ("flop_counts", FlopCount),
        ("mem_stats", MemStat),
        ("ops", Op),
        ("tensors", Tensor),
        ("tensor_uses", TensorUse),
        ("saved_tensors", SavedTensor),
        ("storages", Storage),
    )
