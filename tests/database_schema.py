"""What a schema is made of, as sets: how it came about, and in which order, does not matter."""

from __future__ import annotations

from sqlalchemy import inspect, text

from store.models import METADATA


def tables_of(engine):
    """Return each table's columns, keys, checks and indexes as the database tells them."""
    seen = inspect(engine)
    return {
        name: {
            "columns": {
                (one["name"], str(one["type"]), one["nullable"], one.get("comment"))
                for one in seen.get_columns(name)
            },
            "primary key": seen.get_pk_constraint(name)["constrained_columns"],
            "foreign keys": {
                (one["name"], *one["constrained_columns"], one["referred_table"],
                 *one["referred_columns"], one["options"].get("ondelete", ""))
                for one in seen.get_foreign_keys(name)
            },
            "unique": {
                (one["name"], *one["column_names"]) for one in seen.get_unique_constraints(name)
            },
            "checks": sorted(
                (one["name"], one["sqltext"]) for one in seen.get_check_constraints(name)
            ),
            "indexes": {
                (one["name"], *one["column_names"])
                for one in seen.get_indexes(name)
                if not one.get("duplicates_constraint")
            },
            "options": _options(engine, name),
        }
        for name in seen.get_table_names()
        if name != "alembic_version"
    }  # fmt: skip


def declared(engine):
    """Create what the records declare in an empty database, and return what it then holds."""
    indexes = [index for table in METADATA.tables.values() for index in table.indexes]
    elsewhere = [one for one in indexes if one.info["dialect"] != engine.dialect.name]
    METADATA.create_all(engine)
    with engine.begin() as connection:
        for index in elsewhere:
            index.drop(connection)
    return tables_of(engine)


def _options(engine, name):
    """Return what SQLite says of a table behind its columns, and of numbers that it gives."""
    if engine.dialect.name != "sqlite":
        return set()
    with engine.connect() as connection:
        sql = connection.execute(
            text("SELECT sql FROM sqlite_master WHERE name = :name"), {"name": name}
        ).scalar_one()
    return {word for word in ("WITHOUT ROWID", "AUTOINCREMENT") if word in sql}
