"""Inputs for models of transformers, made from the signature of ``forward`` and the configuration.

A parameter without a default is always given, and so are the main input, its mask, the inputs of
a decoder, and what a model with several towers needs. Labels are given to no model: backward
starts from the outputs.

- Integers and masks are on the CPU, for their values decide what runs: token ids count up from
  the first that is not special, masks are ones (nothing is padded), grids are even.
- Floating-point inputs are on the meta device.
- Text has 128 tokens unless the settings say otherwise, or the positions that a model has are
  fewer. Images have the size of the configuration, or 224. Sound is one second at the sampling
  rate, spectrograms have as many frames as the encoder takes, or 512.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch

from exporter.zoo.transformers.values import InputMaker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.settings import Settings

# Optional parameters that a model cannot do without: one tower each.
_TOWERS: dict[str, tuple[str, ...]] = {
    "aimv2": ("pixel_values",),
    "audioflamingo3_encoder": ("input_features_mask",),
    "bridgetower": ("pixel_values", "pixel_mask"),
    "bamba": ("use_cache",),
    "granitemoehybrid": ("use_cache",),
    "xmod": ("lang_ids",),
    "blip_2_qformer": ("encoder_hidden_states",),
    "clvp": ("input_features",),
    "decision_transformer": ("states", "actions", "rewards", "returns_to_go", "timesteps"),
    "flava": ("pixel_values",),
    "kosmos-2": ("input_ids", "image_embeds_position_mask"),
    "tvp": ("pixel_values",),
    "instructblip": ("input_ids",),
    "instructblipvideo": ("input_ids",),
    "molmo2": ("mm_token_type_ids",),
    "idefics": ("pixel_values", "image_attention_mask"),
    "layoutlmv2": ("bbox", "image"),
    "layoutlmv3": ("bbox", "pixel_values"),
    "layoutlm": ("bbox",),
    "lilt": ("bbox",),
    "bros": ("bbox",),
    "udop": ("bbox",),
    "minicpm_ocr_vision": ("target_sizes",),
    "minicpmv4_7_vision": ("target_sizes",),
    "lxmert": ("visual_feats", "visual_pos"),
    "pe_audio_video": ("pixel_values_videos", "input_values"),
    "pe_audio_video_encoder": ("pixel_values_videos",),
    "perceiver": ("inputs",),
    "sam3": ("input_ids",),
    "sam3_lite_text": ("input_ids",),
    "time_series_transformer": ("future_values", "future_time_features"),
    "autoformer": ("future_values", "future_time_features"),
    "informer": ("future_values", "future_time_features"),
    "vilt": ("pixel_values",),
    "vision-text-dual-encoder": ("pixel_values",),
    "voxtral_realtime": ("input_features",),
}
_MAINS = ("input_ids", "pixel_values", "input_values", "input_features")
# Towers whose similarity is what the model computes.
_CONTRASTIVE = ("pixel_values", "pixel_values_videos", "input_features", "pixel_attention_mask",
                "spatial_shapes")  # fmt: skip


def make_inputs(
    name: str, model: torch.nn.Module, config: Any, settings: Settings, seq_len: int = 0
) -> dict[str, Any]:
    """Return the named inputs of one forward pass.

    Args:
        name: the model type.
        model: the model on the meta device.
        config: its configuration.
        settings: batch size, dtype and length of sequences that are asked for.
        seq_len: tokens in a sequence, unless the settings say.
    """
    signature = inspect.signature(type(model).forward).parameters
    maker = InputMaker(name, model, config, settings, seq_len)
    given: dict[str, Any] = {}
    for parameter in _wanted(name, model, signature):
        value = maker.make(parameter)
        if value is not None:
            given[parameter] = value
    if "input_ids" in given and "pixel_values" not in given:
        given |= _images_for_text(maker, signature)
    return given


def _wanted(name: str, model: Any, signature: Any) -> Iterator[str]:
    """Yield the parameters of forward that are given, in the order of the signature."""
    main = model.main_input_name
    mains = {main} if isinstance(main, str) else set(main)
    towers = {*_TOWERS.get(name, ()), *(_CONTRASTIVE if "return_loss" in signature else ())}
    required = {
        key
        for key, parameter in signature.items()
        if key != "self"
        and parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }
    # A name that is not there says what an outer model takes.
    mains &= set(signature)
    if not mains and not required:
        mains = {next(key for key in (*_MAINS, *signature) if key in signature)}
    wanted = required | mains | towers
    if "decoder_input_ids" in signature:
        wanted.add("decoder_input_ids")
    if "input_ids" in wanted:
        wanted.add("attention_mask")
    for key in signature:
        if key in wanted:
            yield key


def _images_for_text(maker: InputMaker, signature: Any) -> dict[str, Any]:
    """Return one image for each text of a language model, with the tokens it stands for.

    The model itself tells how many tokens an image has: its vision tower runs once. {} for a
    model that takes no images, or whose images come otherwise; its input is text alone then.
    """
    token = getattr(maker.config, "image_token_id", None)
    if token is None:
        token = getattr(maker.config, "image_token_index", None)
    tower = getattr(maker.model, "get_image_features", None)
    if token is None or tower is None or "pixel_values" not in signature:
        return {}
    names = [key for key in inspect.signature(tower).parameters if key in signature]
    values = {key: maker.make(key) for key in names}
    images = {key: value for key, value in values.items() if value is not None}
    count, width = count_features(maker.model, images)
    count //= maker.batch
    if count == 0 or width != maker.find("hidden_size", "d_model", of=("text",)):
        return {}
    text = maker.ids(maker.seq, maker._vocabulary())
    ids = torch.cat([torch.full((maker.batch, count), token), text], dim=1)
    images |= {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if "mm_token_type_ids" in signature:
        images["mm_token_type_ids"] = (ids == token).long()
    if "token_type_ids" in signature:
        images["token_type_ids"] = (ids == token).long()
    return images


class _VisionTower(torch.nn.Module):
    """The part of a model that makes features of images."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **images: Any) -> Any:
        with torch.no_grad():
            features = self.model.get_image_features(**images)  # type: ignore[operator]
        return getattr(features, "pooler_output", features)


def count_features(model: torch.nn.Module, images: dict[str, Any]) -> tuple[int, int]:
    """Return how many features the vision tower makes of images, and how wide each is.

    Both are 0 if it does not take the images.
    """
    from exporter.capture.arguments import tensors_in
    from exporter.capture.run import record_run
    from exporter.model_copy import TensorCopier, copy_inputs, copy_model
    from exporter.targets.rules import device_rules
    from store.settings import RunSettings

    settings = RunSettings(target="meta", backward=False)
    meta = torch.device("meta")
    copier = TensorCopier(meta)
    # A recording lives as long as the storages that it follows; those of the model live on.
    tower = copy_model(_VisionTower(model).train(model.training), copier)
    images = copy_inputs(images, copier)
    total = width = 0

    def count(_module: Any, _args: Any, result: Any) -> None:
        nonlocal total, width
        features = tensors_in(result)
        width = features[0].shape[-1]
        total = sum(tensor.numel() for tensor in features) // width

    handle = tower.register_forward_hook(count)
    try:
        with device_rules(settings):
            record_run(
                tower,
                (),
                images,
                settings,
                input_names=[f"image_{i}" for i in range(len(tensors_in(images)))],
                optimizer=None,
                device=meta,
            )
    except Exception:  # noqa: BLE001 - the text alone is an input, too
        return 0, 0
    finally:
        handle.remove()
    return total, width
