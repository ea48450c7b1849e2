"""The outputs of README.md's examples.

Every block after an ``example`` mark is run, in order, in one empty folder; what it printed stands
below the command, or in the block below the program.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
CONSOLE = re.compile(r"(<!-- example: \w+ -->\n```console\n\$ )([^\n]*)\n(.*?)(?=```)", re.DOTALL)
PYTHON = re.compile(
    r"(<!-- example: python -->\n```python\n)(.*?)```\n(?:\n```text\n.*?```\n)?", re.DOTALL
)
COMMANDS = {
    "export-profiles": "from exporter.cli.main import main; main()",
    "query-profiles": "from queries.cli import main; main()",
}


def run_command(command: str, folder: Path) -> str:
    """Return what a shell command of ours prints."""
    name, _, rest = command.partition(" ")
    line = f'"{sys.executable}" -c "{COMMANDS[name]}" {rest}'
    result = subprocess.run(  # noqa: S602  # the commands stand in our own README
        line, shell=True, cwd=folder, capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout


def run_program(code: str, folder: Path) -> str:
    """Return what a Python program prints."""
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout


def with_outputs(page: str) -> str:
    """Return the page with what its examples print now."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        page = CONSOLE.sub(lambda m: f"{m[1]}{m[2]}\n{run_command(m[2], folder)}", page)
        return PYTHON.sub(
            lambda m: f"{m[1]}{m[2]}```\n\n```text\n{run_program(m[2], folder)}```\n", page
        )
