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
from typing import TYPE_CHECKING, Any, Protocol, Self

from exporter.pipeline.worker import Worker
from store import head_revision
from store.columns import columns
from store.errors import InvalidProfile, ProfileExists
from store.records import ProfileInfo
from store.settings import run_values

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from types import FrameType

    from exporter.pipeline.jobs import Job, Limits, Outcome
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


# What tells stored profiles apart, as known before tracing; the input follows from these.
_COMPARED = {
    item.name: item.stored_name
    for item in columns(ProfileInfo)
    if item.name == "capture" or not (item.declared.is_outcome or item.name == "input_spec")
}
_STORED = f"""
    SELECT {", ".join(_COMPARED.values())}
    FROM profiles AS p JOIN models AS m ON m.model_id = p.model_id
    WHERE p.schema_version = :schema_version
"""  # noqa: S608 - our own columns


def split_stored(jobs: Iterable[Job], store: Store) -> tuple[list[Job], list[Job]]:
    """Return the jobs whose profile is missing, and those whose profile is stored.

    Versions come from the installed distributions, so that torch need not be imported.
    """
    _, rows = store.query(_STORED, {"schema_version": head_revision()})
    stored: set[tuple[Any, ...]] = set()
    for row in rows:
        values = dict(zip(_COMPARED, row, strict=True))
        values["torch_version"] = _public(values["torch_version"])
        # What the user's code decides is not known before: it answers to anything.
        for batch_size in (values["batch_size"], _ANY):
            for dtype in (values["dtype"], _ANY):
                for capture in (values["capture"], _ANY):
                    known = {"batch_size": batch_size, "dtype": dtype, "capture": capture}
                    stored.add(_key(values | known))
    missing: list[Job] = []
    there: list[Job] = []
    for job in jobs:
        (missing if stored.isdisjoint(_identities(job)) else there).append(job)
    return missing, there


_ANY = "any"


def _identities(job: Job) -> Iterator[tuple[Any, ...]]:
    """Yield what a profile of the job may be stored as."""
    asked = job.settings
    user = asked.user
    values = run_values(asked) | {
        "zoo": job.zoo,
        "model": job.model,
        "package": job.package,
        "package_version": version(job.package) if job.package else "",
        "config": asked.config(),
        "torch_version": _public(version("torch")),
        "exporter_version": version("export-profiles"),
    }
    if user and user.user_batch:
        values["batch_size"] = _ANY
    if user and user.user_dtype:
        values["dtype"] = _ANY
    # An assumption is stored where the model needed one; where it needed none, it ran on meta.
    assumed = asked.assume or "drawn-values"
    kinds = {
        "auto": (("", _ANY), (assumed, _ANY)),
        "meta": (("", "meta"),),
        "drawn": (("", "meta"), (assumed, "drawn")),
        "real": (("", "real"), ("seeded-values", "real")),
    }
    for kind, capture in kinds[asked.capture]:
        yield _key(values | {"assumption": kind, "capture": capture})


def _key(values: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(values[name] for name in _COMPARED)


def _public(text: str) -> str:
    """Return a version without its build, as in 2.14.1 for 2.14.1+cpu."""
    return text.partition("+")[0]


def run(
    jobs: Sequence[Job],
    store: Store,
    *,
    workers: int,
    limits: Limits | None = None,
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
    outcomes = _Pool(jobs, limits).outcomes(min(workers, len(jobs)), interruption)
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


class _Pool:
    """The workers, and the jobs that wait for one."""

    def __init__(self, jobs: Iterable[Job], limits: Limits | None) -> None:
        self._waiting = deque(jobs)
        self._limits = limits
        self._workers: list[Worker] = []

    def outcomes(self, workers: int, interruption: Interruption) -> Generator[Outcome, None, None]:
        """Yield the jobs' outcomes as they come, until all are there or a signal comes.

        Closing the generator ends the workers.
        """
        try:
            for _ in range(workers):
                self._begin_next()
            while busy := {worker.fileno(): worker for worker in self._workers if worker.job}:
                left = [one.seconds_left() for one in busy.values()]
                timeout = min((seconds for seconds in left if seconds is not None), default=None)
                ready = connection.wait([*busy, interruption.fileno()], timeout)
                if interruption.signal:
                    return
                news = [self._news(one, ready=number in ready) for number, one in busy.items()]
                # Building takes a while, and the next jobs have begun.
                yield from (outcome() for outcome in news if outcome is not None)
        finally:
            for worker in self._workers:
                worker.stop()

    def _news(self, worker: Worker, *, ready: bool) -> Callable[[], Outcome] | None:
        """Return what builds the outcome of a worker's job, if it has one, and go on."""
        job = worker.job
        if ready:
            outcome = worker.receive()
        elif worker.seconds_left() == 0:
            outcome = worker.give_up()
        else:
            return None
        if outcome is not None and self._waiting:
            # A user's module may leave anything behind, such as another default type.
            if job is None or job.settings.user or not worker.alive:
                worker.stop()
                self._workers.remove(worker)
                self._begin_next()
            else:
                worker.send(self._waiting.popleft())
        return outcome

    def _begin_next(self) -> None:
        """Give the next job to a new worker."""
        self._workers.append(Worker(self._limits))
        self._workers[-1].send(self._waiting.popleft())
