"""What was measured, on the screen and in ``README.md``."""

from __future__ import annotations

import os
import platform
import re
import sqlite3
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

README = Path(__file__).with_name("README.md")

# What each row of the table of measures says, and what is to be reached, in the table's order.
MEASURES = {
    "capture, memo empty": (
        "capture to finished records, memo empty / bare meta forward and backward",
        "≤ 0.40, no model above 0.60",
    ),
    "capture, memo warm": ("the same, memo warm", "≤ 0.25"),
    "trackers": ("MemTracker with FlopCounterMode / capture, memo empty", "≥ 10"),
    "command, 1 worker": (
        (
            "`export-profiles --zoo torchvision` without detectors, everything included, "
            "1 worker / a plain loop that builds each model and runs the bare step"
        ),
        "≤ 0.60",
    ),
    "command, 2 workers": ("the same, 2 workers", "≤ 0.40"),
    "database": ("size of that run's database, per operator", "≤ 1.0 KiB"),
    "store": (
        "writing a profile through the store / `sqlite3.executemany` of the same rows",
        "≤ 2.0",
    ),
    "graph, nodes": (
        (
            "`load_graph` of a profile of 100,000 operators, level `nodes` / "
            "fetching its rows with sqlite3 and networkx `add_*_from`"
        ),
        "≤ 1.5",
    ),
    "graph, ops": ("the same, level `ops`", "≤ 1.5"),
    "worker memory": (
        "peak RSS of a worker over the whole zoo, above that of `import torch`",
        "≤ 500 MiB, not growing",
    ),
    "decoder": (
        (
            "llama-3 405B's shape, 1 x 8,192 tokens, forward, backward and AdamW, "
            "from the start of a process to stored"
        ),
        "≤ 60 s, ≤ 2 GiB RSS",
    ),
    "depth, time": (
        "CPU time per operator, a stack of 1,000 to 1,000,000 operators, slowest / fastest",
        "≤ 1.5",
    ),
    "depth, memory": ("memory per operator, likewise", "≤ 1.5"),
}


@dataclass(frozen=True, slots=True)
class Findings:
    """What one benchmark found."""

    measured: dict[str, str] = field(default_factory=dict)  # by key of ``MEASURES``
    # Further tables by name, each a header and rows.
    tables: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    circumstances: str = ""  # when, and how busy the machine was


def circumstances() -> str:
    """Return the date and how busy the machine is, in words."""
    return f"{datetime.now(UTC):%Y-%m-%d}, load {os.getloadavg()[0]:.1f}"


def machine() -> str:
    """Return what was measured on, and with which versions, in one line."""
    processor = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    packages = ("torch", "torchvision", "sqlalchemy", "networkx")
    return ", ".join([
        f"{processor}, {os.cpu_count()} cores, {memory:.0f} GiB",
        f"Python {platform.python_version()}",
        *(f"{name} {version(name)}" for name in packages),
        f"SQLite {sqlite3.sqlite_version}",
    ])  # fmt: skip


def show(findings: Findings) -> None:
    """Print what was found."""
    for table in findings.tables.values():
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for row in table:
            print("  ".join(text.ljust(n) for text, n in zip(row, widths, strict=True)).rstrip())
        print()
    for key, text in findings.measured.items():
        measure, reach = MEASURES[key]
        print(f"{measure}: {text}  [{reach}]")
    print(flush=True)


def write(findings: Findings) -> None:
    """Put what was found into ``README.md``; what was not measured now stays."""
    text = README.read_text("utf-8")
    for name, table in findings.tables.items():
        table = [*table, (findings.circumstances, *[""] * (len(table[0]) - 1))]  # noqa: PLW2901
        text = _replaced(text, name, _markdown(table))
    before = {
        cells[0]: tuple(cells)
        for line in _section(text, "measures").splitlines()
        if len(cells := [cell.strip() for cell in line.strip("|").split(" | ")]) == 4
    }
    rows = [("measure", "reach", "measured", "when")]
    for key, (measure, reach) in MEASURES.items():
        _, _, measured, when = before.get(measure, ("", "", "not measured", ""))
        if key in findings.measured:
            measured, when = findings.measured[key], findings.circumstances
        rows.append((measure, reach, measured, when))
    text = _replaced(text, "measures", _markdown(rows))
    README.write_text(_replaced(text, "machine", machine() + "."), "utf-8")


def _section(text: str, name: str) -> str:
    found = re.search(f"<!-- {name} -->\n(.*?)\n?<!-- end -->", text, re.DOTALL)
    if found is None:
        raise ValueError(f"{README.name} has no section {name!r}")
    return found[1]


def _replaced(text: str, name: str, body: str) -> str:
    _section(text, name)
    head, _, rest = text.partition(f"<!-- {name} -->\n")
    return f"{head}<!-- {name} -->\n{body}\n<!-- end -->" + rest.partition("<!-- end -->")[2]


def _markdown(table: Sequence[tuple[str, ...]]) -> str:
    rows = [f"| {' | '.join(row)} |" for row in table]
    return "\n".join([rows[0], "|" + " --- |" * len(table[0]), *rows[1:]])
