"""The largest models: a decoder of 405 billion parameters, and a million operators."""

from __future__ import annotations

import ctypes
import gc
import statistics
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.report import Findings
from benchmarks.timing import MIB, in_process, resident_bytes
from store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import nn

    from store.records import Profile

DEPTHS = (1_000, 10_000, 100_000, 1_000_000)


def decoder(rounds: int) -> Findings:
    """Return time and memory of a decoder of llama-3 405B's shape, from start to stored."""
    runs = []
    for _ in range(min(rounds, 3)):
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{Path(folder) / 'profiles.db'}"
            (cpu, peak, ops), wall = in_process(_decoder, url)
            runs.append((wall, cpu, peak, ops))
    wall, cpu, peak, ops = (statistics.median(column) for column in zip(*runs, strict=True))
    return Findings({
        "decoder": f"{wall:.1f} s wall, {cpu:.1f} s CPU, {peak / MIB:.0f} MiB "
        f"({ops:,.0f} operators)"
    })  # fmt: skip


def _decoder(url: str) -> tuple[float, int, int]:
    """Profile and store the decoder; return CPU seconds, peak memory, number of operators."""
    import torch  # noqa: PLC0415 - importing it is part of what is measured

    from benchmarks.decoder import Decoder, Shape  # noqa: PLC0415
    from exporter import profile_model  # noqa: PLC0415

    with torch.device("meta"):
        model = Decoder(Shape()).to(torch.bfloat16)
        tokens = torch.empty(1, 8192, dtype=torch.int64)
    profile = profile_model(model, (tokens,), name="decoder", optimizer="adamw")
    with open_store(url, create=True) as store:
        store.write(profile)
    return time.process_time(), resident_bytes("VmHWM"), profile.totals.op_count


def depth(_rounds: int) -> Findings:
    """Return CPU time and memory per operator of stacks of growing depth."""
    table: list[tuple[str, ...]] = [
        ("operators", "CPU µs per operator", "bytes per operator, resident", "Python's own, traced")
    ]
    seconds, resident, traced = [], [], []
    for ops in DEPTHS:
        (count, per_op, size), _ = in_process(_depth, ops)
        own, _ = in_process(_traced, ops)
        seconds.append(per_op)
        resident.append(size)
        traced.append(own)
        table.append((f"{count:,}", f"{per_op * 1e6:.1f}", f"{size:,.0f}", f"{own:,.0f}"))
        print("  ".join(table[-1]), flush=True)
    return Findings(
        {
            "depth, time": f"{max(seconds) / min(seconds):.2f}",
            "depth, memory": f"{max(traced) / min(traced):.2f} of Python's own; resident "
            f"{max(resident) / min(resident):.2f}, from {DEPTHS[1]:,} operators on "
            f"{max(resident[1:]) / min(resident[1:]):.2f}",
        },
        {"depth": table},
    )


def _depth(ops: int) -> tuple[int, float, float]:
    """Return the number of operators of a stack, CPU seconds and bytes of each.

    The memo knows the layers' geometries, so that the first sight of them weighs on no depth.
    """
    profile, model, x = _stack(ops)
    seconds, sizes, count = [], [], 0
    for _ in range(max(1, min(9, 100_000 // ops))):
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", "ascii")  # begin a new peak
        before, began = resident_bytes(), time.process_time()
        found = profile(model, (x,))
        seconds.append(time.process_time() - began)
        sizes.append(resident_bytes("VmHWM") - before)
        count = found.totals.op_count
        del found
    return count, statistics.median(seconds) / count, max(sizes) / count


def _traced(ops: int) -> float:
    """Return the bytes of each operator of a stack at the peak, as ``tracemalloc`` counts them.

    A thousand operators need two megabytes, for which the process has room: what it holds already
    would hide them from a measure of resident memory.
    """
    profile, model, x = _stack(ops)
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    count = profile(model, (x,)).totals.op_count
    return (tracemalloc.get_traced_memory()[1] - before) / count


def _stack(ops: int) -> tuple[Callable[..., Profile], nn.Module, torch.Tensor]:
    """Return what makes profiles, with a memo of a stack's layers, a stack, and its input."""
    import torch  # noqa: PLC0415

    from benchmarks.models import Stack  # noqa: PLC0415
    from exporter import profile_model  # noqa: PLC0415

    x = torch.empty(4, 64, device="meta")
    profile_model(Stack(500), (x,))
    return profile_model, Stack(ops), x
