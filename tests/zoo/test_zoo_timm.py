"""The zoo of timm: all of its names, its own sizes, and models that run."""

import json

import pytest
import torch
from zoo_samples import TIMM

from exporter.profiling import profile_built
from exporter.settings import Settings
from exporter.zoo.errors import BuildError
from exporter.zoo.registry import build_model
from exporter.zoo.timm import zoo

timm = pytest.importorskip("timm", reason="the extra timm is not installed")


def test_names_are_those_of_timm() -> None:
    """The names read from the source are those that timm itself lists."""
    assert set(zoo.names()) == set(timm.list_models())
    assert list(zoo.names()) == sorted(zoo.names())


@pytest.mark.slow
@pytest.mark.parametrize("name", TIMM)
def test_models_are_profiled_on_meta(name) -> None:
    """A model has timm's parameters, is built and run on meta, and its bytes add up."""
    settings = Settings(batch_size=2)
    built = build_model(zoo, name, settings)
    assert built.built_on == "meta"
    totals = profile_built(built, settings).totals
    with torch.device("meta"):
        real = timm.create_model(name)
    assert totals.param_count == sum(p.numel() for p in real.parameters())
    assert totals.unknown_op_count == 0
    assert totals.forward_end_bytes == (
        totals.kept_bytes + totals.input_bytes + totals.param_bytes + totals.buffer_bytes
    )


def test_images_have_the_models_own_size() -> None:
    """The default image is the one that the released weights take."""
    built = build_model(zoo, "efficientnet_lite4", Settings(batch_size=3))
    assert built.input_spec == ("float32[3, 3, 380, 380]",)


def test_settings_reach_the_model() -> None:
    """Image size, mode and keyword arguments are those asked for."""
    settings = Settings(
        batch_size=1, image_size=96, mode="eval", overrides=(("num_classes", "7"), ("depth", "2"))
    )
    built = build_model(zoo, "vit_tiny_patch16_224", settings)
    assert built.input_spec == ("float32[1, 3, 96, 96]",)
    assert len(built.model.blocks) == 2
    assert tuple(built.model.head.weight.shape) == (7, 192)
    # 96 / 16 = 6 patches a side, and the class token
    assert tuple(built.model.pos_embed.shape) == (1, 37, 192)
    assert json.loads(built.config) == {"image_size": 96, "set": {"depth": 2, "num_classes": 7}}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (Settings(overrides=(("drop_rat", "0.1"),)), "'drop_rat'; did you mean drop_rate"),
        (Settings(overrides=(("num_classes", "many"),)), "cannot be built"),
    ],
)
def test_unsuitable_settings_are_refused(settings, says) -> None:
    """A key that the model lacks, or a value that it cannot take, is one line that names it."""
    with pytest.raises(BuildError, match=f"resnet18.*{says}") as caught:
        build_model(zoo, "resnet18", settings)
    assert "\n" not in str(caught.value)


def test_unknown_name_is_refused() -> None:
    """A name that timm does not have is an error that names it."""
    with pytest.raises(BuildError, match="no model 'resnet19'"):
        build_model(zoo, "resnet19", Settings())
