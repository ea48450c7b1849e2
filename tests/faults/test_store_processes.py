"""Several processes, killed processes, and disks that are full."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from store import open_store
from tools.revision_database import small_profile

TESTS = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])}

WRITER = """
import sys
from tools.revision_database import small_profile
from store import open_store
from store.errors import ProfileExists

url, number = sys.argv[1], int(sys.argv[2])
sys.stdin.readline()
with open_store(url, create=True) as store:
    for batch in range(10):
        mine = small_profile(batch_size=number * 10 + batch)
        assert store.find(mine.info) is None
        store.write(mine)
    try:
        store.write(small_profile(batch_size=1000))
        print("first")
    except ProfileExists:
        print("second")
"""

# Ends itself before the rows of one table, with all tables before it written.
KILLED = """
import os, signal, sys
from tools.revision_database import small_profile
from sqlalchemy import Engine, event
from store import open_store

@event.listens_for(Engine, "before_cursor_execute")
def kill(connection, cursor, statement, *rest):
    if statement.startswith("INSERT INTO tensor_uses"):
        os.kill(os.getpid(), signal.SIGKILL)

with open_store(sys.argv[1], create=True) as store:
    store.write(small_profile(structural_hash="new"), replace=True)
"""

# May write no file beyond a limit of bytes, as on a full disk.
LIMITED = """
import resource, sys
from dataclasses import replace
from handmade_profiles import many_storages
from tools.revision_database import small_profile
from store import open_store
from store.errors import StoreError
from store.records import Rows, Storage

rows = Rows(Storage, many_storages())
large = replace(small_profile(batch_size=9), storages=rows)
with open_store(sys.argv[1]) as store:
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
    try:
        store.write(large)
    except StoreError as error:
        print(error)
"""


def run(script, *arguments):
    """Run a script in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=ENVIRONMENT, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def url(tmp_path):
    """Return the address of a store that is not there yet."""
    return f"sqlite:///{tmp_path}/profiles.db"


def test_writers_in_a_row_lose_nothing(url):
    """8 processes create one store and read-then-write 10 profiles each: 80 are stored.

    A profile that all of them want to write is stored once.
    """
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, url, str(number)],
            env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for number in range(8)
    ]  # fmt: skip
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    said = [writer.communicate(timeout=120)[0].strip() for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 8
    assert sorted(said) == ["first"] + ["second"] * 7
    with open_store(url) as store:
        batches = sorted(row.batch_size for row in store.totals())
    assert batches == [*range(80), 1000]


def test_killed_writer_leaves_no_profile(url, tmp_path):
    """A process killed in the middle of a profile leaves 0 profiles and 0 rows."""
    assert run(KILLED, url).returncode == -signal.SIGKILL
    database = sqlite3.connect(tmp_path / "profiles.db")
    for table in ("models", "profiles", "nodes", "ops", "tensors"):
        assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)  # noqa: S608
    database.close()
    with open_store(url) as store:
        assert store.read(store.write(small_profile())) == small_profile()


def test_killed_replacement_leaves_the_old(url):
    """A process killed while it replaces a profile leaves the old one whole."""
    with open_store(url, create=True) as store:
        number = store.write(small_profile())
    assert run(KILLED, url).returncode == -signal.SIGKILL
    with open_store(url) as store:
        assert store.read(number) == small_profile()
        assert len(store.totals()) == 1


def test_full_disk_leaves_the_store_as_it_was(url):
    """A profile that the disk has no room for is refused in one line; the others stay whole."""
    with open_store(url, create=True) as store:
        number = store.write(small_profile())
    done = run(LIMITED, url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert "nothing" in done.stdout
    with open_store(url) as store:
        assert [row.profile_id for row in store.totals()] == [number]
        assert store.read(number) == small_profile()
        assert store.query("PRAGMA integrity_check")[1] == [("ok",)]
