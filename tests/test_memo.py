"""A recording with remembered kernels equals one without."""

from __future__ import annotations

import pytest
import torch
from zoo_profiles import ZOO

from exporter.capture.arguments import tensors_in
from exporter.capture.run import Run, record_run
from exporter.settings import Settings
from exporter.targets.rules import device_rules

SAMPLE = (
    "alexnet", "convnext_tiny", "deeplabv3_mobilenet_v3_large", "densenet121", "efficientnet_b0",
    "googlenet", "maxvit_t", "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_large", "mvit_v2_s",
    "r3d_18", "raft_small", "regnet_y_400mf", "resnet50", "s3d", "shufflenet_v2_x1_0",
    "squeezenet1_0", "swin3d_t", "swin_v2_t", "vgg11_bn", "vit_b_32",
)  # fmt: skip


def _record(name: str, *, use_memo: bool) -> Run:
    settings = Settings(batch_size=2, optimizer="adam")
    built = ZOO.build(name, settings)
    with device_rules("cuda"):
        return record_run(
            built.model,
            built.args,
            built.kwargs,
            input_names=[f"x{i}" for i in range(len(tensors_in((built.args, built.kwargs))))],
            backward=True,
            optimizer=lambda parameters: torch.optim.Adam(parameters, foreach=True),
            device=torch.device("meta"),
            target="cuda",
            use_memo=use_memo,
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_recording_with_memo_equals_recording_without(name: str) -> None:
    """Rows, lives and calls are the same whether kernels run or are remembered."""
    _record(name, use_memo=True)
    remembered = _record(name, use_memo=True)
    plain = _record(name, use_memo=False)
    assert remembered.recording.ops == plain.recording.ops
    assert remembered.recording.tensors == plain.recording.tensors
    assert remembered.recording.uses == plain.recording.uses
    assert remembered.calls.nodes == plain.calls.nodes
    assert remembered.calls.edges == plain.calls.edges
    for run in (remembered, plain):
        assert len(run.recording.storages) == len(plain.recording.storages)
    lives = [
        [(s.size_bytes, s.birth, s.death, s.category, s.node) for s in run.recording.storages]
        for run in (remembered, plain)
    ]
    assert lives[0] == lives[1]
