"""Figures for papers, drawn with matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from queries.errors import OutputError, QuestionError
from store.records import STORAGE_CLASSES

if TYPE_CHECKING:
    import networkx as nx

    from queries.questions.critical_path import CriticalPath
    from queries.questions.liveness import Liveness

# Okabe and Ito's palette: told apart by every kind of colour vision, and in print
COLORS = {
    "parameter": "#0072B2",
    "buffer": "#56B4E9",
    "input": "#999999",
    "activation": "#E69F00",
    "temporary": "#F0E442",
    "gradient": "#009E73",
    "optimizer": "#CC79A7",
}
_PATH_COLORS = {True: "#D55E00", False: "#56B4E9"}  # on the critical path, and beside it
_MIB = 2**20


def class_bytes(result: Liveness) -> dict[str, list[int]]:
    """Return the live bytes per step of every storage class that ever has some."""
    from itertools import accumulate  # noqa: PLC0415 - beside its only use

    steps = len(result.live_bytes)
    changes = {name: [0] * (steps + 1) for name in STORAGE_CLASSES}
    for storage in result.storages:
        change = changes[storage.storage_class]
        change[min(max(storage.birth_op_id, 0), steps)] += storage.size_bytes
        change[min(storage.death_op_id + 1, steps)] -= storage.size_bytes
    per_class = {name: list(accumulate(change[:steps])) for name, change in changes.items()}
    return {name: sizes for name, sizes in per_class.items() if any(sizes)}


def plot_liveness(result: Liveness, path: str, *, title: str) -> None:
    """Draw the memory over the step, stacked by class, into a PNG, PDF or SVG file.

    Raises:
        QuestionError: if matplotlib is missing, or does not know the format.
        OutputError: if the file cannot be written.
    """
    figure, axes = _figure()
    layers = class_bytes(result)
    steps = range(len(result.live_bytes))
    if layers:  # without any, matplotlib takes no empty stack
        axes.stackplot(
            steps,
            [[size / _MIB for size in sizes] for sizes in layers.values()],
            labels=list(layers),
            colors=[COLORS[name] for name in layers],
            step="post",
            linewidth=0,
        )
    bound = [size / _MIB for size in result.bound_bytes]
    axes.step(steps, bound, where="post", color="black", lw=0.7, label="lower bound by last use")
    if result.live_bytes:
        peak = (result.peak_op_id, result.peak_bytes / _MIB)
        axes.plot(*peak, "v", color="black", ms=5)
        axes.annotate(f"peak {peak[1]:,.1f} MiB", peak, (0, 6), textcoords="offset points",
                      ha="center")  # fmt: skip
    for start, phase in phase_starts(result.phases):
        axes.axvline(start, color="0.6", lw=0.5, ls=":")
        axes.text(start, 0.99, f" {phase}", transform=axes.get_xaxis_transform(), va="top",
                  fontsize=7, color="0.3")  # fmt: skip
    axes.set(xlabel="step (operator)", ylabel="live memory (MiB)", title=title)
    axes.margins(x=0)
    axes.set_ylim(0, max(1e-9, result.peak_bytes / _MIB) * 1.2)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=8)
    _save(figure, path)


def plot_critical_path(
    graph: nx.MultiDiGraph[int], path: CriticalPath, title_path: str, *, title: str
) -> None:
    """Draw every node from its earliest start to its end, the critical path in colour.

    Raises:
        QuestionError: if matplotlib is missing, or does not know the format.
        OutputError: if the file cannot be written.
    """
    figure, axes = _figure()
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
        color = _PATH_COLORS[lane == 0]
        axes.barh(lane, width, left=start, height=0.8, color=color, edgecolor="white", lw=0.2)
    axes.invert_yaxis()
    axes.set(xlabel=f"earliest start, in {path.weight}", yticks=[],
             title=f"{title}: critical path {path.length:,.6g} of {path.total:,.6g},"
                   f" parallelism {path.parallelism:.2f}")  # fmt: skip
    names = {True: "on the critical path", False: "beside it"}
    marks = [Patch(color=_PATH_COLORS[on], label=name) for on, name in names.items()]
    figure.legend(handles=marks, loc="outside lower right", ncols=2, frameon=False, fontsize=8)
    _save(figure, title_path)


def phase_starts(phases: tuple[str, ...]) -> list[tuple[int, str]]:
    """Return where phases start, leaving out those too short to have a label of their own."""
    starts = [i for i, phase in enumerate(phases) if i == 0 or phases[i - 1] != phase]
    ends = [*starts[1:], len(phases)] if starts else []
    long = [
        (i, phases[i]) for i, end in zip(starts, ends, strict=True) if end - i > len(phases) / 20
    ]
    return [item for k, item in enumerate(long) if k == 0 or long[k - 1][1] != item[1]]


def _figure() -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra, and slow to load
    except ModuleNotFoundError:
        raise QuestionError("plots need matplotlib: pip install 'export-profiles[plot]'") from None
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    return figure, figure.add_subplot()


def _save(figure: Any, path: str) -> None:
    try:
        figure.savefig(path, dpi=200)
    except ValueError as error:  # a format that it does not know
        raise QuestionError(f"cannot draw {path}: {' '.join(str(error).split())}") from error
    except OSError as error:
        raise OutputError(f"cannot draw {path}: {error.strerror}") from error
