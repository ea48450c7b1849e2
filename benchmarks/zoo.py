"""The whole command against a plain loop, and what a worker needs over the whole zoo."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from benchmarks.report import Findings
from benchmarks.timing import MIB, in_process, resident_bytes
from exporter.settings import Settings
from exporter.zoo.registry import load_zoo
from store import open_store

DETECTORS = ("*rcnn*", "fcos*", "retinanet*", "ssd*")
SETTINGS = Settings()


def zoo_models() -> list[str]:
    """Return the names of torchvision's models without detectors."""
    names = load_zoo("torchvision").names()
    return [n for n in names if not any(fnmatchcase(n, pattern) for pattern in DETECTORS)]


def command(rounds: int) -> Findings:
    """Return how the command compares with a plain loop, and the size of its database."""
    exclusions = [part for pattern in DETECTORS for part in ("--exclude", pattern)]
    loops: list[tuple[float, float]] = []
    ratios: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    size = 0.0
    for _ in range(min(rounds, 3)):
        loop_cpu, loop_wall = in_process(_plain_loop, zoo_models())
        loops.append((loop_wall, loop_cpu))
        print(f"plain loop: {loop_wall:.1f} s wall, {loop_cpu:.1f} s CPU", flush=True)
        for workers, found in ratios.items():
            run = _command("--workers", str(workers), *exclusions)
            found.append((run.wall_seconds / loop_wall, run.cpu_seconds / loop_cpu))
            size = run.bytes_per_op
            print(
                f"workers {workers}: {run.wall_seconds:.1f} s wall, {run.cpu_seconds:.1f} s CPU",
                flush=True,
            )
    one, two = (_medians(ratios[workers]) for workers in (1, 2))
    loop = _medians(loops)
    return Findings({
        "command, 1 worker": f"{one[0]:.2f} wall, {one[1]:.2f} CPU "
        f"(loop: {loop[0]:.0f} s wall, {loop[1]:.0f} s CPU)",
        "command, 2 workers": f"{two[0]:.2f} wall, {two[1]:.2f} CPU",
        "database": f"{size / 1024:.2f} KiB",
    })  # fmt: skip


def _medians(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    first, second = zip(*pairs, strict=True)
    return statistics.median(first), statistics.median(second)


@dataclass(frozen=True, slots=True)
class _Run:
    """What a run of the command took."""

    wall_seconds: float
    cpu_seconds: float  # of its workers, too
    worker_bytes: int  # the most memory that a worker ever had
    bytes_per_op: float  # of the database


def _command(*options: str) -> _Run:
    """Run the command on a new database, with one thread that looks at its workers.

    Raises:
        RuntimeError: if any model failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "profiles.db"
        arguments = [sys.executable, "-m", "exporter.cli.main", "--quiet", "--db", str(database)]
        began = time.perf_counter()
        process = subprocess.Popen([*arguments, *options], stdout=subprocess.DEVNULL)
        with ThreadPoolExecutor(1) as pool:
            peak = pool.submit(_peak_of_children, process.pid)
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:  # a ratio of fewer models would look better than it is
            raise RuntimeError(f"the command ended with status {process.returncode}")
        with open_store(f"sqlite:///{database}") as store:
            ops = sum(totals.op_count for totals in store.totals())
        cpu = usage.ru_utime + usage.ru_stime
        return _Run(wall, cpu, peak.result(), database.stat().st_size / ops)


def _peak_of_children(pid: int) -> int:
    """Return the most memory that a child of a process ever had, when the process has ended."""
    most = 0
    children = Path(f"/proc/{pid}/task/{pid}/children")
    while True:
        try:
            for child in children.read_text("ascii").split():
                with suppress(OSError):  # it has ended
                    most = max(most, resident_bytes("VmHWM", child))
        except OSError:
            return most
        time.sleep(0.05)


def _plain_loop(names: list[str]) -> float:
    """Build each model and run the bare step on meta; return the process's CPU seconds."""
    import torch  # noqa: PLC0415 - importing it is part of what is measured
    from torchvision.models import (  # type: ignore[import-untyped]  # noqa: PLC0415
        get_model,
        get_model_builder,
    )

    from benchmarks.models import bare_step  # noqa: PLC0415
    from exporter.zoo.torchvision import _image_size, _kind, _options  # noqa: PLC0415

    torch.set_num_threads(1)
    meta = torch.device("meta")
    for name in names:
        kind = _kind(get_model_builder(name).__module__)
        options = _options(name, kind, SETTINGS)
        try:
            with meta:
                model = get_model(name, weights=None, **options)
        except (RuntimeError, NotImplementedError):  # its constructor reads values
            model = get_model(name, weights=None, **options).to(meta)
        frames = (16,) if kind == "video" else ()
        size = (SETTINGS.batch_size, 3, *frames, *_image_size(name, kind, SETTINGS))
        count = 2 if kind == "optical_flow" else 1
        bare_step(model, tuple(torch.empty(size, device=meta) for _ in range(count)))
    return time.process_time()


def memory(_rounds: int) -> Findings:
    """Return the peak memory of a worker over the whole zoo, and over more profiles of it.

    Twice as many at a smaller batch size tell whether memory grows with their number; a larger
    batch size tells what the largest model itself needs.
    """
    torch_bytes, _ = in_process(_torch_bytes)
    once, twice, large = (
        (_command("--workers", "1", *_batch_sizes(*sizes)).worker_bytes - torch_bytes) / MIB
        for sizes in ((4,), (4, 2), (4, 8))
    )
    return Findings({
        "worker memory": f"{once:.0f} MiB at batch size 4; {twice:.0f} MiB with as many profiles "
        f"again at 2, {large:.0f} MiB at 8 (`import torch`: {torch_bytes / MIB:.0f} MiB)"
    })  # fmt: skip


def _batch_sizes(*sizes: int) -> list[str]:
    return [word for size in sizes for word in ("--batch-size", str(size))]


def _torch_bytes() -> int:
    import torch  # noqa: F401, PLC0415

    return resident_bytes()
