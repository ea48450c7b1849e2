"""Models that people cite and no installed library defines, in plain torch.

Both follow their papers in everything that costs memory or arithmetic; dimensions are arguments, so
that ``--set`` can change them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class ParallelVisionTransformer(nn.Module):
    """A vision transformer as scaled to 22 billion parameters (Dehghani et al., 2023).

    Attention and MLP of a layer run side by side on one normalised input, queries and keys are
    normalised, and neither norms nor the projections of queries, keys and values have biases.

    Takes images [batch, 3, image_size, image_size]; returns logits [batch, num_classes].
    """

    def __init__(
        self,
        *,
        image_size: int = 224,
        patch_size: int = 14,
        hidden_size: int = 6144,
        num_hidden_layers: int = 48,
        num_attention_heads: int = 48,
        intermediate_size: int = 24576,
        num_classes: int = 1000,
    ) -> None:
        super().__init__()
        side = image_size // patch_size
        self.patches = nn.Conv2d(3, hidden_size, patch_size, stride=patch_size)
        self.positions = nn.Parameter(torch.zeros(1, side * side, hidden_size))
        self.layers = nn.ModuleList(
            _ParallelLayer(hidden_size, num_attention_heads, intermediate_size)
            for _ in range(num_hidden_layers)
        )
        self.norm = nn.LayerNorm(hidden_size, bias=False)
        self.head = nn.Linear(hidden_size, num_classes)

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Return logits, from the mean of all patches."""
        hidden: Tensor = self.patches(pixel_values).flatten(2).transpose(1, 2)
        hidden = hidden + self.positions
        for layer in self.layers:
            hidden = layer(hidden)
        logits: Tensor = self.head(self.norm(hidden).mean(1))
        return logits


class _ParallelLayer(nn.Module):
    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.query_norm = nn.LayerNorm(width // heads, bias=False)
        self.key_norm = nn.LayerNorm(width // heads, bias=False)
        self.attention_out = nn.Linear(width, width)
        self.mlp_in = nn.Linear(width, inner)
        self.mlp_out = nn.Linear(inner, width)

    def forward(self, hidden: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        normal = self.norm(hidden)
        query, key, value = self.qkv(normal).view(batch, length, 3, self.heads, -1).unbind(2)
        attended = functional.scaled_dot_product_attention(
            self.query_norm(query).transpose(1, 2),
            self.key_norm(key).transpose(1, 2),
            value.transpose(1, 2),
        )
        attended = attended.transpose(1, 2).reshape(batch, length, width)
        widened: Tensor = self.mlp_out(functional.gelu(self.mlp_in(normal)))
        narrowed: Tensor = self.attention_out(attended)
        return hidden + narrowed + widened


class DiffusionUNet(nn.Module):
    """The noise predictor of latent diffusion, in the shape of Stable Diffusion 1 (2022).

    Residual blocks with the time step, cross attention to a text at all but the coarsest level.

    Takes latents [batch, 4, size, size], time steps [batch] and the encoded text
    [batch, tokens, text_size]; returns the noise, shaped as the latents.
    """

    def __init__(
        self,
        *,
        channels: int = 320,
        multipliers: tuple[int, ...] = (1, 2, 4, 4),
        blocks: int = 2,
        heads: int = 8,
        text_size: int = 768,
        latent_channels: int = 4,
    ) -> None:
        super().__init__()
        self.channels = channels
        time_size = 4 * channels
        widths = [channels * multiplier for multiplier in multipliers]
        self.time = nn.Sequential(
            nn.Linear(channels, time_size), nn.SiLU(), nn.Linear(time_size, time_size)
        )
        self.first = nn.Conv2d(latent_channels, channels, 3, padding=1)
        skips, width = [channels], channels
        self.down = nn.ModuleList()
        for level, out in enumerate(widths):
            last = level == len(widths) - 1
            for _ in range(blocks):
                self.down.append(_Stage(width, out, time_size, heads, 0 if last else text_size))
                width = out
                skips.append(width)
            if not last:
                self.down.append(nn.Conv2d(width, width, 3, stride=2, padding=1))
                skips.append(width)
        self.middle = nn.ModuleList(
            [_Stage(width, width, time_size, heads, text_size), _Residual(width, width, time_size)]
        )
        self.up = nn.ModuleList()
        for level, out in reversed([*enumerate(widths)]):
            last = level == len(widths) - 1
            for _ in range(blocks + 1):
                size = 0 if last else text_size
                self.up.append(_Stage(width + skips.pop(), out, time_size, heads, size))
                width = out
            if level:
                self.up.append(nn.Conv2d(width, width, 3, padding=1))
        self.norm = nn.GroupNorm(32, width)
        self.last = nn.Conv2d(width, latent_channels, 3, padding=1)

    def forward(self, latents: Tensor, timesteps: Tensor, text: Tensor) -> Tensor:
        """Return the predicted noise."""
        half = self.channels // 2
        steps = torch.arange(half, device=latents.device)
        angles = timesteps[:, None] * torch.exp(-math.log(10000) / half * steps)
        time = self.time(torch.cat([angles.cos(), angles.sin()], -1).to(latents.dtype))
        hidden = self.first(latents)
        skips = [hidden]
        for layer in self.down:
            hidden = layer(hidden) if isinstance(layer, nn.Conv2d) else layer(hidden, time, text)
            skips.append(hidden)
        hidden = self.middle[1](self.middle[0](hidden, time, text), time)
        for layer in self.up:
            if isinstance(layer, nn.Conv2d):
                hidden = layer(functional.interpolate(hidden, scale_factor=2.0))
            else:
                hidden = layer(torch.cat([hidden, skips.pop()], 1), time, text)
        noise: Tensor = self.last(functional.silu(self.norm(hidden)))
        return noise


class _Stage(nn.Module):
    """A residual block, and attention to the text if there is any."""

    def __init__(self, width: int, out: int, time_size: int, heads: int, text_size: int) -> None:
        super().__init__()
        self.residual = _Residual(width, out, time_size)
        self.attention = _TextAttention(out, heads, text_size) if text_size else None

    def forward(self, hidden: Tensor, time: Tensor, text: Tensor) -> Tensor:
        hidden = self.residual(hidden, time)
        return hidden if self.attention is None else self.attention(hidden, text)


class _Residual(nn.Module):
    def __init__(self, width: int, out: int, time_size: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(32, width)
        self.conv1 = nn.Conv2d(width, out, 3, padding=1)
        self.time = nn.Linear(time_size, out)
        self.norm2 = nn.GroupNorm(32, out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1)
        self.shortcut = nn.Conv2d(width, out, 1) if width != out else nn.Identity()

    def forward(self, hidden: Tensor, time: Tensor) -> Tensor:
        inner = self.conv1(functional.silu(self.norm1(hidden)))
        inner = inner + self.time(functional.silu(time))[:, :, None, None]
        inner = self.conv2(functional.silu(self.norm2(inner)))
        total: Tensor = self.shortcut(hidden) + inner
        return total


class _TextAttention(nn.Module):
    """A transformer layer over the pixels: among themselves, to the text, and a gated MLP."""

    def __init__(self, width: int, heads: int, text_size: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(32, width)
        self.enter = nn.Conv2d(width, width, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own = _Attention(width, heads, width)
        self.cross = _Attention(width, heads, text_size)
        self.gated = nn.Linear(width, 8 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.leave = nn.Conv2d(width, width, 1)

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        batch, width, rows, columns = image.shape
        hidden = self.enter(self.norm(image)).flatten(2).transpose(1, 2)
        normal = self.norms[0](hidden)
        hidden = hidden + self.own(normal, normal)
        hidden = hidden + self.cross(self.norms[1](hidden), text)
        value, gate = self.gated(self.norms[2](hidden)).chunk(2, -1)
        hidden = hidden + self.narrow(value * functional.gelu(gate))
        hidden = hidden.transpose(1, 2).reshape(batch, width, rows, columns)
        total: Tensor = image + self.leave(hidden)
        return total


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int, source: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(source, width, bias=False)
        self.value = nn.Linear(source, width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, hidden: Tensor, source: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        query, key, value = (
            each.view(batch, -1, self.heads, width // self.heads).transpose(1, 2)
            for each in (self.query(hidden), self.key(source), self.value(source))
        )
        attended = functional.scaled_dot_product_attention(query, key, value)
        out: Tensor = self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return out
