"""Zoo to database: which profiles are missing, who traces them, and the one who writes.

Workers trace in processes of their own and hand over whole profiles; this process alone writes,
one transaction per profile. So whatever ends a run, the database holds whole profiles only.
"""

from __future__ import annotations

import dataclasses
import os
import signal
from collections import deque
from dataclasses import dataclass, field
from importlib.metadata import version
from multiprocessing import connection
from typing import TYPE_CHECKING, Protocol, Self

from exporter.worker import Job, Outcome, Worker
from store import head_revision
from store.errors import InvalidProfile, ProfileExists

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence
    from types import FrameType

    from exporter.settings import Settings
    from exporter.zoo.base import Zoo
    from store import Store
    from store.records import Totals


class Interruption:
    """Turns SIGINT and SIGTERM into a wish that is granted between two profiles.

    A context manager for the main thread. The second signal acts as it would have without it.
    """

    def __init__(self) -> None:
        self.signal = 0  # the number of the signal that came, 0: none
        self._read, self._write = os.pipe()
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()
        os.close(self._read)
        os.close(self._write)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.signal = number
        os.write(self._write, b"!")
        self._restore()

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when a signal has come."""
        return self._read


class Observer(Protocol):
    """Sees the work go on."""

    def finished(self, outcome: Outcome) -> None:
        """Note that a job has an outcome, and is stored if it did not fail."""
        ...


@dataclass(slots=True)
class Report:
    """What a run did."""

    stored: list[Totals] = field(default_factory=list)
    skipped: list[Job] = field(default_factory=list)  # in the database already
    failed: list[Outcome] = field(default_factory=list)
    interrupted: int = 0  # the number of the signal that ended the run, 0: none


def jobs_for(zoo: Zoo, models: Iterable[str], settings: Iterable[Settings]) -> list[Job]:
    """Return one job for every model under every configuration."""
    settings = list(settings)
    return [Job(zoo.name, model, one) for model in models for one in settings]


# What tells stored profiles apart, as known before tracing. The input follows from these.
_STORED = """
    SELECT m.zoo, m.name, m.package, m.package_version, m.config,
           p.batch_size, p.dtype, p.mode, p.backward, p.input_grad, p.target, p.attention,
           p.autocast, p.optimizer, p.assumption, p.torch_version, p.exporter_version
    FROM profiles AS p JOIN models AS m ON m.model_id = p.model_id
    WHERE p.schema_version = :schema_version
"""


def split_stored(jobs: Iterable[Job], store: Store, package: str) -> tuple[list[Job], list[Job]]:
    """Return the jobs whose profile is missing, and those whose profile is stored.

    Versions come from the installed distributions, so that torch need not be imported.

    Args:
        jobs: jobs of one zoo.
        store: the database.
        package: distribution that defines the zoo's models.
    """
    _, rows = store.query(_STORED, {"schema_version": head_revision()})
    stored = {(*row[:-2], _public(row[-2]), row[-1]) for row in rows}
    versions = (_public(version("torch")), version("export-profiles"))
    missing: list[Job] = []
    there: list[Job] = []
    for job in jobs:
        asked = job.settings
        key = (
            job.zoo, job.model, package, version(package), asked.config(),
            asked.batch_size, asked.dtype, asked.mode, asked.backward, asked.input_grad,
            asked.target, asked.attention, asked.autocast, asked.optimizer, "", *versions,
        )  # fmt: skip
        (there if key in stored else missing).append(job)
    return missing, there


def _public(text: str) -> str:
    """Return a version without its build, as in 2.14.1 for 2.14.1+cpu."""
    return text.partition("+")[0]


def run(
    jobs: Sequence[Job],
    store: Store,
    *,
    workers: int,
    overwrite: bool = False,
    fail_fast: bool = False,
    observer: Observer,
    interruption: Interruption,
) -> Report:
    """Profile the jobs, store each profile as it arrives, and return what happened.

    Raises:
        ProfileError: if the database fails; the profiles stored before stay.
    """
    report = Report()
    outcomes = _outcomes(jobs, min(workers, len(jobs)), interruption)
    try:
        for outcome in outcomes:
            failure = _keep(outcome, store, report, replace=overwrite)
            if failure is not None:
                report.failed.append(failure)
            observer.finished(failure or outcome)
            if interruption.signal or (fail_fast and report.failed):
                break
    finally:
        outcomes.close()
    report.interrupted = interruption.signal
    return report


def _keep(outcome: Outcome, store: Store, report: Report, *, replace: bool) -> Outcome | None:
    """Store a profile and note it in the report, or return the failure.

    Raises:
        StoreError: if the database fails, which is no model's fault.
    """
    if outcome.profile is None:
        return outcome
    try:
        profile_id = store.write(outcome.profile, replace=replace)
    except InvalidProfile as error:
        return dataclasses.replace(outcome, profile=None, error=str(error))
    except ProfileExists:  # another run has stored it meanwhile
        report.skipped.append(outcome.job)
    else:
        totals = dataclasses.replace(outcome.profile.totals, profile_id=profile_id)
        report.stored.append(totals)
    return None


def _outcomes(
    jobs: Sequence[Job], workers: int, interruption: Interruption
) -> Generator[Outcome, None, None]:
    """Yield the jobs' outcomes as they come, until all are there or a signal comes.

    Closing the generator ends the workers.
    """
    waiting = deque(jobs)
    pool: list[Worker] = []
    try:
        for _ in range(workers):
            pool.append(Worker())
            pool[-1].send(waiting.popleft())
        while busy := {worker.fileno(): worker for worker in pool if worker.job}:
            ready = connection.wait([*busy, interruption.fileno()])
            if interruption.signal:
                return
            arrived = []
            for worker in [busy[number] for number in busy if number in ready]:
                arrived.append(worker.receive())
                if waiting:
                    if not worker.alive:
                        worker.stop()
                        pool.remove(worker)
                        worker = Worker()  # noqa: PLW2901
                        pool.append(worker)
                    worker.send(waiting.popleft())
            for outcome in arrived:
                yield outcome()
    finally:
        for worker in pool:
            worker.stop()
