"""Capture against the bare step, and torch's own trackers against capture."""

from __future__ import annotations

import statistics
import sys
from functools import partial
from typing import TYPE_CHECKING

from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.models import SETTINGS, SEVEN, bare_step, build
from benchmarks.report import Findings
from benchmarks.timing import take_turns
from exporter.capture.memo import forget
from exporter.profiling import profile_built

if TYPE_CHECKING:
    from collections.abc import Callable


def capture(rounds: int) -> Findings:
    """Return how capture compares with the bare step, memo empty and warm, and with trackers."""
    table: list[tuple[str, ...]] = [
        ("model", "operators", "bare step, CPU s", "memo empty", "memo warm", "trackers / ours")
    ]
    empty, warm, trackers, walls = {}, {}, {}, []
    rows = []
    for name in SEVEN:
        profile = profile_built(build(name), SETTINGS)  # imports what is imported late
        times = take_turns(
            {
                "bare": partial(_bare, name),
                "empty": partial(_capture, name, forgotten=True),
                "warm": partial(_capture, name),
            },
            rounds,
        )
        empty[name] = times.cpu_ratio("empty", to="bare")
        warm[name] = times.cpu_ratio("warm", to="bare")
        walls.append(times.wall_ratio("empty", to="bare"))
        rows.append((name, f"{profile.totals.op_count:,}", f"{times.cpu('bare'):.3f}"))
    for name, *row in rows:  # the trackers leave a process slower than they found it
        contenders = {
            "empty": partial(_capture, name, forgotten=True),
            "trackers": partial(_trackers, name),
        }
        trackers[name] = take_turns(contenders, rounds).cpu_ratio("trackers", to="empty")
        table.append((
            name, *row, f"{empty[name]:.2f}", f"{warm[name]:.2f}", f"{trackers[name]:.1f}",
        ))  # fmt: skip
    worst = max(empty, key=empty.__getitem__)
    middle = statistics.median
    return Findings(
        {
            "capture, memo empty": f"{middle(empty.values()):.2f} (wall {middle(walls):.2f}), "
            f"highest {empty[worst]:.2f} ({worst})",
            "capture, memo warm": f"{middle(warm.values()):.2f}, highest {max(warm.values()):.2f}",
            "trackers": f"{middle(trackers.values()):.1f}, lowest {min(trackers.values()):.1f}",
        },
        {"models": table},
    )


def _bare(name: str) -> Callable[[], object]:
    built = build(name)
    return lambda: bare_step(built.model, built.args)


def _capture(name: str, *, forgotten: bool = False) -> Callable[[], object]:
    built = build(name)
    if forgotten:
        _forget()
    return lambda: profile_built(built, SETTINGS)


def _forget() -> None:
    """Forget every geometry seen so far: the memo's, and those that rules keep."""
    forget()
    for name, module in list(sys.modules.items()):
        if name.startswith("exporter.meta_rules"):
            for member in vars(module).values():
                if hasattr(member, "cache_clear"):
                    member.cache_clear()


def _trackers(name: str) -> Callable[[], object]:
    built = build(name)

    def run() -> object:
        memory = MemTracker()
        memory.track_external(built.model)
        with memory, FlopCounterMode(display=False) as flops:
            bare_step(built.model, built.args)
        return memory, flops

    return run
