"""From a recorded run to the records of a profile: classes, sums per call, totals."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from exporter.records.memory import MemoryOfCalls, memory_of_calls
from exporter.records.storage_classes import storage_classes
from exporter.targets.allocator import replay, workspace_bytes
from store.records import (
    MAX_INTEGER,
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
    edges = [
        (i, source, target, tensor_id, position, size, kind)
        for i, (source, target, tensor_id, position, size, kind) in enumerate(run.calls.edges)
    ]
    nodes = _nodes(run, edges)
    modules = _modules(run)
    param_count = sum(row[8] for row in modules)
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
        unknown_op_count=sum(row[8] == "unknown" for row in recording.ops),
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
        kept_bytes=sum(row[5] for row in memory.stats),
        forward_end_bytes=lives.forward_end_bytes,
        peak_bytes=lives.peak_bytes,
        model_allocated_bytes=lives.model_allocated_bytes,
        forward_allocated_bytes=lives.forward_allocated_bytes,
        peak_allocated_bytes=lives.peak_allocated_bytes,
        peak_reserved_bytes=lives.peak_reserved_bytes,
        workspace_bytes=workspace_bytes()
        if info.target == "cuda" and any(row[6] for row in recording.ops)
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
    digest.update("\n".join([f"{row[2]} {row[3]} {row[5]}" for row in recording.ops]).encode())
    digest.update("\n".join([f"{row[4]}{row[5]}{row[7]}" for row in recording.tensors]).encode())
    digest.update("\n".join([f"{use[0]} {use[2]}" for use in recording.uses]).encode())
    return digest.hexdigest()


def _storage_rows(run: Run, classes: list[str], *, cuda: bool) -> StorageRows:
    """Return the storages' rows, with the blocks that the target's allocator would give them."""
    recording = run.recording
    end = recording.op_count
    storages: list[StorageRecord] = recording.storages
    deaths = [s.death if s.death >= -1 else end for s in storages]
    on_device = [i for i, s in enumerate(storages) if not s.host]
    peak = max((row[15] for row in recording.ops), default=0)
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
    rows = [
        (s.storage_id, s.size_bytes, storage_class, s.birth, death, s.host, block, address)
        for s, storage_class, death, block, address in zip(
            storages, classes, deaths, blocks, addresses, strict=True
        )
    ]
    return StorageRows(
        rows,
        held.forward_end_bytes,
        held.peak_bytes,
        held.model_allocated_bytes,
        held.forward_allocated_bytes,
        held.peak_allocated_bytes,
        held.peak_reserved_bytes,
    )


def _flop_counts(run: Run) -> tuple[list[tuple[int, ...]], dict[str, list[int]]]:
    """Return the arithmetic per call and per phase."""
    count = len(run.calls.nodes)
    columns = [[0] * count for _ in range(4)]
    sums = {phase: [0, 0] for phase in ("forward", "backward", "recompute", "optimizer")}
    for row in run.recording.ops:
        macs, pointwise = row[6], row[7]
        if not macs and not pointwise:
            continue
        phase, node_id = row[2], row[1]
        total = sums[phase]
        total[0] += macs
        total[1] += pointwise
        if node_id >= 0 and phase in {"forward", "backward"}:
            first = 0 if phase == "forward" else 2
            columns[first][node_id] += macs
            columns[first + 1][node_id] += pointwise
    return list(zip(range(count), *columns, strict=True)), sums


def _nodes(run: Run, edges: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the calls' rows with their place in the chain of stages."""
    nodes = run.calls.nodes
    last_use: dict[tuple[int, int], int] = {}
    for _, source, target, tensor_id, _, _, kind in edges:
        if kind != "control":
            key = source, tensor_id
            last_use[key] = max(last_use.get(key, -1), target)
    crossing = [0] * (len(nodes) + 1)
    for (source, _), target in last_use.items():
        crossing[source] += 1
        crossing[target] -= 1
    open_tensors = stage = 0
    rows = []
    for node, change in zip(nodes, crossing, strict=False):
        rows.append((*node[:8], stage))
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
        sizes = [_bytes_of(own, counted), _bytes_of(buffers, counted)]
        parent = path.rpartition(".")[0]
        rows.append(
            (
                module_id,
                path,
                type(module).__name__,
                ids.get(parent, 0) if path else -1,
                calls.leaves[module_id],
                calls.call_counts[module_id],
                calls.pre_orders[module_id],
                calls.post_orders[module_id],
                param_count,
                *sizes,
            )
        )
    for storage in run.recording.storages:  # tensors in plain attributes: where they are used
        if (
            storage.storage_class == "buffer"
            and storage.storage_id not in counted
            and not storage.host
        ):
            module_id = homes.get(storage.storage_id, 0)
            row = rows[module_id]
            rows[module_id] = (*row[:-1], row[-1] + storage.size_bytes)
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
    homes = [row[3] for row in recording.tensors]
    found: dict[int, int] = {}
    if any(row[9] == "constant" for row in recording.tensors):
        for op_id, _, tensor_id, _ in recording.uses:
            node_id = recording.ops[op_id][1]
            if node_id >= 0:
                found.setdefault(homes[tensor_id], run.calls.nodes[node_id][4])
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
        node_id = recording.ops[op_id][1]
        storage = known.storage
        if storage.node != node_id or storage.birth < 0:
            reason = "input"
        elif storage.storage_id in memory.outputs.get(node_id, ()):
            reason = "output"
        else:
            reason = "intermediate"
        rows.append((len(rows), known.tensor_id, node_id, op_id, reason))
    return rows
