"""What both commands have in common: how they end, how they say what is wrong, and ``--db``.

Only the commands import this: whoever uses the store in Python needs no Click.

A command ends with 0 if it did what it was asked, with 1 if that failed, with 2 if it was asked
for something wrong, and with 130 after an interrupt. Whatever is wrong is said in one line.
"""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, TypeVar

import click

from store import DEFAULT_URL
from store.errors import ProfileError

if TYPE_CHECKING:
    from collections.abc import Callable

_FAILED = 1
_WRONG = 2
_INTERRUPTED = 130

# Addresses of databases that are gone when the process ends, as SQLAlchemy and SQLite write them.
_IN_MEMORY = re.compile(r":memory:|sqlite(\+\w+)?://(/(:memory:)?)?(\?.*)?")

Command = TypeVar("Command", bound="Callable[..., Any]")


def run_command(command: click.Command, name: str) -> NoReturn:
    """Run a command on the process's arguments, and end the process with its exit status.

    Args:
        command: what it returns is the status, None for 0.
        name: of the program.
    """
    _open_closed_streams()
    sys.exit(_status(command, name))


def _status(command: click.Command, name: str) -> int:
    """Run a command, say what is wrong, and return the exit status."""
    try:
        status = int(command.main(prog_name=name, standalone_mode=False) or 0)
        sys.stdout.flush()
    except click.ClickException as error:
        _say(f"Error: {error.format_message()}")
        status = error.exit_code
    except ProfileError as error:
        _say(f"Error: {error}")
        status = error.exit_status
    except (UnicodeEncodeError, UnicodeDecodeError) as error:
        _say(f"Error: this text is not {error.encoding}: {error.reason}: {error.object!a:.80}")
        # bytes that were given; else a terminal or file that has no such character
        is_given = isinstance(error, UnicodeDecodeError) or "surrogates" in error.reason
        status = _WRONG if is_given else _FAILED
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # whose reader has seen enough
            _say(f"Error: the output cannot be written: {error.strerror}")
        _drop(sys.stdout)
        status = _FAILED
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted")
        status = _INTERRUPTED
    return status


def _say(line: str) -> None:
    """Write one line to standard error; where that cannot be written, the status says it all."""
    try:
        click.echo(" ".join(map(str.strip, line.splitlines())), err=True)
    except OSError:
        _drop(sys.stderr)


def _drop(stream: TextIO) -> None:
    """Let what is still to be written go nowhere, so that the interpreter ends in silence."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _Closed(io.FileIO):
    """What stands for a standard output that is closed."""

    def write(self, _data: object) -> int:
        """Write nothing.

        Raises:
            OSError: always.
        """
        raise OSError(errno.EBADF, "standard output is closed")


def _open_closed_streams() -> None:
    """Open the standard streams that are closed: an empty input, an output that fails.

    Python leaves them None, and the next files to be opened, a database among them, would take
    their numbers. What goes to a closed standard error is lost.
    """
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - open to the end
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(_Closed(os.devnull, "w"), encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115


def _lasting(_context: click.Context, _option: click.Parameter, url: str) -> str:
    """Return the address of a database.

    Raises:
        click.BadParameter: if it is one in memory, gone when the command ends.
    """
    if _IN_MEMORY.fullmatch(url):
        raise click.BadParameter(
            f"{url!r} is gone when the command ends; a file is written sqlite:///profiles.db"
        )
    return url


def database_option(command: Command) -> Command:
    """Add ``--db`` to a command; it arrives as ``url``."""
    return click.option(
        "--db",
        "url",
        metavar="URL",
        default=DEFAULT_URL,
        show_default=True,
        callback=_lasting,
        help="Database: a URL, or the path of an SQLite file.",
    )(command)


def shown(address: str) -> str:
    """Return a database address for people: a plain path for SQLite, and never a password.

    Raises:
        StoreError: if it is no address.
    """
    # SQLAlchemy, which loads slowly, is there already once a database was opened
    from store.addresses import is_sqlite, parse_url  # noqa: PLC0415
    from store.addresses import shown as shown_url  # noqa: PLC0415

    url = parse_url(address)
    return str(url.database) if is_sqlite(url) else shown_url(url)
