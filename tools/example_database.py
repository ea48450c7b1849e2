"""Make ``data/example.db``: ``python tools/example_database.py`` from the root of the repository.

A handful of small models, small enough to ship and different enough to ask about.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

from tools.arguments import refuse_arguments

EXAMPLE = Path(__file__).parent.parent / "data" / "example.db"
RUNS = (
    ["--model", "resnet18", "--batch-size", "4", "--batch-size", "8"],
    ["--model", "vgg11", "--model", "googlenet", "--model", "mobilenet_v3_small"],
    ["--model", "resnet18", "--eval", "--forward-only"],
)


def main() -> None:
    """Profile the models into a fresh database and make it one small file."""
    EXAMPLE.unlink(missing_ok=True)
    for run in RUNS:
        command = [sys.executable, "-m", "exporter.cli.main", "--quiet", "--db", str(EXAMPLE), *run]
        subprocess.run(command, check=True)
    database = sqlite3.connect(EXAMPLE)
    database.execute("PRAGMA journal_mode=DELETE")
    database.execute("VACUUM")
    database.close()


if __name__ == "__main__":
    refuse_arguments(__doc__)
    main()
