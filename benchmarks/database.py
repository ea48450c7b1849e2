"""The store against raw sqlite3, and stored graphs against raw networkx."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import networkx as nx
import torch

from benchmarks.models import SETTINGS, Stack, build
from benchmarks.report import Findings
from benchmarks.timing import Times, take_turns
from exporter.profiling import profile_built, profile_model
from queries import load_graph
from store import open_store
from store.collector import gc_paused
from store.records import Profile

if TYPE_CHECKING:
    from collections.abc import Callable

    from store import Store


def store(rounds: int) -> Findings:
    """Return how writing densenet201's profile compares with ``sqlite3.executemany``."""
    profile = profile_built(build("densenet201"), SETTINGS)
    rows = {
        name: [(1, *row) for row in getattr(profile, name).tuples] for name, _ in Profile.TABLES
    }
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        empty = folder / "empty.db"
        open_store(f"sqlite:///{empty}", create=True).close()
        numbers = count()

        def fresh() -> Path:
            return Path(shutil.copy(empty, folder / f"{next(numbers)}.db"))

        def through_store() -> Callable[[], object]:
            opened = stack.enter_context(open_store(f"sqlite:///{fresh()}"))
            opened.totals()  # connects
            return lambda: opened.write(profile)

        def raw() -> Callable[[], object]:
            connection = stack.enter_context(closing(sqlite3.connect(fresh())))
            return lambda: _insert(connection, rows)

        contenders = {"raw": raw, "store": through_store}
        take_turns(contenders, 1)
        times = take_turns(contenders, rounds)
    return Findings({"store": f"{_both(times, 'store')} ({sum(map(len, rows.values())):,} rows)"})


def _insert(connection: sqlite3.Connection, rows: dict[str, list[tuple[object, ...]]]) -> None:
    with connection:
        for name, tuples in rows.items():
            marks = ", ".join("?" * len(tuples[0]))
            connection.executemany(f"INSERT INTO {name} VALUES ({marks})", tuples)  # noqa: S608


def _both(times: Times, name: str) -> str:
    return f"{times.cpu_ratio(name, to='raw'):.2f} CPU, {times.wall_ratio(name, to='raw'):.2f} wall"


def graph(rounds: int) -> Findings:
    """Return how loading graphs of 100,000 operators compares with fetching and adding rows."""
    model, x = Stack(100_000), torch.empty(4, 64, device="meta")
    profile = profile_model(model, (x,))
    measured = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "profiles.db"
        with open_store(f"sqlite:///{file}", create=True) as opened:
            number = opened.write(profile)
            del profile, model
            for level, raw in (("nodes", _raw_calls), ("ops", _raw_ops)):
                edges = list(load_graph(opened, number, level).edges(data=True))
                times = _graph_times(opened, number, level, file, edges, raw, min(rounds, 5))
                measured[f"graph, {level}"] = _both(times, "ours")
    return Findings(measured)


Edges = list[tuple[int, int, dict[str, object]]]


def _graph_times(
    opened: Store,
    number: int,
    level: str,
    file: Path,
    edges: Edges,
    raw: Callable[[sqlite3.Connection, int, Edges], object],
    rounds: int,
) -> Times:
    with closing(sqlite3.connect(file)) as connection:
        return take_turns(
            {
                "raw": lambda: lambda: raw(connection, number, edges),
                "ours": lambda: lambda: load_graph(opened, number, level),
            },
            rounds,
        )


def _raw_calls(connection: sqlite3.Connection, number: int, _: Edges) -> object:
    """Return a graph of the calls' rows as they are; the operators' are fetched and left."""
    calls: nx.MultiDiGraph[int] = nx.MultiDiGraph()
    with gc_paused():
        rows = connection.execute(
            "SELECT n.*, f.*, s.* FROM nodes n JOIN flop_counts f USING (profile_id, node_id) "
            "JOIN mem_stats s USING (profile_id, node_id) WHERE profile_id = ? ORDER BY node_id",
            (number,),
        )
        names = [column[0] for column in rows.description]
        calls.add_nodes_from([(row[1], dict(zip(names, row, strict=True))) for row in rows])
        connection.execute(
            "SELECT op_id, node_id, phase, bytes_read + bytes_written FROM ops "
            "WHERE profile_id = ? ORDER BY op_id",
            (number,),
        ).fetchall()
        rows = connection.execute(
            "SELECT src_node_id, dst_node_id, tensor_id, arg_position, size_bytes, kind "
            "FROM edges WHERE profile_id = ? ORDER BY edge_id",
            (number,),
        )
        names = [column[0] for column in rows.description]
        calls.add_edges_from(
            [(row[0], row[1], dict(zip(names[2:], row[2:], strict=True))) for row in rows]
        )
    return calls


def _raw_ops(connection: sqlite3.Connection, number: int, edges: Edges) -> object:
    """Return a graph of the operators' rows as they are, with edges that are known already."""
    ops: nx.MultiDiGraph[int] = nx.MultiDiGraph()
    with gc_paused():
        rows = connection.execute(
            "SELECT op_id, operator, phase, node_id, fwd_op_id, flops_status, macs, "
            "pointwise_flops, bytes_read, bytes_written, is_view, is_inplace, is_random, "
            "live_bytes FROM ops WHERE profile_id = ? ORDER BY op_id",
            (number,),
        )
        names = [column[0] for column in rows.description]
        ops.add_nodes_from([(row[0], dict(zip(names, row, strict=True))) for row in rows])
        connection.execute(
            "SELECT op_id, storage_id, size_bytes FROM tensors "
            "WHERE profile_id = ? ORDER BY tensor_id",
            (number,),
        ).fetchall()
        connection.execute(
            "SELECT op_id, arg_position, tensor_id, mutates FROM tensor_uses "
            "WHERE profile_id = ? ORDER BY op_id, arg_position",
            (number,),
        ).fetchall()
        ops.add_edges_from(edges)
    return ops
