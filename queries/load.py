"""A stored profile as a networkx graph, at the level of calls or of operators.

Every node and edge attribute is documented at ``load_graph``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from queries.devices import device_named, op_times
from queries.errors import QuestionError
from queries.fetch import profile_exists, rows_of
from store.collector import gc_paused

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import networkx as nx

    from store import Store

__all__ = ["load_graph"]

LEVELS = ("nodes", "ops")

Edge = tuple[int, int, dict[str, Any]]


def load_graph(
    store: Store, profile_id: int, level: str = "nodes", *, device: str = ""
) -> nx.MultiDiGraph[int]:
    """Return a stored profile as a ``networkx.MultiDiGraph``; nodes are numbered as they ran.

    Level ``"nodes"``: one node per call of forward, and per input and output of the graph.

    - ``name, kind, target, module, arguments, dtype, stage`` as in the table ``nodes``
      (``module`` is a path), ``shape`` a tuple.
    - ``fwd_macs, bwd_macs, fwd_pointwise_flops, bwd_pointwise_flops``; ``fwd_flops, bwd_flops``
      are ``2 * macs + pointwise``; ``macs, pointwise_flops, flops`` are the sums of both passes.
    - ``fwd_bytes, bwd_bytes, bytes``: bytes read and written by the call's operators. Backward
      includes recomputation.
    - every field of ``mem_stats``, in bytes.

    Level ``"ops"``: one node per executed operator of forward, backward and optimizer.

    - ``operator, phase, node_id, fwd_op_id, flops_status, is_view, is_inplace, is_random`` as in
      the table ``ops``.
    - ``macs, pointwise_flops``, ``flops`` (``2 * macs + pointwise``), ``bytes_read,
      bytes_written``, ``bytes`` (both), ``live_bytes``.

    With ``device``, the name of a row of ``devices``, also ``time_us``, and for nodes
    ``fwd_time_us`` and ``bwd_time_us``: the roofline estimate of ``queries.devices``.

    Edges carry ``tensor_id, arg_position, size_bytes, kind``. Two tensors between the same nodes
    are two edges. ``kind`` is ``"data"``, ``"alias"`` (the consumer only views the tensor), or
    ``"control"`` (an order without bytes: a write waits for earlier readers). Operators are
    linked through the last writer of a storage, or the view of it that came later, so in-place
    writes never make a cycle.

    Raises:
        ProfileMissing: if there is no such profile.
        QuestionError: if the level or the device does not exist.
    """
    import networkx as nx  # noqa: PLC0415 - a fifth of a second that `query-profiles list` saves

    if level not in LEVELS:
        raise QuestionError(f"no level {level!r}: a graph has the levels {', '.join(LEVELS)}")
    profile_exists(store, profile_id)
    times = op_times(store, profile_id, device_named(store, device)) if device else None
    graph: nx.MultiDiGraph[int] = nx.MultiDiGraph(profile_id=profile_id, level=level)
    with gc_paused():
        if level == "nodes":
            graph.add_nodes_from(_call_nodes(store, profile_id, times))
            graph.add_edges_from(_call_edges(store, profile_id))
        else:
            nodes = _op_nodes(store, profile_id, times)
            graph.add_nodes_from(nodes)
            graph.add_edges_from(_op_edges(store, profile_id, [op["is_view"] for _, op in nodes]))
    return graph


# Inputs and the output may have no row of counts: they do nothing, and that is 0.
_CALLS = """
SELECT n.node_id, n.name, n.kind, n.target, n.module_id, n.arguments, n.shape, n.dtype, n.stage,
       COALESCE(f.fwd_macs, 0), COALESCE(f.bwd_macs, 0),
       COALESCE(f.fwd_pointwise_flops, 0), COALESCE(f.bwd_pointwise_flops, 0),
       COALESCE(s.fwd_in_bytes, 0), COALESCE(s.fwd_tmp_bytes, 0), COALESCE(s.fwd_out_bytes, 0),
       COALESCE(s.fwd_transient_bytes, 0), COALESCE(s.kept_bytes, 0),
       COALESCE(s.bwd_tmp_bytes, 0), COALESCE(s.bwd_out_bytes, 0), COALESCE(s.grad_bytes, 0),
       COALESCE(s.param_bytes, 0), COALESCE(s.buffer_bytes, 0)
FROM nodes n
LEFT JOIN flop_counts f ON f.profile_id = n.profile_id AND f.node_id = n.node_id
LEFT JOIN mem_stats s ON s.profile_id = n.profile_id AND s.node_id = n.node_id
WHERE n.profile_id = :profile_id ORDER BY n.node_id
"""


def _call_nodes(
    store: Store, profile_id: int, times: Sequence[float] | None
) -> list[tuple[int, dict[str, Any]]]:
    path = dict(rows_of(store, "SELECT module_id, path FROM modules", profile_id))
    fwd_bytes, bwd_bytes = _bytes_by_call(store, profile_id)
    sizes: dict[str, tuple[int, ...]] = {}  # many calls have the same shape
    nodes = []
    for (
        node_id, name, kind, target, module_id, arguments, shape, dtype, stage,
        fwd_macs, bwd_macs, fwd_pointwise, bwd_pointwise,
        fwd_in, fwd_tmp, fwd_out, fwd_transient, kept, bwd_tmp, bwd_out, grad, param, buffer,
    ) in rows_of(store, _CALLS, profile_id):  # fmt: skip
        if shape not in sizes:
            sizes[shape] = _tuple(shape)
        fwd_flops, bwd_flops = 2 * fwd_macs + fwd_pointwise, 2 * bwd_macs + bwd_pointwise
        fwd_size, bwd_size = fwd_bytes.get(node_id, 0), bwd_bytes.get(node_id, 0)
        call = {
            "name": name,
            "kind": kind,
            "target": target,
            "arguments": arguments,
            "shape": sizes[shape],
            "dtype": dtype,
            "stage": stage,
            "module": path.get(module_id, ""),
            "fwd_macs": fwd_macs,
            "bwd_macs": bwd_macs,
            "fwd_pointwise_flops": fwd_pointwise,
            "bwd_pointwise_flops": bwd_pointwise,
            "fwd_in_bytes": fwd_in,
            "fwd_tmp_bytes": fwd_tmp,
            "fwd_out_bytes": fwd_out,
            "fwd_transient_bytes": fwd_transient,
            "kept_bytes": kept,
            "bwd_tmp_bytes": bwd_tmp,
            "bwd_out_bytes": bwd_out,
            "grad_bytes": grad,
            "param_bytes": param,
            "buffer_bytes": buffer,
            "fwd_flops": fwd_flops,
            "fwd_bytes": fwd_size,
            "bwd_flops": bwd_flops,
            "bwd_bytes": bwd_size,
            "macs": fwd_macs + bwd_macs,
            "pointwise_flops": fwd_pointwise + bwd_pointwise,
            "flops": fwd_flops + bwd_flops,
            "bytes": fwd_size + bwd_size,
        }
        nodes.append((node_id, call))
    if times is not None:
        _add_times(store, profile_id, dict(nodes), times)
    return nodes


def _bytes_by_call(store: Store, profile_id: int) -> tuple[dict[int, int], dict[int, int]]:
    """Return the bytes of the operators of calls, of forward and of backward, by node id."""
    forward: dict[int, int] = {}
    backward: dict[int, int] = {}
    sql = "SELECT node_id, phase, bytes_read, bytes_written FROM ops"
    # added up here: sums past 2^63-1 are errors in SQL, or no integers any more
    for node_id, phase, read, written in rows_of(store, sql, profile_id):
        if phase != "optimizer":
            sums = forward if phase == "forward" else backward
            sums[node_id] = sums.get(node_id, 0) + read + written
    return forward, backward


def _add_times(
    store: Store, profile_id: int, calls: dict[int, dict[str, Any]], times: Sequence[float]
) -> None:
    for call in calls.values():
        call["fwd_time_us"] = call["bwd_time_us"] = 0.0
    for op_id, node_id, phase in rows_of(
        store, "SELECT op_id, node_id, phase FROM ops", profile_id
    ):
        if node_id in calls and phase != "optimizer":
            name = "fwd_time_us" if phase == "forward" else "bwd_time_us"
            calls[node_id][name] += times[op_id]
    for call in calls.values():
        call["time_us"] = call["fwd_time_us"] + call["bwd_time_us"]


def _call_edges(store: Store, profile_id: int) -> list[Edge]:
    sql = "SELECT src_node_id, dst_node_id, tensor_id, arg_position, size_bytes, kind FROM edges"
    return [
        (src, dst, {"tensor_id": t, "arg_position": arg, "size_bytes": size, "kind": kind})
        for src, dst, t, arg, size, kind in rows_of(store, sql, profile_id, "edge_id")
    ]


_OPS = """
SELECT op_id, operator, phase, node_id, fwd_op_id, flops_status, macs, pointwise_flops,
       bytes_read, bytes_written, is_view, is_inplace, is_random, live_bytes
FROM ops
"""


def _op_nodes(
    store: Store, profile_id: int, times: Sequence[float] | None
) -> list[tuple[int, dict[str, Any]]]:
    nodes = [
        (
            op_id,
            {
                "operator": operator,
                "phase": phase,
                "node_id": node_id,
                "fwd_op_id": fwd_op_id,
                "flops_status": status,
                "macs": macs,
                "pointwise_flops": pointwise,
                "flops": 2 * macs + pointwise,
                "bytes_read": read,
                "bytes_written": written,
                "bytes": read + written,
                "is_view": bool(view),
                "is_inplace": bool(inplace),
                "is_random": bool(random),
                "live_bytes": live,
            },
        )
        for (
            op_id, operator, phase, node_id, fwd_op_id, status, macs, pointwise,
            read, written, view, inplace, random, live,
        ) in rows_of(store, _OPS, profile_id, "op_id")
    ]  # fmt: skip
    for (_, op), time_us in zip(nodes, times or (), strict=False):
        op["time_us"] = time_us
    return nodes


def _op_edges(store: Store, profile_id: int, is_view: Sequence[bool]) -> list[Edge]:
    tensors = rows_of(
        store, "SELECT op_id, storage_id, size_bytes FROM tensors", profile_id, "tensor_id"
    )
    uses = rows_of(
        store,
        "SELECT op_id, arg_position, tensor_id, mutates FROM tensor_uses",
        profile_id,
        "op_id, arg_position",
    )
    return op_edges(tensors, uses, is_view)


def op_edges(
    tensors: Sequence[tuple[int, int, int]],
    uses: Iterable[tuple[int, int, int, bool]],
    is_view: Sequence[bool],
) -> list[Edge]:
    """Return the edges between operators that any order of execution has to respect.

    A use of a tensor depends on the last writer of its storage, or on the tensor's own producer
    if that is a view made since; a write also waits for everything that read before it.
    Storages are taken whole: writes to disjoint views of one storage keep their order.

    Args:
        tensors: by tensor id: producing operator (-1: none), storage, bytes.
        uses: operator, argument position, tensor, whether it is written; in execution order.
        is_view: by operator id.
    """
    storages = 1 + max((storage for _, storage, _ in tensors), default=-1)
    writer = [-2] * storages  # -2: no tensor seen yet
    for producer, storage, _ in tensors:
        if writer[storage] == -2:
            writer[storage] = producer  # the first tensor of a storage comes from who made it
    readers: list[list[int]] = [[] for _ in range(storages)]
    edges: list[Edge] = []
    written: list[tuple[int, int, int]] = []
    current = -1
    for op, arg, tensor, mutates in uses:
        if op != current:
            if written:
                _write(current, written, writer, readers, edges)
                written = []
            current = op
        producer, storage, size = tensors[tensor]
        source = max(producer, writer[storage])
        if source >= 0:
            kind = "alias" if is_view[op] else "data"
            data = {"tensor_id": tensor, "arg_position": arg, "size_bytes": size, "kind": kind}
            edges.append((source, op, data))
        readers[storage].append(op)
        if mutates:
            written.append((storage, tensor, arg))
    if written:
        _write(current, written, writer, readers, edges)
    return edges


def _write(
    op: int,
    written: Sequence[tuple[int, int, int]],
    writer: list[int],
    readers: list[list[int]],
    edges: list[Edge],
) -> None:
    """Let a write wait for the readers before it, and become what later readers depend on."""
    before = set()  # already waited for: its own operands come last in the list
    for source, target, _ in reversed(edges):
        if target != op:
            break
        before.add(source)
    for storage, tensor, arg in written:
        for reader in readers[storage]:
            if reader != op and reader not in before:
                before.add(reader)
                data = {
                    "tensor_id": tensor,
                    "arg_position": arg,
                    "size_bytes": 0,
                    "kind": "control",
                }
                edges.append((reader, op, data))
        writer[storage], readers[storage] = op, []


def _tuple(shape: str) -> tuple[int, ...]:
    return tuple(json.loads(shape)) if shape else ()
