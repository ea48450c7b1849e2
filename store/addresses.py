"""Database addresses, and engines that are set up for them."""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from store.errors import StoreError, StoreMissing, StoreReadOnly

BUSY_TIMEOUT_SECONDS = 60.0
"""How long a writer waits for the one before it: longer than the largest profile takes."""

BEGIN_WRITING = {"begin": "BEGIN IMMEDIATE"}
"""Execution options of a transaction that writes."""


# How a URL begins that lacks a slash or two; a file of such a name is written with its folder.
_SHORT_OF_SLASHES = re.compile(r"(sqlite|postgres(?:ql)?)(\+\w+)?:(?!//)")


def parse_url(text: str) -> URL:
    """Return a database address.

    Args:
        text: a URL, or the path of an SQLite file, in which no character has a meaning of its own.

    Raises:
        StoreError: if it is none, or of a database that is not supported.
    """
    if _SHORT_OF_SLASHES.match(text):
        raise _no_address(text)
    try:
        is_path = text and "://" not in text
        url = URL.create("sqlite", database=text) if is_path else make_url(text)
    except (ArgumentError, ValueError):  # the latter for a port that is no number
        raise _no_address(text) from None
    if (is_sqlite(url) and url.host is not None) or "@" in (url.host or ""):
        raise _no_address(text)
    if url.drivername in {"postgresql", "postgres"}:
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername not in {"sqlite", "sqlite+pysqlite", "postgresql+psycopg"}:
        raise StoreError(
            f"{shown(url)}: no support for {url.drivername!r}; "
            "use sqlite:///FILE or postgresql+psycopg://HOST/DATABASE"
        )
    return url


def _no_address(text: str) -> StoreError:
    """Return the error of a text that is no address, with the way to write it.

    The text is repeated only where it holds no password.
    """
    scheme, _, rest = text.partition(":")
    if scheme.startswith("sqlite"):
        way_out = f"a file is written sqlite:///{rest.removeprefix('//') or 'profiles.db'}"
    elif scheme.startswith("postgres"):
        way_out = "a server's database is written postgresql+psycopg://USER@HOST:PORT/DATABASE"
    else:
        way_out = "a file is written sqlite:///profiles.db"
    named = f"{scheme}:..." if "@" in text else text
    return StoreError(f"{named!r} is no database address; {way_out}")


def shown(url: URL) -> str:
    """Return an address as messages show it, without its password."""
    return url.difference_update_query(["password"]).render_as_string(hide_password=True)


def is_sqlite(url: URL) -> bool:
    """Return whether the address is one of SQLite."""
    return url.get_backend_name() == "sqlite"


def file_of(url: URL) -> Path | None:
    """Return the file of an SQLite address; None for a server or a database in memory."""
    if not is_sqlite(url) or url.database in {None, "", ":memory:"}:
        return None
    return Path(str(url.database))


def check_file(url: URL, *, create: bool, read_only: bool) -> None:
    """Check that an SQLite file can be opened as asked, making its folder if need be.

    Raises:
        StoreMissing: if it is missing and not to be created.
        StoreReadOnly: if it, or its folder, may not be written and has to be.
        StoreError: if it cannot be read.
    """
    path = file_of(url)
    if path is None:
        if is_sqlite(url) and not create:
            raise StoreMissing(f"{shown(url)}: a database in memory starts empty; create it")
        return
    try:
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        exists = path.exists()
    except OSError as error:
        raise StoreError(f"{shown(url)}: {error.strerror}: {error.filename}") from error
    if path.is_dir():
        raise StoreError(f"{shown(url)}: {path} is a folder; name a file in it")
    if not exists and not create:
        raise missing(url)
    if exists and not _may(path, os.R_OK):
        raise StoreError(f"{shown(url)}: {path} may not be read; change its permissions")
    # SQLite keeps its journal beside the file, so the folder has to be writable too.
    for place in (path, path.parent):
        if not read_only and place.exists() and not _may(place, os.W_OK):
            raise StoreReadOnly(
                f"{shown(url)}: {place} may not be written; change its permissions, "
                "or copy the database"
            )


def _may(path: Path, mode: int) -> bool:
    """Return whether this process may read or write a file, as the user it acts for."""
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def missing(url: URL) -> StoreMissing:
    """Return the error of a database that is not there."""
    return StoreMissing(
        f"{shown(url)}: no database; create it with "
        f"`export-profiles db upgrade --db {shown(url)}` or by exporting into it"
    )


def make_engine(url: URL, *, read_only: bool = False, immutable: bool = False) -> Engine:
    """Return an engine whose connections are set up; nothing is opened yet.

    Args:
        url: the address.
        read_only: whether connections refuse to write.
        immutable: whether an SQLite file is opened without looking for writers. Only this opens
            a database with a write-ahead log from a folder where nothing may be created.
    """
    if not is_sqlite(url):
        try:
            engine = create_engine(url, paramstyle="format")
        except ModuleNotFoundError as error:
            raise StoreError(
                f"{shown(url)}: needs {error.name}; pip install 'export-profiles[postgresql]'"
            ) from error
        from store import postgresql  # noqa: PLC0415  # optional

        event.listen(engine, "connect", postgresql.set_up)
        return engine.execution_options(postgresql_readonly=read_only)
    path = file_of(url)
    if path is None:
        engine = create_engine(url)
    else:
        mode = "ro" if read_only else "rwc"
        name = f"file:{quote(str(path))}?mode={mode}" + ("&immutable=1" if immutable else "")
        engine = create_engine(url, creator=lambda: _connect(name))
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _connect(name: str) -> sqlite3.Connection:
    return sqlite3.connect(name, uri=True, timeout=BUSY_TIMEOUT_SECONDS, check_same_thread=False)


def _set_up_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    """Take transactions out of the driver's hands, and enforce foreign keys."""
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys=ON")


def _begin_sqlite(connection: Connection) -> None:
    """Begin a transaction, one that writes by taking the lock at once.

    A transaction that reads first and writes later fails without waiting if another has written
    in between, whatever the timeout.
    """
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))
