"""Reductions, scans and losses: one per element that is reduced.

A maximum compares where a sum adds, and counts the same; so does its position (argmax).
Fused losses count once per element like any fused element-wise operator.
"""

from __future__ import annotations

import torch

from exporter.formulas.operands import (
    Args,
    Kwargs,
    Outputs,
    first_operand_elements,
    first_tensor,
)
from exporter.formulas.registry import register
from exporter.formulas.spec import TensorSpec

aten = torch.ops.aten


@register(
    aten.nansum, aten.nanmean, aten.prod, aten.var, aten.var_mean, aten.std, aten.std_mean,
    aten.amax, aten.amin, aten.aminmax, aten._aminmax, aten.max, aten.min, aten.argmax,
    aten.argmin, aten.logsumexp, aten.special_logsumexp, aten.count_nonzero,
    aten.cumsum, aten.cumprod, aten.logcumsumexp, aten._logcumsumexp, aten.cummax, aten.cummin,
    aten._cummax_helper, aten._cummin_helper, aten.bincount, aten.histc, aten.histogram,
    aten.segment_reduce,
    aten.sum_to_size, aten.linalg_vecdot, aten.cosine_similarity, aten.hash_tensor,
    counts="pointwise_flops",
)  # fmt: skip
def reduction_flops(args: Args, kwargs: Kwargs, outputs: Outputs) -> int:
    """Elements of the operand."""
    return first_operand_elements(args, kwargs, outputs)


@register(aten.trace, counts="pointwise_flops")
def trace_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the diagonal."""
    return int(min(args[0].shape))


@register(
    aten.cumprod_backward,
    aten._segment_reduce_backward,
    aten.cummaxmin_backward,
    counts="pointwise_flops",
)
def scan_backward_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the first operand, the output's gradient."""
    return first_tensor(args, kwargs).numel


@register(
    aten.mse_loss, aten.mse_loss_backward, aten.l1_loss, aten.smooth_l1_loss,
    aten.smooth_l1_loss_backward, aten.huber_loss, aten.huber_loss_backward,
    aten.binary_cross_entropy, aten.binary_cross_entropy_backward,
    aten.binary_cross_entropy_with_logits, aten.soft_margin_loss, aten.soft_margin_loss_backward,
    aten.kl_div, aten.poisson_nll_loss, aten.multi_margin_loss, aten.multi_margin_loss_backward,
    counts="pointwise_flops",
)  # fmt: skip
def loss_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the prediction, the largest operand; in backward too."""
    return max(t.numel for t in args if isinstance(t, TensorSpec))


@register(
    aten.multilabel_margin_loss, aten.multilabel_margin_loss_forward, counts="pointwise_flops"
)
def multilabel_margin_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the prediction x classes: each label meets each class."""
    return int(args[0].numel * (args[0].shape or (1,))[-1])


@register(aten.multilabel_margin_loss_backward, counts="pointwise_flops")
def multilabel_margin_backward_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the prediction x classes: each label meets each class."""
    return int(args[1].numel * (args[1].shape or (1,))[-1])


@register(aten.nll_loss_forward, aten.nll_loss2d_forward, aten.nll_loss, aten.nll_loss2d,
          aten.nll_loss_nd, counts="pointwise_flops")  # fmt: skip
def nll_loss_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the target: one of the prediction's values is taken and added for each."""
    return int(args[1].numel)


@register(aten.nll_loss_backward, aten.nll_loss2d_backward, counts="pointwise_flops")
def nll_loss_backward_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the target: one value of the gradient is computed for each."""
    return int(args[2].numel)


@register(aten.cross_entropy_loss, counts="pointwise_flops")
def cross_entropy_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the prediction for log-softmax, elements of the target for the loss."""
    return int(args[0].numel + args[1].numel)


@register(aten._ctc_loss, aten._cudnn_ctc_loss, aten.ctc_loss, aten.miopen_ctc_loss,
          counts="pointwise_flops")  # fmt: skip
def ctc_loss_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Time steps x states; a target of n labels has 2n + 1 states, blanks between its labels."""
    return _ctc_states(args[0], args[1])


@register(aten._ctc_loss_backward, counts="pointwise_flops")
def ctc_loss_backward_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Time steps x states for the backward recursion, and elements of the log-probabilities."""
    return _ctc_states(args[1], args[2]) + int(args[1].numel)


def _ctc_states(log_probs: TensorSpec, targets: TensorSpec) -> int:
    batch = log_probs.shape[1] if len(log_probs.shape) == 3 else 1
    return log_probs.shape[0] * (2 * targets.numel + batch)
