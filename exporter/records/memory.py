"""Memory of each call, from the lives of the storages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from store.columns import rows_by_column
from store.records import OP, TENSOR, TENSOR_USE, MemStat

if TYPE_CHECKING:
    from exporter.capture.run import Run


@dataclass(frozen=True, slots=True)
class MemoryOfCalls:
    """``stats``: rows of ``MemStat``; ``outputs``: storages reachable from each call's output."""

    stats: list[tuple[Any, ...]]
    outputs: dict[int, list[int]]


def memory_of_calls(run: Run) -> MemoryOfCalls:
    """Return the bytes that each call reads, leaves, keeps and needs in passing."""
    recording, calls = run.recording, run.calls
    count = len(calls.nodes)
    ops, storages = recording.ops, recording.storages
    fwd_in = [0] * count
    kept = [0] * count
    param = [0] * count
    buffer = [0] * count
    _saved_inputs(run, fwd_in)
    for storage in storages:
        if 0 <= storage.birth < run.forward_ops and not storage.host:
            death = storage.death
            if death == -2 or death >= run.forward_ops:
                kept[storage.node] += storage.size_bytes
    _first_users(run, param, buffer)
    tmp = [0] * count
    out = [0] * count
    transient = [0] * count
    outputs: dict[int, list[int]] = {}
    live = OP.live_bytes
    for span in calls.spans:
        node_id = span.node_id
        tmp[node_id] = span.fwd_tmp_bytes
        out[node_id] = span.fwd_out_bytes
        outputs[node_id] = span.outputs
        if span.op_end > span.op_begin:
            top = max([row[live] for row in ops[span.op_begin : span.op_end]])
            left = span.fwd_tmp_bytes + span.fwd_out_bytes
            level = span.live_begin_bytes
            for birth, found, size in recording.backfilled:
                if birth < span.op_begin <= found:
                    level += size
            transient[node_id] = max(0, top - level - left)
    bwd_tmp, bwd_out, grad = _backward(run)
    stats = rows_by_column(
        MemStat,
        node_id=range(count),
        fwd_in_bytes=fwd_in,
        fwd_tmp_bytes=tmp,
        fwd_out_bytes=out,
        fwd_transient_bytes=transient,
        kept_bytes=kept,
        bwd_tmp_bytes=bwd_tmp,
        bwd_out_bytes=bwd_out,
        grad_bytes=grad,
        param_bytes=param,
        buffer_bytes=buffer,
    )
    return MemoryOfCalls(stats, outputs)


def _saved_inputs(run: Run, fwd_in: list[int]) -> None:
    """Add what each call saved for backward that existed before it, each storage once."""
    recording = run.recording
    seen: set[tuple[int, int]] = set()
    for number, known in run.saved:
        op_id = recording.sequence_ops.get(number, -1)
        storage = known.storage
        if op_id < 0 or storage.storage_class in {"parameter", "buffer"} or storage.host:
            continue
        node_id = recording.ops[op_id][OP.node_id]
        if storage.node != node_id and (node_id, storage.storage_id) not in seen:
            seen.add((node_id, storage.storage_id))
            fwd_in[node_id] += storage.size_bytes


def _first_users(run: Run, param: list[int], buffer: list[int]) -> None:
    """Add each parameter and buffer to the call that used it first."""
    recording = run.recording
    storages = recording.storages
    pending = {s.storage_id for s in storages if s.storage_class in {"parameter", "buffer"}}
    homes = [row[TENSOR.storage_id] for row in recording.tensors]
    for use in recording.uses:
        op_id = use[TENSOR_USE.op_id]
        if op_id >= run.forward_ops or not pending:
            break
        storage_id = homes[use[TENSOR_USE.tensor_id]]
        if storage_id in pending:
            pending.discard(storage_id)
            node_id = recording.ops[op_id][OP.node_id]
            storage = storages[storage_id]
            target = param if storage.storage_class == "parameter" else buffer
            target[node_id] += storage.size_bytes


def _backward(run: Run) -> tuple[list[int], list[int], list[int]]:
    """Return per call: transient bytes, input gradients and parameter gradients of its backward.

    All three count storages born in the call's backward operators.
    """
    recording = run.recording
    count = len(run.calls.nodes)
    ops = recording.ops
    last_op = [-1] * count
    for row in ops[run.forward_ops :]:
        if row[OP.node_id] >= 0 and row[OP.phase] == "backward":
            last_op[row[OP.node_id]] = row[OP.op_id]
    born: list[list[tuple[int, int, int]]] = [[] for _ in range(count)]
    out = [0] * count
    grad = [0] * count
    for storage in recording.storages:
        if storage.birth < run.forward_ops or storage.host:
            continue
        node_id = storage.node
        if node_id < 0 or ops[storage.birth][OP.phase] != "backward":
            continue
        death = storage.death if storage.death >= 0 else recording.op_count
        born[node_id].append((storage.birth, death, storage.size_bytes))
        if storage.storage_id in run.gradients:
            grad[node_id] += storage.size_bytes
        elif death > last_op[node_id]:
            out[node_id] += storage.size_bytes
    tmp = [
        max(0, _highest(lives) - out[node_id] - grad[node_id]) if lives else 0
        for node_id, lives in enumerate(born)
    ]
    return tmp, out, grad


def _highest(lives: list[tuple[int, int, int]]) -> int:
    """Return the highest sum of sizes alive at one step: (birth, death inclusive, size)."""
    events = [(birth, size) for birth, _, size in lives]
    events += [(death + 1, -size) for _, death, size in lives]
    events.sort()
    level = top = 0
    for _, change in events:
        level += change
        top = max(top, level)
    return top
