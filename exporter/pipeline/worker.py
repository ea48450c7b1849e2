"""The processes that trace: each imports torch once, then profiles one model after the other.

This module itself imports torch only inside a worker, so the parent stays light.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pickle
import resource
import signal
import time
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING

from exporter.pipeline.jobs import Job, Limits, Outcome
from store.errors import ProfileError

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from store.records import Profile


_BEGUN = b""  # what a worker says before it begins a job
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_LAST_WORDS_SECONDS = 5.0  # until a process that has closed its connection must be gone


class Worker:
    """A process that profiles models, seen from the parent.

    ``fileno`` lets several workers be waited for at once: readable means that there is news, or
    that the process died.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        arguments = (theirs, self._limits.memory_bytes)
        self._process: SpawnProcess = context.Process(target=_serve, args=arguments, daemon=True)
        self.job: Job | None = None
        self._begun_at = 0.0  # 0: it is still starting
        # An interrupt from the terminal goes to the whole process group. The child inherits the
        # blocked signal and leaves the group before it unblocks, so that only the parent acts.
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
        self._begun_at = 0.0
        with contextlib.suppress(BrokenPipeError):  # it died: receive() will tell
            self._connection.send(job)

    def seconds_left(self) -> float | None:
        """Return how long the job may still take, None if nothing limits it."""
        if self.job is None or not self._limits.seconds or not self._begun_at:
            return None
        return max(0.0, self._begun_at + self._limits.seconds - time.monotonic())

    def receive(self) -> Callable[[], Outcome] | None:
        """Take the news, which leaves the worker idle, or dead, unless the job only begins.

        Returns:
            What builds the outcome; None if the job only begins. Building takes a while for a
            large profile; the worker can be given its next job before.
        """
        job = self.job
        if job is None:
            raise RuntimeError("the worker has nothing to do")
        try:
            message = self._connection.recv_bytes()
        except (EOFError, OSError):
            # It is ending, or a model has closed what was open; joining might wait for ever.
            deadline = time.monotonic() + _LAST_WORDS_SECONDS
            while self._process.exitcode is None and time.monotonic() < deadline:
                time.sleep(0.01)
            gone = self._process.exitcode is not None
            death = self._end()
            return self._failed(death if gone else "the worker process closed its connection")
        if message == _BEGUN:
            self._begun_at = time.monotonic()
            return None
        self.job = None
        seconds = self._seconds()

        def outcome() -> Outcome:
            result = pickle.loads(message)  # noqa: S301 - our own process wrote it
            if isinstance(result, str):
                return Outcome(job, None, result, seconds)
            return Outcome(job, result, "", seconds)

        return outcome

    def give_up(self) -> Callable[[], Outcome]:
        """End a worker whose time is up, and return what builds the outcome."""
        self._end()
        return self._failed(f"it took longer than {self._limits.seconds:g} s (--timeout)")

    def _failed(self, error: str) -> Callable[[], Outcome]:
        job = self.job
        if job is None:
            raise RuntimeError("the worker has nothing to do")
        self.job = None
        failure = Outcome(job, None, error, self._seconds())
        return lambda: failure

    def _seconds(self) -> float:
        return time.monotonic() - self._begun_at if self._begun_at else 0.0

    @property
    def alive(self) -> bool:
        """Whether the process can take another job."""
        return self._process.is_alive()

    def stop(self) -> None:
        """End the process at once; what it was doing is lost."""
        self._end()
        self._connection.close()

    def _end(self) -> str:
        """End the process and all that it started, and return what became of it, in words."""
        if self._process.exitcode is None and self._process.pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it has no group of its own yet
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
        self._process.join()
        return _death(self._process.exitcode)


def _death(exitcode: int | None) -> str:
    """Return why a worker process is gone, in words."""
    if exitcode is not None and exitcode < 0:
        name = signal.Signals(-exitcode).name
        hint = ", as happens when memory runs out" if name == "SIGKILL" else ""
        return f"the worker process was killed by {name}{hint}"
    return f"the worker process ended with status {exitcode}"


def _serve(jobs: Connection, memory_bytes: int) -> None:
    """Profile what comes through the connection until the parent closes it or dies."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _die_with_parent()
    # What models print or warn about would tear the parent's progress display apart.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(EOFError, OSError):
        while True:
            job = jobs.recv()
            _get_ready()
            _limit_memory(memory_bytes)
            jobs.send_bytes(_BEGUN)
            jobs.send_bytes(pickle.dumps(_profile(job, memory_bytes), pickle.HIGHEST_PROTOCOL))
            _tidy_up()


def _get_ready() -> None:
    """Import what every job needs, and have the cycle collector look at nothing that is there."""
    gc.disable()  # nothing of what is imported is rubbish
    try:
        import torch
        import torch._dynamo

        import exporter.profiling  # noqa: F401
    finally:
        gc.enable()
    gc.freeze()  # nor is what models have left for the next ones
    torch.set_num_threads(1)  # the other cores have workers of their own


def _tidy_up() -> None:
    """Give back to the system what the last job has left.

    Without it the heap would keep the room that the largest model needed, in pieces.
    """
    gc.collect()
    with contextlib.suppress(AttributeError):  # a C library without it
        ctypes.CDLL(None).malloc_trim(0)


def _limit_memory(memory_bytes: int) -> None:
    """Limit what this process and each that it starts may have, not counting files and libraries.

    An allocation beyond fails, and says so, where the kernel would end whatever it chooses.
    """
    if memory_bytes:
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        most = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def _die_with_parent() -> None:
    """Have the kernel end this process when its parent ends, whatever a model is doing."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = parent_process()
    if parent is None or os.getppid() != parent.pid:  # it has ended already
        os._exit(1)


def _profile(job: Job, memory_bytes: int) -> Profile | str:
    """Return the job's profile, or why there is none, in one line."""
    try:
        from exporter.profiling import profile_built
        from exporter.zoo.registry import build

        return profile_built(build(job), job.settings)
    except BaseException as error:  # noqa: BLE001 - whatever a model raises is its failure only
        return _reason(error, job, memory_bytes)


def _reason(error: BaseException, job: Job, memory_bytes: int) -> str:
    """Return why a job failed, in one line, with file and line of a user's code."""
    from exporter.errors import UnknownValueError
    from exporter.failures import chain, innermost, said
    from exporter.zoo.user.inputs import lacks_range
    from exporter.zoo.user.user_errors import place_of

    user = job.settings.user
    if memory_bytes and any(_is_out_of_memory(one) for one in chain(error)):
        text = f"it needs more than {memory_bytes / 2**20:,.0f} MiB of memory (--max-memory)"
    elif isinstance(error, ProfileError):
        text = " ".join(str(error).split())
    else:
        text = f"{said(error)} ({innermost(error)})"
    unknown = any(isinstance(one, UnknownValueError) for one in chain(error))
    if user and unknown and lacks_range(user):
        text += ", or give integer inputs a range, such as int64[4,128]{0:50257}"
    place = place_of(error) if user else ""
    return f"{text} ({place})" if place and place not in text else text


def _is_out_of_memory(error: BaseException) -> bool:
    """Return whether an allocation failed: Python's own, or one of torch on the CPU."""
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error)
