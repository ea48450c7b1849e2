"""A value for every parameter that models of transformers take.

Masks and ids are on the CPU, for their values decide what runs; floating-point inputs are on meta.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch

from exporter.zoo.transformers.sizes import Sizes

if TYPE_CHECKING:
    from collections.abc import Callable

_FRAMES = 512  # of a spectrogram
_PATCHES = 16  # a side, of images that come as a row of patches
_BOXES = 36  # regions that a detector found, as LXMERT was trained with
# Audio tokens beside each text token: where the configuration says how many.
_CODEBOOKS = {"kyutai_speech_to_text": "num_codebooks"}
# Texts with any number of images each: one here.
_SEVERAL_IMAGES = {"idefics", "idefics2", "idefics3", "smolvlm", "modernvbert"}
# Images that come as rows of flattened patches, a row for each image.
_FLAT_PATCHES = {"gemma4_vision", "siglip2", "siglip2_vision_model"}
# Patches of all images side by side, in one row.
_PACKED_PATCHES = {"minicpm_ocr_vision", "minicpmv4_7_vision"}
# Videos that come as `pixel_values`, and pairs of images that are to be matched.
_CLIPS = {"instructblipvideo", "timesformer", "tvp", "videomae", "vivit", "xclip"}
_PAIRS = {"efficientloftr", "lightglue"}
# One second of sound as a plain row of samples; the others have a dimension for channels.
_MONO = {
    "data2vec-audio", "hubert", "moonshine", "muse_spark_audio", "moonshine_streaming", "omniasr",
    "sew", "sew-d", "unispeech", "unispeech-sat", "wav2vec2", "wav2vec2-conformer",
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


class InputMaker(Sizes):
    """Makes the value of each parameter, which the method ``make_<parameter>`` does."""

    def make(self, parameter: str) -> Any:
        """Return a value for a parameter, None where the model does as well without."""
        method: Callable[[], Any] | None = getattr(self, f"make_{parameter}", None)
        return method() if method is not None else None

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

    def make_lang_ids(self) -> torch.Tensor:
        return torch.zeros(self.batch, dtype=torch.int64)

    def make_use_cache(self) -> bool:
        """Return False, for models whose cache counts attention layers and finds none."""
        return False

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

    # --- images ---------------------------------------------------------------------------------

    def make_pixel_values(self) -> torch.Tensor:
        channels, height, width = self._image()
        if self._takes_patches():
            return self._patches()
        if self.name in _FLAT_PATCHES:
            patch = self.find("patch_size", of=("vision",))
            return self.floats(self.batch, self._side() ** 2, channels * patch * patch)
        if self.name in _PACKED_PATCHES:
            patch = self.find("patch_size", of=("vision",))
            count = self.batch * (height // patch) * (width // patch)
            return self.floats(1, channels, patch, patch * count)
        if self.name == "seggpt":  # the prompt and the image are put one above the other
            height //= 2
        several: tuple[int, ...] = ()
        if self.name in _CLIPS:
            several = (self._frames(),)
        elif self.name in _PAIRS:
            several = (2,)
        elif self.name in _SEVERAL_IMAGES:
            several = (1,)
        return self.floats(self.batch, *several, channels, height, width)

    make_image = make_prompt_pixel_values = make_pixel_values

    def make_pixel_values_videos(self) -> torch.Tensor:
        channels, height, width = self._image()
        return self.floats(self.batch, self._frames(), channels, height, width)

    def make_pixel_mask(self) -> torch.Tensor:
        _, height, width = self._image()
        return self.ones(self.batch, height, width)

    def _side(self) -> int:
        """Return the patches on a side of an image: as many as can be pooled."""
        pooled: int = self.find("pooling_kernel_size", default=1)
        return _PATCHES // pooled * pooled

    def _takes_patches(self) -> bool:
        """Return whether images come as a row of flattened patches, with their grid."""
        signature = inspect.signature(type(self.model).forward).parameters
        return bool({"grid_thw", "image_grid_thw"} & set(signature))

    def _patches(self) -> torch.Tensor:
        channels, *_ = self._image()
        patch = self.find("patch_size", "spatial_patch_size", of=("vision",), default=14)
        frames = self.find("temporal_patch_size", "patch_temporal", of=("vision",), default=1)
        count = self.batch * _PATCHES * _PATCHES
        if self.name == "kimi_k25_vision":  # patches that are images of their own
            return self.floats(count, channels, patch, patch)
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
        steps = torch.arange(self._side())
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
        if self.name == "speecht5":  # the base model begins behind the layers that read sound
            return self.floats(self.batch, _FRAMES, self.config.hidden_size)
        rate = self.find("sampling_rate", "sample_rate", of=("audio",), default=16000)
        if self.name in _MONO:
            step = getattr(self.config, "samples_per_token", 1)
            return self.floats(self.batch, rate // step * step)
        channels = self.find("audio_channels", "num_channels", of=("audio",), default=1)
        return self.floats(self.batch, channels, rate)

    def make_decoder_input_values(self) -> torch.Tensor:
        return self.floats(self.batch, self.seq, self.config.hidden_size)

    def make_input_features(self) -> torch.Tensor:
        bins = self.find(
            "num_mel_bins", "feature_projection_input_dim", "input_feat_size", "feature_size",
            "n_mels", "input_dim", of=("audio", "encoder", "speech"), default=80,
        )  # fmt: skip
        if self.name == "gemma4_audio":  # what is left of them after two strides meets the channels
            bins = self.config.subsampling_conv_channels[0]
        bins *= _STACKED.get(self.name) or self.find("num_stacked_frames", default=1)
        positions = self.find("max_source_positions", of=("audio", "encoder"))
        if self.name in _BINS_FIRST:
            return self.floats(self.batch, bins, 2 * positions if positions else 3000)
        if self.name == "clap":  # a spectrogram as an image of one channel
            return self.floats(self.batch, 1, 1024, bins)
        if self.name == "xcodec2":  # 50 frames for the second of sound beside them
            return self.floats(self.batch, 50, bins)
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
