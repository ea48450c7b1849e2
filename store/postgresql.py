"""What PostgreSQL does in its own way; imported only for a database there, as psycopg is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg import Error
from psycopg.adapt import Dumper, Loader
from sqlalchemy.exc import DBAPIError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection, Table


class _Number(Loader):
    """Sums of counts are integers, and what has a fraction is a float: as SQLite answers."""

    def load(self, data: Any) -> int | float:
        digits = bytes(data).decode()
        return int(digits) if digits.removeprefix("-").isdecimal() else float(digits)


class _Flag(Dumper):
    """A Boolean is written as the 0 or 1 that columns of flags hold."""

    def dump(self, obj: Any) -> bytes:
        return b"1" if obj else b"0"


def set_up(connection: Any, _record: Any) -> None:
    """Have a new connection of psycopg take and give numbers as one of SQLite does."""
    connection.adapters.register_loader("numeric", _Number)
    connection.adapters.register_dumper(bool, _Flag)


def copy_rows(
    connection: Connection, table: Table, tuples: Iterable[tuple[Any, ...]], profile_id: int
) -> None:
    """Write rows of a profile inside the connection's transaction.

    COPY has the server run no statement per row, and psycopg bind no parameters: it takes a third
    of the time of INSERT, most of it for the checks of foreign keys.

    Raises:
        DBAPIError: if one does not fit; the transaction can then only be rolled back.
    """
    sql = f"COPY {table.name} ({', '.join(table.columns.keys())}) FROM STDIN"
    driver: Any = connection.connection
    try:
        with driver.cursor() as cursor, cursor.copy(sql) as copy:
            for row in tuples:
                copy.write_row((profile_id, *row))
    except Error as error:
        raise DBAPIError(sql, None, error) from error
