"""The tables of docs/accuracy.md."""

from __future__ import annotations

import csv
from pathlib import Path

import torch
from real_cpu_models import NAMES, NO_COMPARISON
from zoo_profiles import MODELS, profile_of

from exporter import profile_model
from exporter.settings import Settings

ROOT = Path(__file__).parents[1]
MIB = 1 << 20


def _rows(name: str) -> list[dict[str, str]]:
    lines = (ROOT / "data" / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def gpu_memory() -> str:
    """Return the table of predicted and measured GPU memory, with the published estimates."""
    rows, ours, theirs = [], [], []
    for row in _rows("gpu_memory.csv"):
        if row["model"] not in MODELS:
            continue
        totals = profile_of(row["model"], Settings(batch_size=int(row["batch_size"]))).totals
        measured = float(row["measured_fwd_mib"])
        predicted = totals.forward_allocated_bytes / MIB
        ours.append(100 * (predicted / measured - 1))
        theirs.append(100 * (float(row["published_estimate_fwd_mib"]) / measured - 1))
        model = totals.model_allocated_bytes / MIB
        rows.append(
            [row["model"], f"{model:.3f}", row["measured_param_mib"], f"{predicted:.1f}",
             f"{measured:.1f}", f"{ours[-1]:+.1f} %", f"{theirs[-1]:+.1f} %"]
        )  # fmt: skip
    for name, pick in (("mean of absolute errors", _mean), ("worst", _worst)):
        rows.append([name, "", "", "", "", f"{pick(ours):.2f} %", f"{pick(theirs):.2f} %"])
    head = ["model", "`model_allocated_bytes`, MiB", "measured", "`forward_allocated_bytes`, MiB",
            "measured", "error", "error of the published estimate"]  # fmt: skip
    return _table(head, rows)


def _mean(errors: list[float]) -> float:
    return sum(map(abs, errors)) / len(errors)


def _worst(errors: list[float]) -> float:
    return max(map(abs, errors))


def published_flops() -> str:
    """Return the table of FLOPs of a step against the published ones."""
    rows = []
    for row in _rows("published_flops.csv"):
        batch = int(row["batch_size"])
        if row["model"] == "conv2d_3_2_5":
            images = torch.empty(batch, 3, 224, 224, device="meta")
            layer = torch.nn.Conv2d(3, 2, 5, device="meta")
            totals = profile_model(layer, (images,), input_grad=True).totals
        else:
            totals = profile_of(row["model"], Settings(batch_size=batch, input_grad=True)).totals
        forward = totals.fwd_macs + totals.fwd_pointwise_flops
        backward = totals.bwd_macs + totals.bwd_pointwise_flops
        rows.append(
            [row["model"], f"{forward:,}", f"{forward - int(row['fwd_flop']):+,}",
             f"{backward:,}", f"{backward - int(row['bwd_flop']):+,}"]
        )  # fmt: skip
    return _table(["model", "forward", "less published", "backward", "less published"], rows)


def real_cpu() -> str:
    """Return how wide the comparison with real CPU runs is, and what it leaves out."""
    rows = [[name, reason] for name, reason in sorted(NO_COMPARISON.items())]
    return f"{len(NAMES)} models agree; left out:\n\n" + _table(["model", "reason"], rows)


TABLES = {"gpu memory": gpu_memory, "published flops": published_flops, "real cpu": real_cpu}


def updated(text: str) -> str:
    """Return the document with its tables written anew.

    Raises:
        ValueError: if the place of a table is missing.
    """
    for name, make in TABLES.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        if begin not in text or end not in text:
            raise ValueError(f"no place {begin.strip()} ... {end} in the document")
        before, _, rest = text.partition(begin)
        after = rest.partition(end)[2]
        text = f"{before}{begin}\n{make()}\n\n{end}{after}"
    return text
