"""The exports, read back by the programs that they are for, or by their published rules."""

from __future__ import annotations

import csv
import io
import json
import pickle
from pathlib import Path

import networkx as nx
import pytest
from handmade_profiles import Hand, linear_step

from queries import QuestionError, liveness, load_graph
from queries.export import EXPORTS, export_profile
from queries.export.registry import export_format
from store import open_store
from tools.sql_docs import EXAMPLE


@pytest.fixture
def store(tmp_path):
    """Open an empty store."""
    with open_store(f"sqlite:///{tmp_path}/profiles.db", create=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def example():
    """Open the shipped database."""
    with open_store(f"sqlite:///{EXAMPLE}", read_only=True) as opened:
        yield opened


def test_minimalloc_lines_are_half_open(store):
    """H lives at steps 0 to 2: 0,3; y, the gradient of w and the rest as they were recorded."""
    profile_id = store.write(linear_step().profile())
    assert export_profile(store, profile_id, "minimalloc").decode() == (
        "id,lower,upper,size\n"
        "2,0,3,32\n"  # h
        "3,1,5,32\n"  # y, held to the end
        "4,2,4,32\n"  # gradient of y
        "5,3,5,32\n"  # gradient of h
        "6,4,5,64\n"  # gradient of w
    )


def test_minimalloc_is_as_high_as_the_step(example):
    """At its highest, what is alive in the file is the allocator's peak less what was there."""
    for totals in example.totals():
        rows = list(csv.DictReader(io.StringIO(
            export_profile(example, totals.profile_id, "minimalloc").decode()
        )))  # fmt: skip
        change = [0] * (totals.op_count + 1)
        for row in rows:
            change[int(row["lower"])] += int(row["size"])
            change[int(row["upper"])] -= int(row["size"])
        ((before,),) = example.query(
            "SELECT SUM(block_bytes) FROM storages"
            " WHERE profile_id = :id AND birth_op_id = -1 AND is_host = 0",
            {"id": totals.profile_id},
        )[1]
        level = highest = 0
        for step in change:
            level += step
            highest = max(highest, level)
        assert highest + before == totals.peak_allocated_bytes


def test_minimalloc_is_planned_by_omnimalloc(store, tmp_path):
    """A planner places the buffers of the hand-made step without overlap, in 128 bytes."""
    omnimalloc = pytest.importorskip("omnimalloc")
    io_ = pytest.importorskip("omnimalloc.io")
    path = tmp_path / "step.csv"
    profile_id = store.write(linear_step().profile())
    path.write_bytes(export_profile(store, profile_id, "minimalloc"))
    pool = omnimalloc.allocate(io_.load_allocation(path))
    # steps 2: h, y, gy = 96; 3: y, gy, gh = 96; 4: y, gh, gw = 128
    assert max(a.offset + a.size for a in pool.allocations) >= 128
    omnimalloc.validate_allocation(pool)


def test_snapshot_replays_to_the_peak(example):
    """Allocations less frees reach the simulated peak, and blocks tile their segments."""
    viewer = pytest.importorskip("torch.cuda._memory_viz")
    for totals in example.totals():
        data = export_profile(example, totals.profile_id, "snapshot")
        snapshot = pickle.loads(data)  # noqa: S301 - our own bytes
        level = highest = 0
        for event in snapshot["device_traces"][0]:
            sign = {"alloc": 1, "free_completed": -1}.get(event["action"], 0)
            level += sign * event["size"]
            highest = max(highest, level)
        assert highest == totals.peak_allocated_bytes
        for segment in snapshot["segments"]:
            at = segment["address"]
            for block in segment["blocks"]:
                assert block["address"] == at
                at += block["size"]
            assert at == segment["address"] + segment["total_size"]
        assert level == sum(segment["allocated_size"] for segment in snapshot["segments"])
        assert "total_allocated" in viewer.segsum(snapshot)
        assert viewer.trace(snapshot)


def test_chrome_slices_nest_and_follow_each_other(example):
    """Operators lie inside their calls, and their times add up to the step's."""
    trace = json.loads(export_profile(example, 4, "chrome", device="T4"))
    slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    ops = [e for e in slices if e["cat"] == "cpu_op"]
    graph = load_graph(example, 4, "ops", device="T4")
    assert len(ops) == len(graph)
    assert sum(e["dur"] for e in ops) == sum(graph.nodes[n]["time_us"] for n in graph)
    calls = [(e["tid"], e["ts"], e["ts"] + e["dur"]) for e in slices if e["cat"] != "cpu_op"]
    for op in ops:
        assert any(
            tid == op["tid"] and begin <= op["ts"] and op["ts"] + op["dur"] <= end
            for tid, begin, end in calls
        )
    counters = [e["args"]["live_bytes"] for e in trace["traceEvents"] if e["ph"] == "C"]
    assert tuple(counters) == liveness(example, 4).live_bytes


def test_chrome_is_read_by_holistic_trace_analysis(example, tmp_path):
    """HTA finds the operators of the one rank."""
    hta = pytest.importorskip("hta.trace_analysis")
    (tmp_path / "rank0.json").write_bytes(export_profile(example, 1, "chrome"))
    analysis = hta.TraceAnalysis(trace_dir=str(tmp_path))
    assert len(analysis.t.get_trace(0)) > 0


def test_solver_chain_has_rotors_lengths(example):
    """N times, and n + 1 sizes and backward times; a stage keeps at least what it passes on."""
    for totals in example.totals():
        chain = json.loads(export_profile(example, totals.profile_id, "solver"))["chain"]
        n = len(chain["ftime"])
        assert len(chain["ftmp"]) == n
        assert {len(chain[name]) for name in ("btime", "x", "xbar", "btmp")} == {n + 1}
        assert chain["x"][0] == totals.input_bytes
        assert all(bar >= x for x, bar in zip(chain["x"], chain["xbar"], strict=True))
        assert min(chain["ftmp"] + chain["btmp"]) >= 0


def test_solver_graph_is_topological(example):
    """Parents come before children in Checkmate's numbering, and the loss divides the passes."""
    for totals in example.totals():
        graph = json.loads(export_profile(example, totals.profile_id, "solver"))["dfgraph"]
        size = len(graph["args"])
        assert size == len(graph["cost_cpu"]) == len(graph["cost_ram"]) == len(graph["node_names"])
        assert all(parent < i for i, parents in enumerate(graph["args"]) for parent in parents)
        assert all(isinstance(cost, int) for cost in graph["cost_cpu"] + graph["cost_ram"])
        assert graph["cost_ram_parameters"] == totals.param_bytes
        assert graph["backward_nodes"] == list(range(graph["loss"] + 1, size))


def test_solver_graph_of_the_hand_made_step(store):
    """x, fc, act, loss, then act's and fc's backward, each reading what its call saved."""
    profile_id = store.write(linear_step().profile())
    graph = json.loads(export_profile(store, profile_id, "solver"))["dfgraph"]
    assert graph["node_names"] == ["x", "fc", "act", "loss", "act (backward)", "fc (backward)"]
    assert graph["args"] == [[], [0], [1], [2], [2, 3], [4]]


def test_solver_modules_are_in_pre_order(example):
    """Rows come as the solver expects them, the whole model first with all parameters."""
    rows = json.loads(export_profile(example, 1, "solver"))["modules"]
    assert [r["fw_pre_order"] for r in rows] == sorted(r["fw_pre_order"] for r in rows)
    assert rows[0]["fqn"] == ""
    assert rows[0]["param_per_module"] == example.totals()[0].param_bytes


def read_messages(data):
    """Split length-prefixed protobuf messages into field lists, by the wire format's rules."""

    def varint(at):
        value = shift = 0
        while True:
            byte = data[at]
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                return value, at

    at, messages = 0, []
    while at < len(data):
        length, at = varint(at)
        end, fields = at + length, []
        while at < end:
            key, at = varint(at)
            value, at = varint(at)
            if key & 7 == 2:
                at, value = at + value, data[at : at + value]
            fields.append((key >> 3, value))
        assert at == end
        messages.append(fields)
    return messages


def test_chakra_trace_is_the_operator_graph(store):
    """Ids, names, compute type and dependencies come out of the bytes as they went in."""
    hand = Hand()
    x = hand.tensor(hand.storage(12, "input"), role="input", name="x")
    hand.op("mul", (x,), macs=5, size=(12, 12))
    y = hand.made(0, 12)
    hand.op("add_", (), (x,))
    hand.op("add", (y, x), size=(24, 12))
    hand.made(2, 12)
    metadata, *nodes = read_messages(export_profile(store, store.write(hand.profile()), "chakra"))
    assert metadata == [(1, b"0.0.4")]
    fields = [dict(node) for node in nodes]
    assert [f[1] for f in fields] == [0, 1, 2]
    assert [f[2] for f in fields] == [
        b"aten.mul.default",
        b"aten.add_.default",
        b"aten.add.default",
    ]
    assert {f[3] for f in fields} == {4}
    assert [list(f.get(4, b"")) for f in fields] == [[], [0], []]  # order
    assert [list(f.get(5, b"")) for f in fields] == [[], [], [0, 1]]  # data


def test_chakra_is_read_by_its_own_schema(example):
    """MLCommons' protobuf classes parse the trace; its graph has no cycle."""
    schema = pytest.importorskip("chakra.schema.protobuf.et_def_pb2")
    data = export_profile(example, 1, "chakra")
    nodes, at = [], 0
    while at < len(data):
        length = shift = 0
        while True:
            byte = data[at]
            length |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                break
        nodes.append(data[at : at + length])
        at += length
    parsed = [schema.Node.FromString(node) for node in nodes[1:]]
    graph = nx.DiGraph([(d, n.id) for n in parsed for d in [*n.data_deps, *n.ctrl_deps]])
    assert nx.is_directed_acyclic_graph(graph)


def test_unknown_export_lists_the_known(example):
    """A format that does not exist is refused with those that do."""
    with pytest.raises(QuestionError, match="minimalloc"):
        export_profile(example, 1, "onnx")


def test_two_formats_of_one_name_are_refused():
    """A format is not replaced unseen."""
    again = export_format("chrome", read_by="nobody", holds="nothing")
    with pytest.raises(ValueError, match="two formats are called 'chrome'"):
        again(lambda *_: b"")


def test_every_export_has_its_file():
    """One file per format lies beside the registry."""
    folder = Path(__file__).parents[2] / "queries" / "export"
    assert {p.stem for p in folder.glob("*.py")} - {"__init__", "registry"} == set(EXPORTS)
