"""What the commands share: the database option, and a run with its progress and summary."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click

from store.errors import ProfileError

if TYPE_CHECKING:
    from exporter.pipeline.jobs import Job, Limits
    from exporter.pipeline.pipeline import Interruption, Report

DEFAULT_DB = "sqlite:///data/profiles.db"

Command = TypeVar("Command", bound=Callable[..., Any])


class Refusal(click.ClickException):
    """What was asked for cannot be done; nothing was changed."""

    exit_code = 2


def refusal(error: ProfileError | ValueError) -> click.ClickException:
    """Return what the command says of an error and ends with; nothing was changed."""
    status = error.exit_status if isinstance(error, ProfileError) else Refusal.exit_code
    return Refusal(str(error)) if status == Refusal.exit_code else click.ClickException(str(error))


def _lasting(_context: click.Context, _option: click.Parameter, url: str) -> str:
    """Return the address of a database.

    Raises:
        click.BadParameter: if it is one in memory, gone when the command ends.
    """
    if url in {":memory:", "sqlite://", "sqlite:///", "sqlite:///:memory:"}:
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
        default=DEFAULT_DB,
        show_default=True,
        callback=_lasting,
        help="Database: a URL, or the path of an SQLite file.",
    )(command)


def shown(url: str) -> str:
    """Return a database URL for people: a plain path for SQLite, and never a password."""
    return re.sub(r"(://[^:/@]+):[^@]*@", r"\1:***@", url).removeprefix("sqlite:///")


def profile(
    jobs: list[Job],
    url: str,
    *,
    workers: int,
    limits: Limits,
    force: bool,
    fail_fast: bool,
    quiet: bool,
    as_json: bool,
    interruption: Interruption,
) -> int:
    """Profile what is missing, show how it goes, and return the exit status.

    Raises:
        click.ClickException: if the database cannot be used.
    """
    from rich.console import Console

    from exporter.cli.progress import RunProgress, failure_lines, summary_line, totals_table
    from exporter.pipeline.pipeline import run, split_stored
    from store import open_store

    started = time.monotonic()
    try:
        store = open_store(url, create=True)
        wanted, skipped = (jobs, []) if force else split_stored(jobs, store)
    except ProfileError as error:
        raise refusal(error) from error
    console = Console(stderr=True, quiet=quiet)
    with store, RunProgress(console, len(wanted)) as progress:
        try:
            report = run(
                wanted,
                store,
                workers=workers,
                limits=limits,
                overwrite=force,
                fail_fast=fail_fast,
                observer=progress,
                interruption=interruption,
            )
        except ProfileError as error:
            raise click.ClickException(str(error)) from error
    report.skipped.extend(skipped)
    if as_json:
        click.echo(json.dumps(summary(report, url, time.monotonic() - started), indent=2))
    elif not quiet:
        output = Console(width=None if sys.stdout.isatty() else 120)
        if report.stored:
            output.print(totals_table(report.stored))
        output.out(summary_line(report, shown(url), time.monotonic() - started), highlight=False)
    for line in failure_lines(report.failed):
        click.echo(f"failed: {line}", err=True)
    if report.interrupted:
        click.echo("interrupted; what was finished is stored", err=True)
        return 128 + report.interrupted
    return 1 if report.failed else 0


def summary(report: Report, url: str, seconds: float) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    return {
        "database": shown(url),
        "stored": [asdict(totals) for totals in report.stored],
        "skipped": [named(job) for job in report.skipped],
        "failed": [named(outcome.job) | {"error": outcome.error} for outcome in report.failed],
        "interrupted": bool(report.interrupted),
        "seconds": round(seconds, 3),
    }


def named(job: Job) -> dict[str, Any]:
    """Return what names a job in a summary."""
    return {"zoo": job.zoo, "model": job.model, "batch_size": job.settings.batch_size}
