"""What the configuration of a model of transformers says about its inputs' sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.settings import Settings

TEXT_TOKENS = 128
_IMAGE_SIZE = 224


class Sizes:
    """Finds sizes in a configuration and in those nested in it."""

    def __init__(
        self, name: str, model: torch.nn.Module, config: Any, settings: Settings, seq_len: int
    ) -> None:
        self.name = name
        self.model = model
        self.config = config
        self.batch = settings.batch_size
        self.dtype = getattr(torch, settings.dtype)
        self.seq = settings.seq_len or self._length(seq_len or TEXT_TOKENS)

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
        return most if isinstance(most, int) and most >= 8 else TEXT_TOKENS

    def _image(self) -> tuple[int, int, int]:
        size = self.find(
            "image_size",
            "img_size",
            "max_img_size",
            "input_size",
            of=("vision", "image", "backbone"),
        )
        if self.name == "depth_pro":  # whose coarsest scale is one patch
            size = int(self.config.patch_size / min(self.config.scaled_images_ratios))
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
