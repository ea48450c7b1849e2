"""The schema's revisions: no drift, nothing lost, old databases still of use."""

from __future__ import annotations

import py_compile
import shutil
import sqlite3
from pathlib import Path

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from database_schema import declared, tables_of
from sqlalchemy import create_engine
from sqlalchemy.exc import IntegrityError

import migrations
from store import current_revision, head_revision, open_store, upgrade_store
from store.addresses import make_engine, parse_url
from store.records import Profile
from store.revisions import REVISIONS
from store.session import migration_config
from tools.revision_database import small_profile

OLD = sorted((Path(__file__).parents[2] / "data" / "revisions").glob("*.db"))

# A later revision, as one that adds a column and a rule to a table that others refer to.
REBUILD = """
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{head}"
branch_labels = None
depends_on = None


def upgrade():
    views = "SELECT name FROM sqlite_master WHERE type = 'view'"
    for (view,) in op.get_bind().exec_driver_sql(views).fetchall():
        op.execute("DROP VIEW " + view)
    with op.batch_alter_table("profiles", recreate="always") as batch:
        batch.add_column(sa.Column("note", sa.Text, nullable=False, server_default="none"))
        batch.create_check_constraint("note_short", "length(note) < 9")
    {more}
"""


@pytest.fixture
def store_with_profile(tmp_path):
    """Return the file of a store that holds one profile."""
    path = tmp_path / "profiles.db"
    with open_store(f"sqlite:///{path}", create=True) as store:
        store.write(small_profile())
    return path


def scripts_with(tmp_path, source):
    """Copy the migrations and add a revision to the copy."""
    folder = tmp_path / "migrations"
    shutil.copytree(Path(migrations.__file__).parent, folder)
    (folder / "versions" / "9999_later.py").write_text(source)
    return folder


def upgrade_with(path, folder):
    """Run the migrations of a folder on a database."""
    engine = make_engine(parse_url(f"sqlite:///{path}"))
    with engine.connect() as connection:
        config = migration_config(connection)
        config.set_main_option("script_location", str(folder))
        command.upgrade(config, "head")
    engine.dispose()


def rows_of(path, sql):
    """Return what a query yields, without this project's code."""
    database = sqlite3.connect(path)
    rows = database.execute(sql).fetchall()
    database.close()
    return rows


def test_models_and_migrations_agree(tmp_path):
    """``alembic check`` finds nothing to change in a migrated database."""
    url = f"sqlite:///{tmp_path}/profiles.db"
    upgrade_store(url)
    engine = make_engine(parse_url(url))
    with engine.connect() as connection:
        command.check(migration_config(connection))
    engine.dispose()


def test_drift_is_found(store_with_profile):
    """``alembic check`` does find a column that the models do not have."""
    database = sqlite3.connect(store_with_profile)
    database.execute("ALTER TABLE ops ADD COLUMN extra TEXT")
    database.close()
    engine = make_engine(parse_url(f"sqlite:///{store_with_profile}"))
    with engine.connect() as connection, pytest.raises(CommandError, match="extra"):
        command.check(migration_config(connection))
    engine.dispose()


def test_migrated_tables_are_those_of_the_records(tmp_path):
    """Columns, keys, checks and indexes of every table are those that the records declare."""
    upgrade_store(f"sqlite:///{tmp_path}/migrated.db")
    migrated = make_engine(parse_url(f"sqlite:///{tmp_path}/migrated.db"))
    empty = create_engine(f"sqlite:///{tmp_path}/declared.db")
    assert tables_of(migrated) == declared(empty), "write a revision in migrations/versions"
    migrated.dispose()
    empty.dispose()


@pytest.mark.parametrize(
    ("before", "after", "part"),
    [
        ("live_bytes BIGINT NOT NULL", "live_bytes BIGINT", "columns"),
        ("live_bytes BIGINT NOT NULL", "live_bytes TEXT NOT NULL", "columns"),
        ("is_view BETWEEN 0 AND 1", "is_view BETWEEN 0 AND 2", "checks"),
        ("PRIMARY KEY (profile_id, op_id)", "PRIMARY KEY (op_id, profile_id)", "primary key"),
        (" ON DELETE CASCADE", "", "foreign keys"),
        (" WITHOUT ROWID", "", "options"),
    ],
)
def test_any_other_table_is_drift(store_with_profile, before, after, part):
    """A column, check, key or option that differs from the declared one is seen as such."""
    engine = create_engine(f"sqlite:///{store_with_profile}")
    wanted = tables_of(engine)["ops"]
    database = sqlite3.connect(store_with_profile, isolation_level=None)
    (sql,) = database.execute("SELECT sql FROM sqlite_master WHERE name = 'ops'").fetchone()
    assert before in sql
    views = database.execute("SELECT name FROM sqlite_master WHERE type = 'view'").fetchall()
    for (view,) in views:
        database.execute(f"DROP VIEW {view}")
    database.execute("DROP TABLE ops")
    database.execute(sql.replace(before, after))
    database.close()
    found = tables_of(engine)["ops"]
    assert [name for name in wanted if found[name] != wanted[name]] == [part]
    engine.dispose()


def test_known_revisions_are_those_of_the_migrations():
    """The order of the scripts' names, which the store goes by, is that of Alembic."""
    scripts = ScriptDirectory(str(Path(migrations.__file__).parent))
    assert [script.revision for script in scripts.walk_revisions()] == [*reversed(REVISIONS)]


def test_every_revision_has_a_database():
    """One small database per revision is kept."""
    assert [path.stem for path in OLD] == list(REVISIONS), "python -m tools.regenerate revision"


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_old_database_is_upgraded_read_and_written(tmp_path, path):
    """A database of each revision, upgraded, holds what it held and takes new profiles."""
    url = f"sqlite:///{shutil.copy(path, tmp_path)}"
    assert current_revision(url) == path.stem
    assert upgrade_store(url) == (path.stem, head_revision())
    with open_store(url) as store:
        assert store.read(1) == small_profile()
        assert store.read(2) == small_profile(mode="eval", backward=False)
        new = store.write(small_profile(batch_size=64))
        assert store.read(new) == small_profile(batch_size=64)
        assert store.query("PRAGMA foreign_key_check")[1] == []
        assert store.query("PRAGMA integrity_check")[1] == [("ok",)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("meta", ""), ("meta", "", "")),
        (("concrete", ""), ("real", "", "")),
        (("concrete", "seeded-values: all of them"), ("real", "seeded-values", "all of them")),
        (("concrete", "drawn-values: as if: made"), ("drawn", "drawn-values", "as if: made")),
        (("meta", "keep-all: true"), ("drawn", "keep-all", "true")),
        (("concrete", "of my own: none"), ("real", "", "of my own: none")),
    ],
)
@pytest.mark.parametrize("path", OLD[:2], ids=lambda path: path.stem)
def test_upgrade_tells_what_was_drawn_from_what_was_run(tmp_path, path, before, after):
    """What was "concrete" is told apart by its assumption, whose words get their own column."""
    old = shutil.copy(path, tmp_path)
    database = sqlite3.connect(old)
    database.execute("UPDATE profiles SET capture = ?, assumption = ? WHERE profile_id = 1", before)
    database.commit()
    database.close()
    upgrade_store(f"sqlite:///{old}")
    with open_store(f"sqlite:///{old}") as store:
        info = store.read(1).info
        assert (info.capture, info.assumption, info.assumption_note) == after
        assert store.read(1).totals.capture == after[0]
        assert store.read(2) == small_profile(mode="eval", backward=False)


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_number_of_a_deleted_profile_is_not_given_out_after_an_upgrade(tmp_path, path):
    """The table of profiles is copied, and still counts from the highest number it ever had."""
    old = shutil.copy(path, tmp_path)
    database = sqlite3.connect(old)
    for table, _ in [*reversed(Profile.TABLES), ("profiles", None)]:
        database.execute(f"DELETE FROM {table} WHERE profile_id = 2")  # noqa: S608
    database.commit()
    database.close()
    upgrade_store(f"sqlite:///{old}")
    with open_store(f"sqlite:///{old}") as store:
        assert store.write(small_profile(batch_size=64)) == 3


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_upgraded_database_has_the_newest_schema(store_with_profile, tmp_path, path):
    """A database of each revision, upgraded, has the tables and views of a new one."""
    old = shutil.copy(path, tmp_path / "old.db")
    upgrade_store(f"sqlite:///{old}")
    engines = [create_engine(f"sqlite:///{one}") for one in (old, store_with_profile)]
    upgraded, new = map(tables_of, engines)
    assert upgraded == new
    views = "SELECT name, sql FROM sqlite_master WHERE type = 'view' ORDER BY name"
    assert rows_of(old, views) == rows_of(store_with_profile, views)
    for engine in engines:
        engine.dispose()


def test_data_page_lists_every_file():
    """The page of the data names every file that is kept there, with its size."""
    folder = OLD[0].parent.parent
    page = (folder / "README.md").read_text(encoding="utf-8")
    kept = [*folder.glob("*.csv"), *folder.glob("*/*")]
    assert len(kept) > len(OLD)
    for path in kept:
        name = path.relative_to(folder).as_posix()
        assert f"| `{name}` | {path.stat().st_size} |" in page


def test_rebuilt_table_keeps_the_rows_below_it(store_with_profile, tmp_path):
    """A migration that copies, drops and renames the parent of all tables deletes no row."""
    count = "SELECT (SELECT count(*) FROM ops), (SELECT count(*) FROM tensor_uses)"
    assert rows_of(store_with_profile, count) == [(7, 11)]
    folder = scripts_with(tmp_path, REBUILD.format(head=head_revision(), more=""))
    upgrade_with(store_with_profile, folder)
    assert rows_of(store_with_profile, count) == [(7, 11)]
    assert rows_of(store_with_profile, "SELECT note FROM profiles") == [("none",)]
    assert rows_of(store_with_profile, "PRAGMA foreign_key_check") == []


@pytest.mark.parametrize(
    ("more", "error"),
    [("raise RuntimeError('half way')", RuntimeError),
     ("op.execute('DELETE FROM profiles')", IntegrityError)],
)  # fmt: skip
def test_failed_migration_leaves_the_old_schema(store_with_profile, tmp_path, more, error):
    """A migration that fails, or leaves rows without parent, changes nothing."""
    folder = scripts_with(tmp_path, REBUILD.format(head=head_revision(), more=more))
    with pytest.raises(error):
        upgrade_with(store_with_profile, folder)
    with open_store(f"sqlite:///{store_with_profile}") as store:
        assert store.read(1) == small_profile()


def test_foreign_keys_are_on_again_after_a_migration(tmp_path):
    """The connection that migrated enforces foreign keys afterwards."""
    engine = make_engine(parse_url(f"sqlite:///{tmp_path}/profiles.db"))
    with engine.connect() as connection:
        command.upgrade(migration_config(connection), "head")
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    engine.dispose()


def test_new_revision_is_made_from_the_template(store_with_profile, tmp_path):
    """The template makes a revision that compiles and, without a change, does nothing."""
    folder = tmp_path / "migrations"
    shutil.copytree(Path(migrations.__file__).parent, folder)
    engine = make_engine(parse_url(f"sqlite:///{store_with_profile}"))
    with engine.connect() as connection:
        config = migration_config(connection)
        config.set_main_option("script_location", str(folder))
        command.revision(config, "later", autogenerate=True, rev_id="9999")
    engine.dispose()
    script = folder / "versions" / "9999_later.py"
    py_compile.compile(str(script), doraise=True)
    text = script.read_text()
    assert text.count("    pass\n") == 2, f"revisions lag behind the records; they lack:\n{text}"
    upgrade_with(store_with_profile, folder)
    assert rows_of(store_with_profile, "SELECT * FROM alembic_version") == [("9999",)]
