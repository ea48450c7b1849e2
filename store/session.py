"""Opening, creating and upgrading a store, and what can be asked of an open one."""

from __future__ import annotations

import io
import sqlite3
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import URL, Connection, Engine, inspect, text
from sqlalchemy.exc import OperationalError, ResourceClosedError, SQLAlchemyError

from store import DEFAULT_URL, revisions
from store.addresses import (
    BEGIN_WRITING,
    check_file,
    file_of,
    is_sqlite,
    make_engine,
    missing,
    parse_url,
    shown,
)
from store.errors import (
    ProfileError,
    ProfileMissing,
    QueryError,
    StoreError,
    StoreForeign,
    StoreOutdated,
    StoreReadOnly,
    StoreTooNew,
)
from store.read import read_profile, read_totals
from store.revisions import head_revision
from store.translate import translated, translation
from store.write import delete_profile, find_profile, write_profile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    from alembic.config import Config

    from store.records import Profile, ProfileInfo, Totals

# The environment that Alembic runs in is one per process.
_UPGRADING = threading.Lock()


class Store:
    """An open database of profiles, at the newest schema.

    Use it in a ``with`` statement, or close it.
    """

    def __init__(self, url: URL, engine: Engine, *, read_only: bool) -> None:
        self.url = shown(url)
        self.read_only = read_only
        self._url = url
        self._engine = engine

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; the next use would open new ones."""
        self._engine.dispose()

    def write(self, profile: Profile, *, replace: bool = False) -> int:
        """Store a profile in one transaction and return its number.

        Args:
            profile: the records; their ``totals.profile_id`` is ignored.
            replace: delete the stored profile of the same identity in the same transaction.

        Raises:
            ProfileExists: if one of the same identity is stored and ``replace`` is false.
            InvalidProfile: if a value does not fit its column.
            StoreError: if the database fails; it is then as it was before.
        """
        with self._writing() as connection:
            return write_profile(connection, profile, replace=replace)

    def read(self, profile_id: int) -> Profile:
        """Return a stored profile, equal to what was written, its number in the totals.

        Raises:
            ProfileMissing: if there is none of this number.
        """
        with self._reading() as connection:
            return read_profile(connection, profile_id)

    def find(self, info: ProfileInfo) -> int | None:
        """Return the number of the stored profile of the same identity, or None.

        What is known only after tracing (see ``store.identity``) plays no part.
        """
        with self._reading() as connection:
            return find_profile(connection, info)

    def delete(self, profile_id: int) -> None:
        """Delete a profile with all its rows, and its model if no other profile has it.

        Raises:
            ProfileMissing: if there is none of this number.
        """
        with self._writing() as connection:
            if not delete_profile(connection, profile_id):
                raise ProfileMissing(f"no profile {profile_id} in {self.url}; nothing was deleted")

    def totals(self) -> list[Totals]:
        """Return the row of ``profile_totals`` of every profile, in the order of their numbers."""
        with self._reading() as connection:
            return read_totals(connection)

    def query(
        self, sql: str, params: Mapping[str, Any] | None = None
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return the column names and the rows that a SELECT yields; nothing can be changed by it.

        Args:
            sql: one statement. Without ``params`` it goes to the database as it is.
            params: values for ``:name`` in the statement.

        Raises:
            QueryError: if it is wrong, yields no rows, or would write.
        """
        driver = self._engine.dialect.loaded_dbapi
        with self._reading() as connection:
            try:
                if params:
                    result = connection.execute(text(sql), params)
                else:
                    options = {"no_parameters": True}
                    result = connection.exec_driver_sql(sql, execution_options=options)
                names = list(result.keys())
                cursor: Any = result.cursor
                # the driver's tuples: making SQLAlchemy's rows of them takes as long again
                return names, cursor.fetchall()
            except (SQLAlchemyError, driver.Error, sqlite3.Warning) as error:
                raise _query_error(self._url, error) from error

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """Yield a connection in a transaction that may write."""
        if self.read_only:
            raise StoreReadOnly(f"{self.url} was opened for reading only; open it for writing")
        with translated(self._url):
            engine = self._engine.execution_options(**BEGIN_WRITING)
            with engine.begin() as connection:
                yield connection

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """Yield a connection in a transaction that sees one state and can change nothing."""
        with translated(self._url), self._engine.connect() as connection:
            if not is_sqlite(self._url):
                connection.execution_options(
                    isolation_level="REPEATABLE READ", postgresql_readonly=True
                )
                yield connection
                return
            driver: Any = connection.connection.driver_connection
            driver.execute("PRAGMA query_only=ON")
            # query_only lets ATTACH create files
            driver.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            try:
                yield connection
            finally:
                connection.rollback()
                driver.execute("PRAGMA query_only=OFF")


def open_store(url: str = DEFAULT_URL, *, create: bool = False, read_only: bool = False) -> Store:
    """Return the open store at an address; nothing is created or upgraded unasked.

    Args:
        url: ``postgresql+psycopg://HOST/DATABASE``, ``sqlite:///FILE``, or the path of the file.
        create: make a missing database, its folders included, at the newest schema.
        read_only: refuse to write; then the file and its folder need not be writable.

    Raises:
        StoreMissing: if there is no database.
        StoreOutdated: if its schema is older; the message has the command that upgrades it.
        StoreTooNew: if its schema is newer.
        StoreError: if it cannot be opened.
    """
    address = parse_url(url)
    check_file(address, create=create and not read_only, read_only=read_only)
    engine, revision = _look(address, read_only=read_only)
    try:
        if revision == "" and create and not read_only:
            with translated(address):
                _upgrade(address, engine)
            revision = head_revision()
        _check_revision(address, revision)
    except BaseException:
        engine.dispose()
        raise
    return Store(address, engine, read_only=read_only)


def upgrade_store(url: str = DEFAULT_URL) -> tuple[str, str]:
    """Create or upgrade a database, and return the revisions before ("" if new) and after.

    Raises:
        StoreTooNew: if its schema is newer than this version knows.
        StoreError: if it cannot be opened or changed; it is then as it was before.
    """
    address = parse_url(url)
    check_file(address, create=True, read_only=False)
    engine, before = _look(address, read_only=False)
    try:
        if before and before not in revisions.REVISIONS:
            _check_revision(address, before)
        if before != head_revision():
            with translated(address):
                _upgrade(address, engine)
    finally:
        engine.dispose()
    return before, head_revision()


def current_revision(url: str = DEFAULT_URL) -> str:
    """Return the revision of a database's schema, "" if it has no tables yet.

    Raises:
        StoreMissing: if there is no database.
        StoreError: if it cannot be opened.
    """
    address = parse_url(url)
    check_file(address, create=False, read_only=True)
    engine, revision = _look(address, read_only=True)
    engine.dispose()
    return revision


def migration_config(connection: Connection) -> Config:
    """Return Alembic's configuration for a connection, with the scripts of this installation."""
    from alembic.config import Config  # noqa: PLC0415  # takes longer to load than all else here

    import migrations  # noqa: PLC0415

    config = Config(stdout=io.StringIO())
    folder = str(Path(str(migrations.__file__)).parent)
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _upgrade(url: URL, engine: Engine) -> None:
    from alembic import command  # noqa: PLC0415

    with _UPGRADING, engine.connect().execution_options(**BEGIN_WRITING) as connection:
        if file_of(url) is not None:
            # Readers and the writer then do not wait for each other. Some network disks cannot.
            driver: Any = connection.connection.driver_connection
            with suppress(Exception):
                driver.execute("PRAGMA journal_mode=WAL")
        command.upgrade(migration_config(connection), "head")


def _look(url: URL, *, read_only: bool) -> tuple[Engine, str]:
    """Return an engine for a database, and the revision of its schema, "" if it has no tables."""
    engine = make_engine(url, read_only=read_only)
    try:
        with translated(url):
            try:
                return engine, _revision(url, engine)
            except OperationalError:
                if not read_only or not _is_at_rest(url):
                    raise
            engine.dispose()
            engine = make_engine(url, read_only=True, immutable=True)
            return engine, _revision(url, engine)
    except BaseException:
        engine.dispose()
        raise


def _revision(url: URL, engine: Engine) -> str:
    """Return the revision of the schema, "" if there are no tables."""
    with engine.connect() as connection:
        tables = inspect(connection).get_table_names()
        if "alembic_version" in tables:
            found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
            return str(found or "")
    if tables and is_sqlite(url):
        raise StoreForeign(
            f"{shown(url)}: holds other tables ({', '.join(sorted(tables)[:3])}), no profiles; "
            "name another file"
        )
    return ""


def _is_at_rest(url: URL) -> bool:
    """Return whether nothing of an SQLite database is outside of its file."""
    path = file_of(url)
    return path is not None and not Path(f"{path}-wal").exists()


def _check_revision(url: URL, revision: str) -> None:
    """Check that a database has the newest schema."""
    if revision == head_revision():
        return
    if not revision:
        raise missing(url)
    if revision in revisions.REVISIONS:
        raise StoreOutdated(
            f"{shown(url)} has schema {revision}, this version needs {head_revision()}; "
            f"run: export-profiles db upgrade --db {shown(url)}"
        )
    raise StoreTooNew(
        f"{shown(url)} has schema {revision}, this version knows up to {head_revision()}; "
        "install a newer export-profiles"
    )


def _query_error(url: URL, error: Exception) -> ProfileError:
    """Return the error of a query, in the database's words."""
    if isinstance(error, ResourceClosedError):
        return QueryError("the statement yields no rows; give one SELECT")
    cause = getattr(error, "orig", None) or error
    known = translation(url, cause)
    if isinstance(known, StoreReadOnly) or "attached databases" in str(cause):
        return QueryError("a query may not change the database; give one SELECT")
    if type(known) is not StoreError:
        return known
    return QueryError(" ".join(str(cause).split()))
