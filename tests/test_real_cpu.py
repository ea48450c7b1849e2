"""Predictions for the CPU against real runs on it: torch's own allocation record, real tensors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torchvision
from torch.profiler import ProfilerActivity, profile
from zoo_profiles import MODELS

from exporter.profiling import profile_model

if TYPE_CHECKING:
    from store.records import Profile

# Image sizes that keep a real run short; smaller where the model allows it.
SIZES = {"inception_v3": 96, "swin_*": 64}
UNSUITED = ("raft", "video", "3d", "s3d", "mvit", "quantized", "lraspp", "deeplab", "fcn", "vit_h",
            "vit_l", "regnet_y_128gf", "regnet_y_32gf", "regnet_x_32gf", "efficientnet_v2_l",
            "convnext_large", "maxvit", "efficientnet_b7", "efficientnet_b6", "r2plus1d", "mc3",
            "wide_resnet101", "resnext101", "vgg19", "vgg16", "vgg13")  # fmt: skip
NAMES = tuple(n for n in MODELS if not any(part in n for part in UNSUITED))


def _model(name: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    size = 96 if name == "inception_v3" else 64
    options: dict[str, Any] = {"weights": None}
    if name in {"googlenet", "inception_v3"}:
        options |= {"init_weights": False, "aux_logits": False}
    if name.startswith("vit"):
        options["image_size"] = size
    torch.manual_seed(0)
    model = torchvision.models.get_model(name, **options).train()
    return model, (torch.randn(2, 3, size, size),)


def _recorded(model: torch.nn.Module, args: Any, *, backward: bool) -> tuple[int, int]:
    """Return (bytes left alive, peak above the start) as torch's profiler records them."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        output = model(*args)
        if backward:
            output.backward(torch.ones_like(output))
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    for parameter in model.parameters():
        parameter.grad = None
    return live, peak


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_prediction_for_cpu_equals_the_allocation_record_of_a_real_run(name: str) -> None:
    """Live bytes agree to the byte at the end of forward and of the step, the peak within 3 %."""
    model, args = _model(name)
    predicted = profile_model(model, args, target="cpu", capture="meta")
    totals = predicted.totals
    before = totals.param_bytes + totals.buffer_bytes + totals.input_bytes
    forward_end, _ = _recorded(model, args, backward=False)
    step_end, peak = _recorded(model, args, backward=True)
    alive = sum(
        s.size_bytes
        for s in predicted.storages
        if s.birth_op_id >= 0 and s.death_op_id == totals.op_count
    )
    assert totals.kept_bytes == forward_end
    assert alive == step_end
    assert totals.peak_bytes == pytest.approx(before + peak, rel=0.03)


def test_real_runs_cover_at_least_60_models() -> None:
    """The comparison is wide enough."""
    assert len(NAMES) >= 60


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
    real = profile_model(model, args, target="cpu", capture="concrete")
    assert [(o.operator, o.phase, o.node_id, o.fwd_op_id) for o in meta.ops] == [
        (o.operator, o.phase, o.node_id, o.fwd_op_id) for o in real.ops
    ]
    assert _shapes(meta) == _shapes(real)
    assert [(s.size_bytes, s.birth_op_id, s.death_op_id) for s in meta.storages] == [
        (s.size_bytes, s.birth_op_id, s.death_op_id) for s in real.storages
    ]
    assert json.loads(meta.info.input_spec) == json.loads(real.info.input_spec)
