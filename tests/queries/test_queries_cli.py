"""The command ``query-profiles``, run as people and tools run it."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from handmade_profiles import Hand

import queries
from queries.cli import cli
from queries.questions import question, question_names
from queries.tables import Table, write_table
from store import open_store
from tools.public_names import public_names
from tools.sql_docs import EXAMPLE

ROOT = Path(__file__).parents[2]
DB = ("--db", str(EXAMPLE))


def run(*arguments, cwd=ROOT, **options):
    """Run the command in a process of its own."""
    command = [sys.executable, "-m", "queries.cli", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=cwd, env=environment, **options
    )


def answer(*arguments, quiet=True):
    """Run the command and return its output; it has to succeed, and in silence if quiet."""
    result = run(*arguments, *DB)
    assert result.returncode == 0, result.stderr
    assert not (quiet and result.stderr)
    return result.stdout


def answer_without_database(*arguments):
    """Return what the command says of itself."""
    result = run(*arguments)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def refusal(*arguments, status=2):
    """Run the command and return the one line in which it refuses."""
    result = run(*arguments)
    assert (result.returncode, result.stdout) == (status, "")
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_list_as_csv_has_plain_integers():
    """One line per profile, numbers without separators."""
    rows = list(csv.DictReader(io.StringIO(answer("list", "--format", "csv"))))
    assert len(rows) == 6
    vgg = next(row for row in rows if row["model"] == "vgg11")
    assert int(vgg["param_bytes"]) == 132_863_336 * 4  # its published parameter count


def test_list_takes_a_pattern():
    """Only models that match are listed."""
    rows = json.loads(answer("list", "resnet*", "--format", "json"))
    assert {row["model"] for row in rows} == {"resnet18"}


def test_table_in_a_pipe_has_no_decoration():
    """No frame, no colour, no cut: plain columns under their names."""
    lines = answer("totals", "vgg11", "--by", "operator").splitlines()
    assert lines[0].split()[:2] == ["operator", "phase"]
    assert all(line.isascii() and "\x1b" not in line for line in lines)
    assert len({len(line.split()) for line in lines}) == 1


def on_terminal(*arguments, columns):
    """Run the command on a terminal of so many columns and return what is seen there."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "queries.cli", *arguments, *DB],
        stdout=child, cwd=ROOT, env={**os.environ, "COLUMNS": str(columns), "TERM": "xterm"},
    )  # fmt: skip
    os.close(child)
    seen = b""
    while True:
        try:
            part = os.read(parent, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        seen += part
    os.close(parent)
    assert process.wait() == 0
    return seen.decode()


@pytest.mark.parametrize("columns", [80, 250])
def test_table_on_a_terminal_groups_digits(columns):
    """People see 531,453,344 rather than 531453344, however narrow the terminal."""
    assert "531,453,344" in on_terminal("list", "vgg11", columns=columns)


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 100, 120, 160, 300])
@pytest.mark.parametrize("count", [1, 3, 8, 14])
def test_table_on_a_narrow_terminal_shows_every_cell(count, columns, monkeypatch):
    """At any width all names of columns, all numbers in one piece, and all of the text."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    numbers = [(i + 1) * 1_111_111_111 for i in range(count)]
    names = [f"column_{i}_bytes" for i in range(count)]
    text = "a word or two " + "x" * 30
    out = Terminal()
    write_table(Table(["label", *names], [[text, *numbers]]), "table", out)
    seen = out.getvalue()
    for number, name in zip(numbers, names, strict=True):
        assert f"{number:,}" in seen
        assert name in seen
    assert seen.count("x") == text.count("x")
    assert "\N{HORIZONTAL ELLIPSIS}" not in seen


class Terminal(io.StringIO):
    """Text that is written to something that calls itself a terminal."""

    def isatty(self):
        """Return that it is one."""
        return True


def test_markdown_escapes_bars():
    """A bar within a cell does not end it."""
    out = answer("sql", "SELECT 'a|b' AS name, 1 AS n", "--format", "md")
    assert out == "| name | n |\n| --- | ---: |\n| a\\|b | 1 |\n"


def test_json_holds_every_column_or_none():
    """Two columns of one name do not fit into an object; infinity has no place in JSON."""
    assert "'n'" in refusal("sql", "SELECT 1 AS n, 2 AS n", "--format", "json", *DB)
    out = answer("sql", "SELECT 1e999 AS n, 0.5 AS half, NULL AS none", "--format", "json")
    assert json.loads(out, parse_constant=pytest.fail) == [{"n": None, "half": 0.5, "none": None}]


def test_null_is_an_empty_cell():
    """What is not there is not written, and numbers beside it stay numbers."""
    query = "SELECT NULL AS a, 1 AS n UNION ALL SELECT 12, 2 ORDER BY n"
    assert answer("sql", query, "--format", "csv") == "a,n\n,1\n12,2\n"
    assert answer("sql", query, "--format", "md").splitlines()[1:] == [
        "| ---: | ---: |", "|  | 1 |", "| 12 | 2 |",
    ]  # fmt: skip
    assert answer("sql", query) == " a  n\n    1\n12  2\n"


@pytest.mark.parametrize("form", ["csv", "json", "md", "table"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "vgg11"),
        ("critical-path", "googlenet", "--weight", "macs"),
        ("critical-path", "googlenet", "--phase", "backward", "--weight", "bytes"),
        ("critical-path", "vgg11", "--phase", "step", "--weight", "time", "--device", "H100"),
        ("critical-path", "vgg11", "--level", "ops", "--all"),
        ("liveness", "resnet18@b8"),
        ("liveness", "vgg11", "--by", "class"),
        ("liveness", "vgg11", "--by", "outliving"),
        ("liveness", "vgg11", "--by", "step"),
        ("totals", "vgg11", "--depth", "1"),
        ("totals", "vgg11", "--by", "phase"),
        ("compare", "1", "2", "--changed"),
        ("fits", "vgg11", "--optimizer", "adam"),
        ("fits", "2", "--batches"),
    ],
    ids=" ".join,
)
def test_questions_are_answered_in_every_format(in_process, arguments, form):
    """Every subcommand has an answer in every format."""
    out = in_process(*arguments, *DB, "--format", form)
    if form == "json":
        assert json.loads(out)
    elif form == "csv":
        assert len({len(row) for row in csv.reader(io.StringIO(out))}) == 1
    assert out.count("\n") > 1


@pytest.fixture
def in_process(capsys):
    """Run the command without the cost of a process."""

    def call(*arguments):
        cli.main([*arguments], standalone_mode=False)
        return capsys.readouterr().out

    return call


def test_critical_path_of_a_chain_is_all_its_work(in_process):
    """vgg11 has no branches: length and total are equal."""
    found = json.loads(in_process("critical-path", "vgg11", *DB, "--format", "json"))
    summary = found["summary"]
    assert summary["length"] == summary["total"]
    assert sum(row["fwd_flops"] for row in found["rows"]) == summary["length"]


def test_top_cuts_rows_and_keeps_the_summary(in_process):
    """The first two of what is alive, under the peak of all."""
    found = json.loads(in_process("liveness", "vgg11", *DB, "--top", "2", "--format", "json"))
    assert len(found["rows"]) == 2
    assert found["summary"]["peak_bytes"] > sum(row["size_bytes"] for row in found["rows"])


def test_sql_reads_standard_input():
    """Without an argument the query comes through the pipe."""
    result = run("sql", "--format", "csv", *DB, input="SELECT COUNT(*) AS n FROM profiles")
    assert (result.returncode, result.stdout) == (0, "n\n6\n")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM profiles",
        "DROP TABLE ops",
        "CREATE TABLE t (x)",
        "INSERT INTO devices VALUES (1)",
    ],
)
def test_sql_changes_nothing(statement):
    """A statement that writes is refused, and the file is what it was."""
    before = EXAMPLE.read_bytes()
    refusal("sql", statement, *DB)
    assert EXAMPLE.read_bytes() == before


@pytest.mark.parametrize(
    ("statement", "said"),
    [("ATTACH '{}' AS e", "may not change"), ("VACUUM INTO '{}'", "cannot VACUUM")],
)
def test_sql_creates_no_file(statement, said, tmp_path):
    """A statement that would create another database is refused."""
    assert said in refusal("sql", statement.format(tmp_path / "other.db"), *DB)
    assert list(tmp_path.iterdir()) == []


def test_wrong_sql_is_one_line():
    """The database's own words, without a traceback."""
    assert "no such table" in refusal("sql", "SELECT * FROM absent", *DB)


def test_wrong_names_are_refused_with_the_way_out(tmp_path):
    """Profiles, weights, devices, exports and databases that are not there are wrong usage."""
    assert "did you mean" in refusal("show", "vgg1", *DB)
    assert "ambiguous" in refusal("show", "resnet18", *DB)
    assert "weights here" in refusal("critical-path", "vgg11", "--weight", "flosp", *DB)
    assert "--device" in refusal("critical-path", "vgg11", "--weight", "time", *DB)
    assert "A100" in refusal("fits", "vgg11", "--device", "Abacus", *DB)
    assert "minimalloc" in refusal("export", "vgg11", "--to", "onnx", "-o", "x", *DB)
    assert "none.db" in refusal("list", "--db", str(tmp_path / "none.db"))
    target = str(tmp_path / "no" / "folder.csv")
    arguments = ("export", "vgg11", "--to", "minimalloc", "-o", target, *DB)
    assert "folder.csv" in refusal(*arguments, status=1)  # right, but it cannot be written
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", ["9223372036854775808", "0", "1" * 18, "1" * 5000])
def test_numbers_of_no_profile_are_refused(number):
    """However large: no profile has it, in one short line."""
    line = refusal("show", number, *DB)
    assert line.startswith("Error: no profile ")
    assert len(line) < 120


def test_model_is_found_by_its_very_name(in_process, tmp_path):
    """A number and an @ may be part of a model's name; qualifiers come after the last @."""
    with open_store(f"sqlite:///{tmp_path}/names.db", create=True) as store:
        ids = {name: store.write(Hand(model=name).profile()) for name in ("a@b4", "17", "a")}
    asked = {"a@b4": "a@b4", "a@b4@b4": "a@b4", "17": "17", "a@train": "a", "0002": "17"}
    assert ids["17"] == 2
    for called, name in asked.items():
        rows = json.loads(in_process(
            "show", called, "--format", "json", "--db", str(tmp_path / "names.db")
        ))  # fmt: skip
        assert {row["name"]: row["value"] for row in rows}["model"] == name


@pytest.fixture
def nets(tmp_path):
    """Store profiles of two models, one in two depths, and return their database."""
    with open_store(f"sqlite:///{tmp_path}/nets.db", create=True) as store:
        for depth in (2, 3):
            store.write(Hand(model="net").profile(config=f'{{"kwargs": {{"depth": {depth}}}}}'))
        store.write(Hand(model="other").profile(config='{"args": [1]}'))
    return ("--db", str(tmp_path / "nets.db"))


def test_profiles_of_one_name_are_told_apart_by_what_differs(nets):
    """Only an id tells them apart, so only that is asked for, and each has its configuration."""
    line = refusal("show", "net", *nets)
    assert "use an id: " in line
    for number, depth in ((1, 2), (2, 3)):
        assert (
            f'{number} = net@b4,float32,train,cuda (config {{"kwargs": {{"depth": {depth}}}}})'
            in (line)
        )
    assert "longer name" in refusal("show", "resnet18", *DB)


def test_list_shows_configurations_where_names_are_equal(in_process, nets):
    """They stand there if some profiles differ in nothing else, and only then."""

    def rows(*arguments):
        return json.loads(in_process("list", *arguments, "--format", "json"))

    configs = ['{"kwargs": {"depth": 2}}', '{"kwargs": {"depth": 3}}', '{"args": [1]}']
    assert [row["config"] for row in rows(*nets)] == configs
    assert "config" not in rows("other", *nets)[0]
    assert "config" not in rows(*DB)[0]


@pytest.mark.parametrize("form", ["table", "csv", "json", "md"])
def test_output_without_a_place_is_one_line(form):
    """A full disk and a closed output are said in one line, without a traceback."""
    command = f"{sys.executable} -m queries.cli list --format {form} --db {EXAMPLE}"
    for place, said in ((">/dev/full", "No space left"), (">&-", "closed")):
        result = subprocess.run(
            ["bash", "-c", f"{command} {place}"],
            check=False, capture_output=True, text=True, cwd=ROOT,
        )  # fmt: skip
        assert result.returncode == 1
        assert said in result.stderr
        assert result.stderr.startswith("Error: the output cannot be written: ")
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [("list", b"\xff*"), ("show", b"\xff"), ("sql", b"SELECT '\xff'"), ("list", "--db", b"\xff")],
)
def test_arguments_that_are_no_text_are_refused(arguments):
    """Bytes that are not UTF-8 are answered without a traceback."""
    database = () if "--db" in arguments else DB
    result = run(*arguments, *database)
    assert "Traceback" not in result.stderr
    assert result.stderr.count("\n") == (result.returncode != 0)
    assert result.returncode == (0 if arguments == ("list", b"\xff*") else 2)


@pytest.mark.parametrize("name", ["a b.db", "a#b.db", "a%20b.db", "a?mode=memory.db", "a@b:c.db"])
def test_path_of_a_database_is_taken_literally(in_process, tmp_path, name):
    """No character in a path has a meaning, whether it is created or asked."""
    path = tmp_path / name
    command = [sys.executable, "-m", "exporter.cli.main", "db", "upgrade", "--db", str(path)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    assert [p.name for p in tmp_path.iterdir()] == [name]
    query = "SELECT COUNT(*) AS n FROM profiles"
    assert in_process("sql", query, "--format", "csv", "--db", str(path)) == "n\n0\n"


def test_wrong_usage_has_status_2():
    """An option that does not exist is wrong usage."""
    assert "--colour" in refusal("list", "--colour")


def test_export_writes_the_whole_file(tmp_path):
    """The file is there with its bytes, and what was there before is replaced."""
    target = tmp_path / "buffers.csv"
    target.write_text("old")
    result = run("export", "vgg11", "--to", "minimalloc", "-o", str(target), *DB)
    assert result.returncode == 0
    assert target.read_text().startswith("id,lower,upper,size\n")
    assert [p.name for p in tmp_path.iterdir()] == ["buffers.csv"]


def test_output_goes_through_pipes_and_links(tmp_path):
    """A pipe stays a pipe and its reader gets the bytes; a link stays a link to the new file."""
    arguments = ("export", "vgg11", "--to", "minimalloc", "-o")
    expected = answer(*arguments, str(tmp_path / "plain.csv"), quiet=False)
    assert expected == ""
    expected = (tmp_path / "plain.csv").read_text()

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True) as reader:
        answer(*arguments, str(pipe), quiet=False)
        assert reader.communicate(timeout=60)[0] == expected
    assert pipe.is_fifo()

    (tmp_path / "old.csv").write_text("old")
    link = tmp_path / "link"
    link.symlink_to("old.csv")
    answer(*arguments, str(link), quiet=False)
    assert link.is_symlink()
    assert (tmp_path / "old.csv").read_text() == expected
    assert answer(*arguments, "-", quiet=False) == expected


def test_output_without_a_name_or_in_a_circle_is_refused(tmp_path):
    """An empty name and links that lead nowhere are no place to write to."""
    arguments = ("export", "vgg11", "--to", "minimalloc", *DB, "-o")
    assert "no name" in refusal(*arguments, "")
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    assert "circle" in refusal(*arguments, str(circle), status=1)
    assert circle.is_symlink()


@pytest.mark.parametrize("form", ["png", "pdf", "svg"])
@pytest.mark.parametrize("command", ["liveness", "critical-path"])
def test_plot_draws_a_file(in_process, tmp_path, command, form):
    """Figures are written in the format that the name asks for."""
    pytest.importorskip("matplotlib")
    target = tmp_path / f"figure.{form}"
    in_process(command, "googlenet", *DB, "--plot", str(target))
    magic = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[form]
    assert target.read_bytes().startswith(magic)


def test_plot_of_the_critical_path_names_its_colours(in_process, tmp_path):
    """The figure says what is on the path and what is beside it."""
    pytest.importorskip("matplotlib")
    target = tmp_path / "figure.svg"
    in_process("critical-path", "googlenet", *DB, "--plot", str(target))
    figure = target.read_text("utf-8").lower()
    for color, text in (("#d55e00", "on the critical path"), ("#56b4e9", "beside it")):
        legend = figure[figure.index('id="legend') :]
        assert f"<!-- {text} -->" in legend  # matplotlib draws letters, and notes the text
        assert color in legend


@pytest.fixture
def idle(tmp_path):
    """Store a model that does nothing, whose input has 128 bytes, and return its database."""
    hand = Hand(model="Identity")
    hand.module("", "Identity")
    source, sink = hand.node("x", "placeholder"), hand.node("output", "output")
    tensor = hand.tensor(hand.storage(128, "input"), role="input", name="x")
    hand.edge(source, sink, tensor, 128)
    hollow = Hand(model="Hollow")
    hollow.storage(0)
    hollow.op("detach")
    with open_store(f"sqlite:///{tmp_path}/idle.db", create=True) as store:
        store.write(hand.profile())
        store.write(hollow.profile())
    return ("--db", str(tmp_path / "idle.db"))


def test_model_without_operators_is_answered(in_process, idle, tmp_path):
    """A model that does nothing takes no time, and is exported as such."""
    for level in ("nodes", "ops"):
        found = json.loads(in_process(
            "critical-path", "Identity", "--weight", "time", "--device", "A100", "--level", level,
            "--format", "json", *idle,
        ))  # fmt: skip
        assert (found["summary"]["length"], found["summary"]["parallelism"]) == (0, 1)
    for name in ("solver", "minimalloc", "snapshot", "chrome", "chakra"):
        in_process("export", "Identity", "--to", name, "-o", str(tmp_path / name), *idle)
    bundle = json.loads((tmp_path / "solver").read_text())
    assert bundle["chain"]["x"] == [128]
    assert bundle["dfgraph"]["cost_cpu"] == [0, 0]


def test_report_of_a_model_without_operators_is_written(in_process, idle, tmp_path):
    """The page is there, with the model's name."""
    pytest.importorskip("plotly")
    in_process("report", "Identity", "-o", str(tmp_path / "page.html"), *idle)
    assert "Identity" in (tmp_path / "page.html").read_text("utf-8")


@pytest.mark.parametrize("model", ["Identity", "Hollow"])
@pytest.mark.parametrize("command", ["liveness", "critical-path"])
def test_plot_of_nothing_is_an_empty_figure(in_process, idle, tmp_path, command, model):
    """Without steps, or without a byte, there still is a figure."""
    pytest.importorskip("matplotlib")
    target = tmp_path / "figure.svg"
    in_process(command, model, *idle, "--plot", str(target))
    assert target.read_bytes().startswith(b"<?xml")


def test_plot_of_an_unknown_kind_is_refused(tmp_path):
    """Matplotlib's own words, in one line."""
    pytest.importorskip("matplotlib")
    assert "docx" in refusal("liveness", "vgg11", "--plot", str(tmp_path / "figure.docx"), *DB)


def test_plot_that_cannot_be_written_is_a_failure(tmp_path):
    """A folder that is not there is said in one line, and is no wrong usage."""
    pytest.importorskip("matplotlib")
    target = str(tmp_path / "no" / "figure.png")
    line = refusal("liveness", "vgg11", "--plot", target, *DB, status=1)
    assert line == f"Error: cannot draw {target}: No such file or directory\n"


@pytest.mark.parametrize(
    "arguments",
    [["--help"], *([name, "--help"] for name in question_names()), ["list", *DB]],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_quick_answers_load_no_graph_or_plotting_library(arguments):
    """What makes commands slow to start stays out of all help, and of the list of profiles."""
    code = (
        "import sys; from queries.cli import cli;"
        f"cli.main({arguments}, standalone_mode=False);"
        "slow = {'networkx', 'torch', 'pandas', 'numpy', 'plotly', 'matplotlib', 'alembic'};"
        "sys.exit(', '.join(slow & set(sys.modules)) or None)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=ROOT
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_version_is_that_of_the_package():
    """The command's version is the package's, as ``export-profiles --version`` shows it."""
    shown = answer_without_database("--version")
    assert shown == f"query-profiles {version('export-profiles')}\n"


def test_list_of_commands_is_not_cut_off():
    """Each command has a whole sentence in the help, even where lines are 80 characters long."""
    lines = answer_without_database("--help").splitlines()
    start = lines.index("Commands:") + 1
    names = question_names()
    shown = dict(line.split(maxsplit=1) for line in lines[start : start + len(names)])
    assert list(shown) == names
    assert all(text.endswith(".") and "..." not in text for text in shown.values())


@pytest.mark.parametrize("name", question_names())
def test_question_is_named_as_its_file_and_shows_an_example(name):
    """Each subcommand has its file's name, says what it does and shows how, as do its options."""
    command = question(name)
    assert command.name == name
    assert re.search(r"^ *Examples?:$", command.help, re.MULTILINE)
    assert f"  query-profiles {name} " in command.help
    assert command.short_help.endswith(".")
    for option in command.params:
        assert isinstance(option, click.Argument) or option.help, option.name


def test_public_names_are_those_of_the_questions():
    """Every name that a file offers is there under ``queries``, and is the thing itself."""
    for module, names in public_names():
        for name in names:
            assert getattr(queries, name) is getattr(import_module(module), name)
    assert set(queries.__all__) == {name for _, names in public_names() for name in names}
