"""Rows of one profile, as plain tuples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from store.errors import ProfileMissing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store import Store


def rows_of(store: Store, sql: str, profile_id: int, order: str = "") -> Sequence[tuple[Any, ...]]:
    """Return the rows that a query selects for one profile.

    Args:
        store: an open store.
        sql: a SELECT; ``WHERE profile_id = :profile_id`` is added if it lacks one.
        profile_id: value of the parameter ``:profile_id``.
        order: the columns to order by, "" for any order.
    """
    if ":profile_id" not in sql:
        sql += " WHERE profile_id = :profile_id"
    if order:
        sql += f" ORDER BY {order}"
    return store.query(sql, {"profile_id": profile_id})[1]


def values_of(store: Store, sql: str, profile_id: int) -> list[Any]:
    """Return the values of the only column that a query selects for one profile, in any order."""
    return [value for (value,) in rows_of(store, sql, profile_id)]


def profile_exists(store: Store, profile_id: int) -> None:
    """Check that a profile is stored.

    Raises:
        ProfileMissing: if it is not.
    """
    if not rows_of(store, "SELECT 1 FROM profiles", profile_id):
        raise ProfileMissing(
            f"no profile {profile_id} in this database; `query-profiles list` shows what there is"
        )
