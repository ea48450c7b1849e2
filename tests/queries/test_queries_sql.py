"""The cookbook's answers, and the tools that analysts open a database with."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys

import pytest

from queries import critical_path, liveness, load_graph, module_totals, operator_totals
from queries.cli import cli
from store import open_store
from store.views import VIEWS
from tools.sql_docs import EXAMPLE, PAGE, ROOT, questions

COOKBOOK = questions(PAGE.read_text("utf-8"))


@pytest.fixture(scope="module")
def store():
    """Open the shipped database."""
    with open_store(f"sqlite:///{EXAMPLE}", read_only=True) as opened:
        yield opened


@pytest.fixture
def database():
    """Open the shipped database as any tool would."""
    connection = sqlite3.connect(f"file:{EXAMPLE}?mode=ro", uri=True)
    yield connection
    connection.close()


def test_cookbook_answers_are_what_the_command_prints(capsys):
    """Whoever types a query of the page sees the very table below it, an empty one too."""
    assert len(COOKBOOK) >= 15
    page = PAGE.read_text("utf-8")
    for sql in COOKBOOK.values():
        arguments = ["sql", sql, "--db", str(EXAMPLE), "--format", "md"]
        cli.main(arguments, standalone_mode=False)
        assert f"```sql\n{sql}```\n\n{capsys.readouterr().out}" in page


@pytest.mark.parametrize("view", [view.name for view in VIEWS])
def test_view_has_rows_and_no_null(database, view):
    """Every view answers, and no cell is NULL."""
    where = " WHERE device = 'A100'" if view == "op_times" else ""
    rows = database.execute(f"SELECT * FROM {view}{where}").fetchall()  # noqa: S608
    assert rows
    assert not any(cell is None for row in rows for cell in row)


def test_example_is_at_the_newest_schema(store):
    """The shipped database opens, and every profile's peak and sums follow from its rows."""
    for totals in store.totals():
        live = liveness(store, totals.profile_id)
        assert live.peak_bytes == totals.peak_bytes
        assert live.bound_peak_bytes <= live.peak_bytes
        whole = module_totals(store, totals.profile_id)[0]
        assert (whole.fwd_flops, whole.bwd_flops) == (totals.fwd_flops, totals.bwd_flops)
        assert whole.kept_bytes == totals.kept_bytes
        assert (whole.param_bytes, whole.buffer_bytes) == (totals.param_bytes, totals.buffer_bytes)


def test_parallelism_is_where_branches_are(store):
    """Googlenet's branches can run side by side; vgg11 is one chain."""
    ids = {t.model: t.profile_id for t in store.totals()}
    chain = critical_path(load_graph(store, ids["vgg11"]), "fwd_flops")
    assert chain.length == chain.total
    assert critical_path(load_graph(store, ids["googlenet"]), "fwd_flops").parallelism > 1.2


def test_views_agree_with_functions(store, database):
    """Module, operator and time sums are the same in SQL and in Python."""
    for profile_id in (1, 4):
        in_sql = database.execute(
            "SELECT path, call_count, fwd_flops, bwd_flops, kept_bytes, grad_bytes, param_bytes"
            " FROM module_totals WHERE profile_id = ? ORDER BY module_id",
            (profile_id,),
        ).fetchall()
        assert in_sql == [
            (m.path, m.call_count, m.fwd_flops, m.bwd_flops, m.kept_bytes, m.grad_bytes,
             m.param_bytes)
            for m in module_totals(store, profile_id)
        ]  # fmt: skip
        in_sql = database.execute(
            "SELECT operator, phase, op_count, flops FROM operator_totals WHERE profile_id = ?",
            (profile_id,),
        ).fetchall()
        assert sorted(in_sql) == sorted(
            (o.operator, o.phase, o.op_count, o.flops) for o in operator_totals(store, profile_id)
        )
        ((in_sql,),) = database.execute(
            "SELECT SUM(time_us) FROM op_times WHERE profile_id = ? AND device = 'T4'",
            (profile_id,),
        ).fetchall()
        graph = load_graph(store, profile_id, "ops", device="T4")
        # the graph's times are rounded to 2^-20 us each
        assert sum(graph.nodes[n]["time_us"] for n in graph) == pytest.approx(in_sql, abs=1e-3)


def test_module_sums_are_those_of_the_modules_inside(database):
    """However a profile is chosen, a module's own work and that of its children are its sum."""
    sums = "call_count, fwd_flops, bwd_flops, kept_bytes, grad_bytes, param_bytes, buffer_bytes"
    chosen = "profile_id = (SELECT profile_id FROM profile_totals WHERE model = 'vgg11')"
    own, whole = (
        {row[0]: row[1:] for row in database.execute(
            f"SELECT module_id, {sums} FROM {view} WHERE {chosen}"  # noqa: S608
        )}
        for view in ("module_calls", "module_totals")
    )  # fmt: skip
    parents = database.execute(f"SELECT module_id, parent_id FROM modules WHERE {chosen}")  # noqa: S608
    children = {module_id: [] for module_id in own}
    for module_id, parent_id in parents:
        children.get(parent_id, []).append(module_id)
    for module_id, total in whole.items():
        parts = [own[module_id], *(whole[child] for child in children[module_id])]
        assert total == tuple(map(sum, zip(*parts, strict=True)))
    assert whole.keys() == own.keys()


def test_pandas_keeps_integers(database):
    """No integer column becomes a float, in any table or view."""
    pandas = pytest.importorskip("pandas")
    for view in ("profile_totals", "module_totals", "operator_totals", "storages", "ops"):
        frame = pandas.read_sql(f"SELECT * FROM {view}", database)  # noqa: S608
        floats = {name for name, kind in frame.dtypes.items() if kind.kind == "f"}
        assert floats <= {"seconds"}, view


def test_duckdb_reads_tables_and_views():
    """DuckDB gives the same answer as SQLite."""
    duckdb = pytest.importorskip("duckdb")
    extensions = pytest.importorskip("duckdb_extensions")
    pytest.importorskip("duckdb_extension_sqlite_scanner")
    extensions.import_extension("sqlite_scanner")
    connection = duckdb.connect()
    connection.execute("LOAD sqlite_scanner")
    connection.execute(f"ATTACH '{EXAMPLE}' AS zoo (TYPE sqlite, READ_ONLY)")
    sql = "SELECT model, batch_size, peak_bytes FROM {} ORDER BY profile_id"
    found = connection.execute(sql.format("zoo.profile_totals")).fetchall()
    assert found == sqlite3.connect(EXAMPLE).execute(sql.format("profile_totals")).fetchall()


@pytest.mark.skipif(shutil.which("datasette") is None, reason="datasette is not installed")
def test_datasette_serves_the_example():
    """Datasette shows the front door and answers a canned query."""
    for path in ("/example/profile_totals.json", "/example/which_profiles_are_there.json"):
        command = [
            "datasette",
            str(EXAMPLE),
            "--metadata",
            str(ROOT / "data" / "metadata.json"),
            "--get",
            path,
        ]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert len(json.loads(out)["rows"]) == 6


def test_sqlite3_command_reads_it():
    """The sqlite3 shell, or Python's own, opens the file for reading only."""
    shell = shutil.which("sqlite3")
    sql = "SELECT COUNT(*) FROM profile_totals"
    command = (
        [shell, "-readonly", str(EXAMPLE), sql]
        if shell
        else [sys.executable, "-m", "sqlite3", str(EXAMPLE), sql]
    )
    if shell is None and sys.version_info < (3, 12):
        pytest.skip("no sqlite3 shell")
    assert "6" in subprocess.run(command, check=True, capture_output=True, text=True).stdout
