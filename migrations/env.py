"""Run by Alembic: brings the database of a given connection to a revision, or compares it.

The connection is handed over by ``store.session``; there is no configuration file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alembic import context
from sqlalchemy.exc import IntegrityError

from store.models import METADATA

if TYPE_CHECKING:
    from sqlalchemy import Connection

# Any number does, as long as it stays the same: it names the lock that upgrades wait for.
_UPGRADE_LOCK = 7_305_961


def _include_object(item: Any, _name: str | None, kind: str, reflected: bool, _other: Any) -> bool:
    """Say whether autogeneration compares an object: an index of another database is none here."""
    if kind != "index" or reflected:
        return True
    dialect = context.get_context().dialect.name
    return bool(item.info.get("dialect", dialect) == dialect)


def _migrate(connection: Connection) -> None:
    """Run the migrations in one transaction, so that a failed one leaves the old schema."""
    context.configure(
        connection=connection,
        target_metadata=METADATA,
        include_object=_include_object,
        render_as_batch=connection.dialect.name == "sqlite",
        transactional_ddl=True,
    )
    with connection.begin():
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_UPGRADE_LOCK})")
        context.run_migrations()
        if connection.dialect.name == "sqlite":
            broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
            if broken:
                table, _, parent, _ = broken[0]
                raise IntegrityError(
                    "PRAGMA foreign_key_check",
                    None,
                    ValueError(f"{len(broken)} rows without parent, first {table} -> {parent}"),
                )


def _run(connection: Connection) -> None:
    """Run the migrations with SQLite's foreign keys off.

    Altering a table on SQLite means to copy, drop and rename it, and dropping a parent would
    delete its children. The pragma does nothing inside a transaction, so it goes before.
    """
    if connection.dialect.name != "sqlite":
        _migrate(connection)
        return
    driver: Any = connection.connection.driver_connection
    driver.execute("PRAGMA foreign_keys=OFF")
    try:
        _migrate(connection)
    finally:
        driver.execute("PRAGMA foreign_keys=ON")


_run(context.config.attributes["connection"])
