"""A trace in Chrome's JSON, for Perfetto, chrome://tracing and Holistic Trace Analysis."""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, Any

from queries.devices import device_named, op_times
from queries.export.registry import export_format
from queries.fetch import profile_exists, rows_of
from store.records import PHASES

if TYPE_CHECKING:
    from store import Store

_OPS = """
SELECT o.op_id, o.phase, o.operator, o.node_id, COALESCE(n.name, ''), o.fwd_op_id,
       o.macs, o.pointwise_flops, o.bytes_read, o.bytes_written, o.live_bytes
FROM ops o LEFT JOIN nodes n ON n.profile_id = o.profile_id AND n.node_id = o.node_id
WHERE o.profile_id = :profile_id
"""


@export_format(
    "chrome",
    read_by="Perfetto, chrome://tracing, Holistic Trace Analysis",
    holds="operators inside their calls, live bytes, arrows from forward to backward",
)
def chrome_trace(store: Store, profile_id: int, device: str) -> bytes:
    """Return the step as one timeline, operators inside their calls, one track per phase.

    Times are roofline estimates in microseconds, one operator after the other. Live bytes are a
    counter, and arrows lead from forward operators to those that differentiate them.

    Raises:
        ProfileMissing: if there is no such profile.
        QuestionError: if the device does not exist.
    """
    profile_exists(store, profile_id)
    times = op_times(store, profile_id, device_named(store, device))
    ops = rows_of(store, _OPS, profile_id, "o.op_id")
    starts, now = [], 0.0
    for time_us in times:
        starts.append(now)
        now += time_us
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0, "args": {"name": device}}
    ]
    events += [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": tid, "ts": 0, "args": {"name": phase}}
        for tid, phase in enumerate(PHASES)
    ]
    phases = [phase for _, phase, *_ in ops]
    calls = [(phase, node, call, op) for op, phase, _, node, call, *_ in ops]
    for (phase, _, call), members in groupby(calls, key=lambda one: one[:-1]):
        ids = [op for *_, op in members]
        first, last = min(ids), max(ids)
        end = starts[last] + times[last]
        events.append(_slice(call or "(no call)", "user_annotation", phase, starts[first], end))
    arrows = 0
    for op_id, phase, operator, _, _, fwd_op_id, macs, pointwise, read, written, live in ops:
        start, end = starts[op_id], starts[op_id] + times[op_id]
        name = operator.removesuffix(".default").replace("aten.", "aten::", 1)
        flops = 2 * macs + pointwise
        args = {"External id": op_id + 1, "flops": flops, "bytes": read + written}
        events.append(_slice(name, "cpu_op", phase, start, end) | {"args": args})
        events.append({"ph": "C", "name": "live_bytes", "pid": 0, "tid": 0, "ts": end,
                       "args": {"live_bytes": live}})  # fmt: skip
        if fwd_op_id >= 0:
            arrow = {"name": "fwdbwd", "cat": "fwdbwd", "id": arrows, "pid": 0}
            tid = PHASES.index(phases[fwd_op_id])
            events.append({"ph": "s", "tid": tid, "ts": starts[fwd_op_id], **arrow})
            events.append({"ph": "f", "bp": "e", "tid": PHASES.index(phase), "ts": start, **arrow})
            arrows += 1
    trace = {
        "schemaVersion": 1,
        "distributedInfo": {"rank": 0},  # written with a space after the colon: readers search it
        "displayTimeUnit": "ms",
        "traceEvents": events,
    }
    return json.dumps(trace).encode()


def _slice(name: str, category: str, phase: str, start: float, end: float) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": 0,
        "tid": PHASES.index(phase),
        "ts": start,
        "dur": end - start,
    }
