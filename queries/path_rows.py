"""The critical path of a stored profile as rows to show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from queries.critical_path import CriticalPath, critical_path
from queries.load import load_graph
from queries.tables import Table

if TYPE_CHECKING:
    import networkx as nx

    from store import Store

_SHORT = {"macs": "macs", "flops": "flops", "bytes": "bytes", "time": "time_us"}
_PASS = {"forward": "fwd_", "backward": "bwd_", "step": ""}
_OP_PHASES = {"forward": ("forward",), "backward": ("backward", "recompute")}


def phase_path(
    store: Store, profile_id: int, weight: str, phase: str, level: str, device: str
) -> tuple[nx.MultiDiGraph[int], CriticalPath]:
    """Return the graph of a pass and its critical path.

    Backward at the level of calls runs over the forward edges, each of which a gradient takes the
    other way: the path is the same, read from its end.

    Args:
        store: an open store.
        profile_id: a stored profile.
        weight: macs, flops, bytes, time, or the name of an attribute.
        phase: forward, backward or step.
        level: nodes or ops.
        device: for times, "" without.
    """
    graph = load_graph(store, profile_id, level, device=device)
    name = _SHORT.get(weight, weight)
    if level == "nodes" and weight in _SHORT:
        name = _PASS[phase] + name
    if level == "ops" and phase in _OP_PHASES:
        wanted = _OP_PHASES[phase]
        graph.remove_nodes_from(
            [op for op, data in graph.nodes(data=True) if data["phase"] not in wanted]
        )
    return graph, critical_path(graph, name)


def path_rows(graph: nx.MultiDiGraph[int], path: CriticalPath, *, everything: bool) -> Table:
    """Return the nodes on the path, or all nodes with their slack."""
    label = "name" if graph.graph["level"] == "nodes" else "operator"
    on_path = set(path.nodes)
    rows: list[list[Any]] = [
        [node, graph.nodes[node][label], graph.nodes[node][path.weight], path.start[node],
         path.slack[node], node in on_path]
        for node in (graph if everything else path.nodes)
    ]  # fmt: skip
    columns = ["id", label, path.weight, "start", "slack", "on_path"]
    summary = {
        "weight": path.weight,
        "length": path.length,
        "total": path.total,
        "parallelism": path.parallelism,
        "nodes_on_path": len(path.nodes),
    }
    return Table(columns, rows, summary)
