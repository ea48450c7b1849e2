"""Database errors in the words of this project."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from store.addresses import shown
from store.errors import (
    InvalidProfile,
    ProfileError,
    StoreBusy,
    StoreError,
    StoreFailed,
    StoreForeign,
    StoreFull,
    StoreReadOnly,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import URL

# Beginnings of SQLite's names of errors, with ours and the way out.
_SQLITE = (
    ("SQLITE_NOTADB", StoreForeign, "the file is no SQLite database; name another file"),
    ("SQLITE_CORRUPT", StoreError, "the file is damaged; restore a copy or export again"),
    ("SQLITE_FULL", StoreFull, "no space left, nothing of this was written; make room and repeat"),
    ("SQLITE_BUSY", StoreBusy, "another process keeps it locked; repeat when that has finished"),
    ("SQLITE_LOCKED", StoreBusy, "another process keeps it locked; repeat when that has finished"),
    ("SQLITE_READONLY", StoreReadOnly, "may not be written; change permissions or copy it"),
    ("SQLITE_CANTOPEN", StoreError, "cannot be opened; check that file and folder are accessible"),
    ("SQLITE_IOERR", StoreFailed, "reading or writing failed, nothing was changed; check the disk"),
    ("SQLITE_CONSTRAINT", InvalidProfile, "a record does not fit"),
)

# Classes of PostgreSQL's SQLSTATE.
_POSTGRESQL = (
    ("53100", StoreFull, "no space left, nothing of this was written; make room and repeat"),
    ("25006", StoreReadOnly, "may not be written"),
    ("55P03", StoreBusy, "another process keeps it locked; repeat when that has finished"),
    ("23", InvalidProfile, "a record does not fit"),
)


@contextmanager
def translated(url: URL) -> Iterator[None]:
    """Raise what goes wrong inside as errors of this project, in one line, cause chained.

    Raises:
        ProfileError: the child that fits.
    """
    try:
        yield
    except DBAPIError as error:
        raise translation(url, error.orig or error) from error
    except (SQLAlchemyError, sqlite3.Error, sqlite3.Warning) as error:
        raise translation(url, error) from error


def translation(url: URL, error: BaseException) -> ProfileError:
    """Return the error of this project that says what a database's error says."""
    detail = " ".join(str(error).split()) or type(error).__name__
    code = getattr(error, "sqlite_errorname", None) or getattr(error, "sqlstate", None) or ""
    for beginning, kind, meaning in _SQLITE if code.startswith("SQLITE") else _POSTGRESQL:
        if code.startswith(beginning):
            return kind(f"{shown(url)}: {meaning} ({detail})")
    return StoreError(f"{shown(url)}: {detail}")
