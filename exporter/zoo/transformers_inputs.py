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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from exporter.settings import Settings

TEXT_TOKENS = 128
_IMAGE_SIZE = 224
_FRAMES = 512  # of a spectrogram
_PATCHES = 16  # a side, of images that come as a row of patches
_BOXES = 36  # regions that a detector found, as LXMERT was trained with

# Optional parameters that a model cannot do without: one tower each.
_TOWERS: dict[str, tuple[str, ...]] = {
    "aimv2": ("pixel_values",),
    "bridgetower": ("pixel_values", "pixel_mask"),
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
# Towers whose similarity is what the model computes.
_CONTRASTIVE = ("pixel_values", "pixel_values_videos", "input_features", "pixel_attention_mask",
                "spatial_shapes")  # fmt: skip
# Audio tokens beside each text token: where the configuration says how many.
_CODEBOOKS = {"kyutai_speech_to_text": "num_codebooks"}
# Texts with any number of images each: one here.
_SEVERAL_IMAGES = {"idefics", "idefics2", "idefics3", "smolvlm", "modernvbert"}
# Images that come as rows of flattened patches, a row for each image.
_FLAT_PATCHES = {"gemma4_vision", "siglip2", "siglip2_vision_model"}
# Videos that come as `pixel_values`, and pairs of images that are to be matched.
_CLIPS = {"instructblipvideo", "timesformer", "tvp", "videomae", "vivit", "xclip"}
_PAIRS = {"efficientloftr", "lightglue"}
# One second of sound as a plain row of samples; the others have a dimension for channels.
_MONO = {
    "data2vec-audio", "hubert", "moonshine", "moonshine_streaming", "omniasr", "omniasr_audio",
    "omniasr_ctc", "sew", "sew-d", "unispeech", "unispeech-sat", "wav2vec2", "wav2vec2-conformer",
    "wavlm",
}  # fmt: skip
# Frames that are stacked before the model sees them.
_STACKED = {"granite_speech5_encoder": 4, "granite_speech5_ctc": 4}
# Spectrograms with the frequencies first, as Whisper takes them.
_BINS_FIRST = {
    "clvp", "audioflamingo3_encoder", "glmasr_encoder", "moss_transcribe_diarize_audio",
    "qwen2_audio_encoder", "qwen3_asr_encoder", "voxtral_encoder", "voxtral_realtime_encoder",
    "whisper",
}  # fmt: skip


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
    maker = _Maker(name, model, config, settings, seq_len)
    given: dict[str, Any] = {}
    for parameter in _wanted(name, model, signature):
        value = maker.make(parameter)
        if value is not None:
            given[parameter] = value
    if "input_ids" in given and "pixel_values" not in given:
        given |= maker.images_for_text(signature)
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
        mains = {key for key in ("input_ids", "pixel_values", "input_values") if key in signature}
        mains = set(list(mains)[:1])
    wanted = required | mains | towers
    if "decoder_input_ids" in signature:
        wanted.add("decoder_input_ids")
    if "input_ids" in wanted:
        wanted.add("attention_mask")
    for key in signature:
        if key in wanted:
            yield key


class _VisionTower(torch.nn.Module):
    """The part of a model that makes features of images."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **images: Any) -> Any:
        with torch.no_grad():
            features = self.model.get_image_features(**images)  # type: ignore[operator]
        return getattr(features, "pooler_output", features)


def count_features(model: torch.nn.Module, images: dict[str, Any]) -> int:
    """Return how many numbers the vision tower makes of images, 0 if it does not take them."""
    from exporter.capture.arguments import tensors_in
    from exporter.capture.run import record_run
    from exporter.isolate import TensorCopier, copy_inputs
    from exporter.targets.rules import device_rules

    meta = torch.device("meta")
    tower = _VisionTower(model).train(model.training)
    images = copy_inputs(images, TensorCopier(meta))
    total = 0

    def count(_module: Any, _args: Any, result: Any) -> None:
        nonlocal total
        total = sum(tensor.numel() for tensor in tensors_in(result))

    handle = tower.register_forward_hook(count)
    try:
        with device_rules("meta"):
            record_run(
                tower,
                (),
                images,
                input_names=[f"image_{i}" for i in range(len(tensors_in(images)))],
                backward=False,
                optimizer=None,
                device=meta,
                target="meta",
            )
    except Exception:  # noqa: BLE001 - the text alone is an input, too
        return 0
    finally:
        handle.remove()
    return total


class _Maker:
    """Makes the value of each parameter."""

    def __init__(
        self, name: str, model: torch.nn.Module, config: Any, settings: Settings, seq_len: int
    ) -> None:
        self.name = name
        self.model = model
        self.config = config
        self.batch = settings.batch_size
        self.dtype = getattr(torch, settings.dtype)
        self.asked = settings.seq_len
        self.seq = settings.seq_len or self._length(seq_len or TEXT_TOKENS)

    def make(self, parameter: str) -> Any:
        """Return a value for a parameter, None where the model does as well without."""
        method: Callable[[], Any] | None = getattr(self, f"make_{parameter}", None)
        return method() if method is not None else None

    # --- sizes ----------------------------------------------------------------------------------

    def find(self, *names: str, default: Any = None, of: tuple[str, ...] = ()) -> Any:
        """Return the first of the named values that the configuration or a nested one has."""
        for owner in self._configs(of):
            for key in names:
                value = getattr(owner, key, None)
                if value is not None:
                    return value
        return default

    def _configs(self, first: tuple[str, ...] = ()) -> Iterator[Any]:
        nested = list(getattr(self.config, "sub_configs", {}))
        nested += [key for key in ("backbone_config",) if key not in nested]
        order = sorted(nested, key=lambda key: not any(part in key for part in first))
        named = [key for key in order if any(part in key for part in first)]
        for key in named:
            yield from self._expand(getattr(self.config, key, None))
        yield self.config
        for key in order:
            if key not in named:
                yield from self._expand(getattr(self.config, key, None))

    def _expand(self, config: Any) -> Iterator[Any]:
        if config is not None and hasattr(config, "to_dict"):
            yield config
            for key in getattr(config, "sub_configs", {}):
                yield from self._expand(getattr(config, key, None))

    def _length(self, wanted: int) -> int:
        """Return how many tokens a text has: as many as wanted, if there are positions for them."""
        if self.name == "reformer":  # its axial positions factorise one length
            rows, columns = self.config.axial_pos_shape
            return int(rows * columns)
        return min(wanted, self._positions())

    def _positions(self) -> int:
        """Return how many tokens a text may have."""
        most = self.find(
            "max_position_embeddings", "n_positions", "max_seq_len", "max_target_positions",
            of=("text",),
        )  # fmt: skip
        if not isinstance(most, int) or most < 8:
            return TEXT_TOKENS
        # RoBERTa's kin begin to count positions after the padding token.
        return max(1, most - 2) if most <= TEXT_TOKENS + 2 else most

    def _image(self) -> tuple[int, int, int]:
        size = self.find("image_size", "img_size", "input_size", of=("vision", "image", "backbone"))
        for module in self.model.modules():
            if type(module).__module__.startswith("timm.") and hasattr(module, "img_size"):
                size = module.img_size
        if isinstance(size, dict):
            size = (size.get("height", _IMAGE_SIZE), size.get("width", _IMAGE_SIZE))
        if isinstance(size, (list, tuple)):
            height, width = (int(size[0]), int(size[-1]))
        else:
            height = width = int(size) if isinstance(size, int) and size > 1 else _IMAGE_SIZE
        channels = self.find(
            "num_channels",
            "in_channels",
            "in_chans",
            "channels",
            of=("vision", "image", "backbone"),
        )
        return channels if isinstance(channels, int) else 3, height, width

    def _frames(self) -> int:
        frames = self.find("num_frames", "frames_per_clip", of=("vision", "video"))
        return int(frames) if isinstance(frames, int) and frames > 0 else 8

    def floats(self, *shape: int) -> torch.Tensor:
        """Return a floating-point input on meta."""
        return torch.empty(*shape, dtype=self.dtype, device="meta")

    def ones(self, *shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """Return a mask that hides nothing."""
        return torch.ones(*shape, dtype=dtype)

    def ids(self, length: int, vocabulary: int) -> torch.Tensor:
        """Return a batch of token ids: none of them special."""
        special = {
            value
            for owner in self._configs()
            for key, value in vars(owner).items()
            if isinstance(value, int) and key.endswith(("_id", "_index", "_idx"))
        }
        usable = [i for i in range(min(vocabulary, 4096)) if i not in special] or [0]
        row = torch.tensor(usable).repeat(-(-length // len(usable)))[:length]
        return row.repeat(self.batch, 1)

    # --- text -----------------------------------------------------------------------------------

    def _vocabulary(self, *of: str) -> int:
        size = self.find("vocab_size", "src_vocab_size", of=of or ("text",))
        return int(size) if isinstance(size, int) and size > 1 else 1000

    def make_input_ids(self) -> torch.Tensor:
        ids = self.ids(self.seq, self._vocabulary())
        codebooks = _CODEBOOKS.get(self.name)
        if codebooks is None:
            return ids
        return ids[..., None].expand(-1, -1, getattr(self.config, codebooks) + 1).contiguous()

    def make_mm_token_type_ids(self) -> torch.Tensor:
        return torch.zeros(self.batch, self.seq, dtype=torch.int64)

    def make_encoder_hidden_states(self) -> torch.Tensor:
        return self.floats(self.batch, 257, self.config.encoder_hidden_size)

    def make_attention_mask(self) -> torch.Tensor:
        return self.ones(self.batch, self.seq)

    def make_decoder_input_ids(self) -> torch.Tensor:
        if self.name == "dia":
            ids = self.ids(self.seq, self._vocabulary("decoder"))
            channels = self.config.decoder_config.num_channels
            return ids[..., None].expand(-1, -1, channels).contiguous()
        return self.ids(self.seq, self._vocabulary("decoder", "text"))

    def make_inputs_embeds(self) -> torch.Tensor:
        return self.floats(self.batch, self.seq, self.find("hidden_size", "d_model"))

    def make_qformer_input_ids(self) -> torch.Tensor:
        return self.ids(32, self._vocabulary("qformer"))

    def make_bbox(self) -> torch.Tensor:
        if self.name == "bros":
            return self.floats(self.batch, self.seq, 8)
        if self.name == "udop":
            return self.floats(self.batch, self.seq, 4)
        return torch.zeros(self.batch, self.seq, 4, dtype=torch.int64)

    def images_for_text(self, signature: Any) -> dict[str, Any]:
        """Return one image for each text of a language model, with the tokens it stands for.

        The model itself tells how many tokens an image has: its vision tower runs once. {} for a
        model that takes no images, or whose images come otherwise; its input is text alone then.
        """
        token = getattr(self.config, "image_token_id", None)
        if token is None:
            token = getattr(self.config, "image_token_index", None)
        tower = getattr(self.model, "get_image_features", None)
        if token is None or tower is None or "pixel_values" not in signature:
            return {}
        names = [key for key in inspect.signature(tower).parameters if key in signature]
        values = {key: self.make(key) for key in names}
        images = {key: value for key, value in values.items() if value is not None}
        width = self.find("hidden_size", "d_model", of=("text",))
        count = count_features(self.model, images) // (width * self.batch)
        if count == 0:
            return {}
        text = self.ids(self.seq, self._vocabulary())
        ids = torch.cat([torch.full((self.batch, count), token), text], dim=1)
        images |= {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if "mm_token_type_ids" in signature:
            images["mm_token_type_ids"] = (ids == token).long()
        if "token_type_ids" in signature:
            images["token_type_ids"] = (ids == token).long()
        return images

    # --- images ---------------------------------------------------------------------------------

    def make_pixel_values(self) -> torch.Tensor:
        channels, height, width = self._image()
        if self._takes_patches():
            return self._patches()
        if self.name in _FLAT_PATCHES:
            patch = self.find("patch_size", of=("vision",))
            return self.floats(self.batch, _PATCHES * _PATCHES, channels * patch * patch)
        if self.name in _CLIPS:
            return self.floats(self.batch, self._frames(), channels, height, width)
        if self.name in _PAIRS:
            return self.floats(self.batch, 2, channels, height, width)
        if self.name in _SEVERAL_IMAGES:
            return self.floats(self.batch, 1, channels, height, width)
        return self.floats(self.batch, channels, height, width)

    make_image = make_prompt_pixel_values = make_pixel_values

    def make_pixel_values_videos(self) -> torch.Tensor:
        channels, height, width = self._image()
        return self.floats(self.batch, self._frames(), channels, height, width)

    def make_pixel_mask(self) -> torch.Tensor:
        _, height, width = self._image()
        return self.ones(self.batch, height, width)

    def _takes_patches(self) -> bool:
        """Return whether images come as a row of flattened patches, with their grid."""
        signature = inspect.signature(type(self.model).forward).parameters
        return bool({"grid_thw", "image_grid_thw"} & set(signature))

    def _patches(self) -> torch.Tensor:
        channels, *_ = self._image()
        patch = self.find("patch_size", "spatial_patch_size", of=("vision",), default=14)
        frames = self.find("temporal_patch_size", "patch_temporal_size", of=("vision",), default=1)
        count = self.batch * _PATCHES * _PATCHES
        return self.floats(count, channels * frames * patch * patch)

    def make_hidden_states(self) -> torch.Tensor:
        if self._takes_patches():
            return self._patches()
        return self.floats(self.batch, self.find("hidden_size"), 64)

    def make_grid_thw(self) -> torch.Tensor:
        return torch.tensor([[1, _PATCHES, _PATCHES]]).repeat(self.batch, 1)

    make_image_grid_thw = make_grid_thw

    def make_image_sizes(self) -> torch.Tensor:
        _, height, width = self._image()
        return torch.tensor([[height, width]]).repeat(self.batch, 1)

    def make_merge_sizes(self) -> torch.Tensor:
        return torch.full((self.batch,), 2)

    def make_pixel_position_ids(self) -> torch.Tensor:
        steps = torch.arange(_PATCHES)
        grid = torch.cartesian_prod(steps, steps)
        return grid.repeat(self.batch, 1, 1)

    def make_spatial_shapes(self) -> torch.Tensor:
        return torch.tensor([[_PATCHES, _PATCHES]]).repeat(self.batch, 1)

    def make_pixel_attention_mask(self) -> torch.Tensor:
        return self.ones(self.batch, _PATCHES * _PATCHES)

    def make_image_embeds_position_mask(self) -> torch.Tensor:
        mask = torch.zeros(self.batch, self.seq, dtype=torch.bool)
        mask[:, : self.config.latent_query_num] = True
        return mask

    def make_image_attention_mask(self) -> torch.Tensor:
        return self.ones(self.batch, self.seq, 1)

    def make_target_sizes(self) -> torch.Tensor:
        _, height, width = self._image()
        patch = self.find("patch_size", of=("vision",))
        return torch.tensor([[height // patch, width // patch]]).repeat(self.batch, 1)

    def make_prompt_masks(self) -> torch.Tensor:
        return self.make_pixel_values()

    def make_visual_feats(self) -> torch.Tensor:
        return self.floats(self.batch, _BOXES, self.config.visual_feat_dim)

    def make_visual_pos(self) -> torch.Tensor:
        return self.floats(self.batch, _BOXES, self.config.visual_pos_dim)

    def make_query_embeds(self) -> torch.Tensor:
        return self.floats(self.batch, 32, self.find("hidden_size"))

    def make_classes_input_ids(self) -> torch.Tensor:
        return self.ids(16, self._vocabulary())

    def make_classes_attention_mask(self) -> torch.Tensor:
        return self.ones(self.batch, 16)

    make_tasks_input_ids = make_classes_input_ids
    make_tasks_attention_mask = make_classes_attention_mask

    def make_classes_structure(self) -> torch.Tensor:
        return torch.ones(self.batch, dtype=torch.int64)

    def make_task_inputs(self) -> torch.Tensor:
        return self.ids(self.find("task_seq_len", default=77), self._vocabulary())

    # --- sound ----------------------------------------------------------------------------------

    def make_input_values(self) -> torch.Tensor:
        if self.name == "audio-spectrogram-transformer":
            return self.floats(self.batch, self.config.max_length, self.config.num_mel_bins)
        if self.name == "speecht5":
            return self.floats(self.batch, _FRAMES, self.config.num_mel_bins)
        rate = self.find("sampling_rate", "sample_rate", of=("audio",), default=16000)
        if self.name in _MONO:
            return self.floats(self.batch, rate)
        channels = self.find("audio_channels", "num_channels", of=("audio",), default=1)
        return self.floats(self.batch, channels, rate)

    def make_decoder_input_values(self) -> torch.Tensor:
        return self.floats(self.batch, self.seq, self.config.num_mel_bins)

    def make_input_features(self) -> torch.Tensor:
        bins = self.find(
            "num_mel_bins", "feature_projection_input_dim", "input_feat_size", "feature_size",
            "n_mels", "input_dim", of=("audio", "encoder", "speech"), default=80,
        )  # fmt: skip
        bins *= _STACKED.get(self.name, 1)
        positions = self.find("max_source_positions", of=("audio", "encoder"))
        if self.name in _BINS_FIRST:
            return self.floats(self.batch, bins, 2 * positions if positions else 3000)
        return self.floats(self.batch, _FRAMES, bins)

    def make_input_features_mask(self) -> torch.Tensor:
        features = self.make_input_features()
        frames = features.shape[2] if self.name in _BINS_FIRST else features.shape[1]
        return self.ones(self.batch, frames)

    make_audio_mel = make_input_features

    def make_audio_mel_mask(self) -> torch.Tensor:
        return torch.zeros(self.batch, _FRAMES, dtype=torch.bool)  # True hides a frame

    def make_latents(self) -> torch.Tensor:
        return self.floats(self.batch, self.find("hidden_size", "latent_dim"), 32)

    # --- time series ----------------------------------------------------------------------------

    def _past(self) -> int:
        context = self.find("context_length", "prediction_length", default=32)
        lags: list[int] = self.find("lags_sequence", default=[0])
        return int(context) + max(lags)

    def make_past_values(self) -> torch.Tensor:
        if self.name.startswith("timesfm"):
            return self.floats(self.batch, self.config.context_length)
        if self.name.startswith("patchts"):
            return self.floats(self.batch, self._past(), self.config.num_input_channels)
        size = self.config.input_size
        return self.floats(self.batch, self._past(), *([size] if size > 1 else []))

    def make_past_time_features(self) -> torch.Tensor:
        return self.floats(self.batch, self._past(), self._time_features())

    def _time_features(self) -> int:
        """Return how many features the model concatenates with age and the like: one at least."""
        return int(self.config.num_time_features)

    def make_past_observed_mask(self) -> torch.Tensor:
        return torch.ones_like(self.make_past_values(), device="cpu")

    def make_future_values(self) -> torch.Tensor:
        size = self.config.input_size
        return self.floats(self.batch, self.config.prediction_length, *([size] if size > 1 else []))

    def make_future_time_features(self) -> torch.Tensor:
        return self.floats(self.batch, self.config.prediction_length, self._time_features())

    def make_past_values_padding(self) -> torch.Tensor:
        return torch.zeros(self.batch, self.config.context_length)

    def make_freq(self) -> torch.Tensor:
        return torch.zeros(self.batch, 1, dtype=torch.int64)

    # --- others ---------------------------------------------------------------------------------

    def make_states(self) -> torch.Tensor:
        return self.floats(self.batch, self.seq, self.config.state_dim)

    def make_actions(self) -> torch.Tensor:
        return self.floats(self.batch, self.seq, self.config.act_dim)

    def make_rewards(self) -> torch.Tensor:
        return self.floats(self.batch, self.seq, 1)

    make_returns_to_go = make_rewards

    def make_timesteps(self) -> torch.Tensor:
        return torch.arange(self.seq).repeat(self.batch, 1)

    def make_inputs(self) -> torch.Tensor:
        return self.floats(self.batch, self.seq, self.config.d_model)
