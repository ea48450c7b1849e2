"""The command as its users run it: real processes, real databases."""

import re
import sqlite3
import subprocess
import sys
from contextlib import closing

import click
import pytest
from command import export_profiles, only_line

from store import head_revision
from tools.cli_docs import commands

OWN = ("--model", "torch.nn:Identity")


def test_list_prints_the_chosen_names() -> None:
    """Names that match and are not excluded are printed, one a line, in order."""
    done = export_profiles("--list", "--model", "resnet*", "--exclude", "resnet1*")
    assert (done.returncode, done.stdout, done.stderr) == (0, "resnet34\nresnet50\n", "")


def test_version_names_what_identifies_a_profile() -> None:
    """The versions of the command, torch and torchvision are shown."""
    done = export_profiles("--version")
    assert re.fullmatch(r"export-profiles \S+, torch \S+, torchvision \S+\n", done.stdout)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["--list"],
        ["--model", "resnet19"],
        ["--zoo", "none"],
        ["--model", "torch.nn:Linear", "--list"],
        ["--model", "torch.nnn:Linear", "--input", "float32[4]"],
        ["db", "--help"],
    ],
)
def test_quick_answers_do_not_import_torch(arguments) -> None:
    """Help, versions, listings and refusals come without importing torch or the database layer."""
    code = (
        "import sys\n"
        "from exporter.cli.main import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    heavy = {'torch', 'torchvision', 'sqlalchemy', 'rich'} & set(sys.modules)\n"
        "    sys.stderr.write(f'heavy: {sorted(heavy)}')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.stderr.endswith("heavy: []")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--zoo", "torchvison"], "did you mean 'torchvision'?"),
        (["--model", "resnet19"], "did you mean resnet1"),
        (["--exclude", "*"], "leave no model"),
        (["--batch-size", "0"], "'--batch-size': 0"),
        (["--image-size", "0"], "'--image-size': 0"),
        (["--workers", "0"], "'--workers': 0"),
        (["--dtype", "int8"], "'int8' is not one of"),
        (["--forward-only", "--optimizer", "sgd"], "needs a backward pass"),
        (["--frobnicate"], "--frobnicate"),
        (["resnet18"], "--model resnet18"),
        (["--timeout", "0"], "'--timeout': 0"),
        (["--timeout", "nan"], "'nan' is no duration"),
        (["--max-memory", "much"], "'much' is no amount of memory, such as 800M"),
        (["--set", "depth"], "'depth' is not of the form KEY=VALUE"),
        (["--set", "a=1", "--set", "a=2"], "'a' is given twice"),
        (["--zoo", "user"], "needs --model package.module:factory"),
        (["--input", "float32[4]"], "--input is for a model of your own"),
        (["--model", "alexnet", "--module-path", "."], "--module-path is for a model of your own"),
        ([*OWN, "--model", "alexnet"], "profile them one by one"),
        ([*OWN, "--image-size", "32"], "--image-size is for models of a zoo"),
        ([*OWN, "--input", "float32(4)"], "the form is [NAME=]TYPE[SIZE,...]"),
        ([*OWN, "--input", "float32[4]", "--batch-size", "2"], "write batch for a size"),
        ([*OWN, "--input", "float32[4]", "--inputs", "a:b"], "exclude each other"),
        ([*OWN, "--inputs", "no_such_module:make"], "there is no module 'no_such_module'"),
        ([*OWN, "--input", "x=1", "--input", "x=2"], "gives 'x' twice"),
        ([*OWN, "--module-path", "nowhere"], "nowhere is no folder"),
    ],
)
def test_wrong_usage_is_refused_in_only_line(arguments, says, tmp_path) -> None:
    """Wrong usage exits with 2, says what is wrong in one line, and makes no database."""
    database = tmp_path / "profiles.db"
    done = export_profiles("--db", str(database), *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in only_line(done.stderr)
    assert not database.exists()


@pytest.mark.parametrize("command", [["--model", "alexnet"], ["db", "upgrade"], ["db", "current"]])
@pytest.mark.parametrize("what", ["junk", "folder", "newer", "foreign", "scheme"])
def test_unusable_databases_are_refused(what, command, tmp_path) -> None:
    """What is no database of this schema is refused in one line that names it, and left alone."""
    path = tmp_path / "profiles.db"
    url = str(path)
    if what == "junk":
        path.write_text("no database\n" * 100)
    elif what == "folder":
        path.mkdir()
    elif what == "scheme":
        url = "mysql://host/profiles.db"
    else:
        with closing(sqlite3.connect(path)) as connection:
            table = "alembic_version" if what == "newer" else "songs"
            connection.executescript(
                f"CREATE TABLE {table} (version_num TEXT); INSERT INTO {table} VALUES ('9999');"  # noqa: S608
            )
    before = path.read_bytes() if path.is_file() else b""
    done = export_profiles(*command, "--db", url)
    if (what, command) == ("newer", ["db", "current"]):
        assert "9999" in done.stdout
        return
    assert (done.returncode, done.stdout) == (2, "")
    assert "profiles.db" in only_line(done.stderr)
    assert (path.read_bytes() if path.is_file() else b"") == before


@pytest.mark.parametrize(("name", "command"), list(commands()))
def test_help_shows_examples_line_by_line(name, command) -> None:
    """An example stands on a line of its own, and no mark of the help's source is left."""
    shown_help = command.get_help(click.Context(command, info_name=name))
    assert "\\b" not in shown_help
    if "Example:" in shown_help:
        assert f"  Example:\n    {name} --db study.db\n" in shown_help


def test_db_commands_create_and_show_the_schema(tmp_path) -> None:
    """A database is created, found current, and left as it is the second time."""
    path = tmp_path / "new" / "profiles.db"
    missing = export_profiles("db", "current", "--db", path)
    assert missing.returncode == 2
    assert "db upgrade" in only_line(missing.stderr)
    head = head_revision()
    for command, says in [
        ("upgrade", f"created, {head}"),
        ("current", f"has schema {head}, which is the newest"),
        ("upgrade", f"is at the newest schema, {head}"),
    ]:
        done = export_profiles("db", command, "--db", path)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{path}: {says}\n", "")


def test_every_option_and_command_has_help() -> None:
    """No command and no option goes without a sentence of help."""
    for name, command in commands():
        assert command.help, name
        for option in command.params:
            assert isinstance(option, click.Option)
            assert option.help, f"{name} {option.name}"
