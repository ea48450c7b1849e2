"""The processes that trace: each imports torch once, then profiles one model after the other.

This module itself imports torch only inside a worker, so the parent stays light.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
import time
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from typing import TYPE_CHECKING

from store.errors import ProfileError

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from exporter.settings import Settings
    from store.records import Profile


@dataclass(frozen=True, slots=True)
class Job:
    """One model under one configuration."""

    zoo: str
    model: str
    settings: Settings


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job."""

    job: Job
    profile: Profile | None  # None: it failed
    error: str  # why, in one line; "" if it did not fail
    seconds: float


class Worker:
    """A process that profiles models, seen from the parent.

    ``fileno`` lets several workers be waited for at once: readable means that an outcome is there
    or that the process died.
    """

    def __init__(self) -> None:
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process: SpawnProcess = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.job: Job | None = None
        self._sent_at = 0.0
        # An interrupt from the terminal goes to the whole process group. The child inherits the
        # blocked signal and ignores it before it unblocks, so that only the parent acts on it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when there is news."""
        return self._connection.fileno()

    def send(self, job: Job) -> None:
        """Hand over a job; the worker must be idle."""
        self.job = job
        self._sent_at = time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # it died: receive() will tell
            self._connection.send(job)

    def receive(self) -> Callable[[], Outcome]:
        """Take the news and leave the worker idle, or dead.

        Returns:
            What builds the outcome. Building takes a while for a large profile; the worker can be
            given its next job before.
        """
        job, seconds = self.job, time.monotonic() - self._sent_at
        if job is None:
            raise RuntimeError("the worker has nothing to do")
        self.job = None
        try:
            message = self._connection.recv_bytes()
        except (EOFError, OSError):
            self._process.join()
            reason = _death(self._process.exitcode)
            return lambda: Outcome(job, None, reason, seconds)

        def outcome() -> Outcome:
            result = pickle.loads(message)  # noqa: S301 - our own process wrote it
            if isinstance(result, str):
                return Outcome(job, None, result, seconds)
            return Outcome(job, result, "", seconds)

        return outcome

    @property
    def alive(self) -> bool:
        """Whether the process can take another job."""
        return self._process.is_alive()

    def stop(self) -> None:
        """End the process at once; what it was doing is lost."""
        self._process.kill()
        self._process.join()
        self._connection.close()


def _death(exitcode: int | None) -> str:
    """Return why a worker process is gone, in words."""
    if exitcode is not None and exitcode < 0:
        name = signal.Signals(-exitcode).name
        hint = ", as happens when memory runs out" if name == "SIGKILL" else ""
        return f"the worker process was killed by {name}{hint}"
    return f"the worker process ended with status {exitcode}"


def _serve(jobs: Connection) -> None:
    """Profile what comes through the connection until the parent closes it or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_die_with_parent, daemon=True).start()
    # What models print or warn about would tear the parent's progress display apart.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    with contextlib.suppress(EOFError, OSError):
        while True:
            jobs.send_bytes(pickle.dumps(_profile(jobs.recv()), pickle.HIGHEST_PROTOCOL))


def _die_with_parent() -> None:
    """End this process when its parent ends, even in the middle of a model."""
    if parent := parent_process():
        connection.wait([parent.sentinel])
        os._exit(1)


def _profile(job: Job) -> Profile | str:
    """Return the job's profile, or why there is none, in one line."""
    try:
        import torch

        from exporter.profiling import profile_built
        from exporter.zoo.registry import load_zoo

        torch.set_num_threads(1)  # the other cores have workers of their own
        return profile_built(load_zoo(job.zoo).build(job.model, job.settings), job.settings)
    except ProfileError as error:
        return _line(str(error))
    except Exception as error:  # noqa: BLE001 - what a model raises is its failure, not the run's
        return _line(f"{type(error).__name__}: {error}")


def _line(text: str) -> str:
    return " ".join(text.split())
