"""How both commands end and what they say then: one edge, so one set of tests for both."""

import os
import pty
import signal
import subprocess
import time
from pathlib import Path

import click
import pytest
from command import EXPORT_PROFILES, QUERY_PROFILES, REPOSITORY, only_line

from store.command import database_option, shown
from store.errors import StoreError
from tools.sql_docs import EXAMPLE

# What is answered on standard output.
ANSWERED = [
    (*EXPORT_PROFILES, "--list"),
    (*EXPORT_PROFILES, "--help"),
    (*EXPORT_PROFILES, "db", "current", "--db", str(EXAMPLE)),
    (*QUERY_PROFILES, "list", "--db", str(EXAMPLE)),
    (*QUERY_PROFILES, "export", "1", "--to", "minimalloc", "-o", "-", "--db", str(EXAMPLE)),
    (*QUERY_PROFILES, "--help"),
]
WRONG = [(*EXPORT_PROFILES, "--frobnicate"), (*QUERY_PROFILES, "list", "--frobnicate")]
# What uses a database, whatever its address.
USING = [
    (*EXPORT_PROFILES, "--model", "alexnet"),
    (*EXPORT_PROFILES, "db", "upgrade"),
    (*EXPORT_PROFILES, "db", "current"),
    (*QUERY_PROFILES, "list"),
    (*QUERY_PROFILES, "export", "1", "--to", "minimalloc", "-o", "-"),
]
# What is nearly a database's address, and what an answer to it shows.
MALFORMED = [
    ("", "sqlite:///profiles.db"),
    ("sqlite:", "sqlite:///profiles.db"),
    ("sqlite://x.db", "sqlite:///x.db"),
    ("sqlite:x.db", "sqlite:///x.db"),
    ("sqlite:/x", "sqlite:////x"),
    ("postgres:/x", "postgresql+psycopg://USER@HOST:PORT/DATABASE"),
    ("postgresql://u:secret@host:port/x", "postgresql+psycopg://USER@HOST:PORT/DATABASE"),
    ("postgresql://u:in@secret@host/x", "postgresql+psycopg://USER@HOST:PORT/DATABASE"),
]


def words(command):
    """Return a name for a command in a test's name."""
    name = "export" if command[: len(EXPORT_PROFILES)] == EXPORT_PROFILES else "query"
    return " ".join([name, *command[len(EXPORT_PROFILES) :]]).replace(str(EXAMPLE), "example")


def run(command, redirection="", **options):
    """Return how a command ended, its streams redirected as in a shell."""
    return subprocess.run(
        ["bash", "-c", f'"$@" {redirection}', "bash", *command],
        check=False, capture_output=True, text=True, cwd=REPOSITORY, **options,
    )  # fmt: skip


@pytest.mark.parametrize("command", ANSWERED, ids=words)
def test_answer_without_a_place_is_told(command):
    """A full disk, and a standard output that is closed, are said in one line; it is a failure."""
    for place, said in ((">/dev/full", "No space left on device"), (">&-", "is closed")):
        done = run(command, place)
        assert (done.returncode, done.stdout) == (1, "")
        line = only_line(done.stderr)
        assert line.startswith("Error: the output cannot be written: ")
        assert said in line


@pytest.mark.parametrize("command", ANSWERED, ids=words)
def test_answer_needs_no_place_for_errors(command):
    """A standard input and a standard error that are closed are no matter if none is needed."""
    done = run(command, "<&- 2>&-")
    assert done.returncode == 0
    assert done.stdout.endswith("\n")


@pytest.mark.parametrize("command", WRONG, ids=words)
def test_errors_without_a_place_leave_the_exit_status(command):
    """The status says that the usage was wrong, though the line about it cannot be written."""
    for closed in ("2>/dev/full", "<&- >&- 2>&-"):
        done = run(command, closed)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_query_without_an_input_is_refused():
    """A standard input that is closed holds no query."""
    done = run((*QUERY_PROFILES, "sql", "--db", str(EXAMPLE)), "<&-")
    assert (done.returncode, done.stdout) == (2, "")
    assert only_line(done.stderr).startswith("Error: ")


def test_run_with_closed_streams_stores_its_profile(tmp_path):
    """No file of a run, least of all its database, takes the place of a closed stream."""
    database = tmp_path / "profiles.db"
    command = (
        *EXPORT_PROFILES, "--model", "alexnet", "--forward-only", "--image-size", "64",
        "--workers", "1", "--quiet", "--db", str(database),
    )  # fmt: skip
    assert run(command, "<&- >&- 2>&-").returncode == 0
    question = (*QUERY_PROFILES, "list", "--format", "csv", "--db", str(database))
    assert ",alexnet," in run(question).stdout


@pytest.mark.parametrize("command", ANSWERED, ids=words)
def test_output_may_be_cut_off(command):
    """A reader that closes the pipe early causes no word, and the status of a failure."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


@pytest.mark.parametrize(("url", "way_out"), MALFORMED)
def test_malformed_address_is_refused_with_the_right_one(url, way_out):
    """What is nearly an address makes no file; the answer shows how one is written."""
    done = run((*EXPORT_PROFILES, "db", "upgrade", "--db", url))
    assert run((*QUERY_PROFILES, "list", "--db", url)).stderr == done.stderr
    assert (done.returncode, done.stdout) == (2, "")
    line = only_line(done.stderr)
    assert "no database address" in line
    assert way_out in line
    assert "secret" not in line
    assert not (REPOSITORY / "x.db").exists()


@pytest.mark.parametrize("command", USING, ids=words)
def test_database_in_memory_is_refused(command):
    """What would be gone when the command ends is neither filled nor asked."""
    done = run((*command, "--db", ":memory:"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "a file is written sqlite:///profiles.db" in only_line(done.stderr)


@pytest.mark.parametrize(
    "url",
    ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite+pysqlite://", "sqlite:///?cache=no"],
)
def test_every_address_of_a_database_in_memory_is_known(url):
    """It is refused however it is written."""
    with pytest.raises(click.BadParameter, match="is gone when the command ends"):
        asked(["--db", url], standalone_mode=False)


@click.command()
@database_option
def asked(url):
    """Ask for a database, and nothing of it."""
    pytest.fail(f"{url} was taken")


@pytest.mark.parametrize(
    "arguments",
    [
        (*EXPORT_PROFILES, "--model", b"\xff"),
        (*EXPORT_PROFILES, "--model", b"\xff:make", "--list"),
        (*EXPORT_PROFILES, "--zoo", b"\xff"),
        (*EXPORT_PROFILES, "db", "current", "--db", b"\xff"),
        (*QUERY_PROFILES, "list", "--db", b"\xff"),
        (*QUERY_PROFILES, "show", b"\xff", "--db", str(EXAMPLE)),
        (*QUERY_PROFILES, "sql", b"SELECT '\xff'", "--db", str(EXAMPLE)),
    ],
)
def test_arguments_that_are_no_text_are_refused(arguments):
    """Bytes that are not UTF-8 are answered in one line."""
    done = run(arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert only_line(done.stderr).startswith("Error: ")


def _heed_interrupts():
    """Have a new process end by an interrupt, which a shell in the background ignores."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_interrupt_is_told():
    """Control-C while a query is awaited ends in one line and status 130."""
    parent, child = pty.openpty()
    with subprocess.Popen(
        [*QUERY_PROFILES, "sql", "--db", str(EXAMPLE)],
        stdin=child, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY,
        start_new_session=True,
        preexec_fn=_heed_interrupts,  # noqa: PLW1509  # there are no threads
    ) as process:  # fmt: skip
        try:
            deadline = time.monotonic() + 300
            while not _waits(process.pid):
                assert time.monotonic() < deadline, "it does not wait for a query"
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=300)
        finally:
            process.kill()
    os.close(child)
    os.close(parent)
    assert (process.returncode, output) == (130, "")
    assert errors.split() == ["interrupted"]


def _waits(pid):
    """Return whether a process is asleep in the terminal's driver."""
    where = Path(f"/proc/{pid}/wchan").read_text()
    return "tty_read" in where or "wait_woken" in where  # by the kernel's version


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("some/profiles.db", "some/profiles.db"),
        ("a b%20#?.db", "a b%20#?.db"),
        ("sqlite:////var/profiles.db", "/var/profiles.db"),
        ("postgresql://u:secret@host/db", "postgresql+psycopg://u:***@host/db"),
        ("postgresql://:secret@host/db", "postgresql+psycopg://:***@host/db"),
        ("postgresql://u@host/db?password=secret", "postgresql+psycopg://u@host/db"),
    ],
)
def test_database_is_shown_without_its_password(address, text):
    """A path stays what it is, that of a URL is shown alone, and a password is never shown."""
    assert shown(address) == text


def test_password_with_an_unescaped_sign_is_refused():
    """Where a password ends cannot be told, so that no part of it is repeated."""
    with pytest.raises(StoreError) as caught:
        shown("postgresql://u:in@secret@host/db")
    assert "secret" not in str(caught.value)
