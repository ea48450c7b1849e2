"""The command as its users run it: real processes, real databases."""

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from make_cli_docs import PAGE, commands, with_help

from exporter.cli_run import database_url, shown

REPOSITORY = Path(__file__).parents[1]


def export_profiles(*arguments: str, cwd: Path | str = REPOSITORY) -> subprocess.CompletedProcess:
    code = "from exporter.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=None,
    )


def one_line(text: str) -> str:
    """Return the only line of the text, and fail if there are others."""
    (line,) = text.splitlines()
    return line


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
        ["db", "--help"],
    ],
)
def test_quick_answers_do_not_import_torch(arguments) -> None:
    """Help, versions, listings and refusals come without importing torch or the database layer."""
    code = (
        "import sys\n"
        "from exporter.cli import main\n"
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
    ],
)
def test_wrong_usage_is_refused_in_one_line(arguments, says, tmp_path) -> None:
    """Wrong usage exits with 2, says what is wrong in one line, and makes no database."""
    database = tmp_path / "profiles.db"
    done = export_profiles("--db", str(database), *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in one_line(done.stderr)
    assert not database.exists()


def test_database_urls_are_taken_and_shown() -> None:
    """A bare path becomes a URL, a URL stays, and a password is never shown."""
    assert database_url("some/profiles.db") == "sqlite:///some/profiles.db"
    assert database_url("postgresql://u:secret@host/db") == "postgresql://u:secret@host/db"
    assert shown("postgresql://u:secret@host/db") == "postgresql://u:***@host/db"
    assert shown("sqlite:////var/profiles.db") == "/var/profiles.db"


def test_every_option_and_command_has_help() -> None:
    """No command and no option goes without a sentence of help."""
    for name, command in commands():
        assert command.help, name
        for option in command.params:
            assert isinstance(option, click.Option)
            assert option.help, f"{name} {option.name}"


def test_docs_show_the_current_help() -> None:
    """The help in docs/cli.md is what the commands print; tests/make_cli_docs.py renews it."""
    page = PAGE.read_text("utf-8")
    assert with_help(page) == page


def test_docs_list_the_summary_keys() -> None:
    """Every key of the JSON summary that docs/cli.md lists is there, and no other."""
    listed = re.findall(r"^\| `(\w+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert listed == ["database", "stored", "skipped", "failed", "interrupted", "seconds"]
