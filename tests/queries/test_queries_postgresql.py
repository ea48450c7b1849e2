"""The same answers from a PostgreSQL server as from the SQLite file with the same profiles."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from postgresql_server import make_database

from queries import load_graph
from queries.cli import cli
from store import open_store
from tools.sql_docs import EXAMPLE

FILE = f"sqlite:///{EXAMPLE}"
QUESTIONS = (
    "list",
    "show {}",
    "liveness {} --top 20",
    "liveness {} --by class",
    "liveness {} --by module",
    "liveness {} --by call",
    "liveness {} --by outliving",
    "liveness {} --by step",
    "critical-path {}",
    "critical-path {} --all --weight time --device A100",
    "critical-path {} --phase step --weight bytes",
    "totals {} --by module",
    "totals {} --by operator",
    "totals {} --by phase",
    "compare {} 1",
    "fits {}",
)
EXPORTS = ("minimalloc", "snapshot", "chrome", "solver", "chakra")


@pytest.fixture(scope="module")
def url(server, template):
    """Copy every profile of the shipped database, in order, and return the server's address."""
    address = make_database(server, "example", template)
    with open_store(FILE, read_only=True) as source, open_store(address) as copy:
        for totals in source.totals():
            assert copy.write(source.read(totals.profile_id)) == totals.profile_id
    return address


def answer(command, url):
    """Return what ``query-profiles`` prints."""
    result = CliRunner().invoke(cli, [*command.split(), "--db", url])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("question", QUESTIONS)
def test_answer_is_that_of_the_file(question, url):
    """Every question has the same answer, to the byte."""
    command = f"{question.format(4)} --format json"
    assert answer(command, url) == answer(command, FILE)


@pytest.mark.parametrize("name", EXPORTS)
def test_export_is_that_of_the_file(name, url, tmp_path):
    """Every format has the same bytes."""
    written = []
    for number, address in enumerate((url, FILE)):
        path = tmp_path / str(number)
        answer(f"export 4 --to {name} -o {path}", address)
        written.append(path.read_bytes())
    assert written[0] == written[1]


def test_report_is_written(url, tmp_path):
    """The page of a profile is made from a server as well."""
    answer(f"report 1 -o {tmp_path}/page.html", url)
    assert "</html>" in (tmp_path / "page.html").read_text("utf-8")


@pytest.mark.parametrize("level", ["nodes", "ops"])
@pytest.mark.parametrize("device", ["", "H100"])
def test_graph_is_that_of_the_file(level, device, url):
    """Nodes and edges come in the same order, with attributes of the same values and types."""
    told = []
    for address in (url, FILE):
        with open_store(address, read_only=True) as store:
            graph = load_graph(store, 1, level, device=device)
        told.append([*map(repr, graph.nodes(data=True)), *map(repr, graph.edges(data=True))])
    assert told[0] == told[1]
