"""The zoo of reference models: published sizes, and the measured memory of GPT-2 medium."""

import json

import pytest
import torch

from exporter.profiling import profile_built
from exporter.settings import Settings
from exporter.zoo.errors import BuildError
from exporter.zoo.reference import zoo
from exporter.zoo.registry import build_model

pytest.importorskip("transformers", reason="the extra transformers is not installed")

MIB = 1 << 20

# Parameters as published with each model.
PUBLISHED = {
    "bert_large": 336_226_108,
    "gpt2": 124_439_808,
    "gpt2_medium": 354_823_168,
    "gpt2_xl": 1_557_611_200,
    "llama3_8b": 8_030_261_248,
    "llama3_70b": 70_553_706_496,
    "llama3_405b": 405_853_388_800,
    "mixtral_8x7b": 46_702_792_704,
    "stable_diffusion_unet": 859_520_964,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_models_have_the_published_parameters(name) -> None:
    """A model has the parameters that were published, on meta, tied ones once."""
    built = build_model(zoo, name, Settings(batch_size=1))
    assert sum(p.numel() for p in built.model.parameters()) == PUBLISHED[name]
    assert built.built_on == "meta"
    assert all(t.is_meta for t in built.model.state_dict().values())


def test_vit_22b_has_the_published_parameters_in_its_layers() -> None:
    """48 layers of 4 d^2 + 2 d * 4 d weights, d = 6144, are the published 21,743 million."""
    layers = build_model(zoo, "vit_22b", Settings()).model.layers
    matrices = sum(p.numel() for p in layers.parameters() if p.dim() == 2)
    assert matrices == 48 * 12 * 6144**2
    assert round(matrices / 1e6) == 21743


@pytest.mark.slow
def test_gpt2_medium_is_near_the_measured_memory() -> None:
    """In eager attention: the published 1,353.543 MiB of parameters, and 55,721 MiB within 7 %."""
    settings = Settings(batch_size=8, overrides=(("attn_implementation", "eager"),))
    built = build_model(zoo, "gpt2_medium", settings)
    assert built.input_spec == ("int64[8, 1024]", "int64[8, 1024]")
    totals = profile_built(built, settings).totals
    assert totals.param_bytes / MIB == pytest.approx(1353.543, abs=5e-4)
    assert totals.forward_allocated_bytes / MIB == pytest.approx(55721.340, rel=0.07)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("deepseek_v3", {"num_hidden_layers": 4, "n_routed_experts": 16}),
        ("llama3_405b", {"num_hidden_layers": 2}),
        ("mixtral_8x7b", {"num_hidden_layers": 2}),
        ("stable_diffusion_unet", {}),
        ("vit_22b", {"num_hidden_layers": 2}),
    ],
)
def test_models_are_profiled_on_meta(name, overrides) -> None:
    """Forward and backward run on meta, every operator has its count, and the bytes add up."""
    texts = tuple((key, json.dumps(value)) for key, value in overrides.items())
    settings = Settings(batch_size=2, overrides=texts)
    totals = profile_built(build_model(zoo, name, settings), settings).totals
    assert totals.unknown_op_count == 0
    assert totals.forward_end_bytes == (
        totals.kept_bytes + totals.input_bytes + totals.param_bytes + totals.buffer_bytes
    )
    # every weight is used in one product at least, for each of two items
    assert totals.bwd_macs > totals.fwd_macs > 0


def test_settings_reach_the_model() -> None:
    """Layers, length, dtype and mode are those asked for."""
    settings = Settings(
        batch_size=1, seq_len=64, mode="eval", dtype="bfloat16",
        overrides=(("num_hidden_layers", "1"), ("hidden_size", "512")),
    )  # fmt: skip
    built = build_model(zoo, "llama3_8b", settings)
    assert built.input_spec == ("int64[1, 64]", "int64[1, 64]")
    assert len(built.model.model.layers) == 1
    assert tuple(built.model.lm_head.weight.shape) == (128256, 512)
    assert built.model.lm_head.weight.dtype is torch.bfloat16
    assert not built.model.training
    assert json.loads(built.config) == {
        "seq_len": 64,
        "set": {"hidden_size": 512, "num_hidden_layers": 1},
    }


def test_image_size_reaches_image_models() -> None:
    """The U-Net works on latents of an eighth, the transformer on patches of 14."""
    unet = build_model(zoo, "stable_diffusion_unet", Settings(batch_size=1, image_size=256))
    assert unet.input_spec[0] == "float32[1, 4, 32, 32]"
    settings = Settings(batch_size=1, image_size=28, overrides=(("num_hidden_layers", "1"),))
    built = build_model(zoo, "vit_22b", settings)
    assert built.input_spec == ("float32[1, 3, 28, 28]",)
    assert tuple(built.model.positions.shape) == (1, 4, 6144)


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("gpt2", {"overrides": (("n_layers", "2"),)}, "'n_layers'; did you mean n_layer"),
        ("vit_22b", {"overrides": (("hidden", "2"),)}, "'hidden'; did you mean hidden_size"),
        ("vit_22b", {"seq_len": 8}, "no sequences"),
        ("gpt2", {"image_size": 8}, "no images"),
        ("gpt2", {"overrides": (("n_head", "7"),)}, "cannot be built"),
        ("stable_diffusion_unet", {"overrides": (("channels", "100"),)}, "cannot be built"),
        ("gpt5", {}, "no reference model"),
    ],
)
def test_unsuitable_settings_are_refused(name, settings, says) -> None:
    """A key that the configuration lacks, or a value it cannot take, is one line with the name."""
    with pytest.raises(BuildError, match=says) as caught:
        build_model(zoo, name, Settings(**settings))
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
