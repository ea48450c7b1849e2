"""Opening stores: what is there, what is not, and what must not be touched."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from store import current_revision, head_revision, open_store, revisions, upgrade_store
from store.errors import (
    StoreError,
    StoreForeign,
    StoreMissing,
    StoreOutdated,
    StoreReadOnly,
    StoreTooNew,
)
from tools.revision_database import small_profile

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path):
    """Return the file of a store that holds one profile."""
    file = tmp_path / "profiles.db"
    with open_store(f"sqlite:///{file}", create=True) as store:
        store.write(small_profile())
    return file


@contextmanager
def ordinary_user():
    """Drop the rights of root, for which permissions mean nothing."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder():
    """Yield a folder that every user may enter: pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def one_line(error):
    """Check that a refusal is one line, and return it."""
    text = str(error.value)
    assert "\n" not in text
    return text


def test_missing_database_is_refused_and_not_made(tmp_path):
    """A file that is not there is an error with the command that makes it, and stays missing."""
    url = f"sqlite:///{tmp_path}/none.db"
    with pytest.raises(StoreMissing) as error:
        open_store(url)
    assert f"`export-profiles db upgrade --db {url}`" in one_line(error)
    with pytest.raises(StoreMissing):
        open_store(url, create=True, read_only=True)
    with pytest.raises(StoreMissing):
        current_revision(url)
    assert list(tmp_path.iterdir()) == []


def test_database_is_created_with_its_folders(tmp_path):
    """A store that is to be created is made at the newest schema, folders included."""
    url = f"sqlite:///{tmp_path}/a/b c/%41?.db".replace("?", "%3F")
    with open_store(url, create=True) as store:
        store.write(small_profile())
    assert current_revision(url) == head_revision()
    assert (tmp_path / "a" / "b c").is_dir()
    with open_store(url, read_only=True) as store:
        assert len(store.totals()) == 1


def test_created_database_is_kept_when_created_again(path):
    """Asking to create a store that is there opens it."""
    with open_store(f"sqlite:///{path}", create=True) as store:
        assert len(store.totals()) == 1


@pytest.mark.parametrize("content", [b"", None])
def test_empty_database_counts_as_missing(tmp_path, content):
    """A file without tables, as a killed creation leaves it, is missing until created."""
    file = tmp_path / "empty.db"
    if content is None:
        sqlite3.connect(file).execute("PRAGMA journal_mode=WAL").connection.close()
    else:
        file.write_bytes(content)
    with pytest.raises(StoreMissing):
        open_store(f"sqlite:///{file}")
    with open_store(f"sqlite:///{file}", create=True) as store:
        assert store.totals() == []


@pytest.mark.parametrize("use", [open_store, upgrade_store, current_revision])
def test_file_of_something_else_is_refused(tmp_path, use):
    """A text file is no store, is called so, and is not changed."""
    file = tmp_path / "notes.db"
    file.write_text("remember the milk\n" * 100)
    with pytest.raises(StoreForeign, match="no SQLite database") as error:
        use(f"sqlite:///{file}")
    assert str(file) in one_line(error)
    assert file.read_text() == "remember the milk\n" * 100


@pytest.mark.parametrize("use", [open_store, upgrade_store, current_revision])
def test_database_of_something_else_is_refused(tmp_path, use):
    """A database with other tables is no store, and gets none of ours."""
    file = tmp_path / "music.db"
    database = sqlite3.connect(file)
    database.execute("CREATE TABLE songs (title TEXT)")
    with pytest.raises(StoreForeign, match="songs") as error:
        use(f"sqlite:///{file}")
    one_line(error)
    assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("songs",)]
    database.close()


def test_damaged_database_is_refused(path):
    """A database whose pages are overwritten is called damaged."""
    content = bytearray(path.read_bytes())
    content[200:] = b"\xff" * (len(content) - 200)
    path.write_bytes(content)
    with pytest.raises(StoreError) as error:
        open_store(f"sqlite:///{path}")
    assert "damaged" in one_line(error)


def test_folder_in_place_of_a_file_is_refused(tmp_path):
    """A folder is no database."""
    with pytest.raises(StoreError, match="is a folder") as error:
        open_store(f"sqlite:///{tmp_path}", create=True)
    one_line(error)


def test_file_in_place_of_a_folder_is_refused(path):
    """A database cannot be made below a file."""
    with pytest.raises(StoreError) as error:
        open_store(f"sqlite:///{path}/below/profiles.db", create=True)
    assert str(path) in one_line(error)


def test_newer_schema_is_refused(path):
    """A schema that is not known asks for a newer version, and is not touched."""
    database = sqlite3.connect(path)
    with database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    for use in (open_store, upgrade_store):
        with pytest.raises(StoreTooNew, match="install a newer export-profiles") as error:
            use(f"sqlite:///{path}")
        assert "9999" in one_line(error)
    assert database.execute("SELECT version_num FROM alembic_version").fetchall() == [("9999",)]
    database.close()


def test_older_schema_is_refused_with_the_command(path, monkeypatch):
    """An older schema is refused with the command that upgrades it, even when creating."""
    monkeypatch.setattr(revisions, "REVISIONS", (*revisions.REVISIONS, "9998"))
    url = f"sqlite:///{path}"
    for create in (False, True):
        with pytest.raises(StoreOutdated) as error:
            open_store(url, create=create)
        assert one_line(error).endswith(f"run: export-profiles db upgrade --db {url}")


def test_upgrade_of_the_newest_schema_changes_nothing(path):
    """Upgrading a current store says so and leaves every byte."""
    before = path.read_bytes()
    assert upgrade_store(f"sqlite:///{path}") == (head_revision(), head_revision())
    assert path.read_bytes() == before


def test_upgrade_creates(tmp_path):
    """Upgrading a database that is not there makes it."""
    url = f"sqlite:///{tmp_path}/new/profiles.db"
    assert upgrade_store(url) == ("", head_revision())
    open_store(url).close()


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
def test_store_in_a_closed_folder_can_be_read(open_folder, path, journal):
    """A store that may not be written is refused for writing and opens for reading."""
    file = Path(shutil.copy(path, open_folder))
    sqlite3.connect(file).execute(f"PRAGMA journal_mode={journal}").connection.close()
    file.chmod(0o444)
    open_folder.chmod(0o555)
    with ordinary_user():
        with pytest.raises(StoreReadOnly, match="may not be written") as error:
            open_store(f"sqlite:///{file}")
        with pytest.raises(StoreReadOnly):
            upgrade_store(f"sqlite:///{file}")
        with open_store(f"sqlite:///{file}", read_only=True) as store:
            assert store.read(1) == small_profile()
        assert current_revision(f"sqlite:///{file}") == head_revision()
    one_line(error)
    assert [entry.name for entry in open_folder.iterdir()] == ["profiles.db"]


def test_unreadable_file_is_refused(open_folder, path):
    """A file that may not be read is an error that says so."""
    file = Path(shutil.copy(path, open_folder))
    file.chmod(0o000)
    with ordinary_user(), pytest.raises(StoreError, match="may not be read") as error:
        open_store(f"sqlite:///{file}", read_only=True)
    one_line(error)


def test_store_cannot_be_made_in_a_closed_folder(open_folder):
    """A folder that may not be written is named, and nothing is made."""
    open_folder.chmod(0o555)
    for below in ("", "/deeper"):
        with ordinary_user(), pytest.raises(StoreError) as error:
            open_store(f"sqlite:///{open_folder}{below}/profiles.db", create=True)
        assert str(open_folder) in one_line(error)
    assert list(open_folder.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("profiles.db", "sqlite:///profiles.db"),
        ("", "sqlite:///profiles.db"),
        ("mysql://host/profiles", "no support for 'mysql'"),
        ("sqlite://", "in memory"),
    ],
)
def test_address_of_another_kind_is_refused(url, named):
    """An address that is none, or of another database, is answered with one that works."""
    with pytest.raises(StoreError) as error:
        open_store(url)
    assert named in one_line(error)


def test_password_is_hidden():
    """A server that does not answer is named without its password."""
    with pytest.raises(StoreError) as error:
        open_store("postgresql+psycopg://me:secret@127.0.0.1:1/profiles")
    assert "127.0.0.1" in one_line(error)
    assert "secret" not in str(error.value)


def test_importing_the_store_loads_no_database_library():
    """``import store`` leaves SQLAlchemy and Alembic for the first use."""
    code = "import store, store.errors, store.records, sys; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"sqlalchemy", "alembic", "torch"} & set(modules)
