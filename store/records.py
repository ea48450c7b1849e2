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
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, overload

from store.columns import Positions, column, count, names, record, same_as
from store.settings import RunSettings

MAX_INTEGER = 2**63 - 1

NODE_KINDS = ("placeholder", "call_module", "call_function", "call_method", "output")
EDGE_KINDS = ("data", "alias", "control")
PHASES = ("forward", "backward", "recompute", "optimizer")
FLOPS_STATUSES = ("formula", "zero_cost", "unknown")
CAPTURES = ("meta", "drawn", "real")
ASSUMPTIONS = ("", "keep-all", "drawn-values", "seeded-values")
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
        known = names(self.record)
        if name not in known:
            raise KeyError(f"{self.record.__name__} has no field {name!r}; it has {[*known]}")
        position = known.index(name)
        return [row[position] for row in self.tuples]


@record(kw_only=True)
class ProfileInfo(RunSettings):
    """What was profiled: one model under one configuration."""

    zoo: str = column(
        "where the model comes from: torchvision, ..., user", of_model=True, named_as="{}"
    )
    model: str = column("name of the model in its zoo", of_model=True, stored_as="name")
    package: str = column(
        "distribution that defines the model; '' if unknown", of_model=True, is_version=True
    )
    package_version: str = column(
        "version of that distribution; '' if unknown", of_model=True, is_version=True
    )
    config: str = column("JSON object: the configuration asked for", of_model=True, is_json=True)
    input_spec: str = column('JSON: the inputs, such as ["float32[4, 3, 224, 224]"]', is_json=True)
    capture: str = column(
        "meta; drawn: on meta, with some values drawn or assumed; real: run on the CPU with real "
        "values",
        choices=CAPTURES,
        is_outcome=True,
    )
    built_on: str = column("device that the constructor ran on: meta or cpu", is_outcome=True)
    assumption: str = column(
        "kind of the assumption about unknown values that was needed; '' without",
        choices=ASSUMPTIONS,
        absent="",
    )
    assumption_note: str = column(
        "the same assumption in words; '' without", absent="", is_outcome=True
    )
    torch_version: str = column("version of torch", is_version=True)
    exporter_version: str = column("version of this program", is_version=True)
    structural_hash: str = column(
        "equal for equal operator sequences on equal shapes", is_outcome=True
    )
    created_at: str = column("UTC, ISO 8601", is_outcome=True)


@record
class Totals:
    """One row of the view ``profile_totals``."""

    # -1 until stored
    profile_id: int = column("number of the profile; never given out again", compare=False)
    zoo: str = same_as(ProfileInfo, "zoo")
    model: str = same_as(ProfileInfo, "model")
    batch_size: int = same_as(ProfileInfo, "batch_size")
    dtype: str = same_as(ProfileInfo, "dtype")
    mode: str = same_as(ProfileInfo, "mode")
    target: str = same_as(ProfileInfo, "target")
    capture: str = same_as(ProfileInfo, "capture")
    node_count: int = count("rows in nodes")
    edge_count: int = count("rows in edges")
    op_count: int = count("rows in ops")
    unknown_op_count: int = count("ops without a formula: if not 0, FLOPs are lower bounds")
    fwd_macs: int = count("multiply-adds of contractions in forward")
    bwd_macs: int = count("multiply-adds of contractions in backward")
    fwd_pointwise_flops: int = count("FLOPs of everything else in forward")
    bwd_pointwise_flops: int = count("FLOPs of everything else in backward")
    fwd_flops: int = count("FLOPs of forward: 2 * fwd_macs + fwd_pointwise_flops")
    bwd_flops: int = count("FLOPs of backward: 2 * bwd_macs + bwd_pointwise_flops")
    param_count: int = count("elements of all parameters, shared ones once", of_model=True)
    param_bytes: int = count("bytes of all parameters", of_model=True)
    buffer_bytes: int = count("bytes of all buffers", of_model=True)
    input_bytes: int = count("bytes of the inputs")
    kept_bytes: int = count("bytes of activations alive when forward ends")
    forward_end_bytes: int = count("bytes alive when forward ends, model and inputs included")
    peak_bytes: int = count("highest number of live bytes, as requested")
    model_allocated_bytes: int = count("bytes that the allocator holds for the model alone")
    forward_allocated_bytes: int = count("allocated bytes when forward ends")
    peak_allocated_bytes: int = count("highest number of allocated bytes")
    peak_reserved_bytes: int = count("highest number of bytes reserved from the device")
    workspace_bytes: int = count("bytes of the matrix library's workspace, in no other sum")
    seconds: float = column("seconds from capture to finished records")


@record
class Module:
    """A module of the model, in the order of ``named_modules``; shared modules appear once."""

    module_id: int = column("number of the module, in the order of named_modules")
    path: str = column("dotted path from the model; '' is the model itself")
    class_name: str = column("class of the module")
    parent_id: int = column("module that holds it; -1 for the model itself")
    is_leaf: bool = column("1 if its calls are recorded as one node each")
    call_count: int = column("how often it was called")
    fw_pre_order: int = column("place of its first entry among all modules; -1: not called")
    fw_post_order: int = column("place of its first exit among all modules; -1: not called")
    param_count: int = count("elements of its own parameters, not its children's")
    param_bytes: int = count("bytes of its own parameters")
    buffer_bytes: int = count("bytes of its own buffers")


@record
class Node:
    """A call of the forward pass, or an input or the output of the graph."""

    node_id: int = column("number of the call, in execution order")
    name: str = column("unique name, such as layer1.0.conv1 or add_1")
    kind: str = column(
        "placeholder, call_module, call_function, call_method or output", choices=NODE_KINDS
    )
    target: str = column("what is called: module path, function or method name")
    module_id: int = column("the called module, or the one whose forward calls; -1: none")
    arguments: str = column('JSON: arguments, tensors as {"tensor": tensor_id}', is_json=True)
    shape: str = column("JSON list: shape of the first output tensor", is_json=True)
    dtype: str = column("number format of the first output tensor")
    stage: int = column("number of points before it that a single storage crosses")


@record
class Edge:
    """A tensor that goes from one call to another, or an order that a write imposes."""

    edge_id: int = column("number of the edge")
    src_node_id: int = column("call that makes the tensor", refers="nodes.node_id")
    dst_node_id: int = column(
        "call that uses it, always later than the first", refers="nodes.node_id"
    )
    tensor_id: int = column("the tensor; -1: none")
    arg_position: int = column("place among the tensors of the consumer's arguments")
    size_bytes: int = count("bytes of the tensor")
    kind: str = column(
        "data, alias (only viewed) or control (write after read)", choices=EDGE_KINDS
    )


@record
class FlopCount:
    """Arithmetic of a call."""

    node_id: int = column("the call", refers="nodes.node_id")
    fwd_macs: int = count("multiply-adds of contractions in forward")
    fwd_pointwise_flops: int = count("FLOPs of everything else in forward")
    bwd_macs: int = count("multiply-adds of contractions in its backward")
    bwd_pointwise_flops: int = count("FLOPs of everything else in its backward")


@record
class MemStat:
    """Memory of a call: bytes of storages as they live in the eager run."""

    node_id: int = column("the call", refers="nodes.node_id")
    fwd_in_bytes: int = count("bytes that existed before and that it saves for backward")
    fwd_tmp_bytes: int = count("bytes born in it, not in its output, alive when it returns")
    fwd_out_bytes: int = count("bytes born in it and reachable from its output")
    fwd_transient_bytes: int = count("highest live bytes in it above what it leaves alive")
    kept_bytes: int = count("bytes born in it and alive when forward ends")
    bwd_tmp_bytes: int = count("highest live bytes of its backward, less the next two")
    bwd_out_bytes: int = count("bytes of gradients of its inputs that its backward leaves")
    grad_bytes: int = count("bytes of parameter gradients that its backward leaves")
    param_bytes: int = count("bytes of parameters that it is the first to use")
    buffer_bytes: int = count("bytes of buffers that it is the first to use")


@record
class Op:
    """An executed aten operator."""

    op_id: int = column("number of the operator, in execution order: the step")
    node_id: int = column("call it belongs to; -1: output gradients and optimizer")
    phase: str = column("forward, backward, recompute or optimizer", choices=PHASES)
    operator: str = column("name and overload, such as aten.convolution.default")
    fwd_op_id: int = column("forward operator that it differentiates or repeats; -1: none")
    arguments: str = column(
        "JSON: arguments in the order of the schema, tensors as null", is_json=True
    )
    macs: int = count("multiply-adds of contractions")
    pointwise_flops: int = count("FLOPs of everything else")
    flops_status: str = column(
        "formula, zero_cost or unknown (both counts are then 0)", choices=FLOPS_STATUSES
    )
    bytes_read: int = count("bytes of its tensor arguments")
    bytes_written: int = count("bytes of its results")
    is_view: bool = column("1 if its result shares an argument's storage")
    is_inplace: bool = column("1 if it writes into an argument")
    is_random: bool = column("1 if it draws random numbers")
    assumption: str = column("assumption about unknown values that it used; '' without")
    live_bytes: int = count("bytes alive on the device when it returned, as requested")


@record
class Tensor:
    """A view of a storage: what an operator returned, or what existed before the first."""

    tensor_id: int = column("number of the tensor, in the order of appearance")
    op_id: int = column("operator that returned it; -1: it existed before")
    output_index: int = column("place among the operator's results")
    storage_id: int = column("the storage that it views", refers="storages.storage_id")
    shape: str = column("JSON list: elements per dimension", is_json=True)
    stride: str = column("JSON list: elements between neighbours per dimension", is_json=True)
    storage_offset: int = count("elements before its first in the storage")
    dtype: str = column("number format, such as float32")
    size_bytes: int = count("bytes of its elements")
    role: str = column(
        "parameter, buffer, input, constant, activation, gradient or optimizer",
        choices=TENSOR_ROLES,
    )
    name: str = column("name of a parameter, buffer or input; else ''")


@record
class TensorUse:
    """An operator reads or writes a tensor."""

    op_id: int = column("operator that uses the tensor", refers="ops.op_id")
    arg_position: int = column("place among the leaves of the operator's arguments")
    tensor_id: int = column("the tensor", refers="tensors.tensor_id")
    mutates: bool = column("1 if the operator writes into it")


@record
class SavedTensor:
    """A tensor that autograd keeps for backward when forward ends."""

    saved_id: int = column("number of the row")
    tensor_id: int = column("the tensor", refers="tensors.tensor_id")
    node_id: int = column("forward call that saved it", refers="nodes.node_id")
    op_id: int = column("forward operator that saved it", refers="ops.op_id")
    reason: str = column(
        "what it is to the call: input, intermediate or output", choices=SAVED_REASONS
    )


@record
class Storage:
    """Bytes with one birth and one death."""

    storage_id: int = column("number of the storage, in the order of births")
    size_bytes: int = count("bytes, as requested")
    storage_class: str = column(
        "parameter, buffer, input, activation, temporary, gradient or optimizer",
        choices=STORAGE_CLASSES,
    )
    birth_op_id: int = column("first step it is alive at; -1: before the first operator")
    death_op_id: int = column("last step it is alive at; op_count: it outlives the run")
    is_host: bool = column("1 if in host memory: in no sum of device memory")
    block_bytes: int = count("bytes of the allocator's block; size_bytes unless for cuda")
    address: int = count("planned address of the block; -1 for host or empty storages")


@record
class Device:
    """What a device can do in one number format."""

    name: str = column("name of the device")
    dtype: str = column("number format that the rate is for, such as bfloat16")
    peak_flops_per_second: int = count("highest FLOP/s in this number format")
    bandwidth_bytes_per_second: int = count("bytes that its memory moves per second")
    memory_bytes: int = count("bytes of its memory")
    launch_overhead_us: int = count("microseconds that starting a kernel adds")
    source: str = column("where the figures come from")


# Where each value is in a row: row[OP.live_bytes].
MODULE = Positions(Module)
NODE = Positions(Node)
EDGE = Positions(Edge)
FLOP_COUNT = Positions(FlopCount)
MEM_STAT = Positions(MemStat)
OP = Positions(Op)
TENSOR = Positions(Tensor)
TENSOR_USE = Positions(TensorUse)
SAVED_TENSOR = Positions(SavedTensor)
STORAGE = Positions(Storage)


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
