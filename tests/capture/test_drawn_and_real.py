"""Models whose sizes depend on values: refused by name, run for real, or drawn with a statement."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import torchvision  # type: ignore[import-untyped]
from command import export_profiles
from tiny_detectors import (
    detector_inputs,
    drawn_profile,
    tiny_faster_rcnn,
    tiny_retinanet,
)
from torch import nn
from torchvision.ops import box_iou  # type: ignore[import-untyped]

from exporter import capture_policy, profile_model
from exporter.capture.values.initial_values import RememberMoments, remembered_moments
from exporter.errors import TraceError, UnknownValueError
from exporter.profiling import profile_built
from exporter.settings import Settings
from exporter.zoo.building import build_on_meta
from exporter.zoo.registry import build_model
from exporter.zoo.torchvision import zoo
from store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store.records import Profile


class ByShape(nn.Module):
    """Branches on a shape."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] > 2 else x


class ByValue(nn.Module):
    """Branches on a value."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x


class Pick(nn.Module):
    """Selects by a predicate, in a submodule."""

    class Picker(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[x > 0]

    def __init__(self) -> None:
        super().__init__()
        self.picker = self.Picker()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.picker(x) * 2  # type: ignore[no-any-return]


class Repeat(nn.Module):
    """Repeats its input as often as the input says."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.repeat(int(x.sum()))


class Table(nn.Module):
    """Reads a plain attribute, a buffer and an index input, all of them determined."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes = torch.tensor([2, 3])
        self.register_buffer("mask", torch.tensor([True, False, True]))

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        rows = int(self.sizes.sum()) + int(index.max())  # 5 + 4
        return x.expand(rows, 3)[:, self.mask] * 2  # type: ignore[index]


def _real(factory: Callable[[], nn.Module], *, train: bool) -> Profile:
    torch.manual_seed(0)
    model = factory().train(train)
    args = detector_inputs(device="cpu", train=train)
    return profile_model(model, args, target="cpu", capture="real", backward=train)


def _work(profile: Profile) -> list[tuple[Any, ...]]:
    """Return phase, operator and cost of every operator but copies between devices."""
    return [
        (op.phase, op.operator, op.macs, op.pointwise_flops)
        for op in profile.ops
        if op.operator != "aten._to_copy.default"
    ]


def test_unknown_value_fails_by_name() -> None:
    """A branch on a value that nobody knows names the operator and the module."""
    with pytest.raises(TraceError, match=r"aten\._local_scalar_dense.*in the model itself"):
        profile_model(ByValue(), (torch.zeros(4, 3, device="meta"),))


def test_unknown_selection_fails_by_name() -> None:
    """A selection by unknown values names the operator and the submodule's path."""
    with pytest.raises(TraceError, match=r"aten\.index.*in module 'picker'"):
        profile_model(Pick(), (torch.zeros(4, 3, device="meta"),))


def test_shape_is_no_unknown_value() -> None:
    """A branch on a shape is followed on meta."""
    profile = profile_model(ByShape(), (torch.zeros(4, 3, device="meta"),))
    assert profile.totals.capture == "meta"
    assert [op.operator for op in profile.ops if op.phase == "forward"] == ["aten.mul.Tensor"]


@pytest.mark.parametrize(("value", "elements"), [(1.0, 12), (0.0, 0)])
def test_given_values_decide_a_size(value: float, elements: int) -> None:
    """With a real input the selection has the size that the input gives it."""
    profile = profile_model(Pick(), (torch.full((4, 3), value),))
    assert profile.info.assumption == ""
    assert profile.nodes[-2].shape == f"[{elements}]"


class Complains(nn.Module):
    """Fails by itself, in words that torch uses where a value is missing."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        del x
        Complains.calls += 1
        raise RuntimeError("I take no meta tensor")


def test_words_of_a_model_are_no_missing_value() -> None:
    """Whether a value is missing is told by what torch refused, not by a model's own words."""
    with pytest.raises(TraceError, match="I take no meta tensor") as error:
        profile_model(Complains(), (torch.ones(2),))
    assert not isinstance(error.value, UnknownValueError)
    assert Complains.calls == 1  # it is not run for real after that


class Listed(nn.Module):
    """Decides by an activation that it reads as a list, or as an array."""

    def __init__(self, read: str) -> None:
        super().__init__()
        self.read = read
        self.layer = nn.Linear(2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = READS[self.read](self.layer(x).detach())
        return x * float(values[0])


READS: dict[str, Callable[[torch.Tensor], Any]] = {
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.numpy(),
    "array": np.asarray,
    "tensor": lambda x: torch.tensor([x.sum(), 1.0], device="cpu"),
    "FloatTensor": lambda x: torch.FloatTensor([x.sum()]),
    "new_tensor": lambda x: x.new_tensor([x.sum()]).numpy(),
}


@pytest.mark.parametrize("read", READS)
def test_activation_that_is_read_runs_for_real(read: str) -> None:
    """Given values, the model is run with them; without, the function that asked is named."""
    assert profile_model(Listed(read), (torch.ones(2),)).totals.capture == "real"
    with pytest.raises(TraceError, match=r"meta.*give real weights and inputs"):
        profile_model(Listed(read), (torch.ones(2, device="meta"),))


def test_large_given_values_run_for_real() -> None:
    """Values that are too many to carry along lead to a real run on the CPU."""
    x = torch.cat((torch.ones(1 << 20), -torch.ones(1 << 20)))
    profile = profile_model(Pick(), (x,))
    assert profile.totals.capture == "real"
    assert profile.info.assumption == ""
    assert profile.nodes[-2].shape == f"[{1 << 20}]"


def test_real_run_leaves_no_memory_of_its_sizes() -> None:
    """What a real run selected is not taken for what unknown values select."""
    profile_model(Pick(), (torch.ones(4, 3),), capture="real")
    with pytest.raises(TraceError, match=r"aten\.index"):
        profile_model(Pick(), (torch.zeros(4, 3, device="meta"),))


def test_asked_real_run_states_its_seeded_values() -> None:
    """A real run that was asked for draws what meta tensors lack and says so."""
    profile = profile_model(Pick(), (torch.zeros(4, 3, device="meta"),), capture="real")
    assert profile.totals.capture == "real"
    assert profile.info.assumption == "seeded-values"


def test_keep_all_keeps_everything() -> None:
    """The assumption makes a predicate true everywhere, and marks profile and operator."""
    profile = profile_model(Pick(), (torch.zeros(4, 3, device="meta"),), assume="keep-all")
    assert (profile.totals.capture, profile.info.assumption) == ("drawn", "keep-all")
    assert profile.info.assumption_note == "a predicate over unknown values is true everywhere"
    assert profile.nodes[-2].shape == "[12]"
    assert [op.operator for op in profile.ops if op.assumption] == ["aten.index.Tensor"]


def test_drawn_values_can_be_asked_for() -> None:
    """A predicate over drawn values keeps some of the elements, on the meta device."""
    given = (torch.zeros(400, 3, device="meta"),)
    profile = profile_model(Pick(), given, capture="drawn")
    assert (profile.totals.capture, profile.info.assumption) == ("drawn", "drawn-values")
    (kept,) = json.loads(profile.nodes[-2].shape)
    assert 0 < kept < 1200  # keep-all would keep everything


def test_drawn_capture_of_a_model_that_asks_for_no_values_is_one_on_meta() -> None:
    """Nothing was drawn, and the profile says so."""
    profile = profile_model(nn.Linear(3, 2), (torch.zeros(4, 3, device="meta"),), capture="drawn")
    assert (profile.totals.capture, profile.info.assumption) == ("meta", "")
    assert profile.info.assumption_note == ""


@pytest.mark.parametrize("capture", ["meta", "real"])
def test_assumption_needs_a_capture_that_assumes(capture: str) -> None:
    """What is not assumed cannot be asked for beside it: one line names both and the way out."""
    with pytest.raises(ValueError, match=f"capture '{capture}' assumes nothing.*keep-all.*drawn"):
        profile_model(Pick(), (torch.ones(2),), capture=capture, assume="keep-all")


def test_former_word_for_captures_is_refused_with_the_new_ones() -> None:
    """The one word that stood for two kinds names neither."""
    with pytest.raises(ValueError, match="'concrete' is none of 'auto', 'meta', 'drawn', 'real'"):
        profile_model(Pick(), (torch.ones(2),), capture="concrete")


def test_keep_all_refuses_a_number() -> None:
    """An upper bound of a predicate says nothing about a number."""
    with pytest.raises(TraceError, match="local_scalar"):
        profile_model(Repeat(), (torch.zeros(4, device="meta"),), assume="keep-all")


def test_determined_values_are_known_on_meta() -> None:
    """Attributes, buffers and index inputs keep their values: nothing is assumed."""
    profile = profile_model(Table(), (torch.zeros(1, 3, device="meta"), torch.tensor([1, 4])))
    assert profile.totals.capture == "meta"
    assert profile.nodes[-2].shape == "[9, 2]"


def test_command_stores_nothing_unless_an_assumption_is_chosen(tmp_path: Path) -> None:
    """The command fails by operator and line; with an assumption it stores it with the profile."""
    (tmp_path / "picking.py").write_text(
        "from torch import nn\n\n\nclass Pick(nn.Module):\n"
        "    def forward(self, x):\n        return x[x > 0]\n"
    )
    url = f"sqlite:///{tmp_path}/study.db"
    asked = ["--model", "picking:Pick", "--module-path", str(tmp_path), "--db", url]
    asked += ["--input", "float32[4,3]"]
    refused = export_profiles(*asked)
    assert refused.returncode == 1
    assert "aten.index.Tensor" in refused.stderr
    assert "picking.py:6" in refused.stderr
    assert export_profiles(*asked, "--assume", "keep-all").returncode == 0
    with open_store(url) as store:
        (totals,) = store.totals()
        stored = store.read(totals.profile_id)
    assert stored.info.assumption == "keep-all"


def test_too_large_real_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real run above the memory limit fails in one line that names the limit."""
    monkeypatch.setattr(capture_policy, "MOST_BYTES", 0)
    with pytest.raises(TraceError, match="GiB allowed"):
        profile_model(ByValue(), (torch.ones(2),), capture="real")


def test_one_stage_detector_runs_what_a_cpu_runs() -> None:
    """Anchors and targets decide a one-stage detector's training: drawn and real runs agree."""
    drawn, real = drawn_profile(tiny_retinanet, train=True), _real(tiny_retinanet, train=True)
    assert _work(drawn) == _work(real)
    for name in ("kept_bytes", "forward_end_bytes", "fwd_macs", "bwd_macs", "unknown_op_count"):
        assert getattr(drawn.totals, name) == getattr(real.totals, name), name


def test_two_stage_detector_runs_the_operators_of_a_cpu() -> None:
    """The operators of a two-stage detector's training and their order are those of a real run."""
    drawn, real = drawn_profile(tiny_faster_rcnn, train=True), _real(tiny_faster_rcnn, train=True)
    assert [row[:2] for row in _work(drawn)] == [row[:2] for row in _work(real)]
    assert drawn.totals.unknown_op_count == 0
    assert drawn.totals.capture == "drawn"
    assert drawn.info.assumption_note.startswith("weights, inputs and outputs")
    assert drawn.info.assumption == "drawn-values"
    assert {op.operator for op in drawn.ops if op.assumption} >= {"torchvision.nms.default"}


def test_anchors_of_a_detector_match_its_boxes_as_they_really_do() -> None:
    """What is matched follows from anchors and given boxes: it is what torchvision finds.

    The matcher reads positions by columns: a device lays them out column by column, as a CPU does.
    """
    built = build_model(zoo, "retinanet_resnet50_fpn", Settings())
    model = torchvision.models.detection.retinanet_resnet50_fpn(weights=None, weights_backbone=None)
    images, targets = built.args
    given, boxes = model.transform([torch.zeros(i.shape) for i in images], copy.deepcopy(targets))
    maps = [torch.zeros(1, 1, -(-given.tensors.shape[-2] // s), -(-given.tensors.shape[-1] // s))
            for s in (8, 16, 32, 64, 128)]  # fmt: skip
    anchors = model.anchor_generator(given, maps)
    matched = [
        int((model.proposal_matcher(box_iou(box["boxes"], anchor)) >= 0).sum())
        for box, anchor in zip(boxes, anchors, strict=True)
    ]
    profile = profile_built(built, Settings())
    lengths = [
        json.loads(tensor.shape)
        for tensor in profile.tensors
        if tensor.op_id >= 0
        and profile.ops[tensor.op_id].operator == "aten.index.Tensor"
        and tensor.dtype == "int64"
    ]
    assert set(matched) == {34}
    assert [34] in lengths
    assert [35] not in lengths


def test_drawn_values_are_the_same_in_every_process() -> None:
    """A second process with another hash seed draws the same values: the profiles are equal."""
    code = (
        "from tiny_detectors import drawn_profile, tiny_faster_rcnn\n"
        "print(drawn_profile(tiny_faster_rcnn, train=False).info.structural_hash)\n"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1",)
    }
    assert hashes == {drawn_profile(tiny_faster_rcnn, train=False).info.structural_hash + "\n"}


def test_drawn_values_leave_the_random_state() -> None:
    """Drawing values neither reads nor moves the global generator."""
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = drawn_profile(tiny_faster_rcnn, train=False)
    torch.manual_seed(4)
    second = drawn_profile(tiny_faster_rcnn, train=False)
    assert first.info.structural_hash == second.info.structural_hash
    torch.manual_seed(3)
    assert torch.equal(torch.get_rng_state(), before)


def test_moments_of_an_initialisation_are_remembered() -> None:
    """The moments of torch's initialisers are noted, on meta as well as on the CPU."""
    with RememberMoments():
        model = build_on_meta(lambda: nn.Linear(12, 4))
        nn.init.normal_(model.weight, std=0.01)
        nn.init.constant_(model.bias, -4.0)
    weight, bias = remembered_moments(model.weight), remembered_moments(model.bias)
    assert weight is not None
    assert bias is not None
    assert (weight.mean, weight.std) == (0.0, 0.01)
    assert (bias.mean, bias.std) == (-4.0, 0.0)


def test_prior_of_a_detector_reaches_its_scores() -> None:
    """The bias that makes an untrained one-stage detector find nothing makes ours find nothing."""
    drawn = drawn_profile(tiny_retinanet, train=False)
    selected = [op.op_id for op in drawn.ops if op.operator == "torchvision.nms.default"]
    kept = [t.shape for t in drawn.tensors if t.op_id in selected]
    assert kept == [] or set(kept) == {"[0]"}


DETECTORS = [n for n in zoo.names() if "rcnn" in n or n.startswith(("fcos", "retina", "ssd"))]
ONE_OF_EACH = ["maskrcnn_resnet50_fpn", "retinanet_resnet50_fpn", "ssdlite320_mobilenet_v3_large"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mode"),
    [*((name, "train") for name in DETECTORS), *((name, "eval") for name in ONE_OF_EACH)],
)
def test_detector_of_the_zoo_has_no_unknown_operator(name: str, mode: str) -> None:
    """Detectors are profiled at their default sizes, and every operator is counted."""
    settings = Settings(mode=mode, backward=mode == "train")
    profile = profile_built(build_model(zoo, name, settings), settings)
    assert profile.totals.unknown_op_count == 0
    assert profile.totals.fwd_macs > 0
    assert (profile.totals.bwd_macs > 0) == (mode == "train")
