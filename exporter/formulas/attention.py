"""Scaled dot-product attention: two products forward, four backward, always dense.

A causal mask does not lower the count. A fused backward kernel computes the scores once more;
that product is the kernel's way to save memory and no work of the model, so it is left out.
Heads are those of the query: shared key and value heads meet each of them.

Pointwise: one per score for softmax (and for its backward), one for adding a mask, one for dropout.
Scaling is folded into the product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from exporter.formulas.operands import Args, Kwargs, Outputs, argument
from exporter.formulas.registry import register
from exporter.formulas.spec import TensorSpec

aten = torch.ops.aten


@dataclass(frozen=True)
class Kernel:
    """Where an attention operator keeps its arguments."""

    dropout: int  # position of dropout_p
    query: int = 0  # position of the query; key and value follow
    bias: tuple[int, str] = (-1, "")  # position and name of the mask that is added, if there is one
    mask: int = -1  # position of the flags of the wanted gradients (query, key, value, bias)
    heads_first: bool = True  # (batch, heads, length, width), else (batch, length, heads, width)
    packed: tuple[int, int, int] = (-1, -1, -1)  # cumulative lengths, longest query, longest key

    def scores(self, args: Args, kwargs: Kwargs) -> int:
        """Return batch x query heads x queries x keys."""
        query, key = args[self.query], args[self.query + 1]
        rows = int(query.numel // query.shape[-1])
        if self.heads_first:
            return rows * int(key.shape[-2])
        cumulative = argument(args, kwargs, self.packed[0], "")
        if isinstance(cumulative, TensorSpec):
            # the lengths are values: every sequence counts as the longest
            longest = int(args[self.packed[1]] or 0) * int(args[self.packed[2]] or 0)
            return (cumulative.numel - 1) * int(query.shape[-2]) * longest
        return rows * int(key.shape[-3])

    def forward_macs(self, args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
        """Batch x query heads x queries x keys x (query width + value width)."""
        width = args[self.query].shape[-1] + args[self.query + 2].shape[-1]
        return self.scores(args, kwargs) * int(width)

    def forward_flops(self, args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
        """Scores, once for softmax, once for an added mask, once for dropout."""
        position, name = self.bias
        bias = argument(args, kwargs, position, name) if name else None
        per_score = 1 + (bias is not None) + bool(self._dropout_p(args, kwargs))
        return self.scores(args, kwargs) * per_score

    def backward_macs(self, args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
        """Four products, those of unwanted gradients left out.

        dV = P^T dO and dP = dO V^T of the value's width; dQ = dS K and dK = dS^T Q of the query's.
        """
        mask = (True, True, True, False)
        if self.mask >= 0:
            mask = argument(args, kwargs, self.mask, "grad_input_mask")
        q, k, v, bias = (bool(m) for m in mask)
        qk_width, v_width = args[self.query].shape[-1], args[self.query + 2].shape[-1]
        return self.scores(args, kwargs) * int(
            v_width * (v + (q or k or bias)) + qk_width * (q + k)
        )

    def backward_flops(self, args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
        """Scores, once for the softmax's backward, once for dropout's."""
        return self.scores(args, kwargs) * (1 + bool(self._dropout_p(args, kwargs)))

    def _dropout_p(self, args: Args, kwargs: Kwargs) -> Any:
        return argument(args, kwargs, self.dropout, "dropout_p", 0.0)


_BIAS, _MASK = (3, "attn_bias"), (3, "attn_mask")

FORWARD = {
    aten._scaled_dot_product_flash_attention.default: Kernel(3),
    aten._scaled_dot_product_flash_attention.quantized: Kernel(6),
    aten._scaled_dot_product_flash_attention_for_cpu: Kernel(3, bias=(6, "attn_mask")),
    aten._scaled_dot_product_efficient_attention: Kernel(5, bias=_BIAS),
    aten._scaled_dot_product_cudnn_attention: Kernel(5, bias=_BIAS),
    aten._scaled_dot_product_fused_attention_overrideable: Kernel(4, bias=_BIAS),
    aten._scaled_dot_product_attention_math: Kernel(4, bias=_MASK),
    aten._scaled_dot_product_attention_math_for_mps: Kernel(4, bias=_MASK),
    aten.scaled_dot_product_attention: Kernel(4, bias=_MASK),
    aten._triton_scaled_dot_attention: Kernel(3),
    aten._cudnn_attention_forward: Kernel(9, bias=_BIAS),
    aten._flash_attention_forward: Kernel(7, packed=(3, 5, 6), heads_first=False),
    aten._flash_attention_forward_no_dropout_inplace: Kernel(
        8, query=1, packed=(4, 6, 7), heads_first=False
    ),
    aten._efficient_attention_forward: Kernel(
        8, bias=(3, "bias"), packed=(4, 6, 7), heads_first=False
    ),
}  # fmt: skip

BACKWARD = {
    aten._scaled_dot_product_flash_attention_backward: Kernel(10, query=1),
    aten._scaled_dot_product_flash_attention_for_cpu_backward: Kernel(6, query=1),
    aten._scaled_dot_product_efficient_attention_backward: Kernel(9, query=1, mask=10),
    aten._scaled_dot_product_cudnn_attention_backward: Kernel(13, query=1),
    aten._scaled_dot_product_fused_attention_overrideable_backward: Kernel(13, query=1, mask=5),
    aten._cudnn_attention_backward: Kernel(13, query=1),
    aten._flash_attention_backward: Kernel(10, query=1, packed=(6, 8, 9), heads_first=False),
    aten._efficient_attention_backward: Kernel(11, query=1, packed=(6, 8, 9), heads_first=False),
}

for _operator, _kernel in FORWARD.items():
    register(_operator, counts="macs")(_kernel.forward_macs)
    register(_operator, counts="pointwise_flops")(_kernel.forward_flops)
for _operator, _kernel in BACKWARD.items():
    register(_operator, counts="macs")(_kernel.backward_macs)
    register(_operator, counts="pointwise_flops")(_kernel.backward_flops)


@register(aten._native_multi_head_attention, aten._triton_multi_head_attention, counts="macs")
def multi_head_macs(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Projections of query, key, value and output, and the two attention products.

    batch x (2 x queries + 2 x keys) x width^2 + 2 x batch x queries x keys x width;
    the number of heads does not matter.
    """
    (batch, queries, width), keys = args[0].shape, args[1].shape[1]
    return int(batch * (2 * queries + 2 * keys) * width**2 + 2 * batch * queries * keys * width)


@register(
    aten._native_multi_head_attention, aten._triton_multi_head_attention, counts="pointwise_flops"
)
def multi_head_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Scores: batch x heads x queries x keys, for softmax."""
    (batch, queries, _), keys, heads = args[0].shape, args[1].shape[1], args[4]
    return int(batch * heads * queries * keys)


@register(aten._transformer_encoder_layer_fwd, counts="macs")
def encoder_layer_macs(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Self-attention as in multi-head attention, and tokens x elements of both layers' weights."""
    batch, length, width = args[0].shape
    attention = 4 * batch * length * width**2 + 2 * batch * length**2 * width
    return int(attention + batch * length * (args[14].numel + args[16].numel))


@register(aten._transformer_encoder_layer_fwd, counts="pointwise_flops")
def encoder_layer_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Scores for softmax, hidden elements for the activation, 2 x (5 + 1) per token element.

    Those are two layer norms and two residual additions.
    """
    (batch, length, width), heads = args[0].shape, args[2]
    hidden = args[14].shape[0]
    return int(batch * (heads * length**2 + length * hidden + 12 * length * width))
