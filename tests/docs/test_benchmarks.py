"""The benchmarks run; what they find is no test's business."""

import re
import subprocess
import sys

from command import REPOSITORY


def run_benchmarks(*arguments: str) -> subprocess.CompletedProcess:
    """Return how the benchmarks ended, and what they wrote."""
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )


def test_benchmarks_print_a_ratio() -> None:
    """The cheapest benchmark ends well and says how many times as long the store takes."""
    result = run_benchmarks("store", "--rounds", "1")
    assert result.returncode == 0, result.stderr
    assert re.search(r"executemany.*: \d+\.\d\d CPU, \d+\.\d\d wall", result.stdout)


def test_benchmarks_name_those_there_are() -> None:
    """An unknown name is refused in one line that lists the known ones."""
    result = run_benchmarks("stroe")
    assert result.returncode == 2
    assert "no benchmark is called 'stroe'; there are capture" in result.stderr
