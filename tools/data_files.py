"""The table of files in ``data``: their sizes."""

from __future__ import annotations

import re
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"
_ROW = re.compile(r"^\| `([^`]+)` \| \d+ \|", re.MULTILINE)
_REVISION = re.compile(r"(?:^\| `revisions/\d+\.db` \|.*\n)+", re.MULTILINE)


def with_sizes(page: str) -> str:
    """Return the page with the current size of each file, and a row for every revision."""
    revisions = [
        f"| `revisions/{path.name}` | 0 | written at revision {path.stem} of the schema |"
        " `python -m tools.regenerate revision` |\n"
        for path in sorted((DATA / "revisions").glob("*.db"))
    ]
    page = _REVISION.sub(lambda _: "".join(revisions), page)
    return _ROW.sub(lambda row: f"| `{row[1]}` | {(DATA / row[1]).stat().st_size} |", page)
