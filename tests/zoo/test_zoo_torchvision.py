"""The zoo of torchvision: all of its models, true sizes, inputs that suit them."""

import json

import pytest
import torch
import torchvision
from torchvision.models import get_model_weights

from exporter.settings import Settings
from exporter.zoo.errors import BuildError, UnknownZooError, ZooError
from exporter.zoo.registry import build_model, load_zoo, select_models
from exporter.zoo.torchvision import zoo

IMAGE_NET = [
    name
    for name in torchvision.models.list_models(torchvision.models)
    # what is published for googlenet lacks the auxiliary classifiers, and for vit_h_14 has another
    # image size
    if name not in ("googlenet", "vit_h_14")
]


def test_names_are_those_of_torchvision() -> None:
    """The names read from the source are those that torchvision itself lists."""
    assert list(zoo.names()) == torchvision.models.list_models()


@pytest.mark.slow
def test_models_have_the_published_parameters() -> None:
    """Every classification model has the parameters that torchvision publishes, on meta."""
    for name in IMAGE_NET:
        built = build_model(zoo, name, Settings(batch_size=1))
        published = next(iter(get_model_weights(name))).meta["num_params"]
        assert sum(p.numel() for p in built.model.parameters()) == published, name
        assert all(t.is_meta for t in built.model.state_dict().values()), name
        assert built.built_on == "meta", name


@pytest.mark.parametrize("name", ["efficientnet_b4", "inception_v3", "swin_v2_t", "resnet18"])
def test_images_have_the_published_size(name) -> None:
    """The default image is as large as torchvision's own evaluation crop."""
    crop = next(iter(get_model_weights(name))).transforms().crop_size[0]
    built = build_model(zoo, name, Settings(batch_size=2))
    assert built.input_spec == (f"float32[2, 3, {crop}, {crop}]",)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("r3d_18", [(2, 3, 16, 112, 112)]),
        ("mvit_v2_s", [(2, 3, 16, 224, 224)]),
        ("fcn_resnet50", [(2, 3, 520, 520)]),
        ("raft_small", [(2, 3, 368, 496)] * 2),
    ],
)
def test_inputs_suit_the_family(name, shapes) -> None:
    """Clips, image pairs and large images go where they belong."""
    built = build_model(zoo, name, Settings(batch_size=2))
    assert [tuple(arg.shape) for arg in built.args] == shapes
    assert all(arg.is_meta for arg in built.args)


def test_detectors_get_targets_in_training_only() -> None:
    """A detector in training has a target with real values for each image, in evaluation none."""
    training = build_model(zoo, "maskrcnn_resnet50_fpn", Settings(batch_size=2))
    images, targets = training.args
    assert [tuple(image.shape) for image in images] == [(3, 800, 1088)] * 2
    assert [sorted(target) for target in targets] == [["boxes", "labels", "masks"]] * 2
    assert targets[0]["boxes"].tolist() == [[272.0, 200.0, 816.0, 600.0]]
    evaluation = build_model(zoo, "maskrcnn_resnet50_fpn", Settings(batch_size=2, mode="eval"))
    assert len(evaluation.args) == 1


def test_settings_reach_the_model() -> None:
    """Mode, dtype, batch and image size are those asked for."""
    settings = Settings(batch_size=3, image_size=64, mode="eval", dtype="bfloat16")
    built = build_model(zoo, "vit_b_16", settings)
    assert built.input_spec == ("bfloat16[3, 3, 64, 64]",)
    assert not built.model.training
    assert {p.dtype for p in built.model.parameters()} == {torch.bfloat16}
    # 64 / 16 = 4 patches a side, and the class token
    assert tuple(built.model.encoder.pos_embedding.shape) == (1, 17, 768)
    assert json.loads(built.config) == {"image_size": 64}
    assert built.package_version == torchvision.__version__.split("+")[0]


@pytest.mark.parametrize(
    ("name", "size"), [("raft_small", 100), ("ssd300_vgg16", 64), ("maxvit_t", 100), ("nonet", 64)]
)
def test_unsuitable_settings_are_refused(name, size) -> None:
    """A size that the model cannot take, or a name that is none, is an error that names it."""
    with pytest.raises(BuildError, match=name) as caught:
        build_model(zoo, name, Settings(image_size=size))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (Settings(overrides=(("num_class", "8"),)), "did you mean num_classes"),
        (Settings(overrides=(("weights_backbone", "DEFAULT"),)), "without weights"),
    ],
)
def test_unsuitable_keys_are_refused(settings, says) -> None:
    """A key that the model lacks, or weights, are refused in one line."""
    with pytest.raises(BuildError, match=f"resnet18.*{says}") as caught:
        build_model(zoo, "resnet18", settings)
    assert "\n" not in str(caught.value)


def test_keys_reach_the_builder() -> None:
    """A keyword argument of the builder is the model's."""
    built = build_model(zoo, "resnet18", Settings(overrides=(("num_classes", "7"),)))
    assert tuple(built.model.fc.weight.shape) == (7, 512)
    assert json.loads(built.config) == {"set": {"num_classes": 7}}


def test_unknown_zoo_suggests_a_known_one() -> None:
    """A misspelt zoo is refused with the right spelling."""
    with pytest.raises(UnknownZooError, match="did you mean 'torchvision'"):
        load_zoo("torchvison")


def test_selection_takes_and_leaves_by_pattern() -> None:
    """Patterns choose, exclusions take away, and the order of the names stays."""
    names = ("alexnet", "resnet18", "resnet50", "wide_resnet50_2")
    assert select_models(names) == names
    assert select_models(names, ["*50*", "alexnet"], ["wide*"]) == ("alexnet", "resnet50")


@pytest.mark.parametrize(
    ("include", "exclude", "says"),
    [
        (["resnet19"], [], "did you mean resnet18"),
        (["resnet18", "zzz*"], [], "'zzz\\*', see --list"),
        ([], ["*"], "leave no model"),
    ],
)
def test_selection_refuses_what_matches_nothing(include, exclude, says) -> None:
    """A pattern without a match is an error, with near names if there are any."""
    with pytest.raises(ZooError, match=says):
        select_models(("resnet18", "resnet50"), include, exclude)
