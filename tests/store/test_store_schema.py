"""The tables: in step with the records, described, without NULL."""

from __future__ import annotations

import sqlite3
from dataclasses import fields

import pytest

from store import open_store
from store.document import updated as schema_page
from store.models import METADATA
from store.records import Profile, ProfileInfo, Totals
from store.views import VIEWS

TABLES = sorted(METADATA.tables)
IN_MODELS = {"zoo", "model", "package", "package_version", "config"}
SIZES = {"param_count", "param_bytes", "buffer_bytes"}


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """Create an empty store and connect to it without this project's code."""
    path = tmp_path_factory.mktemp("schema") / "profiles.db"
    open_store(f"sqlite:///{path}", create=True).close()
    connection = sqlite3.connect(path)
    yield connection
    connection.close()


@pytest.mark.parametrize(("name", "record"), Profile.TABLES)
def test_table_has_the_fields_of_its_record(database, name, record):
    """The columns of a table of rows are the profile's number and the record's fields."""
    columns = [row[1] for row in database.execute(f"PRAGMA table_info({name})")]
    assert sorted(columns) == sorted(["profile_id", *(f.name for f in fields(record))])


def test_profiles_have_settings_and_totals(database):
    """Settings and totals are each where they belong, and once."""
    columns = [row[1] for row in database.execute("PRAGMA table_info(profiles)")]
    settings = [f.name for f in fields(ProfileInfo) if f.name not in IN_MODELS]
    totals = [f.name for f in fields(Totals) if f.name not in {*IN_MODELS, *SIZES, *settings}]
    head = ["profile_id", "model_id", "identity", "schema_version"]
    assert sorted(columns) == sorted([*head, *settings, *totals[1:]])


def test_view_has_the_fields_of_totals(database):
    """The view ``profile_totals`` has exactly the fields of Totals."""
    columns = [row[1] for row in database.execute("PRAGMA table_info(profile_totals)")]
    assert columns == [f.name for f in fields(Totals)]


@pytest.mark.parametrize("name", TABLES)
def test_column_refuses_null_and_has_a_meaning(database, name):
    """Every column is NOT NULL, has a comment, and integers have SQLite's integer affinity."""
    for _, column, kind, not_null, _, _ in database.execute(f"PRAGMA table_info({name})"):
        assert not_null, column
        assert METADATA.tables[name].c[column].comment
        assert kind in {"INTEGER", "BIGINT", "TEXT", "DOUBLE"}
        assert kind != "DOUBLE" or column == "seconds"


@pytest.mark.parametrize(("name", "_record"), Profile.TABLES)
def test_rows_lie_in_the_order_of_their_key(database, name, _record):
    """Tables of rows have no rowid, and a key that begins with the profile."""
    with pytest.raises(sqlite3.OperationalError, match="rowid"):
        database.execute(f"SELECT rowid FROM {name}")  # noqa: S608
    keys = {row[5]: row[1] for row in database.execute(f"PRAGMA table_info({name})")}
    assert keys[1] == "profile_id"


def test_only_unique_keys_cost_an_index(database):
    """SQLite keeps no index but those of keys: a profile is read by one scan per table."""
    rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'index'").fetchall()
    assert sorted(name for (name,) in rows if not name.startswith("sqlite_autoindex")) == []


def test_views_are_those_described(database):
    """Every view of the database is described, with its columns in their order."""
    rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'view'").fetchall()
    assert {name for (name,) in rows} == {view.name for view in VIEWS}
    for view in VIEWS:
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({view.name})")]
        assert columns == view.columns.keys()
        assert view.comment
        assert all(column.comment for column in view.columns)


def test_schema_page_names_every_column(database):
    """Every column of every table and view of the database has its line."""
    page = schema_page()
    names = "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view')"
    for name, kind in database.execute(names).fetchall():
        if name == "alembic_version" or name.startswith("sqlite_"):
            continue
        heading = f"## {name} (view)\n" if kind == "view" else f"## {name}\n"
        section = page.split(heading)[1].split("\n## ")[0]
        for row in database.execute(f"PRAGMA table_info({name})"):
            assert f"| `{row[1]}` |" in section
