"""What the page shows, as JSON: numbers and names only, no markup."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from queries.devices import Device, device_named
from queries.fetch import rows_of
from queries.load import load_graph
from queries.questions.critical_path import CriticalPath, critical_path
from queries.questions.liveness import Liveness, LiveStorage, class_bytes, liveness, phase_starts
from queries.questions.totals import module_totals, operator_totals

if TYPE_CHECKING:
    import networkx as nx

    from store import Store

_MOST_STEPS = 12_000  # more than a screen has pixels; beyond it, the highest of each stretch
_MOST_ROWS = 400


def page_data(store: Store, profile_id: int, device_name: str) -> dict[str, Any]:
    """Return everything that the page shows of a profile.

    Raises:
        ProfileMissing: if there is no such profile.
        QuestionError: if the device does not exist, or has no peak for the profile's numbers.
    """
    device = device_named(store, device_name)
    graph = load_graph(store, profile_id, device=device.name)
    steps = load_graph(store, profile_id, "ops", device=device.name)
    live = liveness(store, profile_id)
    names, rows = store.query(
        "SELECT * FROM profile_totals WHERE profile_id = :id", {"id": profile_id}
    )
    totals = dict(zip(names, rows[0], strict=True))
    forward, step = critical_path(graph, "fwd_time_us"), critical_path(steps, "time_us")
    return {
        "totals": totals,
        "memory": _memory(live, steps, graph),
        "modules": _modules(store, profile_id, totals["model"]),
        "roofline": _roofline(store, profile_id, graph, device),
        "operators": _operators(store, profile_id, steps),
        "path": _path(graph, forward),
        "estimate": {
            "device": device.name,
            "forward_us": forward.total,
            "forward_path_us": forward.length,
            "step_us": step.total,
            "step_path_us": step.length,
        },
        "peak": [_storage_row(s) for s in live.at_peak[:_MOST_ROWS]],
        "outliving": [[*_storage_row(s), s.reason, s.outlived_steps]
                      for s in live.outliving if s.reason != "caller"][:_MOST_ROWS],
    }  # fmt: skip


def _storage_row(storage: LiveStorage) -> list[Any]:
    return [
        storage.name or storage.made_by or "(gradient of the output)",
        storage.storage_class,
        storage.size_bytes,
        storage.birth_op_id,
        storage.death_op_id,
        f"{storage.waits_for} ({storage.waits_phase})"
        if storage.waits_for
        else storage.waits_phase,
    ]


def _memory(
    live: Liveness, steps: nx.MultiDiGraph[int], graph: nx.MultiDiGraph[int]
) -> dict[str, Any]:
    shown = _shown_steps(live)
    call = {node: data["name"] for node, data in graph.nodes(data=True)}
    return {
        "steps": shown,
        "live": [live.live_bytes[i] for i in shown],
        "bound": [live.bound_bytes[i] for i in shown],
        "classes": {name: [sizes[i] for i in shown] for name, sizes in class_bytes(live).items()},
        "operator": [steps.nodes[i]["operator"] for i in shown],
        "call": [call.get(steps.nodes[i]["node_id"], "") for i in shown],
        "phase": [live.phases[i] for i in shown],
        "phase_starts": phase_starts(live.phases),
        "peak_step": live.peak_op_id,
        "peak_bytes": live.peak_bytes,
        "bound_peak_bytes": live.bound_peak_bytes,
        "storages": [_storage_row(s) for s in live.storages if s.size_bytes],
    }


def _shown_steps(live: Liveness) -> list[int]:
    count = len(live.live_bytes)
    if count <= _MOST_STEPS:
        return list(range(count))
    stretch = -(-count // _MOST_STEPS)
    return [
        max(range(i, min(i + stretch, count)), key=live.live_bytes.__getitem__)
        for i in range(0, count, stretch)
    ]


def _modules(store: Store, profile_id: int, model: str) -> dict[str, list[Any]]:
    parent = dict(rows_of(store, "SELECT module_id, parent_id FROM modules", profile_id))
    rows = module_totals(store, profile_id)
    known = {row.module_id for row in rows}
    return {
        "id": [str(row.module_id) for row in rows],
        "parent": [str(p) if (p := parent[row.module_id]) in known else "" for row in rows],
        "label": [row.path.rpartition(".")[2] or model for row in rows],
        "path": [row.path or model for row in rows],
        "class_name": [row.class_name for row in rows],
        "kept_bytes": [row.kept_bytes for row in rows],
        "param_bytes": [row.param_bytes for row in rows],
        "fwd_flops": [row.fwd_flops for row in rows],
        "step_flops": [row.fwd_flops + row.bwd_flops for row in rows],
    }


def _roofline(
    store: Store, profile_id: int, graph: nx.MultiDiGraph[int], device: Device
) -> dict[str, Any]:
    class_of = dict(rows_of(store, "SELECT path, class_name FROM modules", profile_id))
    dtype, autocast = rows_of(store, "SELECT dtype, autocast FROM profiles", profile_id)[0]
    calls = [
        [call["name"],
         class_of.get(call["module"], "") if call["kind"] == "call_module" else call["target"],
         call["fwd_flops"], call["fwd_bytes"], call["fwd_time_us"]]
        for _, call in graph.nodes(data=True)
        if call["fwd_flops"] and call["fwd_bytes"] and call["fwd_time_us"]
    ]  # fmt: skip
    return {
        "device": device.name,
        "dtype": autocast or dtype,
        "peak": device.peak(autocast or dtype),
        "bandwidth": device.bandwidth_bytes_per_second,
        "source": device.source,
        "calls": calls,
    }


def _operators(store: Store, profile_id: int, steps: nx.MultiDiGraph[int]) -> list[list[Any]]:
    times: defaultdict[tuple[str, str], float] = defaultdict(float)
    for _, op in steps.nodes(data=True):
        times[op["operator"], op["phase"]] += op["time_us"]
    return [
        [row.operator, row.phase, row.op_count, row.flops, row.bytes_read + row.bytes_written,
         times[row.operator, row.phase], "unknown" if row.unknown_op_count else ""]
        for row in operator_totals(store, profile_id)
    ]  # fmt: skip


def _path(graph: nx.MultiDiGraph[int], path: CriticalPath) -> dict[str, Any]:
    on_path = set(path.nodes)
    bars = [
        [graph.nodes[node]["name"], path.start[node], graph.nodes[node]["fwd_time_us"],
         path.slack[node], node in on_path, graph.nodes[node]["fwd_flops"]]
        for node in graph
        if graph.nodes[node]["fwd_time_us"]
    ]  # fmt: skip
    return {"bars": bars, "length": path.length, "total": path.total,
            "parallelism": path.parallelism}  # fmt: skip
