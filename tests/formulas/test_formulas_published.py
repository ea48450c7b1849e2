"""Whole models against what others published, and against torch's own counter."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch
import torchvision
from operator_recorder import OperatorRecorder, no_initialization, output_tensors
from torch.utils.flop_counter import FlopCounterMode
from torchvision.models import get_model, get_model_builder, get_model_weights, list_models

aten = torch.ops.aten

PUBLISHED = Path(__file__).parents[2] / "data" / "published_flops.csv"
CLASSIFIERS = list_models(module=torchvision.models)


def published_rows():
    """Return the published table by model."""
    lines = [line for line in PUBLISHED.read_text().splitlines() if not line.startswith("#")]
    return {row["model"]: row for row in csv.DictReader(lines)}


def record_step(name):
    """Return the recorders of forward and backward of a published row."""
    with no_initialization():
        model = torch.nn.Conv2d(3, 2, 5) if name == "conv2d_3_2_5" else get_model(name)
    model = model.to("meta").train()
    batch = int(published_rows()[name]["batch_size"])
    images = torch.empty(batch, 3, 224, 224, device="meta", requires_grad=True)
    with OperatorRecorder() as forward:
        output = model(images)
    seed = torch.ones_like(output)
    with OperatorRecorder() as backward:
        output.backward(seed)
    return forward, backward


@pytest.mark.parametrize("name", sorted(set(published_rows()) - {"vit_b_16"}))
def test_published_flops_are_reproduced(name):
    """Macs plus pointwise FLOPs are the published figures in every digit.

    The publisher's weight gradient of a convolution was not divided by its groups.
    """
    forward, backward = record_step(name)
    row = published_rows()[name]
    assert forward.total_macs + forward.total_pointwise == int(row["fwd_flop"])
    assert backward.total_macs + backward.total_pointwise + backward.grouped_surplus == int(
        row["bwd_flop"]
    )


def test_published_vit_differs_by_attention_code():
    """The difference is a whole number of token tensors, each traced to a line that changed."""
    forward, backward = record_step("vit_b_16")
    row = published_rows()["vit_b_16"]
    layers, tokens = 12, 4000 * 197 * 768
    ours = forward.total_macs + forward.total_pointwise
    # scaling both query and key took the place of dividing the query
    scaling = 2 * layers - layers
    # now every layer's joint projection (3 token tensors) adds its bias apart; then the first
    # layer's did, and the first linear layer (4 token tensors) of every block
    biases = 3 * layers - (3 + 4 * layers)
    assert ours - int(row["fwd_flop"]) == (scaling + biases) * tokens
    # three slices of the joint projection are now summed by two additions of its size
    slices = 2 * 3 * layers
    ours = backward.total_macs + backward.total_pointwise
    assert ours - int(row["bwd_flop"]) == (scaling + slices) * tokens


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_torchvision_published_gmacs_are_reproduced(name):
    """Forward macs at the released model's own size equal its published figure, three decimals."""
    weights = get_model_weights(name).DEFAULT
    size = weights.transforms().crop_size[0]
    with no_initialization():
        # the largest vit was released at 518 pixels, and its positions depend on the size
        model = get_model(name, **({"image_size": size} if name.startswith("vit_") else {}))
    model = model.to("meta").eval()
    with torch.no_grad(), OperatorRecorder() as recorder:
        model(torch.empty(1, 3, size, size, device="meta"))
    assert recorder.unknown == set()
    assert f"{recorder.total_macs / 1e9:.3f}" == f"{weights.meta['_ops']:.3f}"


def image_inputs(name):
    """Return inputs that a torchvision model outside detection accepts."""

    def tensor(*shape):
        return torch.empty(*shape, device="meta", requires_grad=True)

    if name.startswith("raft"):
        return tensor(1, 3, 128, 128), tensor(1, 3, 128, 128)
    if name in list_models(module=torchvision.models.video):
        return (tensor(1, 3, 16, 224, 224),)
    size = 299 if "inception" in name else 224
    return (tensor(2, 3, size, size),)


def smallest_of_each_family():
    """Return one model per module that defines models: its siblings differ in sizes only."""
    detectors = set(list_models(module=torchvision.models.detection))
    families = {}
    for name in list_models():
        if name not in detectors:
            parameters = get_model_weights(name).DEFAULT.meta["num_params"]
            # some modules define two generations: efficientnet and efficientnet_v2
            family = (get_model_builder(name).__module__, "_v2_" in name)
            families[family] = min(families.get(family, (parameters, name)), (parameters, name))
    return sorted(name for _, name in families.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", smallest_of_each_family())
def test_torchvision_has_no_unknown_operator(name):
    """No operator of a training step or of evaluation is unknown."""
    segmentation = list_models(module=torchvision.models.segmentation)
    with no_initialization():
        model = get_model(name, **({"weights_backbone": None} if name in segmentation else {}))
    model = model.to("meta").train()
    inputs = image_inputs(name)
    with OperatorRecorder() as recorder:
        outputs = output_tensors(model(*inputs))
        torch.autograd.backward(outputs, [torch.ones_like(o) for o in outputs])
        with torch.no_grad():
            model.eval()(*inputs)
    assert recorder.unknown == set()
    assert recorder.total_macs > 0


@pytest.mark.parametrize("name", ["alexnet", "resnet18", "densenet121", "vit_b_16", "swin_t"])
def test_torch_counter_agrees_where_it_is_right(name):
    """Twice the macs of forward and backward are torch's FLOPs for models without groups."""
    with no_initialization():
        model = get_model(name).to("meta").train()
    images = torch.empty(1, 3, 224, 224, device="meta", requires_grad=True)
    with FlopCounterMode(display=False) as counter, OperatorRecorder() as recorder:
        output = model(images)
        output.backward(torch.ones_like(output))
    assert 2 * recorder.total_macs == counter.get_total_flops()


@pytest.mark.parametrize("name", ["mobilenet_v2", "regnet_y_400mf", "mnasnet0_5"])
def test_torch_counter_is_above_by_the_groups(name):
    """Where convolutions have groups, torch's counter multiplies the weight gradient by them."""
    with no_initialization():
        model = get_model(name).to("meta").train()
    images = torch.empty(1, 3, 224, 224, device="meta", requires_grad=True)
    with FlopCounterMode(display=False) as counter, OperatorRecorder() as recorder:
        output = model(images)
        output.backward(torch.ones_like(output))
    surplus = recorder.grouped_surplus
    assert surplus > recorder.total_macs
    assert 2 * (recorder.total_macs + surplus) == counter.get_total_flops()
