"""How a run is shown: live on a terminal, one line per model elsewhere; a table at the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from exporter.zoo.user.inputs import tells_batch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from rich.console import Console

    from exporter.pipeline.jobs import Job, Outcome
    from exporter.pipeline.pipeline import Report
    from store.records import Totals

_FLOPS = ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP")
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")
_LEAST_SECONDS = 1.0  # that an estimate is made from: several workers finish at the same time


class RunProgress:
    """Follows a run on a console; a context manager and an ``exporter.pipeline.Observer``."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._done = 0
        self._first = 0.0  # when the first job was done
        self._live = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._live.add_task("profiling", total=total, left="")

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def finished(self, outcome: Outcome) -> None:
        """Show that a job is done."""
        self._done += 1
        left_text = ""
        if self._done == 1:  # until here the workers were starting
            self._first = time.monotonic()
        elif self._done < self._total:
            elapsed = time.monotonic() - self._first
            if elapsed > _LEAST_SECONDS:
                each = elapsed / (self._done - 1)
                left_text = f"about {_duration(each * (self._total - self._done))} left"
        status = "ok" if outcome.profile else "failed"
        # as in the table; the outcome's own time begins only when this process takes notice
        seconds = outcome.profile.totals.seconds if outcome.profile else outcome.seconds
        line = f"{job_name(outcome.job)}  {status}  {seconds:.2f} s"
        if self._console.is_terminal:
            self._live.update(self._task, advance=1, left=left_text)
            color = "green" if outcome.profile else "red"
            self._console.print(f"[{color}]{line}[/{color}]", highlight=False)
        else:
            count = f"{self._done}/{self._total}"
            self._console.out("  ".join(filter(None, [line, count, left_text])), highlight=False)


def job_name(job: Job) -> str:
    """Return a job's name for people: the model and its batch size, if its inputs have one."""
    user = job.settings.user
    if user and not tells_batch(user):
        return job.model
    return f"{job.model} (batch {job.settings.batch_size})"


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def figure(value: int, units: Sequence[str], step: int) -> str:
    """Return a figure with three significant digits, in the unit that fits its size.

    Args:
        value: in the first of the units, in which it is shown whole.
        units: from small to large.
        step: how many of a unit make one of the next.
    """
    if value < step:
        return f"{value} {units[0]}"
    scaled, chosen = float(value), 0
    while scaled >= step - 0.5 and chosen < len(units) - 1:  # a half below would round to the step
        scaled /= step
        chosen += 1
    digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
    return f"{scaled:.{digits}f} {units[chosen]}"


def totals_table(rows: Sequence[Totals]) -> Table:
    """Return the table of what was stored, in alphabetical order."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("model", no_wrap=True)
    for heading in (
        "batch",
        "nodes",
        "ops",
        "forward",
        "backward",
        "parameters",
        "kept",
        "time",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in sorted(rows, key=lambda row: (row.model, row.batch_size)):
        table.add_row(
            row.model,
            f"{row.batch_size}",
            f"{row.node_count}",
            f"{row.op_count}",
            figure(row.fwd_flops, _FLOPS, 1000),
            figure(row.bwd_flops, _FLOPS, 1000),
            figure(row.param_bytes, _BYTES, 1024),
            figure(row.kept_bytes, _BYTES, 1024),
            f"{row.seconds:.2f} s",
        )
    return table


def failure_lines(failed: Sequence[Outcome]) -> list[str]:
    """Return one line for every reason why jobs failed, with the jobs that share it."""
    by_reason: dict[str, list[Outcome]] = {}
    for outcome in failed:
        reason = outcome.error.replace(outcome.job.model, "the model")
        by_reason.setdefault(reason, []).append(outcome)
    sweep = len({outcome.job.settings.batch_size for outcome in failed}) > 1
    lines = []
    for reason, outcomes in by_reason.items():
        names = [job_name(one.job) if sweep else one.job.model for one in outcomes]
        model, said = outcomes[0].job.model, outcomes[0].error
        if len(names) == 1:
            lines.append(f"{names[0]}: {said.removeprefix(f'{model}: ')}")
        else:
            lines.append(f"{reason.removeprefix('the model: ')} ({', '.join(names)})")
    return lines


def summary_line(report: Report, database: str, seconds: float) -> str:
    """Return the closing sentence of a run."""
    parts = [f"{len(report.stored)} stored in {database} in {_duration(seconds)}"]
    if report.skipped:
        parts.append(f"{len(report.skipped)} there already (--force replaces them)")
    if report.failed:
        parts.append(f"{len(report.failed)} failed")
    return ", ".join(parts)
