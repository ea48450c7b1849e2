"""The database ``data/example.db``.

A handful of small models, small enough to ship and different enough to ask about.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.databases import replaced

EXAMPLE = Path(__file__).parents[1] / "data" / "example.db"
RUNS = (
    ["--model", "resnet18", "--batch-size", "4", "--batch-size", "8"],
    ["--model", "vgg11", "--model", "googlenet", "--model", "mobilenet_v3_small"],
    ["--model", "resnet18", "--eval", "--forward-only"],
)


def _make(path: Path) -> None:
    """Profile the models, each always under the same number."""
    for run in RUNS:
        words = ["--workers", "1", "--quiet", "--db", str(path), *run]
        subprocess.run([sys.executable, "-m", "exporter.cli.main", *words], check=True)


def write() -> bool:
    """Profile the models again if what they give has changed; return whether it had."""
    return replaced(EXAMPLE, _make)
