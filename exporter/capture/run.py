"""One recorded run: forward, backward, optimizer step."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from exporter.capture.arguments import tensors_in
from exporter.capture.calls import CallTracker
from exporter.capture.dispatch import OpMode
from exporter.capture.drawn import DrawnMode
from exporter.capture.memo import memo_of
from exporter.capture.operators import read_again
from exporter.capture.saved_tensors import saved_tensors
from exporter.capture.state import Recording, TensorRecord
from exporter.targets.autocast import end_autocast
from store.collector import gc_paused
from store.records import TENSOR, TENSOR_USE

if TYPE_CHECKING:
    from store.settings import RunSettings

OptimizerFactory = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


@dataclass(slots=True)
class Run:
    """A finished recording and what was learnt when its phases ended."""

    recording: Recording
    calls: CallTracker
    forward_ops: int = 0  # operators of the forward pass
    forward_end_bytes: int = 0
    saved: list[tuple[int, TensorRecord]] = field(default_factory=list)
    gradients: set[int] = field(default_factory=set)  # storages of `.grad` after backward
    assumed: bool = False  # whether a value that decided something was assumed
    optimizer_state: set[int] = field(default_factory=set)  # storages of the optimizer's state
    graph: list[Any] = field(default_factory=list)  # autograd nodes while they exist
    model_storages: int = 0  # the first ones, in the order of moving


@contextmanager
def _generators_kept() -> Iterator[None]:
    """Leave random generators as they are found: a run repeated is the same run."""
    numpy: Any = sys.modules.get("numpy")  # some models draw masks with it
    states = torch.random.get_rng_state(), random.getstate()
    drawn = numpy.random.get_state() if numpy else None
    try:
        yield
    finally:
        torch.random.set_rng_state(states[0])
        random.setstate(states[1])
        if numpy:
            numpy.random.set_state(drawn)


def storages_in_move_order(model: nn.Module) -> list[tuple[str, str, torch.Tensor]]:
    """Return (storage_class, path, tensor) in the order in which ``Module.to`` moves them.

    Children come before a module's own parameters, parameters before buffers.
    """
    found: list[tuple[str, str, torch.Tensor]] = []
    _visit(model, "", found, set())
    return found


def _visit(
    module: nn.Module, prefix: str, found: list[tuple[str, str, torch.Tensor]], seen: set[int]
) -> None:
    for name, child in module._modules.items():
        if child is not None and id(child) not in seen:
            seen.add(id(child))
            _visit(child, f"{prefix}{name}.", found, seen)
    for storage_class, members in (("parameter", module._parameters), ("buffer", module._buffers)):
        for name, tensor in members.items():
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                found.append((storage_class, prefix + name, tensor))


def record_run(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    settings: RunSettings,
    *,
    input_names: list[str],
    optimizer: OptimizerFactory | None,
    device: torch.device,
    use_memo: bool = True,
    assume: str = "",
) -> Run:
    """Return the recording of one run of a model.

    The model, ``args`` and ``kwargs`` are used up: gradients and optimizer state stay on them.

    Args:
        model: on ``device``, in the mode that is to be recorded.
        args: positional inputs; every tensor becomes an input of the graph.
        kwargs: named inputs.
        settings: how the model is run; ``target`` is the device that is modelled.
        input_names: one name per input tensor, in the order of ``tensors_in((args, kwargs))``.
        optimizer: makes the optimizer whose one step is recorded.
        device: meta, or cpu for a real run.
        use_memo: whether remembered signatures replace meta kernels.
        assume: what is assumed of values that nobody knows, a policy of ``capture.drawn``;
            "": nothing, and asking for them fails.
    """
    # Kernels written in Python import it at their first call; what fails inside that import keeps
    # the frames that it interrupts, and with them operands, alive.
    importlib.import_module("torch._dynamo")
    read_again()
    memo = memo_of(settings.target)
    recording = Recording(memo.specs, device, target=settings.target)
    calls = CallTracker(recording, model)
    run = Run(recording, calls)
    for storage_class, path, tensor in storages_in_move_order(model):
        recording.adopt(tensor, storage_class, storage_class, path)
    run.model_storages = len(recording.storages)
    inputs = tensors_in((args, kwargs))
    given: set[int] = set()
    for name, tensor in zip(input_names, inputs, strict=True):
        if id(tensor) not in given:  # given twice, it is still one input
            given.add(id(tensor))
            calls.add_input(name, recording.adopt(tensor, "input", "input", name))
    options = {"use_memo": use_memo and not recording.is_real}
    mode = (
        DrawnMode(recording, memo, calls, policy=assume, **options)
        if assume
        else OpMode(recording, memo, calls, **options)
    )
    try:
        with ExitStack() as stack:
            stack.enter_context(_generators_kept())
            stack.enter_context(gc_paused())
            # A compiled part runs as it was written: its kernels are another device's.
            stack.enter_context(torch.compiler.set_stance("force_eager"))
            calls.attach()
            stack.callback(calls.detach)
            stack.enter_context(calls)
            stack.enter_context(mode)
            _record(run, model, args, kwargs, settings, optimizer)
    finally:
        recording.open = False
        while run.graph:
            run.graph.pop()
    run.assumed = isinstance(mode, DrawnMode) and mode.used
    return run


def _record(
    run: Run,
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    settings: RunSettings,
    optimizer: OptimizerFactory | None,
) -> None:
    recording, calls = run.recording, run.calls
    result = model(*args, **kwargs)
    end_autocast()
    run.forward_ops = recording.op_count
    calls.add_output(result)
    with torch._C.DisableTorchFunction():
        outputs = [t for t in tensors_in(result) if t.requires_grad]
        run.saved, run.graph = saved_tensors(recording, outputs)
        recording.backfill_late_storages()
        run.forward_end_bytes = recording.live_bytes
        if not settings.backward:
            recording.close()  # before the outputs go: they outlive the recording
            return
        recording.phase, recording.role = "backward", "gradient"
        if outputs:
            _first_uses(recording)
            calls.begin_backward()
            outputs = list({id(t): t for t in outputs}.values())
            with torch.no_grad():  # recomputation is told from backward by its gradient mode
                seeds = [torch.ones_like(t) for t in outputs]
    if outputs:
        torch.autograd.backward(outputs, seeds)
        del seeds
    with torch._C.DisableTorchFunction():
        owned = [t for module in calls.modules for t in module._parameters.values()]
        for tensor in [*owned, *tensors_in((args, kwargs))]:
            if tensor is not None and tensor.is_leaf and tensor.grad is not None:
                run.gradients.add(recording.known(tensor.grad).storage.storage_id)
    if optimizer is not None:
        recording.phase, recording.role = "optimizer", "optimizer"
        stepper = optimizer(p for p in model.parameters() if p.requires_grad)
        with torch._C.DisableTorchFunction():
            stepper.step()
            for tensor in tensors_in(list(stepper.state.values())):
                run.optimizer_state.add(recording.known(tensor).storage.storage_id)
    recording.backfill_late_storages()
    recording.close()
    del result


def _first_uses(recording: Recording) -> None:
    """Remember which operator used each parameter first: its gradient is summed there."""
    tensors = recording.tensors
    parameters = {
        row[TENSOR.storage_id]: row[TENSOR.tensor_id]
        for row in tensors
        if row[TENSOR.role] == "parameter"
    }
    pending = set(parameters)
    if not pending:
        return
    for use in recording.uses:
        storage_id = tensors[use[TENSOR_USE.tensor_id]][TENSOR.storage_id]
        if storage_id in pending:
            pending.discard(storage_id)
            recording.accumulator_ops[parameters[storage_id]] = use[TENSOR_USE.op_id]
            if not pending:
                return
