"""What is wrong, in one line, and the status that the process ends with."""

from __future__ import annotations

import os
import sys

import click

from store.errors import ProfileError


def status_of(command: click.Command) -> int:
    """Run the command on the process's arguments and return its exit status.

    An error is said in one line; that the reader of a pipe has left is none.
    """
    try:
        status = command.main(prog_name="query-profiles", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.ClickException as error:
        click.echo(f"Error: {error.format_message()}", err=True)
        status = error.exit_code
    except ProfileError as error:
        click.echo(f"Error: {error}", err=True)
        status = error.exit_status
    except (UnicodeEncodeError, UnicodeDecodeError) as error:
        line = f"this text is not {error.encoding}: {error.reason}: {error.object!a:.80}"
        click.echo(f"Error: {line}", err=True)
        # bytes that were given; else a terminal or file that has no such character
        is_given = isinstance(error, UnicodeDecodeError) or "surrogates" in error.reason
        status = 2 if is_given else 1
    except BrokenPipeError:  # whoever read the output has seen enough
        _drop_output()
        status = 1
    except OSError as error:
        click.echo(f"Error: cannot write the answer: {error.strerror}", err=True)
        _drop_output()
        status = 1
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        status = 130
    return int(status or 0)


def _drop_output() -> None:
    """Let what is still to be written go nowhere, so that the interpreter ends in silence."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
