"""What checkpointing solvers read, as one JSON bundle: a chain, a graph, and module rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from queries.export.registry import export_format
from queries.fetch import rows_of, values_of
from queries.load import load_graph
from queries.questions.liveness import liveness
from queries.questions.totals import module_totals

if TYPE_CHECKING:
    import networkx as nx

    from store import Store


@export_format(
    "solver",
    read_by="Rotor, Checkmate, torch's module rows",
    holds="stages of the chain, a graph of both passes, modules in pre-order",
)
def solver_json(store: Store, profile_id: int, device: str) -> bytes:
    """Return the bundle; bytes and, as roofline estimates, microseconds.

    ``chain``: Rotor's arrays over n stages. ``ftime`` and ``ftmp`` have n entries, ``btime``,
    ``btmp``, ``x`` (what crosses each boundary, the input first) and ``xbar`` (all that a stage
    keeps) n + 1; the last of ``btime`` and ``btmp`` is the loss, which costs nothing.

    ``dfgraph``: Checkmate's graph: ``vfwd`` then ``loss`` then backward nodes, numbered in
    topological order, ``args`` the parents of each, ``cost_cpu`` in whole nanoseconds.

    ``modules``: the rows of torch's ``module_info`` that follow from a profile, in pre-order.

    Raises:
        ProfileMissing: if there is no such profile.
        QuestionError: if the device does not exist.
    """
    graph = load_graph(store, profile_id, device=device)
    bundle = {
        "chain": _chain(store, profile_id, graph),
        "dfgraph": _dfgraph(store, profile_id, graph),
        "modules": _modules(store, profile_id, graph),
    }
    return json.dumps(bundle, indent=1).encode()


def _calls(graph: nx.MultiDiGraph[int]) -> list[int]:
    outside = ("placeholder", "output")
    return [node for node, call in graph.nodes(data=True) if call["kind"] not in outside]


def _chain(store: Store, profile_id: int, graph: nx.MultiDiGraph[int]) -> dict[str, list[Any]]:
    """Return Rotor's arrays; transient memory is read off the recorded steps."""
    live = liveness(store, profile_id)
    stages: dict[int, list[int]] = {}
    for node in _calls(graph):
        stages.setdefault(graph.nodes[node]["stage"], []).append(node)
    steps: dict[tuple[int, bool], list[int]] = {}
    for op_id, node, phase in rows_of(store, "SELECT op_id, node_id, phase FROM ops", profile_id):
        if node in graph and phase != "optimizer":
            key = (graph.nodes[node]["stage"], phase == "forward")
            steps.setdefault(key, []).append(op_id)

    def above(stage: int, forward: bool) -> int:
        """Highest level of a stage's steps above the level right before them."""
        ids = steps.get((stage, forward), [])
        if not ids:
            return 0
        first = min(ids)
        before = live.live_bytes[first - 1] if first else 0
        return max(max(live.live_bytes[i] for i in ids) - before, 0)

    def total(stage: int, name: str) -> Any:
        return sum(graph.nodes[node][name] for node in stages[stage])

    (inputs,) = values_of(store, "SELECT input_bytes FROM profile_totals", profile_id)
    order = sorted(stages)
    x = [inputs, *(graph.nodes[stages[stage][-1]]["fwd_out_bytes"] for stage in order)]
    kept = [max(out, total(stage, "kept_bytes")) for stage, out in zip(order, x[1:], strict=True)]
    return {
        "first_node_id": [stages[stage][0] for stage in order],
        "ftime": [total(stage, "fwd_time_us") for stage in order],
        "btime": [*(total(stage, "bwd_time_us") for stage in order), 0],
        "x": x,
        "xbar": [inputs, *kept],
        "ftmp": [
            max(above(s, forward=True) - keeps, 0) for s, keeps in zip(order, kept, strict=True)
        ],
        "btmp": [
            *(max(above(s, forward=False) - total(s, "grad_bytes") - before, 0)
              for s, before in zip(order, x, strict=False)),
            0,
        ],
    }  # fmt: skip


def _dfgraph(store: Store, profile_id: int, graph: nx.MultiDiGraph[int]) -> dict[str, Any]:
    """Return the graph of both passes; a backward node reads what its call has saved."""
    saved: dict[int, set[int]] = {}
    producers = (
        "SELECT t.tensor_id, o.node_id FROM tensors t JOIN ops o"
        " ON o.profile_id = t.profile_id AND o.op_id = t.op_id WHERE t.profile_id = :profile_id"
    )
    made_by = dict(rows_of(store, producers, profile_id))
    for tensor, node in rows_of(store, "SELECT tensor_id, node_id FROM saved_tensors", profile_id):
        if made_by.get(tensor, -1) in graph:
            saved.setdefault(node, set()).add(made_by[tensor])
    forward = [n for n in graph if graph.nodes[n]["kind"] != "output"]
    index = {node: i for i, node in enumerate(forward)}
    loss = len(forward)
    backward = [n for n in reversed(_calls(graph)) if graph.nodes[n]["bwd_bytes"]]
    back_index = {node: loss + 1 + i for i, node in enumerate(backward)}

    args = [sorted({index[p] for p in graph.predecessors(node)}) for node in forward]
    outputs = [n for n in graph if graph.nodes[n]["kind"] == "output"]
    args.append(sorted({index[p] for node in outputs for p in graph.predecessors(node)}))
    for node in backward:
        after = set()
        for consumer in graph.successors(node):
            after.add(loss if consumer in outputs else back_index.get(consumer, -1))
        reads = {index[n] for n in saved.get(node, ()) if n in index}
        args.append(sorted((after - {-1}) | reads))

    def nanoseconds(node: int, name: str) -> int:
        time_us: float = graph.nodes[node][name]
        return round(1000 * time_us)

    nodes = [graph.nodes[n] for n in forward]
    return {
        "vfwd": list(range(loss)),
        "loss": loss,
        "backward_nodes": list(range(loss + 1, loss + 1 + len(backward))),
        "args": args,
        "node_names": [*(n["name"] for n in nodes), "loss",
                       *(f"{graph.nodes[n]['name']} (backward)" for n in backward)],
        "cost_cpu": [*(nanoseconds(n, "fwd_time_us") for n in forward), 0,
                     *(nanoseconds(n, "bwd_time_us") for n in backward)],
        "cost_ram": [*(n["fwd_out_bytes"] + n["fwd_tmp_bytes"] for n in nodes), 0,
                     *(graph.nodes[n]["bwd_out_bytes"] for n in backward)],
        "cost_ram_parameters": sum(n["param_bytes"] for n in nodes),
    }  # fmt: skip


def _modules(store: Store, profile_id: int, graph: nx.MultiDiGraph[int]) -> list[dict[str, Any]]:
    order = {
        module_id: (pre, post, leaf)
        for module_id, pre, post, leaf in rows_of(
            store, "SELECT module_id, fw_pre_order, fw_post_order, is_leaf FROM modules", profile_id
        )
    }
    times: dict[str, list[float]] = {}  # by path, of the calls of the modules inside as well
    for node in _calls(graph):
        call = graph.nodes[node]
        names = call["module"].split(".") if call["module"] else []
        for depth in range(len(names) + 1):
            sums = times.setdefault(".".join(names[:depth]), [0.0, 0.0])
            sums[0] += call["fwd_time_us"]
            sums[1] += call["bwd_time_us"]
    rows = []
    for module in module_totals(store, profile_id):
        pre, post, leaf = order[module.module_id]
        if pre < 0:
            continue  # never called
        fwd_time_us, bwd_time_us = times.get(module.path, (0, 0))
        rows.append(
            {
                "fqn": module.path,
                "fw_pre_order": pre,
                "fw_post_order": post,
                "is_leaf": bool(leaf),
                "param_per_module": module.param_bytes,
                "grad_per_module": module.grad_bytes,
                "act_fw_per_module": module.kept_bytes,
                "fw_runtime_per_module": fwd_time_us,
                "bw_runtime_per_module": bwd_time_us,
            }
        )
    return sorted(rows, key=lambda row: row["fw_pre_order"])
