"""The critical path of hand-made graphs: exact, honest about weights, with a stated tie rule."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries import GraphError, critical_path
from store.errors import ProfileError


def graph_of(costs, edges, kind=nx.MultiDiGraph):
    """Build a graph with a cost on every node, in the order of ``costs``."""
    graph = kind()
    graph.add_nodes_from((node, {"cost": cost}) for node, cost in costs.items())
    graph.add_edges_from(edges)
    return graph


def test_isolated_heavy_node_is_the_path():
    """A single node of 100 beats a chain of three ones; without it the chain is 3."""
    costs = {"a": 1, "b": 1, "c": 1, "heavy": 100}
    graph = graph_of(costs, [("a", "b"), ("b", "c")])
    path = critical_path(graph, "cost")
    assert (path.nodes, path.length, path.total) == (("heavy",), 100, 103)
    graph.remove_node("heavy")
    path = critical_path(graph, "cost")
    assert (path.nodes, path.length) == (("a", "b", "c"), 3)


def test_zero_costs_make_a_path_of_length_zero():
    """Nodes that cost nothing are on the path, whose length is 0 and parallelism 1."""
    path = critical_path(graph_of(dict.fromkeys("abcd", 0), pairwise("abcd")), "cost")
    assert (path.nodes, path.length, path.parallelism) == (("a", "b", "c", "d"), 0, 1.0)


@pytest.mark.parametrize("kind", [nx.DiGraph, nx.MultiDiGraph])
def test_empty_graph_has_no_path(kind):
    """No node: no path, length 0, no work."""
    path = critical_path(kind(), "cost")
    assert (path.nodes, path.length, path.total, path.slack) == ((), 0, 0, {})


def test_single_node_is_its_own_path():
    """One node without edges is the whole path."""
    assert critical_path(graph_of({7: 5}, []), "cost").nodes == (7,)


def test_integers_are_exact_where_floats_are_not():
    """2^53 + 1 is longer than 2^53, and sums beyond 2^63 do not wrap."""
    graph = graph_of({0: 0, 1: 2**53, 2: 1, 3: 2**53}, [(0, 3), (0, 1), (1, 2)])
    path = critical_path(graph, "cost")
    assert (path.nodes, path.length) == ((0, 1, 2), 2**53 + 1)
    graph = graph_of({0: 2**63 - 1, 1: 2**63 - 1}, [(0, 1)])
    assert critical_path(graph, "cost").length == 2**64 - 2


def test_numpy_integers_do_not_wrap():
    """Weights given as 64-bit numpy integers are added up as Python's."""
    numpy = pytest.importorskip("numpy")
    graph = graph_of({0: numpy.int64(2**62), 1: numpy.int64(2**62)}, [(0, 1)])
    assert critical_path(graph, "cost").length == 2**63


def test_parallel_edges_count_nodes_once():
    """Two tensors between the same nodes change nothing about the costs on the nodes."""
    costs = {"a": 1, "b": 2, "c": 4}
    edges = [("a", "b"), ("a", "b"), ("b", "c"), ("a", "c")]
    path = critical_path(graph_of(costs, edges), "cost")
    assert (path.nodes, path.length) == (("a", "b", "c"), 7)


def test_ties_go_to_the_node_added_first():
    """Of two equal branches the one whose node was added first is taken, at every fork."""
    edges = [("s", "y"), ("s", "x"), ("x", "t"), ("y", "t")]
    first_x = {"s": 1, "x": 2, "y": 2, "t": 1}
    first_y = {"s": 1, "y": 2, "x": 2, "t": 1}
    assert critical_path(graph_of(first_x, edges), "cost").nodes == ("s", "x", "t")
    assert critical_path(graph_of(first_y, edges), "cost").nodes == ("s", "y", "t")


def test_ties_between_sources_and_sinks_go_to_the_node_added_first():
    """Two separate chains of equal length: the one that starts with the older node."""
    graph = graph_of({"p": 1, "a": 3, "b": 2, "q": 4}, [("b", "a"), ("p", "q")])
    assert critical_path(graph, "cost").nodes == ("p", "q")


def test_ties_with_zero_weights_prefer_order_over_length():
    """A free node is taken when it comes first and skipped when it does not."""
    edges = [("s", "free"), ("free", "t"), ("s", "t")]
    early = graph_of({"s": 1, "free": 0, "t": 1}, edges)
    late = graph_of({"s": 1, "t": 1, "free": 0}, edges)
    assert critical_path(early, "cost").nodes == ("s", "free", "t")
    assert critical_path(late, "cost").nodes == ("s", "t")


def test_slack_is_what_a_node_may_grow():
    """A branch of 2 beside one of 5 has slack 3; nodes on the path have none."""
    graph = graph_of({"s": 1, "x": 2, "y": 5, "t": 1}, ["sx", "sy", "xt", "yt"])
    path = critical_path(graph, "cost")
    assert path.slack == {"s": 0, "x": 3, "y": 0, "t": 0}
    assert path.start == {"s": 0, "x": 1, "y": 1, "t": 6}
    assert (path.length, path.total, path.parallelism) == (7, 9, 9 / 7)


def test_misspelt_weight_is_an_error_that_names_the_weights():
    """A weight that no node has is refused in one line, even with a default."""
    graph = graph_of({0: 1}, [])
    for default in (None, 1):
        with pytest.raises(GraphError, match=r"'cots'.*cost") as caught:
            critical_path(graph, "cots", default=default)
        assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ProfileError)
    assert isinstance(caught.value, ValueError)


def test_missing_weight_is_an_error_without_default():
    """One node without the weight is named; a default stands in for it."""
    graph = graph_of({"a": 1, "b": 1}, ["ab", "bc"])
    with pytest.raises(GraphError, match="'c'"):
        critical_path(graph, "cost")
    assert critical_path(graph, "cost", default=0).length == 2
    assert critical_path(graph, "cost", default=5).length == 7


def test_no_weight_counts_nodes():
    """Weight None makes every node 1."""
    assert critical_path(graph_of({"a": 9, "b": 9, "c": 9}, ["ab", "bc"]), None).length == 3


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "7", None, True])
def test_weight_that_is_no_cost_is_refused(value):
    """Negative, infinite and non-numeric weights are errors that name the node."""
    with pytest.raises(GraphError, match="'odd'"):
        critical_path(graph_of({"fine": 1, "odd": value}, []), "cost")


@given(
    st.lists(st.floats(0, 1e300), min_size=1, max_size=8),
    st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7))),
)
def test_float_weights_leave_no_slack_on_the_path(costs, pairs):
    """Slack is 0 on the path and never below it; work is at least the path, however it rounds."""
    edges = [(a, b) for a, b in pairs if a < b < len(costs)]
    path = critical_path(graph_of(dict(enumerate(costs)), edges), "cost")
    assert all(path.slack[node] == 0 for node in path.nodes)
    assert min(path.slack.values()) >= 0
    assert path.parallelism >= 1


def test_sums_of_floats_are_rounded_once():
    """Ten tenths are one, as math.fsum says, though adding one by one gives less."""
    graph = graph_of(dict.fromkeys(range(10), 0.1), [(i, i + 1) for i in range(9)])
    path = critical_path(graph, "cost")
    assert (path.length, path.total, path.parallelism) == (1.0, 1.0, 1.0)


def test_sum_that_is_no_float_is_refused():
    """Two weights near the end of the floats have no sum."""
    with pytest.raises(GraphError, match="too large"):
        critical_path(graph_of({"a": 1.7e308, "b": 1.7e308}, []), "cost")


def test_misspelt_weight_beside_names_that_are_no_strings():
    """Attributes may have any name; the message still lists those that are numbers."""
    graph = nx.DiGraph()
    graph.add_node("a")
    graph.nodes["a"].update({1: 2, "cost": 3, ("x",): 4.0})
    with pytest.raises(GraphError, match=r"weights here: \('x',\), 1, cost"):
        critical_path(graph, "csot")


def test_cycle_is_an_error_that_shows_it():
    """A graph with a cycle has no longest path."""
    with pytest.raises(GraphError, match=r"cycle.*1 -> 2 -> 1"):
        critical_path(graph_of({1: 1, 2: 1}, [(1, 2), (2, 1)]), "cost")


def test_undirected_graph_is_refused():
    """A critical path needs directions."""
    with pytest.raises(GraphError, match="directed"):
        critical_path(nx.Graph([(0, 1)]), None)


@st.composite
def weighted_dags(draw):
    """Draw a small acyclic graph with weights, ties likely."""
    count = draw(st.integers(1, 7))
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    edges = draw(st.lists(st.sampled_from(pairs), max_size=12)) if pairs else []
    costs = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    return graph_of(dict(enumerate(costs)), edges)


@given(weighted_dags())
def test_path_is_the_first_of_the_longest(graph):
    """Against every path from source to sink: the longest, and of those the first in order."""
    sources = [n for n in graph if not graph.in_degree(n)]
    sinks = [n for n in graph if not graph.out_degree(n)]
    simple = nx.DiGraph(graph)
    paths = [tuple(p) for s in sources for t in sinks for p in nx.all_simple_paths(simple, s, t)]
    paths += [(n,) for n in sources if n in sinks]

    def cost(path):
        return sum(graph.nodes[n]["cost"] for n in path)

    longest = max(map(cost, paths))
    found = critical_path(graph, "cost")
    assert found.length == longest <= found.total
    assert found.nodes == min({p for p in paths if cost(p) == longest})
    for node in graph:
        through = max(cost(p) for p in paths if node in p)
        assert found.slack[node] == longest - through
