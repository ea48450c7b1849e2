"""Three kinds of capture, and the kind of an assumption apart from its words.

A profile of an older revision was "concrete" for two reasons: values drawn on the meta device,
which is now "drawn", and a run on the CPU, which is now "real". One on meta that needed an
assumption is "drawn", too. Nothing else of it changes.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from alembic import op

if TYPE_CHECKING:
    from collections.abc import Iterable

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

CAPTURES = ("meta", "drawn", "real")
ASSUMPTIONS = ("", "keep-all", "drawn-values", "seeded-values")
CAPTURE = (
    "meta; drawn: on meta, with some values drawn or assumed; real: run on the CPU with real values"
)
ASSUMPTION = "kind of the assumption about unknown values that was needed; '' without"
NOTE = "the same assumption in words; '' without"


def upgrade() -> None:
    """Tell what was drawn from what was run, and kinds of assumptions from their words."""
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    views = _drop_views() if is_sqlite else []
    highest = _highest_number() if is_sqlite else 0
    # On SQLite the table is copied, without options that are not named here.
    copy: dict[str, Any] = {
        "recreate": "always" if is_sqlite else "never",
        "table_kwargs": {"sqlite_autoincrement": True},
    }
    note = sa.Column("assumption_note", sa.Text, nullable=False, server_default="", comment=NOTE)
    with op.batch_alter_table("profiles", **copy) as batch:
        batch.add_column(note)
        batch.drop_constraint(op.f("ck_profiles_capture"), type_="check")
        if not is_sqlite:
            batch.alter_column("capture", existing_type=sa.Text, comment=CAPTURE)
            batch.alter_column("assumption", existing_type=sa.Text, comment=ASSUMPTION)
    _sort_old_rows()
    with op.batch_alter_table("profiles", **copy) as batch:
        batch.alter_column("assumption_note", existing_type=sa.Text, server_default=None)
        for column, values in (("capture", CAPTURES), ("assumption", ASSUMPTIONS)):
            batch.create_check_constraint(op.f(f"ck_profiles_{column}"), _one_of(column, values))
    for sql in views:
        op.execute(sql)
    if highest:
        _set_highest_number(highest)


def downgrade() -> None:
    """Refuse: what was told apart cannot be put together again."""
    raise NotImplementedError("keep a copy of the database from before the upgrade instead")


def _sort_old_rows() -> None:
    """Give old rows the new words."""
    profiles = sa.table(
        "profiles",
        *(sa.column(name, sa.Text) for name in ("capture", "assumption", "assumption_note")),
    )
    connection = op.get_bind()
    found = connection.execute(sa.select(profiles.c.assumption).distinct()).scalars().all()
    for text in filter(None, found):
        kind, _, words = text.partition(": ")
        known = kind in ASSUMPTIONS
        connection.execute(
            profiles.update()
            .where(profiles.c.assumption == text)
            .values(assumption=kind if known else "", assumption_note=words if known else text)
        )
    assumed = profiles.c.assumption.in_(("keep-all", "drawn-values"))
    connection.execute(profiles.update().where(assumed).values(capture="drawn"))
    concrete = profiles.c.capture == "concrete"
    connection.execute(profiles.update().where(concrete).values(capture="real"))


def _one_of(column: str, values: Iterable[str]) -> str:
    return " OR ".join(f"{column} = '{value}'" for value in values)


def _highest_number() -> int:
    """Return the highest number that a profile has had, 0 if there was none.

    A table that is copied counts from what it holds, and would give a deleted profile's number to
    another.
    """
    query = "SELECT seq FROM sqlite_sequence WHERE name = 'profiles'"
    return int(op.get_bind().exec_driver_sql(query).scalar_one_or_none() or 0)


def _set_highest_number(number: int) -> None:
    connection = op.get_bind()
    connection.exec_driver_sql("DELETE FROM sqlite_sequence WHERE name = 'profiles'")
    connection.exec_driver_sql("INSERT INTO sqlite_sequence VALUES ('profiles', ?)", (number,))


def _drop_views() -> list[str]:
    """Drop all views, which a table that is renamed must not be part of; return how to make them.

    In the order of their creation: a view may read those before it.
    """
    connection = op.get_bind()
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'view' ORDER BY rowid"
    views = connection.exec_driver_sql(query).fetchall()
    for name, _ in views:
        op.execute(f"DROP VIEW {name}")
    return [sql for _, sql in views]
