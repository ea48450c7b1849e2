"""What others take for less, against the bare step."""

from __future__ import annotations

import statistics
import warnings
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch._functorch.aot_autograd import aot_module
from torch._functorch.compilers import nop
from torch.distributed._tools.mem_tracker import MemTracker
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.models import SETTINGS, SEVEN, bare_step, build
from benchmarks.report import Findings
from benchmarks.timing import take_turns
from exporter.capture.arguments import tensors_in
from exporter.profiling import profile_built

if TYPE_CHECKING:
    from collections.abc import Callable

    from exporter.zoo.base import ZooModel


@dataclass(frozen=True, slots=True)
class Peer:
    """A tool that is run on a model as it is meant to be."""

    name: str
    yields: str
    run: Callable[[ZooModel], object]
    package: str = "torch"
    on_cpu: bool = False  # for want of support for the meta device


def _flop_counter(built: ZooModel) -> object:
    with FlopCounterMode(display=False) as counter:
        bare_step(built.model, built.args)
    return counter.get_flop_counts()


def _mem_tracker(built: ZooModel) -> object:
    tracker = MemTracker()
    tracker.track_external(built.model)
    with tracker:
        bare_step(built.model, built.args)
    return tracker.get_tracker_snapshot("peak")


def _export(built: ZooModel) -> object:
    return torch.export.export(built.model, built.args, strict=False)


def _joint(built: ZooModel) -> object:
    compiled = aot_module(built.model, fw_compiler=nop, bw_compiler=nop)
    bare_step(compiled, built.args)
    return compiled


def _make_fx(built: ZooModel) -> object:
    buffers = dict(built.model.named_buffers())

    def step(parameters: dict[str, torch.Tensor], *args: Any) -> tuple[torch.Tensor, ...]:
        result = functional_call(built.model, (parameters, buffers), args)
        outputs = [t for t in tensors_in(result) if t.requires_grad]
        seeds = [torch.ones_like(t) for t in outputs]
        return torch.autograd.grad(outputs, list(parameters.values()), seeds, allow_unused=True)

    return make_fx(step)(dict(built.model.named_parameters()), *built.args)


def _fvcore(built: ZooModel) -> object:
    from fvcore.nn import FlopCountAnalysis  # noqa: PLC0415 - need not be there

    analysis = FlopCountAnalysis(built.model, built.args).unsupported_ops_warnings(enabled=False)
    return analysis.uncalled_modules_warnings(enabled=False).total()


PEERS = (
    Peer(
        "FlopCounterMode",
        "FLOPs of contractions, forward and backward, per module and operator; no graph, no bytes",
        _flop_counter,
    ),
    Peer("MemTracker", "live and peak bytes by kind and module; no graph, no FLOPs", _mem_tracker),
    Peer(
        "fvcore, on the CPU",
        "forward multiply-adds per module and operator; no backward, no bytes",
        _fvcore,
        package="fvcore",
        on_cpu=True,
    ),
    Peer("torch.export", "forward graph of aten operators; no backward", _export),
    Peer("make_fx", "flat graph of forward and backward; no calls, no storages", _make_fx),
    Peer(
        "aot_module (joint trace)",
        "functionalised, partitioned graphs of forward and backward; no eager memory",
        _joint,
    ),
    Peer(
        "export-profiles, memo warm",
        "calls, operators, storages, FLOPs, memory and their links, forward and backward",
        lambda built: profile_built(built, SETTINGS),
    ),
)


def peers(rounds: int) -> Findings:
    """Return what each peer takes against the bare step, over the seven models."""
    table: list[tuple[str, ...]] = [("peer", "yields", "median", "range", "fails on")]
    for peer in PEERS:
        if find_spec(peer.package) is None:
            table.append((peer.name, peer.yields, "not installed", "-", "-"))
            continue
        ratios: list[float] = []
        failures: list[str] = []
        for name in SEVEN:
            reason, ratio = _measured(peer, name, min(rounds, 3))
            if reason:
                print(f"{peer.name} fails on {name}: {reason}", flush=True)
                failures.append(name)
            else:
                ratios.append(ratio)
                print(f"{peer.name} on {name}: {ratio:.2f}", flush=True)
        table.append((
            peer.name,
            peer.yields,
            f"{statistics.median(ratios):.1f}" if ratios else "-",
            f"{min(ratios):.1f} to {max(ratios):.1f}" if ratios else "-",
            ", ".join(failures) or "-",
        ))  # fmt: skip
    return Findings(tables={"peers": table})


def _measured(peer: Peer, name: str, rounds: int) -> tuple[str, float]:
    """Return why the peer fails on a model, or "" and its ratio to the bare step (CPU time)."""

    def bare() -> Callable[[], object]:
        built = build(name)
        return lambda: bare_step(built.model, built.args)

    def measured() -> Callable[[], object]:
        built = _really(build(name)) if peer.on_cpu else build(name)
        return lambda: peer.run(built)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            measured()()  # imports what is imported late
            times = take_turns({"bare": bare, "peer": measured}, rounds)
        except Exception as error:  # noqa: BLE001 - whatever a peer raises is the finding
            lines = str(error).strip().splitlines() or [""]
            return f"{type(error).__name__}: {lines[0]}", 0.0
    return "", times.cpu_ratio("peer", to="bare")


def _really(built: ZooModel) -> ZooModel:
    """Return the model on the CPU, zeros in all its tensors and inputs."""
    model = built.model.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in tensors_in([*model.parameters(), *model.buffers()]):
            tensor.zero_()
    return replace(built, model=model, args=tuple(torch.zeros(t.shape) for t in built.args))
