"""Records to rows: one profile, one transaction."""

from __future__ import annotations

from dataclasses import asdict
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Table, delete, exists, insert, literal_column, select
from sqlalchemy.exc import DBAPIError

from store.columns import columns, names
from store.errors import InvalidProfile, ProfileExists
from store.identities import digest, identity
from store.models import METADATA, MODELS, PROFILES
from store.records import MAX_INTEGER, Profile, ProfileInfo, Totals
from store.revisions import head_revision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Dialect

# Written parents first, deleted in the opposite order, as foreign keys demand.
_ORDER = [t.name for t in METADATA.sorted_tables]
TABLES = sorted(Profile.TABLES, key=lambda item: _ORDER.index(item[0]))
_NUMBER = "{profile_id}"


def find_profile(connection: Connection, info: ProfileInfo) -> int | None:
    """Return the number of the stored profile of this identity, or None."""
    key = digest(identity(info))
    statement = select(PROFILES.c.profile_id).where(PROFILES.c.identity == key)
    number: int | None = connection.execute(statement).scalar_one_or_none()
    return number


def write_profile(connection: Connection, profile: Profile, *, replace: bool) -> int:
    """Write a profile inside the connection's transaction and return its number.

    Raises:
        ProfileExists: if one of this identity is stored and is not to be replaced.
        InvalidProfile: if a value does not fit its column, or the records disagree.
    """
    _check_totals(profile)
    if connection.dialect.name == "postgresql":
        # What BEGIN IMMEDIATE does on SQLite: writers queue, readers go on.
        connection.exec_driver_sql("LOCK TABLE profiles IN SHARE ROW EXCLUSIVE MODE")
    stored = find_profile(connection, profile.info)
    if stored is not None:
        if not replace:
            raise ProfileExists(
                f"{profile.info.zoo}/{profile.info.model} is stored with these settings "
                f"as profile {stored}; store it with replace=True, or profile it with another name="
            )
        delete_profile(connection, stored)
    try:
        profile_id = _write_head(connection, profile)
        for name, _ in TABLES:
            _write_rows(connection, METADATA.tables[name], getattr(profile, name), profile_id)
    except (OverflowError, DBAPIError) as error:
        # Looked for only now, because looking first would take a third of the time of writing.
        _name_overflow(profile, error)
        raise
    return profile_id


def delete_profile(connection: Connection, profile_id: int) -> bool:
    """Delete a profile, and its model if it was the last one, and return whether it was there."""
    model_id = connection.execute(
        select(PROFILES.c.model_id).where(PROFILES.c.profile_id == profile_id)
    ).scalar_one_or_none()
    if model_id is None:
        return False
    for name, _ in reversed(TABLES):
        table = METADATA.tables[name]
        connection.execute(delete(table).where(table.c.profile_id == profile_id))
    connection.execute(delete(PROFILES).where(PROFILES.c.profile_id == profile_id))
    left = exists().where(PROFILES.c.model_id == model_id)
    connection.execute(delete(MODELS).where(MODELS.c.model_id == model_id, ~left))
    return True


def _write_head(connection: Connection, profile: Profile) -> int:
    """Write the rows of the model, if it is new, and of the profile; return the latter's number."""
    known = _stored(profile.totals) | _stored(profile.info)
    model = {column.name: known[column.name] for column in MODELS.columns if column.name in known}
    model["identity"] = digest(model.values())
    model_id = connection.execute(
        select(MODELS.c.model_id).where(MODELS.c.identity == model["identity"])
    ).scalar_one_or_none()
    if model_id is None:
        model_id = connection.execute(
            insert(MODELS).values(model).returning(MODELS.c.model_id)
        ).scalar_one()
    row = {column.name: known[column.name] for column in PROFILES.columns if column.name in known}
    del row["profile_id"]
    row |= {
        "model_id": model_id,
        "identity": digest(identity(profile.info)),
        "schema_version": head_revision(),
    }
    number: int = connection.execute(
        insert(PROFILES).values(row).returning(PROFILES.c.profile_id)
    ).scalar_one()
    return number


def _stored(record: ProfileInfo | Totals) -> dict[str, Any]:
    """Return a record's values by the names of their columns."""
    return {item.stored_name: getattr(record, item.name) for item in columns(type(record))}


def _write_rows(connection: Connection, table: Table, rows: Any, profile_id: int) -> None:
    """Write the rows of one table, the tuples of the records as they are."""
    if not len(rows):
        return
    tuples = rows.tuples
    if connection.dialect.name == "postgresql":
        from store.postgresql import copy_rows  # noqa: PLC0415  # optional

        copy_rows(connection, table, tuples, profile_id)
        return
    sql = _insertion(table, connection.dialect).replace(_NUMBER, str(profile_id))
    connection.exec_driver_sql(sql, tuples if isinstance(tuples, list) else list(tuples))


@lru_cache(maxsize=64)  # of a few open stores
def _insertion(table: Table, dialect: Dialect) -> str:
    """Return the statement that inserts rows of records, ``_NUMBER`` for the profile's number.

    The number is part of the text, so that no tuple has to be made longer. ``inline`` keeps a
    RETURNING out of it, which would double the time.
    """
    statement = insert(table).inline().values(profile_id=literal_column(_NUMBER))
    return str(statement.compile(dialect=dialect, column_keys=table.columns.keys()))


def _check_totals(profile: Profile) -> None:
    """Check what is said twice, once by the settings and once by the totals."""
    for name in sorted({*names(Totals)} & {*names(ProfileInfo)}):
        said, summed = getattr(profile.info, name), getattr(profile.totals, name)
        if said != summed:
            raise InvalidProfile(
                f"{profile.info.zoo}/{profile.info.model}: {name} is {said!r} in the settings "
                f"but {summed!r} in the totals"
            )


def _name_overflow(profile: Profile, error: Exception) -> None:
    """Raise an error that names the integer that no database holds, if there is one.

    Raises:
        InvalidProfile: with table, column, row and value.
    """
    sources: list[tuple[str, Sequence[str], Sequence[tuple[Any, ...]]]] = [
        (name, names(record), getattr(profile, name).tuples) for name, record in Profile.TABLES
    ]
    for name, record in (("totals", profile.totals), ("info", profile.info)):
        values = asdict(record)
        sources.append((name, list(values), [tuple(values.values())]))
    for table, known, tuples in sources:
        for number, row in enumerate(tuples):
            for column, value in zip(known, row, strict=True):
                if isinstance(value, int) and not -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
                    raise InvalidProfile(
                        f"{profile.info.zoo}/{profile.info.model}: {table}.{column} of row "
                        f"{number} is {value}, beyond the 2^63-1 that a database holds; "
                        "nothing was written"
                    ) from error
