"""The longest chain of work in a graph whose costs sit on nodes.

Weights are added exactly: integers stay integers at any size, sums of floats are rounded once, at
the end. Nothing is ever assumed to weigh 1 because its weight was misspelt.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, lcm
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import click

from queries.cli_options import cut, format_option, opened, the_profile, top_option
from queries.errors import GraphError, QuestionError
from queries.load import load_graph
from queries.plot import PATH_COLORS, figure_and_axes, save
from queries.tables import Table, write_table
from store.collector import gc_paused
from store.command import database_option

if TYPE_CHECKING:
    from collections.abc import Hashable

    import networkx as nx

    from store import Store

__all__ = ["CriticalPath", "critical_path"]

Number = int | float

_SHORT = {"macs": "macs", "flops": "flops", "bytes": "bytes", "time": "time_us"}
_PASS = {"forward": "fwd_", "backward": "bwd_", "step": ""}
_OP_PHASES = {"forward": ("forward",), "backward": ("backward", "recompute")}


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The longest path of a graph, and how much every other node could grow beside it."""

    weight: str  # the attribute that was added up, "" if every node counted 1
    nodes: tuple[Any, ...]  # from a source to a sink, in order; () for the empty graph
    length: Number  # sum of the weights on the path
    total: Number  # sum of the weights of all nodes: the work
    start: dict[Any, Number]  # earliest start of each node: the longest way to it, without itself
    slack: dict[Any, Number]  # what each node could grow by before the path gets longer

    @property
    def parallelism(self) -> float:
        """Work / critical path: the speed-up of endless processors; 1.0 where there is no work."""
        return self.total / self.length if self.length else 1.0


def critical_path(
    graph: nx.DiGraph[Any] | nx.MultiDiGraph[Any],
    weight: str | None = "fwd_macs",
    *,
    default: Number | None = None,
) -> CriticalPath:
    """Return the path with the largest sum of node weights, from a source to a sink.

    Ties: of paths equally long, the one that comes first when paths are compared node by node
    from their start, a node coming before another if it was added to the graph before it.
    In loaded graphs that is execution order. Nodes of weight 0 are part of the path.
    Parallel edges and edge attributes make no difference.

    Args:
        graph: any acyclic directed graph, for one from ``load_graph``.
        weight: the node attribute to add up; ``None`` counts every node as 1.
        default: the weight of nodes that lack the attribute; without it they are an error.

    Raises:
        GraphError: if the graph is undirected or has a cycle, if no node has the weight (the
            message names those that there are), if a node lacks it and there is no default, or if
            a weight is negative or not a finite number, or if a sum of floats is none.
    """
    if not graph.is_directed():
        raise GraphError("a critical path needs a directed graph")
    with gc_paused():
        return _critical_path(graph, _costs(graph, weight, default), weight or "")


def _critical_path(
    graph: nx.DiGraph[Any], cost: dict[Hashable, Number], weight: str
) -> CriticalPath:
    """Return the path; no weight is missing any more."""
    import networkx as nx  # noqa: PLC0415 - a fifth of a second that `query-profiles list` saves

    try:
        order = list(nx.topological_sort(graph))
    except nx.NetworkXUnfeasible as error:
        cycle = [node for node, *_ in nx.find_cycle(graph)]
        raise GraphError(f"the graph has a cycle, so no longest path: {_shorten(cycle)}") from error

    whole, scale = _scaled(cost)
    after = {node: list(graph.successors(node)) for node in order}
    head = dict.fromkeys(order, 0)  # longest way to a node, without it
    for node in order:
        reached = head[node] + whole[node]
        for successor in after[node]:
            head[successor] = max(head[successor], reached)
    tail: dict[Hashable, int] = {}  # longest way from a node to the end, with it
    for node in reversed(order):
        rest = max([tail[successor] for successor in after[node]]) if after[node] else 0
        tail[node] = whole[node] + rest

    length = max(tail.values(), default=0)
    slack = {node: length - head[node] - tail[node] for node in graph}
    total = sum(whole.values())
    try:
        return CriticalPath(
            weight=weight,
            nodes=_first_path(graph, tail),
            length=_unscaled(length, scale),
            total=_unscaled(total, scale),
            start={node: _unscaled(value, scale) for node, value in head.items()},
            slack={node: _unscaled(value, scale) for node, value in slack.items()},
        )
    except OverflowError:
        raise GraphError(f"the sum of the weights {weight!r} is too large for a float") from None


def _scaled(cost: dict[Hashable, Number]) -> tuple[dict[Hashable, int], int]:
    """Return the weights times the least number that makes all of them whole, and that number.

    Sums of floats depend on their order, sums of integers do not: on the path, slack is then 0 and
    nowhere below it. The number is 0 if all weights are integers already.
    """
    ratios = {
        node: value.as_integer_ratio() for node, value in cost.items() if isinstance(value, float)
    }
    if not ratios:
        return {node: int(value) for node, value in cost.items()}, 0
    scale = lcm(*(denominator for _, denominator in ratios.values()))
    whole = {
        node: ratios[node][0] * (scale // ratios[node][1]) if node in ratios else int(value) * scale
        for node, value in cost.items()
    }
    return whole, scale


def _unscaled(value: int, scale: int) -> Number:
    return value / scale if scale else value


def _costs(
    graph: nx.DiGraph[Any], weight: str | None, default: Number | None
) -> dict[Hashable, Number]:
    """Return the weight of every node, in the graph's own order."""
    if weight is None:
        return dict.fromkeys(graph, 1)
    missing = object()
    found = dict(graph.nodes(data=weight, default=missing))
    if found and all(value is missing for value in found.values()):
        others = available_weights(graph)
        if others or default is None:
            listed = ", ".join(others) or "none"
            raise GraphError(f"no node has the weight {weight!r}; weights here: {listed}")
    cost: dict[Hashable, Number] = {}
    for node, given in found.items():
        if given is missing and default is None:
            raise GraphError(f"node {node!r} has no weight {weight!r}; give a default to count it")
        value: Any = default if given is missing else given
        if type(value) is int and value >= 0:  # nearly all, and isinstance(_, Real) is slow
            cost[node] = value
            continue
        if not _is_number(value) or not value >= 0 or value == inf:
            raise GraphError(
                f"node {node!r}: the weight {weight!r} is {value!r}, not a finite number >= 0"
            )
        # numpy's integers wrap around at 2^63, Python's do not
        cost[node] = int(value) if isinstance(value, Integral) else float(value)
    return cost


def available_weights(graph: nx.DiGraph[Any]) -> list[str]:
    """Return the names of the attributes that are numbers on some node, sorted.

    Identifiers (``..._id``) and flags are no weights.
    """
    return sorted(
        {
            str(name)
            for _, attributes in graph.nodes(data=True)
            for name, value in attributes.items()
            if _is_number(value) and not str(name).endswith("_id")
        }
    )


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _first_path(graph: nx.DiGraph[Any], tail: dict[Hashable, int]) -> tuple[Any, ...]:
    """Return the first of the longest paths, by the order in which nodes were added."""
    position = {node: i for i, node in enumerate(graph)}
    path: list[Any] = []
    candidates = [node for node, degree in graph.in_degree() if not degree]
    while candidates:
        path.append(min(candidates, key=lambda node: (-tail[node], position[node])))
        candidates = list(graph.successors(path[-1]))
    return tuple(path)


def _shorten(nodes: list[Any], limit: int = 8) -> str:
    shown = [str(node) for node in nodes[:limit]] + (["..."] if len(nodes) > limit else [])
    return " -> ".join([*shown, str(nodes[0])])


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


def plot_critical_path(
    graph: nx.MultiDiGraph[int], path: CriticalPath, title_path: str, *, title: str
) -> None:
    """Draw every node from its earliest start to its end, the critical path in colour.

    Raises:
        QuestionError: if matplotlib is missing, or does not know the format.
        OutputError: if the file cannot be written.
    """
    figure, axes = figure_and_axes()
    from matplotlib.patches import Patch  # noqa: PLC0415 - it is there, or that has raised

    on_path = set(path.nodes)
    bars = [node for node in graph if graph.nodes[node][path.weight]]
    lanes: list[float] = []  # when each lane is free again: lane 0 is the path's own
    for node in sorted(bars, key=lambda n: (n not in on_path, path.start[n])):
        start, width = path.start[node], graph.nodes[node][path.weight]
        lane = 0
        if node not in on_path:
            free = (i for i, end in enumerate(lanes) if i and end <= start)
            lane = next(free, max(len(lanes), 1))
        lanes += [0.0] * (lane + 1 - len(lanes))
        lanes[lane] = start + width
        color = PATH_COLORS[lane == 0]
        axes.barh(lane, width, left=start, height=0.8, color=color, edgecolor="white", lw=0.2)
    axes.invert_yaxis()
    axes.set(xlabel=f"earliest start, in {path.weight}", yticks=[],
             title=f"{title}: critical path {path.length:,.6g} of {path.total:,.6g},"
                   f" parallelism {path.parallelism:.2f}")  # fmt: skip
    names = {True: "on the critical path", False: "beside it"}
    marks = [Patch(color=PATH_COLORS[on], label=name) for on, name in names.items()]
    figure.legend(handles=marks, loc="outside lower right", ncols=2, frameon=False, fontsize=8)
    save(figure, title_path)


@click.command("critical-path", short_help="Show the chain that no parallelism shortens.")
@click.argument("profile")
@click.option(
    "--weight",
    metavar="NAME",
    default="flops",
    show_default=True,
    help="macs, flops, bytes, time (needs --device), or any number in the graph.",
)
@click.option(
    "--phase",
    type=click.Choice(("forward", "backward", "step")),
    default="forward",
    show_default=True,
    help="The pass; step is everything from the first operator to the last.",
)
@click.option(
    "--level",
    type=click.Choice(("nodes", "ops")),
    help="Calls or operators.  [default: nodes; ops for step]",
)
@click.option("--device", default="", metavar="NAME", help="Where times are estimated for.")
@click.option("--all", "everything", is_flag=True, help="All nodes with their slack, not the path.")
@click.option(
    "--plot",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Draw it into a PNG, PDF or SVG.",
)
@top_option
@database_option
@format_option
def command(
    profile: str,
    weight: str,
    phase: str,
    level: str | None,
    device: str,
    everything: bool,
    plot: str | None,
    top: int | None,
    url: str,
    output_format: str,
) -> None:
    """Show the chain of work that no parallelism can shorten.

    \b
    Examples:
      query-profiles critical-path inception_v3 --weight macs
      query-profiles critical-path resnet50 --phase step --weight time --device A100
    """
    if weight == "time" and not device:
        raise QuestionError("--weight time needs --device, such as --device A100")
    with opened(url) as store:
        profile_id = the_profile(store, profile)
        level = level or ("ops" if phase == "step" else "nodes")
        graph, path = phase_path(store, profile_id, weight, phase, level, device)
    if plot:
        plot_critical_path(graph, path, plot, title=profile)
    write_table(cut(path_rows(graph, path, everything=everything), top), output_format)
