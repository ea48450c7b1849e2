"""The revisions of the schema, oldest first.

Taken from the names of their scripts, as loading Alembic takes longer than opening a store should;
a test holds this and Alembic's own order together.
"""

from __future__ import annotations

from pathlib import Path

import migrations

_SCRIPTS = Path(str(migrations.__file__)).parent / "versions"
REVISIONS = tuple(sorted(path.name.partition("_")[0] for path in _SCRIPTS.glob("[0-9]*_*.py")))


def head_revision() -> str:
    """Return the newest revision of the schema, the one that this version reads and writes."""
    return REVISIONS[-1]
