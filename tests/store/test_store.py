"""Writing, reading, finding, replacing and deleting profiles in SQLite."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from store import identity, open_store
from store.columns import changed
from store.errors import (
    InvalidProfile,
    ProfileExists,
    ProfileMissing,
    QueryError,
    StoreReadOnly,
)
from store.records import MAX_INTEGER, Profile, Rows
from tools.revision_database import small_profile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store import Store

TOP = 2**63 - 1
CHILDREN = [name for name, _ in Profile.TABLES]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create an empty store once; copying it is much faster than migrating."""
    path = tmp_path_factory.mktemp("template") / "profiles.db"
    open_store(f"sqlite:///{path}", create=True).close()
    return path


@pytest.fixture
def path(tmp_path: Path, template: Path) -> Path:
    """Return the file of an empty store."""
    return Path(shutil.copy(template, tmp_path))


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """Open an empty store for writing."""
    with open_store(f"sqlite:///{path}") as opened:
        yield opened


def rows_left(path: Path) -> int:
    """Count the rows of all tables of profiles."""
    database = sqlite3.connect(path)
    names = ["models", "profiles", *CHILDREN]
    left = sum(database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names)  # noqa: S608
    database.close()
    return int(left)


def test_profile_comes_back_as_written(store):
    """Records written and read again are equal, totals and settings included."""
    profile = small_profile()
    assert store.read(store.write(profile)) == profile


def test_read_profile_has_the_types_of_records(store):
    """Every value read has the very type that was written, Booleans included."""
    profile = small_profile()
    same = store.read(store.write(profile))
    for name in CHILDREN:
        for before, after in zip(getattr(profile, name), getattr(same, name), strict=True):
            assert [type(v) for v in astuple(before)] == [type(v) for v in astuple(after)]
    assert [type(v) for v in astuple(profile.info)] == [type(v) for v in astuple(same.info)]
    assert [type(v) for v in astuple(profile.totals)] == [type(v) for v in astuple(same.totals)]


def test_read_profile_knows_its_number(store):
    """The totals of a read profile carry the number that writing returned."""
    store.write(small_profile())
    second = store.write(small_profile(mode="eval"))
    assert store.read(second).totals.profile_id == second


def test_profile_without_rows_comes_back(store):
    """A profile of a model that does nothing is stored like any other."""
    empty = {name: Rows(record) for name, record in Profile.TABLES}
    profile = replace(small_profile(), **empty)
    assert store.read(store.write(profile)) == profile


def test_written_database_is_sound(store, path):
    """SQLite finds neither damage nor a reference to nothing."""
    store.write(small_profile())
    store.write(small_profile(mode="eval"))
    database = sqlite3.connect(path)
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert database.execute("PRAGMA foreign_key_check").fetchall() == []
    database.close()


def test_profiles_of_one_model_share_its_row(store):
    """Two configurations of one model are two profiles of one model."""
    store.write(small_profile())
    store.write(small_profile(batch_size=8))
    assert store.query("SELECT count(*) FROM models")[1] == [(1,)]
    assert store.query("SELECT count(*) FROM profiles")[1] == [(2,)]


def test_totals_lists_profiles_in_order(store):
    """The totals of all profiles come in the order of writing."""
    first = store.write(small_profile())
    second = store.write(small_profile(batch_size=8))
    assert [(t.profile_id, t.batch_size) for t in store.totals()] == [(first, 2), (second, 8)]


def test_same_profile_twice_is_refused(store):
    """A second profile of the same settings is refused by its name, and changes nothing."""
    first = store.write(small_profile())
    both_ways_out = "replace=True.*name="
    with pytest.raises(ProfileExists, match=rf"user/net .* profile {first};.*{both_ways_out}"):
        store.write(small_profile(structural_hash="other"))
    assert store.read(first) == small_profile()


def test_replaced_profile_takes_the_place_of_the_old(store):
    """Replacing leaves one profile of these settings, the new one."""
    old = store.write(small_profile())
    new = store.write(small_profile(structural_hash="new"), replace=True)
    assert [t.profile_id for t in store.totals()] == [new]
    assert store.read(new).info.structural_hash == "new"
    with pytest.raises(ProfileMissing):
        store.read(old)


def test_replacing_nothing_writes(store):
    """A profile that is to replace one that is not there is written."""
    assert store.read(store.write(small_profile(), replace=True)) == small_profile()


def test_numbers_are_never_given_out_again(store):
    """The number of a deleted profile does not come to mean another."""
    first = store.write(small_profile())
    store.delete(first)
    assert store.write(small_profile(batch_size=8)) > first


@pytest.mark.parametrize(
    "outcome", [{"capture": "real"}, {"built_on": "meta"}, {"created_at": "later"}]
)
def test_identity_leaves_out_outcomes(store, outcome):
    """What only tracing decides does not make another profile."""
    number = store.write(small_profile())
    assert store.find(small_profile(**outcome).info) == number
    assert identity(small_profile(**outcome).info) == identity(small_profile().info)


@pytest.mark.parametrize(
    "setting",
    [{"model": "n"}, {"config": "{}"}, {"backward": False}, {"torch_version": "2.14.2"}],
)
def test_identity_holds_settings(store, setting):
    """Another setting makes another profile."""
    store.write(small_profile())
    assert store.find(small_profile(**setting).info) is None


def test_deleted_profile_leaves_nothing(store, path):
    """Deleting the only profile leaves no row in any table, its model's included."""
    store.delete(store.write(small_profile()))
    assert rows_left(path) == 0


def test_deleting_one_profile_keeps_the_other(store):
    """Deleting a profile touches neither its model's other profile nor its rows."""
    first = store.write(small_profile())
    second = store.write(small_profile(batch_size=8))
    store.delete(first)
    assert store.read(second) == small_profile(batch_size=8)


def test_deleting_in_sql_cascades(store, path):
    """Deleting the row of a profile by hand deletes all that hangs on it."""
    store.write(small_profile())
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA foreign_keys=ON")
    database.execute("DELETE FROM profiles")
    left = [database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in CHILDREN]  # noqa: S608
    database.close()
    assert left == [0] * len(CHILDREN)


def test_deleting_an_unknown_profile_is_refused(store):
    """A number that names no profile is an error that says so."""
    with pytest.raises(ProfileMissing, match="no profile 7 "):
        store.delete(7)


def test_reading_an_unknown_profile_is_refused(store):
    """A number that names no profile is an error that says so."""
    with pytest.raises(ProfileMissing, match="no profile 7 "):
        store.read(7)


def _changed(table, **values):
    """Return the small profile's rows of a table, the last one with other values."""
    rows = getattr(small_profile(), table)
    return Rows(rows.record, [*rows.tuples[:-1], changed(rows.record, rows.tuples[-1], **values)])


def test_largest_integer_is_kept(store):
    """2^63-1 is stored and read exactly."""
    counts = _changed("flop_counts", fwd_macs=TOP)
    profile = replace(small_profile(), flop_counts=counts)
    assert MAX_INTEGER == TOP
    assert store.read(store.write(profile)).flop_counts[-1].fwd_macs == TOP


def test_too_large_integer_in_a_row_is_named(store, path):
    """2^63 is refused with table, column, row and value, and nothing is stored."""
    counts = _changed("flop_counts", bwd_macs=2**63)
    with pytest.raises(
        InvalidProfile, match=r"flop_counts\.bwd_macs of row 1 is 9223372036854775808"
    ):
        store.write(replace(small_profile(), flop_counts=counts))
    assert rows_left(path) == 0


def test_too_large_total_is_named(store, path):
    """A total of 2^64 is refused with its name and value, and nothing is stored."""
    profile = small_profile()
    profile = replace(profile, totals=replace(profile.totals, fwd_flops=2**64))
    with pytest.raises(InvalidProfile, match=r"totals\.fwd_flops .* 18446744073709551616"):
        store.write(profile)
    assert rows_left(path) == 0


def test_refused_replacement_keeps_the_old(store):
    """A replacement that does not fit leaves the profile that it was to replace."""
    number = store.write(small_profile())
    counts = _changed("flop_counts", fwd_macs=2**63)
    with pytest.raises(InvalidProfile):
        store.write(replace(small_profile(), flop_counts=counts), replace=True)
    assert store.read(number) == small_profile()


@pytest.mark.parametrize(
    ("table", "rows", "named"),
    [
        ("storages", _changed("storages", storage_class="activations"),
         "ck_storages_storage_class"),
        ("flop_counts", _changed("flop_counts", node_id=9), "FOREIGN KEY"),
        ("flop_counts", _changed("flop_counts", fwd_macs=None), "flop_counts.fwd_macs"),
        ("flop_counts", _changed("flop_counts", node_id=1), "flop_counts.node_id"),
        ("ops", _changed("ops", arguments="[null"), "ck_ops_arguments_json"),
        ("ops", _changed("ops", is_view=2), "ck_ops_is_view"),
    ],
)  # fmt: skip
def test_record_that_does_not_fit_is_refused(store, path, table, rows, named):
    """A wrong word, reference, absence, repetition, text or flag is refused, naming the rule."""
    with pytest.raises(InvalidProfile, match=named) as refusal:
        store.write(replace(small_profile(), **{table: rows}))
    assert "\n" not in str(refusal.value)
    assert rows_left(path) == 0


def test_totals_that_contradict_the_settings_are_refused(store):
    """Settings and totals that disagree on the batch size are refused."""
    profile = small_profile()
    with pytest.raises(InvalidProfile, match="batch_size is 2 in the settings but 3"):
        store.write(replace(profile, totals=replace(profile.totals, batch_size=3)))


def test_query_returns_columns_and_rows(store):
    """A SELECT with named parameters yields its column names and plain tuples."""
    number = store.write(small_profile())
    sql = "SELECT operator, macs FROM ops WHERE profile_id = :p AND macs > 0 ORDER BY op_id"
    assert store.query(sql, {"p": number}) == (
        ["operator", "macs"],
        [("aten.mm.default", 24), ("aten.mm.default", 24)],
    )


def test_query_without_parameters_goes_to_the_database_as_it_is(store):
    """Percent signs and colons in a statement mean what they mean in SQL."""
    assert store.query("SELECT 7 % 4, 'a:b'")[1] == [(3, "a:b")]


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("DELETE FROM profiles", "may not change"),
        ("DROP TABLE ops", "may not change"),
        ("PRAGMA query_only=OFF", "yields no rows"),
        ("SELECT flops FROM ops", "no such column: flops"),
        ("SELECT 1; SELECT 2", "one statement"),
        ("SELEC 1", "syntax error"),
        (
            "SELECT abs(x) FROM (SELECT 1 AS x UNION ALL SELECT -1 - 9223372036854775807)",
            "overflow",
        ),
    ],
)
def test_query_refuses_what_is_no_select(store, sql, named):
    """What writes, yields no rows or fails, be it at the second row, is an error in one line."""
    number = store.write(small_profile())
    with pytest.raises(QueryError, match=named) as refusal:
        store.query(sql)
    assert "\n" not in str(refusal.value)
    assert store.read(number) == small_profile()


def test_store_for_reading_refuses_to_write(store, path):
    """A store opened for reading reads, and says why it does not write."""
    number = store.write(small_profile())
    with open_store(f"sqlite:///{path}", read_only=True) as reader:
        assert reader.read(number) == small_profile()
        with pytest.raises(StoreReadOnly, match="for reading only"):
            reader.write(small_profile(mode="eval"))
        with pytest.raises(StoreReadOnly, match="for reading only"):
            reader.delete(number)


def test_store_in_memory_works():
    """A database in memory is created, written and read like a file."""
    with open_store("sqlite://", create=True) as memory:
        assert memory.read(memory.write(small_profile())) == small_profile()
