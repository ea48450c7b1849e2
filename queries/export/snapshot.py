"""A torch memory snapshot: the planned blocks and the events that led to them."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from queries.export.registry import export_format
from queries.fetch import profile_exists, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from store import Store

# where the blocks start: no address of a snapshot is 0
_BASE = 1 << 40
_SMALL_BYTES = 1 << 20
_PROTOCOL = 4  # the newest that the viewer's unpickler reads


@export_format(
    "snapshot",
    read_by="torch.cuda._memory_viz",
    holds="planned blocks, and every allocation and free with its operator",
)
def memory_snapshot(store: Store, profile_id: int, _device: str) -> bytes:
    """Return a pickle as ``torch.cuda.memory._snapshot()`` makes it, for ``_memory_viz``.

    Addresses are the planned ones. A segment is a stretch of addresses that blocks have touched,
    reserved when its first block is. Frames name the operator, with the call as the file and the
    step as the line.

    Raises:
        ProfileMissing: if there is no such profile.
    """
    profile_exists(store, profile_id)
    events = rows_of(
        store,
        "SELECT kind, op_id, address, block_bytes, size_bytes, storage_class FROM v_mem_event",
        profile_id,
        "seq, storage_id",
    )
    frames = _frames(store, profile_id)
    segments = _segments((address, size) for _, _, address, size, _, _ in events)
    reserved: set[int] = set()
    trace: list[dict[str, Any]] = []
    alive: dict[int, tuple[int, int, list[dict[str, Any]]]] = {}
    for kind, op_id, address, size, requested, storage_class in events:
        at = _BASE + address
        frame = frames.get(op_id) or [{"filename": storage_class, "line": 0, "name": "before"}]
        if kind == "alloc":
            start, end = next(s for s in segments if s[0] <= address < s[1])
            if start not in reserved:
                reserved.add(start)
                trace.append(_event("segment_alloc", _BASE + start, end - start, frame))
            trace.append(_event("alloc", at, size, frame))
            alive[address] = (size, requested, frame)
        else:
            trace += [
                _event(f"free_{step}", at, size, frame) for step in ("requested", "completed")
            ]
            del alive[address]
    snapshot = {
        "segments": [_segment(start, end, alive) for start, end in segments],
        "device_traces": [trace],
    }
    return pickle.dumps(snapshot, protocol=_PROTOCOL)


def _frames(store: Store, profile_id: int) -> dict[int, list[dict[str, Any]]]:
    sql = "SELECT op_id, phase, operator, call FROM memory_timeline"
    return {
        op_id: [{"filename": f"{phase}: {call}", "line": op_id, "name": operator}]
        for op_id, phase, operator, call in rows_of(store, sql, profile_id)
    }


def _event(action: str, address: int, size: int, frames: list[dict[str, Any]]) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "frames": frames}


def _segments(blocks: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the stretches that blocks cover together, as start and end."""
    segments: list[tuple[int, int]] = []
    for address, size in sorted(set(blocks)):
        if segments and address <= segments[-1][1]:
            segments[-1] = (segments[-1][0], max(segments[-1][1], address + size))
        else:
            segments.append((address, address + size))
    return segments


def _segment(
    start: int, end: int, alive: dict[int, tuple[int, int, list[dict[str, Any]]]]
) -> dict[str, Any]:
    """Return a segment whose blocks, used and free, fill it without gaps."""
    blocks: list[dict[str, Any]] = []
    at = start
    used: Sequence[int] = sorted(address for address in alive if start <= address < end)
    for address in [*used, end]:
        if address > at:
            blocks.append(_block(at, address - at, 0, "inactive", []))
        if address < end:
            size, requested, frames = alive[address]
            blocks.append(_block(address, size, requested, "active_allocated", frames))
            at = address + size
    active = sum(alive[address][0] for address in used)
    return {
        "device": 0,
        "address": _BASE + start,
        "total_size": end - start,
        "stream": 0,
        "allocated_size": active,
        "active_size": active,
        "requested_size": sum(alive[address][1] for address in used),
        "segment_type": "large" if end - start > 2 * _SMALL_BYTES else "small",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }


def _block(
    address: int, size: int, requested: int, state: str, frames: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "address": _BASE + address,
        "size": size,
        "requested_size": requested,
        "state": state,
        "frames": frames,
    }
