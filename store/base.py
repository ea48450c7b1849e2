"""What all tables share: names of constraints, and what follows from a column's declaration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

from store.columns import columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlalchemy.sql.schema import SchemaItem

    from store.columns import Column as Declared

# Without names, SQLite's constraints could be neither altered nor recognised in an error.
NAMING_CONVENTION = {
    "pk": "pk_%(table_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
}

METADATA = MetaData(naming_convention=NAMING_CONVENTION)


def entity_table(
    name: str, comment: str, own: Sequence[Column[Any]], declared: Iterable[Declared], *unique: str,
    references: Sequence[SchemaItem] = (),
) -> Table:  # fmt: skip
    """Return a table whose rows the database numbers, and never twice by the same number.

    Args:
        name: of the table.
        comment: what its rows are.
        own: columns that are in no record, the number first.
        declared: the columns of records.
        unique: names of the columns that tell two rows apart.
        references: its references to other tables.
    """
    held = list(declared)
    return Table(
        name, METADATA,
        *own, *map(_column, held), *references, UniqueConstraint(*unique),
        *(check for item in held for check in _checks(item)),
        comment=comment, sqlite_autoincrement=True,
    )  # fmt: skip


def rows_table(name: str, record: type[Any], comment: str, *key: str) -> Table:
    """Return the table of a record's rows, each of a profile.

    Without rowid the rows lie in the order of their key: one range scan reads a profile, and
    there is no second tree to keep.
    """
    return Table(
        name, METADATA,
        identifier("profile_id", "the profile"),
        *map(_column, columns(record)),
        PrimaryKeyConstraint("profile_id", *key),
        ForeignKeyConstraint(["profile_id"], ["profiles.profile_id"], ondelete="CASCADE"),
        *(item for one in columns(record) for item in _references(one, is_key=one.name == key[0])),
        *(check for item in columns(record) for check in _checks(item)),
        comment=comment, sqlite_with_rowid=False,
    )  # fmt: skip


def identifier(name: str, comment: str) -> Column[int]:
    """Return a column that names a row of another table."""
    return Column(name, Integer, nullable=False, autoincrement=False, comment=comment)


def surrogate(name: str, comment: str) -> Column[int]:
    """Return a primary key that the database counts up and never gives out twice."""
    return Column(name, Integer, primary_key=True, autoincrement=True, comment=comment)


def text(name: str, comment: str) -> Column[str]:
    """Return a column of text."""
    return Column(name, Text, nullable=False, comment=comment)


def type_of(item: Declared) -> type[Any]:
    """Return the type of a column in databases.

    A flag is an integer rather than a Boolean: then ``sum(is_view)`` works on every database.
    """
    if item.kind is str:
        return Text
    if item.kind is float:
        return Double
    return BigInteger if item.declared.is_wide else Integer


def _column(item: Declared) -> Column[Any]:
    # Only the database numbers rows by itself, and none of these are numbers that it gives.
    auto: dict[str, Any] = {"autoincrement": False} if type_of(item) is Integer else {}
    return Column(
        item.stored_name, type_of(item), nullable=False, comment=item.declared.meaning, **auto
    )


def _checks(item: Declared) -> Iterator[CheckConstraint]:
    """Yield the checks of a column.

    Choices are a chain of ORs: for ``IN`` with more than two values SQLite builds a table of them
    for every row, which makes writing a profile 1.7 times slower.
    """
    name = item.stored_name
    if item.declared.choices:
        chain = " OR ".join(f"{name} = '{choice}'" for choice in item.declared.choices)
        yield CheckConstraint(chain, name=name)
    if item.kind is bool:
        yield CheckConstraint(f"{name} BETWEEN 0 AND 1", name=name)
    if item.declared.is_json:  # on SQLite only: PostgreSQL 15 has no such check
        check = CheckConstraint(f"json_valid({name})", name=f"{name}_json")
        check.ddl_if(dialect="sqlite")
        yield check


def _references(item: Declared, *, is_key: bool) -> Iterator[SchemaItem]:
    """Yield a column's reference to another row of the same profile, with its index.

    PostgreSQL looks every deleted row up in the tables below it, so that a column which does not
    lead the key gets an index there. On SQLite a delete finds those tables empty already, and no
    index is worth its bytes.
    """
    if not item.declared.refers:
        return
    table = item.declared.refers.partition(".")[0]
    yield ForeignKeyConstraint(
        ["profile_id", item.name], [f"{table}.profile_id", item.declared.refers]
    )
    if not is_key:
        yield Index(None, "profile_id", item.name, info={"dialect": "postgresql"})
