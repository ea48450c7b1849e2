"""Rows to records."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Table, select

from store.errors import ProfileMissing
from store.models import Base
from store.records import Profile, ProfileInfo, Rows, Totals
from store.views import PROFILE_TOTALS

if TYPE_CHECKING:
    from collections.abc import Sequence

R = TypeVar("R")

PROFILES = Base.metadata.tables["profiles"]
MODELS = Base.metadata.tables["models"]


def read_profile(connection: Connection, profile_id: int) -> Profile:
    """Return a stored profile, equal to the one that was written but for its number in the totals.

    Raises:
        ProfileMissing: if there is none of this number.
    """
    info = _read_info(connection, profile_id)
    totals = read_totals(connection, profile_id)[0]
    children = {
        name: _read_rows(connection, Base.metadata.tables[name], record, profile_id)
        for name, record in Profile.TABLES
    }
    return Profile(info=info, totals=totals, **children)


def read_totals(connection: Connection, profile_id: int | None = None) -> list[Totals]:
    """Return the rows of ``profile_totals``, or the one of a profile, in the order of numbers."""
    statement = select(PROFILE_TOTALS).order_by(PROFILE_TOTALS.c.profile_id)
    if profile_id is not None:
        statement = statement.where(PROFILE_TOTALS.c.profile_id == profile_id)
    return [Totals(*row) for row in connection.execute(statement)]


def _read_info(connection: Connection, profile_id: int) -> ProfileInfo:
    columns = [_info_column(f.name) for f in fields(ProfileInfo)]
    statement = select(*columns).join_from(PROFILES, MODELS)
    row = connection.execute(statement.where(PROFILES.c.profile_id == profile_id)).one_or_none()
    if row is None:
        raise ProfileMissing(
            f"no profile {profile_id} in this database; `query-profiles list` shows what there is"
        )
    return ProfileInfo(*_with_flags(ProfileInfo, [row])[0])


def _info_column(name: str) -> ColumnElement[Any]:
    """Return the column that holds a field of ProfileInfo: the model's own are in its table."""
    if name == "model":
        return MODELS.c.name
    return PROFILES.c[name] if name in PROFILES.c else MODELS.c[name]


def _read_rows(connection: Connection, source: Table, record: type[R], profile_id: int) -> Rows[R]:
    columns = [source.c[f.name] for f in fields(record)]  # type: ignore[arg-type]
    statement = select(*columns).where(source.c.profile_id == profile_id)
    rows = connection.execute(statement.order_by(*source.primary_key)).fetchall()
    return Rows(record, _with_flags(record, rows))


def _with_flags(record: type[Any], rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return rows as tuples, with Booleans where the record has them.

    Column by column, because that runs in C.
    """
    columns: list[Any] = list(zip(*rows, strict=True))
    if not columns:
        return []
    for position, item in enumerate(fields(record)):
        if item.type in {"bool", bool}:
            columns[position] = map(bool, columns[position])
    return list(zip(*columns, strict=True))
