"""Predictions for the CPU against real runs on it: torch's own allocation record, real tensors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torchvision
from real_cpu_models import NAMES, NO_COMPARISON, VIDEO
from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_leaves
from zoo_profiles import MODELS

from exporter.profiling import profile_model

if TYPE_CHECKING:
    from store.records import Profile


def _model(name: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    size = 96 if name == "inception_v3" else 64
    options: dict[str, Any] = {"weights": None}
    if name in {"googlenet", "inception_v3"}:
        options |= {"init_weights": False, "aux_logits": False}
    if name.startswith("vit"):
        options["image_size"] = size
    if name.startswith(("deeplab", "fcn", "lraspp")):
        options["weights_backbone"] = None
    torch.manual_seed(0)
    model = torchvision.models.get_model(name, **options).train()
    shape = (1, 3, 4, 32, 32) if name in VIDEO else (2, 3, size, size)
    return model, (torch.randn(shape),)


# What a convolution takes and gives back before it returns follows from the kernel that oneDNN
# generates for the processor at hand and from the number of threads: up to a quarter of a peak.
_CONVOLUTIONS = frozenset({"aten::convolution", "aten::convolution_backward"})
_Allocation = tuple[int, int, int, int]  # nanoseconds, address, bytes, convolution that it is in


def _allocations(profiler: profile) -> list[_Allocation]:
    """Return the allocations, and with negative bytes the frees, in the order of time."""
    found: list[_Allocation] = []
    waiting = [(root, 0) for root in profiler.profiler.kineto_results.experimental_event_tree()]
    while waiting:
        event, convolution = waiting.pop()
        if event.tag == _EventType.Allocation:
            fields = event.extra_fields
            found.append((event.start_time_ns, fields.ptr, fields.alloc_size, convolution))
        elif event.tag == _EventType.TorchOp and event.name in _CONVOLUTIONS:
            convolution = convolution or event.id
        waiting += [(child, convolution) for child in event.children]
    return sorted(found, key=lambda allocation: allocation[0])


def _scratch(allocations: list[_Allocation]) -> set[int]:
    """Return the positions of what a convolution took and gave back before it returned."""
    open_blocks: dict[int, int] = {}
    found: set[int] = set()
    for position, (_, address, size, convolution) in enumerate(allocations):
        if size > 0:
            open_blocks[address] = position
            continue
        began = open_blocks.pop(address, None)
        if began is not None and convolution and allocations[began][3] == convolution:
            found |= {began, position}
    return found


def _recorded(model: torch.nn.Module, args: Any, *, backward: bool) -> tuple[int, int, int]:
    """Return (bytes left alive, peak above the start, the same without convolutions' scratch).

    It is torch's own record of a run that nobody else watches, with one thread.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            result = model(*args)
            if backward:
                outputs = [t for t in tree_leaves(result) if t.requires_grad]
                torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])
                del outputs
    finally:
        torch.set_num_threads(threads)
    allocations = _allocations(profiler)
    scratch = _scratch(allocations)
    live = peak = lasting = lasting_peak = 0
    for position, (_, _, size, _) in enumerate(allocations):
        live += size
        peak = max(peak, live)
        if position not in scratch:
            lasting += size
            lasting_peak = max(lasting_peak, lasting)
    for parameter in model.parameters():
        parameter.grad = None
    return live, peak, lasting_peak


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_prediction_for_cpu_equals_the_allocation_record_of_a_real_run(name: str) -> None:
    """Live bytes agree to the byte at the end of forward and of the step, the peak within 0.3 %."""
    model, args = _model(name)
    predicted = profile_model(model, args, target="cpu", capture="meta")
    totals = predicted.totals
    before = totals.param_bytes + totals.buffer_bytes + totals.input_bytes
    forward_end, *_ = _recorded(model, args, backward=False)
    step_end, peak, lasting_peak = _recorded(model, args, backward=True)
    alive = sum(
        s.size_bytes
        for s in predicted.storages
        if s.birth_op_id >= 0 and s.death_op_id == totals.op_count
    )
    assert totals.kept_bytes == forward_end
    assert alive == step_end
    assert totals.peak_bytes == pytest.approx(before + lasting_peak, rel=0.003)
    assert totals.peak_bytes <= (before + peak) * 1.003  # kernels only add


def test_real_runs_cover_at_least_60_models() -> None:
    """The comparison is wide enough, and each exception is a model."""
    assert len(NAMES) >= 60
    assert set(NO_COMPARISON) <= set(MODELS)


def _shapes(captured: Profile) -> list[tuple[Any, ...]]:
    return [(t.op_id, t.shape, t.stride, t.dtype, t.storage_id) for t in captured.tensors]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["alexnet", "resnet18", "mobilenet_v3_small", "densenet121", "shufflenet_v2_x0_5", "googlenet",
     "swin_t", "vit_b_32", "convnext_tiny", "efficientnet_b0", "mnasnet0_5", "squeezenet1_1"],
)  # fmt: skip
def test_capture_on_meta_equals_capture_on_real_tensors(name: str) -> None:
    """Operators, tensors and lives on meta are those of the same capture on real CPU tensors."""
    model, args = _model(name)
    meta = profile_model(model, args, target="cpu", capture="meta")
    real = profile_model(model, args, target="cpu", capture="real")
    assert [(o.operator, o.phase, o.node_id, o.fwd_op_id) for o in meta.ops] == [
        (o.operator, o.phase, o.node_id, o.fwd_op_id) for o in real.ops
    ]
    assert _shapes(meta) == _shapes(real)
    assert [(s.size_bytes, s.birth_op_id, s.death_op_id) for s in meta.storages] == [
        (s.size_bytes, s.birth_op_id, s.death_op_id) for s in real.storages
    ]
    assert json.loads(meta.info.input_spec) == json.loads(real.info.input_spec)
