"""From a recorded run to the records of a profile: classes, sums per call, totals."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from exporter.records.memory import MemoryOfCalls, memory_of_calls
from exporter.records.storage_classes import storage_classes
from exporter.targets.allocator import replay, workspace_bytes
from store.columns import changed, make_row, rows_by_column
from store.records import (
    EDGE,
    MAX_INTEGER,
    MEM_STAT,
    MODULE,
    NODE,
    OP,
    TENSOR,
    TENSOR_USE,
    Edge,
    FlopCount,
    MemStat,
    Module,
    Node,
    Op,
    Profile,
    ProfileInfo,
    Rows,
    SavedTensor,
    Storage,
    Tensor,
    TensorUse,
    Totals,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from exporter.capture.run import Run
    from exporter.capture.state import Storage as StorageRecord


@dataclass(frozen=True, slots=True)
class StorageRows:
    """The storages' rows and what the allocator held for them."""

    rows: list[tuple[Any, ...]]
    forward_end_bytes: int
    peak_bytes: int
    model_allocated_bytes: int
    forward_allocated_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int


def build_profile(run: Run, info: ProfileInfo, *, seconds: float) -> Profile:
    """Return the profile of a finished run.

    Raises:
        OverflowError: if a count passes what the database holds (2^63 - 1), naming it.
    """
    recording = run.recording
    classes = storage_classes(run)
    lives = _storage_rows(run, classes, cuda=info.target == "cuda")
    memory = memory_of_calls(run)
    flops, sums = _flop_counts(run)
    edges = [(edge_id, *edge) for edge_id, edge in enumerate(run.calls.edges)]
    nodes = _nodes(run, edges)
    modules = _modules(run)
    param_count = sum(row[MODULE.param_count] for row in modules)
    on_device = [s for s in recording.storages if not s.host]
    param_bytes = sum(s.size_bytes for s in on_device if s.storage_class == "parameter")
    buffer_bytes = sum(s.size_bytes for s in on_device if s.storage_class == "buffer")
    totals = Totals(
        profile_id=-1,
        zoo=info.zoo,
        model=info.model,
        batch_size=info.batch_size,
        dtype=info.dtype,
        mode=info.mode,
        target=info.target,
        capture=info.capture,
        node_count=len(nodes),
        edge_count=len(edges),
        op_count=recording.op_count,
        unknown_op_count=sum(row[OP.flops_status] == "unknown" for row in recording.ops),
        fwd_macs=sums["forward"][0],
        bwd_macs=sums["backward"][0],
        fwd_pointwise_flops=sums["forward"][1],
        bwd_pointwise_flops=sums["backward"][1],
        fwd_flops=2 * sums["forward"][0] + sums["forward"][1],
        bwd_flops=2 * sums["backward"][0] + sums["backward"][1],
        param_count=param_count,
        param_bytes=param_bytes,
        buffer_bytes=buffer_bytes,
        input_bytes=sum(s.size_bytes for s in on_device if s.storage_class == "input"),
        kept_bytes=sum(row[MEM_STAT.kept_bytes] for row in memory.stats),
        forward_end_bytes=lives.forward_end_bytes,
        peak_bytes=lives.peak_bytes,
        model_allocated_bytes=lives.model_allocated_bytes,
        forward_allocated_bytes=lives.forward_allocated_bytes,
        peak_allocated_bytes=lives.peak_allocated_bytes,
        peak_reserved_bytes=lives.peak_reserved_bytes,
        workspace_bytes=workspace_bytes()
        if info.target == "cuda" and any(row[OP.macs] for row in recording.ops)
        else 0,
        seconds=seconds,
    )
    for name in ("fwd_flops", "bwd_flops", "peak_bytes"):
        if getattr(totals, name) > MAX_INTEGER:
            raise OverflowError(
                f"{info.model}: {name} is {getattr(totals, name)}, above 2^63 - 1, which is the "
                "most that a database column holds; use a smaller batch size"
            )
    return Profile(
        info=info,
        totals=totals,
        modules=Rows(Module, modules),
        nodes=Rows(Node, nodes),
        edges=Rows(Edge, edges),
        flop_counts=Rows(FlopCount, flops),
        mem_stats=Rows(MemStat, memory.stats),
        ops=Rows(Op, recording.ops),
        tensors=Rows(Tensor, recording.tensors),
        tensor_uses=Rows(TensorUse, recording.uses),
        saved_tensors=Rows(SavedTensor, _saved(run, memory)),
        storages=Rows(Storage, lives.rows),
    )


def structural_hash(run: Run) -> str:
    """Return a digest, equal for equal operators, arguments and geometries in equal order."""
    digest = hashlib.sha256()
    recording = run.recording
    phase, operator, arguments = OP.phase, OP.operator, OP.arguments
    shape, stride, dtype = TENSOR.shape, TENSOR.stride, TENSOR.dtype
    op_id, tensor_id = TENSOR_USE.op_id, TENSOR_USE.tensor_id
    ops = [f"{row[phase]} {row[operator]} {row[arguments]}" for row in recording.ops]
    tensors = [f"{row[shape]}{row[stride]}{row[dtype]}" for row in recording.tensors]
    uses = [f"{row[op_id]} {row[tensor_id]}" for row in recording.uses]
    for lines in (ops, tensors, uses):
        digest.update("\n".join(lines).encode())
    return digest.hexdigest()


def _storage_rows(run: Run, classes: list[str], *, cuda: bool) -> StorageRows:
    """Return the storages' rows, with the blocks that the target's allocator would give them."""
    recording = run.recording
    end = recording.op_count
    storages: list[StorageRecord] = recording.storages
    deaths = [s.death if s.death >= -1 else end for s in storages]
    on_device = [i for i, s in enumerate(storages) if not s.host]
    live = OP.live_bytes
    peak = max((row[live] for row in recording.ops), default=0)
    start = sum(s.size_bytes for s in storages if s.birth < 0 and not s.host)
    peak = max(peak, start)
    forward_end = run.forward_end_bytes
    blocks = [s.size_bytes for s in storages]
    addresses = [-1] * len(storages)
    if not cuda:
        model = sum(
            s.size_bytes
            for s, storage_class in zip(storages, classes, strict=True)
            if storage_class in {"parameter", "buffer"} and s.birth < 0 and not s.host
        )
        held = StorageRows([], forward_end, peak, model, forward_end, peak, peak)
        top = 0
        for i in on_device:  # no allocator: one after the other
            if storages[i].size_bytes:
                addresses[i] = top
                top += storages[i].size_bytes
    else:
        placed = replay(
            ((storages[i].size_bytes, storages[i].birth, deaths[i]) for i in on_device),
            run.forward_ops - 1,
            model_count=sum(not s.host for s in storages[: run.model_storages]),
        )
        for i, block, address in zip(on_device, placed.block_bytes, placed.addresses, strict=True):
            blocks[i], addresses[i] = block, address
        held = StorageRows(
            [],
            forward_end,
            peak,
            placed.model.allocated_bytes,
            placed.forward_end.allocated_bytes,
            placed.peaks.allocated_bytes,
            placed.peaks.reserved_bytes,
        )
    rows = rows_by_column(
        Storage,
        storage_id=[s.storage_id for s in storages],
        size_bytes=[s.size_bytes for s in storages],
        storage_class=classes,
        birth_op_id=[s.birth for s in storages],
        death_op_id=deaths,
        is_host=[s.host for s in storages],
        block_bytes=blocks,
        address=addresses,
    )
    return StorageRows(
        rows,
        held.forward_end_bytes,
        held.peak_bytes,
        held.model_allocated_bytes,
        held.forward_allocated_bytes,
        held.peak_allocated_bytes,
        held.peak_reserved_bytes,
    )


def _flop_counts(run: Run) -> tuple[list[tuple[Any, ...]], dict[str, list[int]]]:
    """Return the arithmetic per call and per phase."""
    count = len(run.calls.nodes)
    calls = {
        phase: ([0] * count, [0] * count) for phase in ("forward", "backward")
    }  # multiply-adds, pointwise FLOPs
    at_macs, at_pointwise, at_phase, at_node = OP.macs, OP.pointwise_flops, OP.phase, OP.node_id
    sums = {phase: [0, 0] for phase in ("forward", "backward", "recompute", "optimizer")}
    for row in run.recording.ops:
        macs, pointwise = row[at_macs], row[at_pointwise]
        if not macs and not pointwise:
            continue
        phase, node_id = row[at_phase], row[at_node]
        total = sums[phase]
        total[0] += macs
        total[1] += pointwise
        if node_id >= 0 and phase in calls:
            calls[phase][0][node_id] += macs
            calls[phase][1][node_id] += pointwise
    rows = rows_by_column(
        FlopCount,
        node_id=range(count),
        fwd_macs=calls["forward"][0],
        fwd_pointwise_flops=calls["forward"][1],
        bwd_macs=calls["backward"][0],
        bwd_pointwise_flops=calls["backward"][1],
    )
    return rows, sums


def _nodes(run: Run, edges: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the calls' rows with their place in the chain of stages."""
    nodes = run.calls.nodes
    last_use: dict[tuple[int, int], int] = {}
    for edge in edges:
        if edge[EDGE.kind] != "control":
            key = edge[EDGE.src_node_id], edge[EDGE.tensor_id]
            last_use[key] = max(last_use.get(key, -1), edge[EDGE.dst_node_id])
    crossing = [0] * (len(nodes) + 1)
    for (source, _), target in last_use.items():
        crossing[source] += 1
        crossing[target] -= 1
    open_tensors = stage = 0
    rows = []
    for node, change in zip(nodes, crossing, strict=False):
        node[NODE.stage] = stage
        rows.append(tuple(node))
        open_tensors += change
        if open_tensors == 1:
            stage += 1
    return rows


def _modules(run: Run) -> list[tuple[Any, ...]]:
    """Return the modules' rows; what is shared counts at its first owner."""
    calls = run.calls
    rows: list[tuple[Any, ...]] = []
    seen: set[int] = set()
    counted: set[int] = set()
    homes = _first_modules(run)
    ids = {path: i for i, path in enumerate(calls.paths)}
    for module_id, (path, module) in enumerate(zip(calls.paths, calls.modules, strict=True)):
        own = [tensor for tensor in module._parameters.values() if tensor is not None]
        param_count = 0
        for tensor in own:
            if id(tensor) not in seen:
                seen.add(id(tensor))
                param_count += tensor.numel()
        buffers = [tensor for tensor in module._buffers.values() if tensor is not None]
        parent = path.rpartition(".")[0]
        rows.append(
            make_row(
                Module,
                module_id=module_id,
                path=path,
                class_name=type(module).__name__,
                parent_id=ids.get(parent, 0) if path else -1,
                is_leaf=calls.leaves[module_id],
                call_count=calls.call_counts[module_id],
                fw_pre_order=calls.pre_orders[module_id],
                fw_post_order=calls.post_orders[module_id],
                param_count=param_count,
                param_bytes=_bytes_of(own, counted),
                buffer_bytes=_bytes_of(buffers, counted),
            )
        )
    for storage in run.recording.storages:  # tensors in plain attributes: where they are used
        if (
            storage.storage_class == "buffer"
            and storage.storage_id not in counted
            and not storage.host
        ):
            module_id = homes.get(storage.storage_id, 0)
            size = rows[module_id][MODULE.buffer_bytes] + storage.size_bytes
            rows[module_id] = changed(Module, rows[module_id], buffer_bytes=size)
    return rows


def _bytes_of(tensors: Iterable[torch.Tensor], counted: set[int]) -> int:
    """Return the bytes of the storages that no module before has counted, and note them."""
    size = 0
    for tensor in tensors:
        storage: StorageRecord = tensor._ep.storage  # type: ignore[attr-defined]  # adopted at the start
        if storage.storage_id not in counted:
            counted.add(storage.storage_id)
            size += storage.size_bytes
    return size


def _first_modules(run: Run) -> dict[int, int]:
    """Return the module in which each storage without an owner was used first."""
    recording = run.recording
    homes = [row[TENSOR.storage_id] for row in recording.tensors]
    found: dict[int, int] = {}
    if any(row[TENSOR.role] == "constant" for row in recording.tensors):
        for use in recording.uses:
            node_id = recording.ops[use[TENSOR_USE.op_id]][OP.node_id]
            if node_id >= 0:
                home = homes[use[TENSOR_USE.tensor_id]]
                found.setdefault(home, run.calls.nodes[node_id][NODE.module_id])
    return found


def _saved(run: Run, memory: MemoryOfCalls) -> list[tuple[Any, ...]]:
    """Return the saved tensors' rows, each tensor once per saving operator."""
    recording = run.recording
    rows: list[tuple[Any, ...]] = []
    seen: set[tuple[int, int]] = set()
    for number, known in sorted(run.saved, key=lambda pair: (pair[0], pair[1].tensor_id)):
        op_id = recording.sequence_ops.get(number, -1)
        if op_id < 0 or (op_id, known.tensor_id) in seen:
            continue
        seen.add((op_id, known.tensor_id))
        node_id = recording.ops[op_id][OP.node_id]
        storage = known.storage
        if storage.node != node_id or storage.birth < 0:
            reason = "input"
        elif storage.storage_id in memory.outputs.get(node_id, ()):
            reason = "output"
        else:
            reason = "intermediate"
        rows.append(
            make_row(
                SavedTensor,
                saved_id=len(rows),
                tensor_id=known.tensor_id,
                node_id=node_id,
                op_id=op_id,
                reason=reason,
            )
        )
    return rows
