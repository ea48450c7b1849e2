"""The zoo of reference models: named configurations that people cite, whatever their size.

Language models are transformers' classes with the published dimensions and the length of sequence
that they were trained with; their input is token ids with an attention mask that hides nothing, and
their output the logits of every token. Models that transformers lacks are in
:mod:`exporter.zoo.reference_models`. All are built on the meta device, or not at all.

``--set`` changes a configuration by the names of its class: ``--set num_hidden_layers=4``,
``--set attn_implementation=eager``.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from exporter.zoo.base import Built
from exporter.zoo.errors import BuildError
from exporter.zoo.options import refuse_build, refuse_key

if TYPE_CHECKING:
    import torch
    from torch import nn

    from exporter.settings import Settings


@dataclass(frozen=True, slots=True)
class Language:
    """A language model: a class of transformers and what its configuration says."""

    model: str
    configuration: str
    seq_len: int
    dimensions: dict[str, Any] = field(default_factory=dict)


def _gpt2(width: int, layers: int, heads: int) -> Language:
    sizes = {"n_embd": width, "n_layer": layers, "n_head": heads}
    return Language("GPT2LMHeadModel", "GPT2Config", 1024, sizes)


def _llama3(width: int, inner: int, layers: int, heads: int) -> Language:
    sizes = {
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
    }
    return Language("LlamaForCausalLM", "LlamaConfig", 8192, sizes)


_LANGUAGE = {
    "bert_large": Language(
        "BertForPreTraining",
        "BertConfig",
        512,
        {
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
        },
    ),
    # The defaults of these configurations are the published models.
    "deepseek_v3": Language("DeepseekV3ForCausalLM", "DeepseekV3Config", 4096),
    "mixtral_8x7b": Language("MixtralForCausalLM", "MixtralConfig", 4096),
    "gpt2": _gpt2(768, 12, 12),
    "gpt2_medium": _gpt2(1024, 24, 16),
    "gpt2_large": _gpt2(1280, 36, 20),
    "gpt2_xl": _gpt2(1600, 48, 25),
    "llama3_8b": _llama3(4096, 14336, 32, 32),
    "llama3_70b": _llama3(8192, 28672, 80, 64),
    "llama3_405b": _llama3(16384, 53248, 126, 128),
}
_IMAGES = {"vit_22b": "ParallelVisionTransformer", "stable_diffusion_unet": "DiffusionUNet"}
_TEXT = 77  # tokens that Stable Diffusion's text encoder returns


class ReferenceZoo:
    """Configurations from papers. The package is the one that defines the language models."""

    name = "reference"
    package = "transformers"
    takes = frozenset({"image_size", "seq_len", "set"})

    def names(self) -> tuple[str, ...]:
        """Return the names of all models."""
        return tuple(sorted([*_LANGUAGE, *_IMAGES]))

    def build(self, name: str, settings: Settings) -> Built:
        """Return the model of that name.

        Raises:
            BuildError: if there is none, or it cannot take the settings.
        """
        if name in _LANGUAGE:
            return self._language(name, settings)
        if name in _IMAGES:
            return self._image(name, settings)
        raise BuildError(f"there is no reference model {name!r}")

    def _language(self, name: str, settings: Settings) -> Built:
        import transformers

        from exporter.zoo.transformers.zoo import build_configured

        if settings.image_size:
            raise BuildError(f"{name} takes no images: leave out the image size")
        reference = _LANGUAGE[name]
        config = getattr(transformers, reference.configuration)(**reference.dimensions)
        model_class = getattr(transformers, reference.model)
        return build_configured(name, model_class, config, settings, reference.seq_len)

    def _image(self, name: str, settings: Settings) -> Built:
        import torch

        from exporter.zoo import reference_models
        from exporter.zoo.building import build_on_meta, prepared

        if settings.seq_len:
            raise BuildError(f"{name} takes no sequences: leave out the sequence length")
        model_class: type[nn.Module] = getattr(reference_models, _IMAGES[name])
        known = [key for key in inspect.signature(model_class).parameters if key != "self"]
        options = settings.options()
        for key in options:
            if key not in known:
                raise refuse_key(name, key, known)
        if settings.image_size and "image_size" in known:
            options["image_size"] = settings.image_size
        try:
            model = build_on_meta(lambda: model_class(**options), fallback=False)
        except Exception as error:
            raise refuse_build(name, options, error, model_class) from error
        prepared(model, settings)
        dtype = getattr(torch, settings.dtype)
        kwargs = _image_inputs(name, model, options, settings, dtype)
        return Built(
            model=model,
            kwargs=kwargs,
        )


def _image_inputs(
    name: str,
    model: Any,
    options: dict[str, Any],
    settings: Settings,
    dtype: torch.dtype,
) -> dict[str, Any]:
    """Return images, or the latents of images eight times as large with time steps and text."""
    import torch

    batch = settings.batch_size
    if name == "vit_22b":
        size = options.get("image_size", 224)
        return {"pixel_values": torch.empty(batch, 3, size, size, dtype=dtype, device="meta")}
    size = (settings.image_size or 512) // 8
    latents = torch.empty(batch, model.last.out_channels, size, size, dtype=dtype, device="meta")
    text = torch.empty(batch, _TEXT, options.get("text_size", 768), dtype=dtype, device="meta")
    return {"latents": latents, "timesteps": torch.arange(batch), "text": text}


zoo = ReferenceZoo()
