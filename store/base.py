"""What all tables share: the naming of constraints, and one function per kind of column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Double,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

if TYPE_CHECKING:
    from collections.abc import Sequence

# Without names, SQLite's constraints could be neither altered nor recognised in an error.
NAMING_CONVENTION = {
    "pk": "pk_%(table_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
}


class Base(DeclarativeBase):
    """The tables of the schema."""

    metadata = MetaData(naming_convention=NAMING_CONVENTION)


def number(comment: str) -> Mapped[int]:
    """Return a column of identifiers, positions or flags: integers below 2**31."""
    return mapped_column(Integer, nullable=False, autoincrement=False, comment=comment)


def count(comment: str) -> Mapped[int]:
    """Return a column of counts or bytes: integers below 2**63."""
    return mapped_column(BigInteger, nullable=False, comment=comment)


def text(comment: str) -> Mapped[str]:
    """Return a column of text."""
    return mapped_column(Text, nullable=False, comment=comment)


def real(comment: str) -> Mapped[float]:
    """Return a column of double-precision numbers."""
    return mapped_column(Double, nullable=False, comment=comment)


def surrogate(comment: str) -> Mapped[int]:
    """Return a primary key that the database counts up and never gives out twice."""
    return mapped_column(Integer, primary_key=True, autoincrement=True, comment=comment)


def one_of(column: str, values: Sequence[str]) -> CheckConstraint:
    """Return the check that a column holds one of some texts.

    Written as a chain of ORs: for ``IN`` with more than two values SQLite builds a table of them
    for every row, which makes writing a profile 1.7 times slower.
    """
    return CheckConstraint(" OR ".join(f"{column} = '{value}'" for value in values), name=column)


def flag(column: str) -> CheckConstraint:
    """Return the check that a column holds 0 or 1.

    An integer rather than a Boolean: then ``sum(is_view)`` works on every database.
    """
    return CheckConstraint(f"{column} BETWEEN 0 AND 1", name=column)


def json(column: str) -> CheckConstraint:
    """Return the check that a column holds JSON, on SQLite only (PostgreSQL 15 has none)."""
    check = CheckConstraint(f"json_valid({column})", name=f"{column}_json")
    check.ddl_if(dialect="sqlite")
    return check


def of_profile(*key: str) -> tuple[PrimaryKeyConstraint, ForeignKeyConstraint]:
    """Return the primary key of a table of a profile's rows, and its reference to the profile."""
    return (
        PrimaryKeyConstraint("profile_id", *key),
        ForeignKeyConstraint(["profile_id"], ["profiles.profile_id"], ondelete="CASCADE"),
    )


def refers(column: str, table: str, key: str) -> ForeignKeyConstraint:
    """Return the reference of a column to another row of the same profile."""
    return ForeignKeyConstraint(["profile_id", column], [f"{table}.profile_id", f"{table}.{key}"])


def deletion_index(*columns: str) -> Index:
    """Return an index for PostgreSQL, where every deleted row is looked up in the tables below it.

    On SQLite a delete finds those tables empty already, so that no index is worth its bytes.
    """
    return Index(None, "profile_id", *columns, info={"dialect": "postgresql"})


def options(comment: str) -> dict[str, Any]:
    """Return the options of a table of a profile's rows.

    Without rowid the rows lie in the order of their key: one range scan reads a profile, and
    there is no second tree to keep.
    """
    return {"sqlite_with_rowid": False, "comment": comment}
