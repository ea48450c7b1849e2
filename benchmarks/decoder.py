"""A decoder of llama-3 405B's shape: grouped-query attention, rotary positions, SwiGLU."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - its customary name


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a decoder, llama-3 405B's unless said otherwise."""

    layers: int = 126
    width: int = 16_384
    heads: int = 128
    kv_heads: int = 8
    inner: int = 53_248
    vocabulary: int = 128_256
    rotary_base: float = 500_000.0


class Attention(nn.Module):
    """Causal attention in which groups of query heads share a key and value head."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head_width = shape.width // shape.heads
        kv_width = shape.kv_heads * self.head_width
        self.query = nn.Linear(shape.width, shape.width, bias=False)
        self.key = nn.Linear(shape.width, kv_width, bias=False)
        self.value = nn.Linear(shape.width, kv_width, bias=False)
        self.output = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Return the attended values, of the shape of ``x``: (batch, tokens, width)."""
        split = (*x.shape[:-1], -1, self.head_width)
        query, key, value = (
            project(x).view(split).transpose(1, 2) for project in (self.query, self.key, self.value)
        )
        query, key = _rotate(query, cos, sin), _rotate(key, cos, sin)
        attended = F.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=True
        )
        projected: torch.Tensor = self.output(attended.transpose(1, 2).reshape(x.shape))
        return projected


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Block(nn.Module):
    """Attention and a gated feed-forward network, each behind a norm and beside a residual."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.width, eps=1e-5)
        self.attention = Attention(shape)
        self.inner_norm = nn.RMSNorm(shape.width, eps=1e-5)
        self.gate = nn.Linear(shape.width, shape.inner, bias=False)
        self.up = nn.Linear(shape.width, shape.inner, bias=False)
        self.down = nn.Linear(shape.inner, shape.width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Return the block's output, of the shape of ``x``."""
        x = x + self.attention(self.attention_norm(x), cos, sin)
        inner = self.inner_norm(x)
        transformed: torch.Tensor = x + self.down(F.silu(self.gate(inner)) * self.up(inner))
        return transformed


class Decoder(nn.Module):
    """A language model from token numbers to logits."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=1e-5)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        self.head_width = shape.width // shape.heads
        self.rotary_base = shape.rotary_base

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits (batch, tokens, vocabulary) for token numbers (batch, tokens)."""
        x = self.embedding(tokens)
        steps = torch.arange(0, self.head_width, 2, device=tokens.device, dtype=torch.float32)
        frequencies = self.rotary_base ** (-steps / self.head_width)
        positions = torch.arange(tokens.shape[1], device=tokens.device, dtype=torch.float32)
        angles = torch.outer(positions, frequencies).repeat(1, 2)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits
