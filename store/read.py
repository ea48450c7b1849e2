"""Rows to records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Table, select

from store.columns import columns, names
from store.errors import ProfileMissing
from store.models import METADATA, MODELS, PROFILES
from store.records import Profile, ProfileInfo, Rows, Totals
from store.views import PROFILE_TOTALS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.columns import Column

R = TypeVar("R")


def read_profile(connection: Connection, profile_id: int) -> Profile:
    """Return a stored profile, equal to the one that was written but for its number in the totals.

    Raises:
        ProfileMissing: if there is none of this number.
    """
    info = _read_info(connection, profile_id)
    totals = read_totals(connection, profile_id)[0]
    children = {
        name: _read_rows(connection, METADATA.tables[name], record, profile_id)
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
    statement = select(*map(_info_column, columns(ProfileInfo))).join_from(PROFILES, MODELS)
    row = connection.execute(statement.where(PROFILES.c.profile_id == profile_id)).one_or_none()
    if row is None:
        raise ProfileMissing(
            f"no profile {profile_id} in this database; `query-profiles list` shows what there is"
        )
    values = _with_flags(ProfileInfo, [row])[0]
    return ProfileInfo(**dict(zip(names(ProfileInfo), values, strict=True)))


def _info_column(item: Column) -> ColumnElement[Any]:
    """Return the column that holds a field of ProfileInfo: the model's own are in its table."""
    return (MODELS if item.declared.of_model else PROFILES).c[item.stored_name]


def _read_rows(connection: Connection, source: Table, record: type[R], profile_id: int) -> Rows[R]:
    wanted = [source.c[name] for name in names(record)]
    statement = select(*wanted).where(source.c.profile_id == profile_id)
    rows = connection.execute(statement.order_by(*source.primary_key)).fetchall()
    return Rows(record, _with_flags(record, rows))


def _with_flags(record: type[Any], rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return rows as tuples, with Booleans where the record has them.

    Column by column, because that runs in C.
    """
    values: list[Any] = list(zip(*rows, strict=True))
    if not values:
        return []
    for position, item in enumerate(columns(record)):
        if item.kind is bool:
            values[position] = map(bool, values[position])
    return list(zip(*values, strict=True))
