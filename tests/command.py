"""The commands as their users run them: as processes of their own."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
EXPORT_PROFILES = (sys.executable, "-c", "from exporter.cli.main import main; main()")
QUERY_PROFILES = (sys.executable, "-c", "from queries.cli import main; main()")


def export_profiles(*arguments: object, **options: object) -> subprocess.CompletedProcess:
    """Return how ``export-profiles`` ended, and what it wrote."""
    return subprocess.run(
        [*EXPORT_PROFILES, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        **options,
    )


def only_line(text: str) -> str:
    """Return the only line of a text; there must be no other."""
    (line,) = text.splitlines()
    return line
