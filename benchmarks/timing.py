"""Times of things that take turns, and time and memory of processes."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

MIB = 1024 * 1024

# Makes ready, untimed, and returns what is to be timed.
Preparation = Callable[[], Callable[[], object]]


@dataclass(frozen=True, slots=True)
class Times:
    """What each of several contenders took in every round, in seconds."""

    cpu_seconds: dict[str, list[float]]  # of this process, all threads
    wall_seconds: dict[str, list[float]]

    def cpu(self, name: str) -> float:
        """Return the median CPU time of a contender."""
        return statistics.median(self.cpu_seconds[name])

    def cpu_ratio(self, name: str, to: str) -> float:
        """Return the median over the rounds of the ratio of two contenders' CPU times."""
        return _ratio(self.cpu_seconds, name, to)

    def wall_ratio(self, name: str, to: str) -> float:
        """Return the median over the rounds of the ratio of two contenders' wall times."""
        return _ratio(self.wall_seconds, name, to)


def _ratio(seconds: Mapping[str, list[float]], name: str, to: str) -> float:
    return statistics.median(a / b for a, b in zip(seconds[name], seconds[to], strict=True))


def take_turns(contenders: Mapping[str, Preparation], rounds: int) -> Times:
    """Return what the contenders took, run one after the other in every round.

    So a machine that slows down slows all of them. Rubbish is collected before each is made ready:
    just before the clock starts, it would leave the processor's caches cold, which no use does.
    """
    times = Times({name: [] for name in contenders}, {name: [] for name in contenders})
    for _ in range(rounds):
        for name, prepare in contenders.items():
            gc.collect()
            run = prepare()
            wall, cpu = time.perf_counter(), time.process_time()
            kept = run()  # what it returns dies after the clock has stopped
            times.cpu_seconds[name].append(time.process_time() - cpu)
            times.wall_seconds[name].append(time.perf_counter() - wall)
            del kept, run
    return times


def resident_bytes(key: str = "VmRSS", pid: int | str = "self") -> int:
    """Return a process's resident memory, or with ``"VmHWM"`` the most it ever was."""
    for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/{pid}/status has no {key}")


def in_process(function: Callable[..., Any], *args: object) -> tuple[Any, float]:
    """Return what a function returns in a process of its own, and the seconds from its start.

    Raises:
        RuntimeError: if the process ends without a result.
    """
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    began = time.perf_counter()
    process = context.Process(target=_answer, args=(theirs, function, args))
    process.start()
    theirs.close()
    try:
        result = ours.recv()
    except EOFError:
        process.join()
        raise RuntimeError(
            f"{function.__name__}{args} ended with status {process.exitcode}"
        ) from None
    seconds = time.perf_counter() - began
    process.join()
    return result, seconds


def _answer(connection: Connection, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    connection.send(function(*args))
