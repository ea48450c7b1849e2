"""The revisions of the schema, oldest first.

Known here as well as in ``migrations`` because loading Alembic takes longer than opening a store
should; a test holds the two together.
"""

from __future__ import annotations

REVISIONS = ("0001", "0002", "0003")


def head_revision() -> str:
    """Return the newest revision of the schema, the one that this version reads and writes."""
    return REVISIONS[-1]
