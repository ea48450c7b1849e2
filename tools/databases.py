"""Small databases that the repository holds, made anew only if what they hold has changed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_TIMES = ("seconds", "created_at")  # of a run, not of what it found


def replaced(path: Path, make: Callable[[Path], None], *, page_bytes: int = 4096) -> bool:
    """Make a database beside a stored one, and take its place if it holds something else.

    Args:
        path: of the stored database.
        make: writes a database at a path.
        page_bytes: small where most tables hold a few rows.

    Returns:
        Whether the stored database was replaced.
    """
    with TemporaryDirectory() as folder:
        made = Path(folder) / path.name
        make(made)
        with closing(sqlite3.connect(made)) as database:
            database.execute("PRAGMA journal_mode=DELETE")
            database.execute(f"PRAGMA page_size={page_bytes}")
            database.execute("VACUUM")
        if path.exists() and _contents(path) == _contents(made):
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(made.read_bytes())
    return True


def _contents(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return the schema, and the rows of every table without the times of runs."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
        schema = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
        found: dict[str, list[tuple[Any, ...]]] = {
            "": [(kind, name, *_lines(sql)) for kind, name, sql in database.execute(schema)]
        }
        tables = [item[1] for item in found[""] if item[0] == "table"]
        for table in tables:
            columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
            kept = ", ".join(f'"{name}"' for name in columns if name not in _TIMES)
            rows = f'SELECT {kept} FROM "{table}" ORDER BY {kept}'  # noqa: S608 - our own names
            found[table] = database.execute(rows).fetchall()
    return found


def _lines(sql: str | None) -> list[str]:
    """Return the lines of a definition, sorted: constraints of a copied table come in any order."""
    return sorted(line.strip(" ,\t") for line in (sql or "").splitlines())
