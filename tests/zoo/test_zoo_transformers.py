"""The zoo of transformers: its names, its inputs, and models that run."""

import gc
import importlib
import json
import os

import pytest
import torch
from zoo_samples import TRANSFORMERS, overrides

from exporter.capture.state import Recording
from exporter.profiling import profile_built
from exporter.settings import Settings
from exporter.zoo.errors import BuildError
from exporter.zoo.registry import build_model
from exporter.zoo.transformers.zoo import zoo

transformers = pytest.importorskip("transformers", reason="the extra transformers is not installed")


def test_names_are_the_base_models_of_transformers() -> None:
    """The names read from the source are the model types that AutoModel knows."""
    assert set(zoo.names()) == set(transformers.models.auto.modeling_auto.MODEL_MAPPING_NAMES)
    assert list(zoo.names()) == sorted(set(zoo.names()))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TRANSFORMERS))
def test_models_are_profiled_on_meta(name) -> None:
    """A model gets the inputs of its kind, runs on meta, and its bytes add up."""
    settings = Settings(batch_size=2, overrides=overrides(name))
    built = build_model(zoo, name, settings)
    assert list(built.kwargs) == TRANSFORMERS[name]
    assert built.built_on == "meta"
    assert all(t.is_meta for t in built.model.state_dict().values())
    profile = profile_built(built, settings)
    assert profile.info.capture == "meta"
    totals = profile.totals
    assert totals.forward_end_bytes == (
        totals.kept_bytes + totals.input_bytes + totals.param_bytes + totals.buffer_bytes
    )
    assert totals.bwd_macs > 0


def test_parameters_are_those_of_the_real_model() -> None:
    """A model has as many parameters as the one that transformers itself builds, tied ones once."""
    for name in ("albert", "t5"):
        with torch.device("meta"):
            config = transformers.CONFIG_MAPPING[name]()
            real = transformers.AutoModel.from_config(config)
        built = build_model(zoo, name, Settings())
        count = sum(p.numel() for p in real.parameters())
        assert sum(p.numel() for p in built.model.parameters()) == count


def test_images_take_the_place_of_their_tokens() -> None:
    """One image of 224 / 14 = 16 patches a side becomes 256 tokens before the text."""
    built = build_model(zoo, "paligemma", Settings(batch_size=3, seq_len=10))
    ids = built.kwargs["input_ids"]
    assert tuple(ids.shape) == (3, 256 + 10)
    image = built.model.config.image_token_id
    assert (ids == image).sum(1).tolist() == [256] * 3
    assert ids[:, :256].eq(image).all()
    assert tuple(built.kwargs["pixel_values"].shape) == (3, 3, 224, 224)


def test_building_keeps_nothing_of_what_it_runs() -> None:
    """Counting an image's tokens runs the vision tower: no recording, hook or gradient is left."""
    gc.collect()
    before = sum(type(one) is Recording for one in gc.get_objects())
    built = build_model(zoo, "paligemma", Settings(batch_size=1, seq_len=10))
    gc.collect()
    assert sum(type(one) is Recording for one in gc.get_objects()) == before
    hooked = [path for path, one in built.model.named_modules() if one._forward_hooks]
    assert hooked == []
    assert all(parameter.grad is None for parameter in built.model.parameters())


def test_token_ids_avoid_special_tokens() -> None:
    """No token of a text is one that the configuration gives a meaning, and masks hide nothing."""
    built = build_model(zoo, "bart", Settings(batch_size=2))
    config = built.model.config
    special = {config.pad_token_id, config.bos_token_id, config.eos_token_id}
    assert special.isdisjoint(built.kwargs["input_ids"].unique().tolist())
    assert built.kwargs["attention_mask"].all()
    assert tuple(built.kwargs["input_ids"].shape) == (2, 128)


def test_lengths_follow_positions() -> None:
    """A text is no longer than the positions that a model has, 77 for CLIP."""
    assert build_model(zoo, "clip", Settings(batch_size=1)).input_spec[0] == "int64[1, 77]"
    asked = build_model(zoo, "bert", Settings(batch_size=1, seq_len=512))
    assert asked.input_spec == ("int64[1, 512]", "int64[1, 512]")


def test_settings_reach_the_model() -> None:
    """Nested keys, code paths, dtype, mode and image size are those asked for."""
    settings = Settings(
        batch_size=1,
        mode="eval",
        dtype="bfloat16",
        image_size=64,
        overrides=(
            ("vision_config.num_hidden_layers", "1"),
            ("text_config.num_hidden_layers", "2"),
            ("attn_implementation", "eager"),
        ),
    )
    built = build_model(zoo, "clip", settings)
    assert len(built.model.vision_model.encoder.layers) == 1
    assert len(built.model.text_model.encoder.layers) == 2
    assert built.model.config._attn_implementation == "eager"
    assert built.kwargs["pixel_values"].shape == (1, 3, 64, 64)
    assert {p.dtype for p in built.model.parameters()} == {torch.bfloat16}
    assert not built.model.training
    assert json.loads(built.config)["set"]["text_config.num_hidden_layers"] == 2


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("bert", {"overrides": (("num_hidden_layer", "2"),)}, "did you mean num_hidden_layers"),
        ("clip", {"overrides": (("text_config.layers", "2"),)}, "no setting 'text_config.layers'"),
        ("bert", {"overrides": (("hidden_size.x", "2"),)}, "no setting 'hidden_size.x'"),
        ("bert", {"overrides": (("num_attention_heads", "7"),)}, "cannot be built"),
        ("bert", {"overrides": (("attn_implementation", "fast"),)}, "cannot be built"),
        ("bert", {"image_size": 32}, "has no image_size"),
        ("bertt", {}, "no model type"),
    ],
)
def test_unsuitable_settings_are_refused(name, settings, says) -> None:
    """A key that the configuration lacks, or a value it cannot take, is one line with the name."""
    with pytest.raises(BuildError, match=says) as caught:
        build_model(zoo, name, Settings(**settings))
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_building_leaves_the_hub_as_it_was() -> None:
    """The hub's client is offline while a model is built, and as before afterwards."""
    hub = importlib.import_module("huggingface_hub.constants")
    before = hub.HF_HUB_OFFLINE, dict(os.environ)
    build_model(zoo, "albert", Settings())
    assert (hub.HF_HUB_OFFLINE, dict(os.environ)) == before
    with pytest.raises(BuildError):
        build_model(zoo, "timm_backbone", Settings())
    assert (hub.HF_HUB_OFFLINE, dict(os.environ)) == before
