"""A recording with remembered kernels and output rules equals one without."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
import torch
from zoo_samples import REFERENCE, TIMM, TORCHVISION, TRANSFORMERS, overrides

from exporter import profile_model
from exporter.capture import memo
from exporter.capture import run as runs
from exporter.capture.arguments import tensors_in
from exporter.settings import Settings
from exporter.targets.rules import device_rules
from exporter.zoo.registry import load_zoo

if TYPE_CHECKING:
    from exporter.capture.run import Run

SAMPLES = [
    *(("torchvision", name, "") for name in TORCHVISION),
    *(("timm", name, "timm") for name in TIMM),
    *(("transformers", name, "transformers") for name in TRANSFORMERS),
    *(("reference", name, "transformers") for name in REFERENCE),
]
# Torch's own meta kernel of grouped matrix products refuses single precision, which devices take.
HALF = ("ernie4_5_vl_moe", "granitemoe")


def _record(zoo: str, name: str, *, use_memo: bool) -> Run:
    options = overrides(name) if zoo == "transformers" else ()
    dtype = "bfloat16" if name in HALF else "float32"
    settings = Settings(batch_size=2, dtype=dtype, overrides=options)
    built = load_zoo(zoo).build(name, settings)
    with device_rules(settings):
        return runs.record_run(
            built.model,
            built.args,
            built.kwargs,
            settings,
            input_names=[f"x{i}" for i in range(len(tensors_in((built.args, built.kwargs))))],
            optimizer=lambda parameters: torch.optim.Adam(parameters, foreach=True),
            device=torch.device("meta"),
            use_memo=use_memo,
        )


def _lives(run: Run) -> list[tuple[object, ...]]:
    return [
        (s.size_bytes, s.birth, s.death, s.storage_class, s.node) for s in run.recording.storages
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("zoo", "name", "package"), SAMPLES)
def test_recording_with_memo_equals_recording_without(zoo: str, name: str, package: str) -> None:
    """Rows, lives and calls are the same whether kernels run, rules answer or both are remembered.

    The first recording starts with nothing remembered, the second finds everything.
    """
    if package and find_spec(package) is None:
        pytest.skip(f"the extra {package} is not installed")
    plain = _record(zoo, name, use_memo=False)
    memo.forget()
    for _ in range(2):
        found = _record(zoo, name, use_memo=True)
        assert found.recording.ops == plain.recording.ops
        assert found.recording.tensors == plain.recording.tensors
        assert found.recording.uses == plain.recording.uses
        assert found.calls.nodes == plain.calls.nodes
        assert found.calls.edges == plain.calls.edges
        assert _lives(found) == _lives(plain)


class _Products(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        squares = torch.mul(x, x) + torch.mul(y, y)
        return squares + torch.mul(x, y) + torch.addcmul(x, y, y) + torch.addcmul(y, y, y)


def test_an_operand_given_twice_is_read_once() -> None:
    """Calls alike in geometry differ in traffic: 40 bytes of x, 40 of y, whichever came first."""
    x, y = torch.ones(10), torch.ones(10)
    read = [
        op.bytes_read
        for op in profile_model(_Products(), (x, y), backward=False).ops
        if "mul" in op.operator
    ]
    assert read == [40, 40, 80, 80, 40]


class _Discarding(torch.nn.Module):
    """Decides by a differentiable result, which is then dropped."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.exp().sigmoid().shape == x.shape
        return x * 2


def test_a_result_that_is_dropped_dies_the_first_time_and_the_next() -> None:
    """Autograd saves what ``exp`` and ``sigmoid`` return: they go with their branch, 80 bytes."""
    x = torch.ones(10, requires_grad=True)
    for _ in range(3):
        profile = profile_model(_Discarding(), (x,), backward=False)
        died = [s.death_op_id for s in profile.storages if s.birth_op_id in (0, 2)]
        assert [op.operator for op in profile.ops][:4] == [
            "aten.exp.default", "aten.detach.default", "aten.sigmoid.default",
            "aten.detach.default",
        ]  # fmt: skip
        assert died == [3, 3]
        assert profile.totals.kept_bytes == 40
