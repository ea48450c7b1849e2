"""Stored profiles as graphs: parallel edges, in-place writes, views, attributes."""

from __future__ import annotations

import sqlite3

import networkx as nx
import pytest
from handmade_profiles import Hand, linear_step

from queries import QuestionError, critical_path, load_graph
from store import open_store
from store.errors import ProfileMissing


@pytest.fixture
def store(tmp_path):
    """Open an empty store."""
    with open_store(f"sqlite:///{tmp_path}/profiles.db", create=True) as opened:
        yield opened


def ops_graph(store, hand):
    """Return the operator graph of a hand-made profile."""
    return load_graph(store, store.write(hand.profile()), level="ops")


def kinds(graph):
    """Return the edges with their kinds, sorted."""
    return sorted(graph.edges(data="kind"))


def an_input(hand, name="x"):
    """Add an input of 12 bytes and return its tensor."""
    return hand.tensor(hand.storage(12, "input"), role="input", name=name)


def test_calls_carry_counts_and_paths(store):
    """Node attributes are those of the tables, with FLOPs and both passes added up."""
    graph = load_graph(store, store.write(linear_step().profile()))
    assert list(graph) == [0, 1, 2, 3]
    fc = graph.nodes[1]
    assert (fc["name"], fc["kind"], fc["module"], fc["shape"]) == (
        "fc", "call_module", "fc", (4, 2),
    )  # fmt: skip
    assert (fc["fwd_macs"], fc["bwd_macs"], fc["macs"]) == (64, 64, 128)
    assert (fc["fwd_flops"], fc["flops"]) == (128, 256)
    assert (fc["fwd_bytes"], fc["bwd_bytes"], fc["bytes"]) == (224, 224, 448)
    assert (fc["param_bytes"], fc["grad_bytes"]) == (64, 64)
    assert graph.nodes[0]["fwd_flops"] == 0
    assert [(u, v, d["size_bytes"]) for u, v, d in graph.edges(data=True)] == [
        (0, 1, 128), (1, 2, 32), (2, 3, 32),
    ]  # fmt: skip


def test_bytes_beyond_64_bits_are_exact(store):
    """Two operators of 2^63 and 2^63 - 1 bytes: 2^64 - 1 bytes in forward, as an integer."""
    hand = Hand()
    call = hand.node("copy", "call_function")
    hand.op("clone", node=call, size=(2**62, 2**62))
    hand.op("clone", node=call, size=(2**63 - 1, 0))
    hand.op("clone", node=call, size=(0, 1), phase="recompute")
    hand.op("clone", node=call, size=(0, 1), phase="optimizer")
    attributes = load_graph(store, store.write(hand.profile())).nodes[call]
    sums = [attributes[name] for name in ("fwd_bytes", "bwd_bytes", "bytes")]
    assert sums == [2**64 - 1, 1, 2**64]
    assert {type(value) for value in sums} == {int}


def test_two_tensors_between_two_calls_are_two_edges(store):
    """100 and 7 bytes from a to b, 3 to c, 50 past b: 160 bytes in all, and a, b, c the path."""
    hand = Hand()
    a, b, c = (hand.node(name, "call_function", macs=(1, 0)) for name in "abc")
    for src, dst, size in [(a, b, 100), (a, b, 7), (b, c, 3), (a, c, 50)]:
        hand.edge(src, dst, size=size)
    graph = load_graph(store, store.write(hand.profile()))
    assert graph.size("size_bytes") == 160
    assert graph.number_of_edges(a, b) == 2
    assert critical_path(graph, "fwd_macs").nodes == (a, b, c)


def test_in_place_write_waits_for_earlier_readers(store):
    """Y = x * 2; x.add_(1); z = y + x: no cycle, mul before add_, a path of three."""
    hand = Hand()
    x = an_input(hand)
    hand.op("mul", (x,))
    y = hand.made(0, 12)
    hand.op("add_", (), (x,))
    hand.op("add", (y, x))
    hand.made(2, 12)
    graph = ops_graph(store, hand)
    assert nx.is_directed_acyclic_graph(graph)
    assert kinds(graph) == [(0, 1, "control"), (0, 2, "data"), (1, 2, "data")]
    assert critical_path(graph, None).nodes == (0, 1, 2)
    assert [d["size_bytes"] for *_, d in graph.edges(data=True) if d["kind"] == "control"] == [0]


def test_view_is_reached_through_the_view(store):
    """Y = exp(x); v = y.view(); z = neg(v): y to v is an alias, v to z data."""
    hand = Hand()
    x = an_input(hand)
    hand.op("exp", (x,))
    y = hand.made(0, 12)
    hand.op("view", (y,), view=True)
    v = hand.view(1, y)
    hand.op("neg", (v,))
    hand.made(2, 12)
    assert kinds(ops_graph(store, hand)) == [(0, 1, "alias"), (1, 2, "data")]


def test_write_through_a_view_reaches_readers_of_the_base(store):
    """Y = exp(x); v = y.view(); v.add_(1); z = neg(y): z reads what add_ wrote."""
    hand = Hand()
    x = an_input(hand)
    hand.op("exp", (x,))
    y = hand.made(0, 12)
    hand.op("view", (y,), view=True)
    v = hand.view(1, y)
    hand.op("add_", (), (v,))
    hand.op("neg", (y,))
    hand.made(3, 12)
    assert kinds(ops_graph(store, hand)) == [(0, 1, "alias"), (1, 2, "data"), (2, 3, "data")]


def test_write_to_the_base_reaches_readers_of_an_older_view(store):
    """V = x.view(); x.add_(1); z = neg(v): z waits for add_, not only for the view."""
    hand = Hand()
    x = an_input(hand)
    hand.op("view", (x,), view=True)
    v = hand.view(0, x)
    hand.op("add_", (), (x,))
    hand.op("neg", (v,))
    hand.made(2, 12)
    assert kinds(ops_graph(store, hand)) == [(0, 1, "control"), (1, 2, "data")]


def test_second_write_follows_the_first(store):
    """Two writes to one input, then a read: a chain."""
    hand = Hand()
    x = an_input(hand)
    hand.op("zero_", (), (x,))
    hand.op("add_", (), (x,))
    hand.op("neg", (x,))
    hand.made(2, 12)
    assert kinds(ops_graph(store, hand)) == [(0, 1, "data"), (1, 2, "data")]


def test_write_waits_for_readers_since_the_last_write_only(store):
    """Readers before the first write are ordered through it, without edges of their own."""
    hand = Hand()
    x = an_input(hand)
    hand.op("exp", (x,))
    hand.made(0, 12)
    hand.op("zero_", (), (x,))
    hand.op("exp", (x,))
    hand.made(2, 12)
    hand.op("zero_", (), (x,))
    assert kinds(ops_graph(store, hand)) == [
        (0, 1, "control"), (1, 2, "data"), (1, 3, "data"), (2, 3, "control"),
    ]  # fmt: skip


def test_operator_that_writes_two_tensors_waits_for_readers_of_both(store):
    """A fused optimizer step reads and writes many tensors at once."""
    hand = Hand()
    x, y = an_input(hand, "x"), an_input(hand, "y")
    hand.op("exp", (x,))
    hand.made(0, 12)
    hand.op("neg", (y,))
    hand.made(1, 12)
    hand.op("_foreach_add_", (), (x, y))
    assert kinds(ops_graph(store, hand)) == [(0, 2, "control"), (1, 2, "control")]


def test_one_tensor_read_twice_is_two_edges(store):
    """Y * y reads y at two argument positions."""
    hand = Hand()
    x = an_input(hand)
    hand.op("exp", (x,))
    y = hand.made(0, 12)
    hand.op("mul", (y, y))
    hand.made(1, 12)
    edges = list(ops_graph(store, hand).edges(data="arg_position"))
    assert edges == [(0, 1, 0), (0, 1, 1)]


def test_operators_carry_their_columns(store):
    """Operator attributes are those of the table, with FLOPs and bytes added up."""
    graph = load_graph(store, store.write(linear_step().profile()), "ops")
    mm = graph.nodes[0]
    assert (mm["operator"], mm["phase"], mm["node_id"]) == ("aten.mm.default", "forward", 1)
    assert (mm["macs"], mm["flops"], mm["bytes"]) == (64, 128, 224)
    assert mm["is_view"] is False
    assert graph.nodes[3]["fwd_op_id"] == 1


def test_times_are_the_larger_side_of_the_roofline(store):
    """On a device of 10 FLOP/s and 100 bytes/s: 12.8 s of arithmetic, 5 us of launch."""
    profile_id = store.write(linear_step().profile())
    insert_device(store, 10, 100)
    graph = load_graph(store, profile_id, "ops", device="slow")
    assert graph.nodes[0]["time_us"] == 12_800_005.0  # 128 FLOPs / 10, 224 bytes / 100
    assert graph.nodes[2]["time_us"] == pytest.approx(320_005, abs=1e-6)  # 32 bytes / 100
    calls = load_graph(store, profile_id, device="SLOW")
    assert calls.nodes[1]["fwd_time_us"] == 12_800_005.0


def insert_device(store, peak, bandwidth):
    """Add a device of a user's own, as users do, in SQL."""
    database = sqlite3.connect(store.url.removeprefix("sqlite:///"))
    database.execute(
        "INSERT INTO devices (name, dtype, peak_flops_per_second, bandwidth_bytes_per_second,"
        " memory_bytes, launch_overhead_us, source) VALUES ('slow', 'float32', ?, ?, 1000, 5, '')",
        (peak, bandwidth),
    )
    database.commit()
    database.close()


def test_views_take_no_time(store):
    """A view launches no kernel."""
    hand = Hand()
    x = an_input(hand)
    hand.op("view", (x,), view=True, size=(12, 12))
    hand.view(0, x)
    profile_id = store.write(hand.profile())
    assert load_graph(store, profile_id, "ops", device="A100").nodes[0]["time_us"] == 0.0


def test_unknown_names_are_errors_that_list_the_known(store):
    """Level, device and profile are checked."""
    profile_id = store.write(linear_step().profile())
    with pytest.raises(QuestionError, match="nodes, ops"):
        load_graph(store, profile_id, "modules")
    with pytest.raises(QuestionError, match=r"'TI-83'.*A100.*H200"):
        load_graph(store, profile_id, device="TI-83")
    with pytest.raises(ProfileMissing, match="99"):
        load_graph(store, 99)
