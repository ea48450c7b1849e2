"""Which bytes are alive at every step, why, and how few could be.

A storage is alive at step ``i`` when ``birth_op_id <= i <= death_op_id``. Host memory is left out.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import click

from queries.cli_options import cut, format_option, opened, the_profile, top_option
from queries.fetch import profile_exists, rows_of, values_of
from queries.plot import COLORS, figure_and_axes, save
from queries.tables import Table, field_names, table_of, write_table
from store.collector import gc_paused
from store.command import database_option
from store.records import STORAGE_CLASSES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from store import Store

__all__ = ["LiveStorage", "Liveness", "liveness"]

_MIB = 2**20

# why a storage lives on after the last operator that touches it
OUTLIVING_REASONS = ("output", "caller", "saved", "name", "cycle")
_HELD_BY_CALLER = frozenset({"parameter", "buffer", "input", "gradient", "optimizer"})


@dataclass(frozen=True, slots=True)
class LiveStorage:
    """A storage, the call that made it and the call it waits for."""

    storage_id: int
    size_bytes: int
    storage_class: str  # store.records.STORAGE_CLASSES
    birth_op_id: int  # -1 if it existed before the first step
    death_op_id: int
    last_use_op_id: int  # the last step that reads, writes or views it; -1: none does
    name: str  # of a parameter, buffer or input; else ""
    module: str  # path of the module that made it, or that owns the parameter or buffer
    made_by: str  # name of the call that made it, "" before the first step
    waits_for: str  # name of the call that uses it last, "" if none does
    waits_phase: str  # phase of that use, "" if there is none
    reason: str  # why it outlives its last use, of OUTLIVING_REASONS; "" if it does not
    outlived_steps: int  # at which it is alive after its last use; never used: after its birth


@dataclass(frozen=True, slots=True)
class Liveness:
    """The memory of one profile over its steps, in requested bytes on the device."""

    profile_id: int
    live_bytes: tuple[int, ...]  # per step, as executed
    bound_bytes: tuple[int, ...]  # per step, if all were freed right after their last use
    phases: tuple[str, ...]  # per step
    peak_bytes: int
    peak_op_id: int  # the first step at which it is reached, -1 without steps
    bound_peak_bytes: int
    bound_peak_op_id: int
    storages: tuple[LiveStorage, ...]  # every device storage, by id

    def at(self, op_id: int) -> tuple[LiveStorage, ...]:
        """Return what is alive at a step, largest first, then oldest."""
        live = (s for s in self.storages if s.birth_op_id <= op_id <= s.death_op_id)
        return tuple(sorted(live, key=lambda s: (-s.size_bytes, s.storage_id)))

    @property
    def at_peak(self) -> tuple[LiveStorage, ...]:
        """What is alive at the peak, largest first, then oldest."""
        return self.at(self.peak_op_id)

    @property
    def peak_by_class(self) -> dict[str, int]:
        """Bytes at the peak by storage class, largest first."""
        return _sums(self.at_peak, lambda s: s.storage_class)

    @property
    def peak_by_module(self) -> dict[str, int]:
        """Bytes at the peak by module path, largest first; "" is the model itself."""
        return _sums(self.at_peak, lambda s: s.module)

    @property
    def peak_by_call(self) -> dict[str, int]:
        """Bytes at the peak by the call that made them; "" is what existed before the step."""
        return _sums(self.at_peak, lambda s: s.made_by)

    @property
    def outliving(self) -> tuple[LiveStorage, ...]:
        """Storages that outlive their last use, those that hold most bytes for longest first."""
        late = (s for s in self.storages if s.reason and s.size_bytes)
        return tuple(sorted(late, key=lambda s: (-s.size_bytes * s.outlived_steps, s.storage_id)))


def liveness(store: Store, profile_id: int) -> Liveness:
    """Return the live bytes of every step of a stored profile, and what they are.

    Beside the bytes as executed stands a lower bound for the same order of operators: every
    storage freed right after the last operator that reads, writes or views it. What the caller
    holds (parameters, buffers, inputs, gradients, optimizer state, the output) is freed in both
    when it really was.

    A storage outlives its last use, alive at later steps, because it is the model's ``output``;
    the ``caller`` holds it; autograd has ``saved`` it; a ``name`` in the running code still
    refers to it; or it was never freed although nothing needs it, as in a reference ``cycle``.

    Raises:
        ProfileMissing: if there is no such profile.
    """
    profile_exists(store, profile_id)
    ops = rows_of(store, "SELECT node_id, phase FROM ops", profile_id, "op_id")
    with gc_paused():
        storages = _storages(store, profile_id, ops)
    steps = len(ops)
    live = _replay(steps, ((s.birth_op_id, s.death_op_id, s.size_bytes) for s in storages))
    bound = _replay(steps, ((s.birth_op_id, _needed_until(s), s.size_bytes) for s in storages))
    before = sum(s.size_bytes for s in storages if s.birth_op_id == -1)
    peak, bound_peak = (max(b, default=before) for b in (live, bound))
    return Liveness(
        profile_id=profile_id,
        live_bytes=tuple(live),
        bound_bytes=tuple(bound),
        phases=tuple(phase for _, phase in ops),
        peak_bytes=peak,
        peak_op_id=live.index(peak) if live else -1,
        bound_peak_bytes=bound_peak,
        bound_peak_op_id=bound.index(bound_peak) if bound else -1,
        storages=tuple(storages),
    )


def _needed_until(storage: LiveStorage) -> int:
    """Return the last step at which a storage has to be alive."""
    if storage.reason in ("", "output", "caller"):
        return storage.death_op_id
    return max(storage.last_use_op_id, storage.birth_op_id)


def _replay(steps: int, lives: Iterable[tuple[int, int, int]]) -> list[int]:
    """Return the live bytes per step from births, last steps alive, and sizes."""
    change = [0] * (steps + 1)
    for birth, death, size in lives:
        if death >= max(birth, 0):
            change[min(max(birth, 0), steps)] += size
            change[min(death + 1, steps)] -= size
    return list(accumulate(change[:steps]))


_LAST_USES = """
SELECT t.storage_id, MAX(u.op_id)
FROM tensor_uses u JOIN tensors t ON t.profile_id = u.profile_id AND t.tensor_id = u.tensor_id
WHERE u.profile_id = :profile_id GROUP BY t.storage_id
"""
_SAVED = """
SELECT DISTINCT t.storage_id
FROM saved_tensors s JOIN tensors t ON t.profile_id = s.profile_id AND t.tensor_id = s.tensor_id
WHERE s.profile_id = :profile_id
"""
_OUTPUTS = """
SELECT DISTINCT t.storage_id
FROM edges e
JOIN nodes n ON n.profile_id = e.profile_id AND n.node_id = e.dst_node_id AND n.kind = 'output'
JOIN tensors t ON t.profile_id = e.profile_id AND t.tensor_id = e.tensor_id
WHERE e.profile_id = :profile_id
"""
_STORAGES = """
SELECT storage_id, size_bytes, storage_class, birth_op_id, death_op_id FROM storages
WHERE profile_id = :profile_id AND is_host = 0 ORDER BY storage_id
"""
_CALLS = """
SELECT n.node_id, n.name, m.path FROM nodes n
LEFT JOIN modules m ON m.profile_id = n.profile_id AND m.module_id = n.module_id
WHERE n.profile_id = :profile_id
"""


def _storages(store: Store, profile_id: int, ops: Sequence[tuple[int, str]]) -> list[LiveStorage]:
    last_use: dict[int, int] = dict(rows_of(store, _LAST_USES, profile_id))
    # producing a view touches the storage as well
    for storage_id, op_id in rows_of(store, "SELECT storage_id, op_id FROM tensors", profile_id):
        if op_id > last_use.get(storage_id, -1):
            last_use[storage_id] = op_id
    saved = set(values_of(store, _SAVED, profile_id))
    outputs = set(values_of(store, _OUTPUTS, profile_id))
    named: dict[int, str] = {}
    names = "SELECT storage_id, name FROM tensors WHERE profile_id = :profile_id AND name <> ''"
    for storage_id, name in rows_of(store, names, profile_id, "tensor_id"):
        named.setdefault(storage_id, name)
    call = {
        node_id: (name, path or "") for node_id, name, path in rows_of(store, _CALLS, profile_id)
    }
    nowhere = ("", "")
    result = []
    for storage_id, size, kind, birth, death in rows_of(store, _STORAGES, profile_id):
        last = last_use.get(storage_id, -1)
        name = named.get(storage_id, "")
        made_by, module = call.get(ops[birth][0], nowhere) if 0 <= birth < len(ops) else nowhere
        if birth == -1 and kind in ("parameter", "buffer"):
            module = name.rpartition(".")[0]
        used = 0 <= last < len(ops)
        reason = ""
        # what is never freed has the number of steps for its death, one more than the last step
        outlived_steps = max(min(death, len(ops) - 1) - max(last, birth, 0), 0)
        if outlived_steps:
            outlives = death >= len(ops)
            reason = (
                "output" if storage_id in outputs and outlives
                else "caller" if kind in _HELD_BY_CALLER and (outlives or birth == -1)
                else "saved" if storage_id in saved
                else "cycle" if outlives
                else "name"
            )  # fmt: skip
        result.append(
            LiveStorage(
                storage_id=storage_id,
                size_bytes=size,
                storage_class=kind,
                birth_op_id=birth,
                death_op_id=death,
                last_use_op_id=last,
                name=name,
                module=module,
                made_by=made_by,
                waits_for=call.get(ops[last][0], nowhere)[0] if used else "",
                waits_phase=ops[last][1] if used else "",
                reason=reason,
                outlived_steps=outlived_steps,
            )
        )
    return result


def _sums(storages: Iterable[LiveStorage], key: Callable[[LiveStorage], str]) -> dict[str, int]:
    sums: defaultdict[str, int] = defaultdict(int)
    for storage in storages:
        sums[key(storage)] += storage.size_bytes
    return dict(sorted(sums.items(), key=lambda item: (-item[1], item[0])))


def liveness_rows(result: Liveness, by: str) -> Table:
    """Return what is live at the peak, what outlives its last use, or the bytes of every step.

    Args:
        result: of ``liveness``.
        by: storage, class, module or call: what is live at the peak; outliving; or step.
    """
    summary = {
        "peak_bytes": result.peak_bytes,
        "peak_op_id": result.peak_op_id,
        "bound_peak_bytes": result.bound_peak_bytes,
        "bound_peak_op_id": result.bound_peak_op_id,
    }
    if by == "storage":
        columns = [name for name in field_names(LiveStorage) if name != "outlived_steps"]
        return table_of(result.at_peak, columns, summary)
    if by == "outliving":
        return table_of(result.outliving, field_names(LiveStorage), summary)
    if by == "step":
        steps = zip(result.phases, result.live_bytes, result.bound_bytes, strict=True)
        rows = [[i, *step] for i, step in enumerate(steps)]
        return Table(["op_id", "phase", "live_bytes", "bound_bytes"], rows, summary)
    sums: dict[str, int] = getattr(result, f"peak_by_{by}")
    return Table([by, "size_bytes"], [list(item) for item in sums.items()], summary)


def class_bytes(result: Liveness) -> dict[str, list[int]]:
    """Return the live bytes per step of every storage class that ever has some."""
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
    figure, axes = figure_and_axes()
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
    save(figure, path)


def phase_starts(phases: tuple[str, ...]) -> list[tuple[int, str]]:
    """Return where phases start, leaving out those too short to have a label of their own."""
    starts = [i for i, phase in enumerate(phases) if i == 0 or phases[i - 1] != phase]
    ends = [*starts[1:], len(phases)] if starts else []
    long = [
        (i, phases[i]) for i, end in zip(starts, ends, strict=True) if end - i > len(phases) / 20
    ]
    return [item for k, item in enumerate(long) if k == 0 or long[k - 1][1] != item[1]]


@click.command("liveness", short_help="Show the memory of a step, and what fills its peak.")
@click.argument("profile")
@click.option(
    "--by",
    type=click.Choice(("storage", "class", "module", "call", "outliving", "step")),
    default="storage",
    show_default=True,
    help="What to list: what is live at the peak, one by one or in sums; what outlives its last"
    " use; or the live bytes of every step.",
)
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
    profile: str, by: str, plot: str | None, top: int | None, url: str, output_format: str
) -> None:
    """Show the memory of a step: its peak, what is live there, and how little would do.

    \b
    Examples:
      query-profiles liveness resnet50 --top 10
      query-profiles liveness resnet50 --by step --format csv
    """
    with opened(url) as store:
        result = liveness(store, the_profile(store, profile))
    if plot:
        plot_liveness(result, plot, title=profile)
    write_table(cut(liveness_rows(result, by), top), output_format)
