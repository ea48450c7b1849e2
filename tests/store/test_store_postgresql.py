"""The same store on PostgreSQL: a private server on the loopback, gone afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from alembic import command
from database_schema import declared, tables_of
from postgresql_server import (
    interrupted_profile,
    make_database,
)
from sqlalchemy import BigInteger, Double, Integer, Text

from store import current_revision, head_revision, open_store, upgrade_store
from store.addresses import make_engine, parse_url
from store.columns import changed
from store.errors import (
    InvalidProfile,
    ProfileExists,
    ProfileMissing,
    QueryError,
    StoreError,
    StoreMissing,
)
from store.records import FlopCount, Profile, Rows
from store.session import migration_config
from store.views import VIEWS
from tools.revision_database import small_profile


@pytest.fixture
def url(server):
    """Return the address of a database without tables."""
    return make_database(server, "profiles")


@pytest.fixture
def store(server, template):
    """Open an empty store for writing."""
    with open_store(make_database(server, "profiles", template)) as opened:
        yield opened


def test_database_without_tables_counts_as_missing(url):
    """A database without tables is refused, and made on request."""
    with pytest.raises(StoreMissing, match="export-profiles db upgrade --db postgresql"):
        open_store(url)
    assert current_revision(url) == ""
    assert upgrade_store(url) == ("", head_revision())
    assert upgrade_store(url) == (head_revision(), head_revision())
    open_store(url, read_only=True).close()


def test_unknown_database_is_refused_in_one_line(url):
    """A database that the server does not have is an error that names it."""
    with pytest.raises(StoreError, match="nowhere") as error:
        open_store(url.replace("/profiles", "/nowhere"))
    assert "\n" not in str(error.value)


def test_models_and_migrations_agree(url):
    """``alembic check`` finds nothing to change, comments and indexes included."""
    upgrade_store(url)
    engine = make_engine(parse_url(url))
    with engine.connect() as connection:
        command.check(migration_config(connection))
    engine.dispose()


def test_migrated_tables_are_those_of_the_records(server, url):
    """Columns, keys, checks, comments and indexes are those that the records declare."""
    upgrade_store(url)
    engines = [make_engine(parse_url(one)) for one in (url, make_database(server, "declared"))]
    assert tables_of(engines[0]) == declared(engines[1])
    for engine in engines:
        engine.dispose()


def test_profile_comes_back_as_written(store):
    """Records written and read again are equal, Booleans of their type."""
    same = store.read(store.write(small_profile()))
    assert same == small_profile()
    assert [type(module.is_leaf) for module in same.modules] == [bool, bool]
    assert type(same.info.backward) is bool


def test_profile_without_rows_comes_back(store):
    """A profile of a model that does nothing is stored like any other."""
    empty = {name: Rows(record) for name, record in Profile.TABLES}
    profile = replace(small_profile(), **empty)
    assert store.read(store.write(profile)) == profile


def test_profile_is_found_refused_and_replaced(store):
    """One profile per identity: found, refused twice, replaced on request."""
    number = store.write(small_profile())
    assert store.find(small_profile(capture="real").info) == number
    with pytest.raises(ProfileExists):
        store.write(small_profile())
    new = store.write(small_profile(structural_hash="new"), replace=True)
    assert [row.profile_id for row in store.totals()] == [new]
    with pytest.raises(ProfileMissing):
        store.read(number)


def test_deleted_profile_leaves_nothing(store):
    """Deleting the only profile leaves no row in any table."""
    store.delete(store.write(small_profile()))
    for name in ("models", "profiles", *(name for name, _ in Profile.TABLES)):
        assert store.query(f"SELECT count(*) FROM {name}")[1] == [(0,)]  # noqa: S608


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"fwd_macs": 2**63}, r"flop_counts\.fwd_macs of row 1 is 9223372036854775808"),
        ({"node_id": 9}, "fk_flop_counts_profile_id_node_id"),
        ({"fwd_macs": None}, "fwd_macs"),
    ],
)
def test_record_that_does_not_fit_is_refused(store, values, named):
    """A value too large, a reference to nothing and an absence are refused; nothing is stored."""
    rows = small_profile().flop_counts.tuples
    counts = [*rows[:-1], changed(FlopCount, rows[-1], **values)]
    with pytest.raises(InvalidProfile, match=named) as error:
        store.write(replace(small_profile(), flop_counts=Rows(FlopCount, counts)))
    assert "\n" not in str(error.value)
    assert store.totals() == []


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_view_answers_as_described(store, view):
    """Every view has rows without NULL, in columns of the names and types that it is said to."""
    store.write(small_profile())
    names, rows = store.query(f"SELECT * FROM {view.name}")  # noqa: S608
    assert names == view.columns.keys()
    assert rows
    kinds = {Integer: int, BigInteger: int, Text: str, Double: float}
    for row in rows:
        assert [type(cell) for cell in row] == [kinds[type(c.type)] for c in view.columns]


def test_numbers_are_exact_or_floats(store):
    """Sums of 64-bit integers are integers, beyond 2^63 too; what has a fraction is a float."""
    sql = "SELECT SUM(x), -SUM(x), SUM(x) * 1.5, -1.0 / 4, 'NaN'::numeric"
    (row,) = store.query(f"{sql} FROM (VALUES (9223372036854775807), (1)) AS t(x)")[1]
    assert row[:4] == (2**63, -(2**63), 1.5 * 2**63, -0.25)
    assert [type(cell) for cell in row] == [int, int, float, float, float]


def test_query_reads_and_changes_nothing(store):
    """A SELECT with parameters yields rows; a statement that writes is refused."""
    number = store.write(small_profile())
    sql = "SELECT sum(macs), sum(is_view) FROM ops WHERE profile_id = :p"
    assert store.query(sql, {"p": number})[1] == [(48, 2)]
    assert store.query("SELECT 7 % 4")[1] == [(3,)]
    with pytest.raises(QueryError, match="may not change"):
        store.query("DELETE FROM ops")
    with pytest.raises(QueryError, match="nothing"):
        store.query("SELECT nothing FROM ops")
    assert store.read(number) == small_profile()


KILLED = """
import os, signal, sys
from postgresql_server import interrupted_profile
from store import open_store

with open_store(sys.argv[1]) as store:
    store.write(interrupted_profile(lambda: os.kill(os.getpid(), signal.SIGKILL)), replace=True)
"""


def test_killed_writer_leaves_the_profile_before(store):
    """A process killed while it replaces a profile leaves the old one, and the next may write."""
    number = store.write(small_profile())
    address = store.url
    folder = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": f"{folder.parent}{os.pathsep}{folder}"}
    killed = subprocess.run([sys.executable, "-c", KILLED, address], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert store.read(number) == small_profile()
    assert [row.profile_id for row in store.totals()] == [number]
    assert store.write(small_profile(), replace=True) > number


def test_lost_connection_leaves_the_profile_before(store, server):
    """A connection that ends in the middle of a profile is an error; the next write succeeds."""
    import psycopg  # noqa: PLC0415  # optional

    def end_connections():
        root = f"host=127.0.0.1 port={server} user=postgres dbname=postgres"
        with psycopg.connect(root, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'profiles'"
            )

    number = store.write(small_profile())
    with pytest.raises(StoreError, match=r"lost|terminat") as error:
        store.write(interrupted_profile(end_connections), replace=True)
    assert "\n" not in str(error.value)
    assert store.read(number) == small_profile()
    assert store.write(small_profile(), replace=True) > number


def test_writers_at_once_lose_nothing(url):
    """4 writers create one store and write 5 profiles each, and one that all want, once."""
    refused: list[ProfileExists] = []

    def work(number: int) -> None:
        with open_store(url, create=True) as store:
            for batch in range(5):
                store.write(small_profile(batch_size=number * 5 + batch))
            try:
                store.write(small_profile(batch_size=1000))
            except ProfileExists as error:
                refused.append(error)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(refused) == 3
    with open_store(url) as store:
        assert sorted(row.batch_size for row in store.totals()) == [*range(20), 1000]
