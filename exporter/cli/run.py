"""A run with its progress and summary."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from store.command import shown
from store.errors import ProfileError

if TYPE_CHECKING:
    from exporter.pipeline.jobs import Job, Limits
    from exporter.pipeline.pipeline import Interruption, Report


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
        ProfileError: if the database cannot be used; nothing was changed.
        click.ClickException: if it fails later.
    """
    from rich.console import Console

    from exporter.cli.progress import RunProgress, failure_lines, summary_line, totals_table
    from exporter.pipeline.pipeline import run, split_stored
    from store import open_store

    started = time.monotonic()
    console = Console(stderr=True, quiet=quiet)
    with open_store(url, create=True) as store:
        wanted, skipped = (jobs, []) if force else split_stored(jobs, store)
        with RunProgress(console, len(wanted)) as progress:
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
