"""Sums over a stored profile: by module at any depth, by operator, by phase.

Sums are added up outside SQL, where they stay exact beyond 2^63.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from queries.cli_options import cut, format_option, opened, the_profile, top_option
from queries.errors import QuestionError
from queries.fetch import profile_exists, rows_of
from queries.tables import field_names, table_of, write_table
from store.command import database_option
from store.records import PHASES

if TYPE_CHECKING:
    from store import Store

__all__ = [
    "ModuleTotals",
    "OperatorTotals",
    "PhaseTotals",
    "module_totals",
    "operator_totals",
    "phase_totals",
]


@dataclass(frozen=True, slots=True)
class ModuleTotals:
    """What a module and all modules inside it do and hold, over their calls."""

    module_id: int
    path: str  # "" is the model itself
    class_name: str
    depth: int  # 0 is the model itself
    call_count: int  # calls recorded inside it, function calls included
    fwd_macs: int
    bwd_macs: int
    fwd_pointwise_flops: int
    bwd_pointwise_flops: int
    fwd_flops: int  # 2 * macs + pointwise
    bwd_flops: int
    kept_bytes: int  # activations that live when forward ends
    grad_bytes: int
    param_bytes: int
    buffer_bytes: int


@dataclass(frozen=True, slots=True)
class OperatorTotals:
    """What all calls of one operator in one phase do."""

    operator: str
    phase: str
    op_count: int
    unknown_op_count: int  # without a formula: the counts below are then a lower bound
    macs: int
    pointwise_flops: int
    flops: int
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True, slots=True)
class PhaseTotals:
    """What one phase of the step does, and the most that lives during it."""

    phase: str
    op_count: int
    unknown_op_count: int
    macs: int
    pointwise_flops: int
    flops: int
    bytes_read: int
    bytes_written: int
    peak_bytes: int  # largest live_bytes of its operators


_MODULES = """
SELECT module_id, path, class_name, parent_id, param_bytes, buffer_bytes FROM modules
"""
_CALLS = """
SELECT n.module_id, f.fwd_macs, f.bwd_macs, f.fwd_pointwise_flops, f.bwd_pointwise_flops,
       s.kept_bytes, s.grad_bytes
FROM nodes n
LEFT JOIN flop_counts f ON f.profile_id = n.profile_id AND f.node_id = n.node_id
LEFT JOIN mem_stats s ON s.profile_id = n.profile_id AND s.node_id = n.node_id
WHERE n.profile_id = :profile_id AND n.kind NOT IN ('placeholder', 'output')
"""


def module_totals(store: Store, profile_id: int, *, depth: int | None = None) -> list[ModuleTotals]:
    """Return the sums of every module down to a depth, in the order of ``named_modules``.

    A module's sums include those of the modules inside it, so the first row is the whole model;
    work that belongs to no call (the seed gradient, the optimizer) is in none.

    Args:
        store: an open store.
        profile_id: a stored profile.
        depth: how far below the model, whose depth is 0; ``None`` for all.

    Raises:
        ProfileMissing: if there is no such profile.
        QuestionError: if the depth is negative.
    """
    if depth is not None and depth < 0:
        raise QuestionError(f"depth {depth} is below 0, which is the model itself")
    profile_exists(store, profile_id)
    modules = rows_of(store, _MODULES, profile_id, "module_id")
    parent = {module_id: parent_id for module_id, _, _, parent_id, _, _ in modules}
    # calls, fwd_macs, bwd_macs, fwd_pointwise, bwd_pointwise, kept, grad, param, buffer
    sums = {
        module_id: [0, 0, 0, 0, 0, 0, 0, param, buffer]
        for module_id, _, _, _, param, buffer in modules
    }
    root = next(iter(sums), -1)
    for module_id, *counts in rows_of(store, _CALLS, profile_id):
        own = sums.get(module_id if module_id in sums else root)
        if own is not None:
            own[0] += 1
            for i, count in enumerate(counts, start=1):
                own[i] += count or 0
    depths = {module_id: _depth(module_id, parent) for module_id in sums}
    for module_id in sorted(sums, key=lambda m: -depths[m]):  # children before their parents
        above = sums.get(parent[module_id])
        if above is not None:
            for i, value in enumerate(sums[module_id]):
                above[i] += value
    rows = []
    for module_id, path, class_name, _, _, _ in modules:
        if depth is None or depths[module_id] <= depth:
            calls, fwd, bwd, fwd_pw, bwd_pw, kept, grad, param, buffer = sums[module_id]
            rows.append(
                ModuleTotals(
                    module_id, path, class_name, depths[module_id], calls, fwd, bwd, fwd_pw,
                    bwd_pw, 2 * fwd + fwd_pw, 2 * bwd + bwd_pw, kept, grad, param, buffer,
                )
            )  # fmt: skip
    return rows


def _depth(module_id: int, parent: dict[int, int]) -> int:
    depth = 0
    while parent.get(module_id, -1) in parent:
        module_id = parent[module_id]
        depth += 1
    return depth


@dataclass(slots=True)
class _Sum:
    """Running sums of operators."""

    op_count: int = 0
    unknown: int = 0
    macs: int = 0
    pointwise: int = 0
    read: int = 0
    written: int = 0
    peak: int = 0

    def add(
        self, status: str, macs: int, pointwise: int, read: int, written: int, live: int
    ) -> None:
        """Add one operator."""
        self.op_count += 1
        self.unknown += status == "unknown"
        self.macs += macs
        self.pointwise += pointwise
        self.read += read
        self.written += written
        self.peak = max(self.peak, live)

    @property
    def work(self) -> tuple[int, int, int, int, int, int, int]:
        """The sums in the order of the records' fields."""
        flops = 2 * self.macs + self.pointwise
        return (
            self.op_count, self.unknown, self.macs, self.pointwise, flops, self.read, self.written,
        )  # fmt: skip


_OPS = """
SELECT operator, phase, flops_status, macs, pointwise_flops, bytes_read, bytes_written, live_bytes
FROM ops
"""


def operator_totals(store: Store, profile_id: int) -> list[OperatorTotals]:
    """Return the sums of every operator in every phase, most FLOPs first, then most bytes.

    Raises:
        ProfileMissing: if there is no such profile.
    """
    profile_exists(store, profile_id)
    sums: defaultdict[tuple[str, str], _Sum] = defaultdict(_Sum)
    for operator, phase, *counts in rows_of(store, _OPS, profile_id, "op_id"):
        sums[operator, phase].add(*counts)
    rows = [OperatorTotals(*key, *total.work) for key, total in sums.items()]
    return sorted(rows, key=lambda r: (-r.flops, -r.bytes_read - r.bytes_written, r.operator))


def phase_totals(store: Store, profile_id: int) -> list[PhaseTotals]:
    """Return the sums of every phase that the profile has, in the order of a step.

    Raises:
        ProfileMissing: if there is no such profile.
    """
    profile_exists(store, profile_id)
    sums = {phase: _Sum() for phase in PHASES}
    for _, phase, *counts in rows_of(store, _OPS, profile_id, "op_id"):
        sums[phase].add(*counts)
    return [
        PhaseTotals(phase, *total.work, total.peak)
        for phase, total in sums.items()
        if total.op_count
    ]


@click.command("totals", short_help="Show sums by module, by operator or by phase.")
@click.argument("profile")
@click.option(
    "--by",
    type=click.Choice(("module", "operator", "phase")),
    default="module",
    show_default=True,
    help="What to sum over.",
)
@click.option(
    "--depth", metavar="N", type=click.IntRange(min=0), help="Modules down to this depth only."
)
@top_option
@database_option
@format_option
def command(
    profile: str, by: str, depth: int | None, top: int | None, url: str, output_format: str
) -> None:
    """Show sums of work and memory: by module, by operator or by phase.

    \b
    Example:
      query-profiles totals resnet50 --by module --depth 1
    """
    rows: list[Any]
    with opened(url) as store:
        profile_id = the_profile(store, profile)
        if by == "module":
            rows = list(module_totals(store, profile_id, depth=depth))
            columns = field_names(ModuleTotals)
        elif by == "operator":
            rows = list(operator_totals(store, profile_id))
            columns = field_names(OperatorTotals)
        else:
            rows = list(phase_totals(store, profile_id))
            columns = field_names(PhaseTotals)
    write_table(cut(table_of(rows, columns), top), output_format)
