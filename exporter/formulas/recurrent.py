"""Recurrent layers and cells, fused or not.

Every weight matrix meets every time step once: macs are steps x elements of the matrices.
Pointwise operations per hidden unit and step are those of the unfused cell, biases left out:

- LSTM, 13: 4 sums of the gates' two parts, 4 activations, f c, i g, their sum, its tanh, times o.
  Backward 13: 5 activations' gradients, 7 products, 1 sum.
- GRU, 10: 2 sums and 2 sigmoids for r and z; r h, plus x, tanh for n; (h - n) z + n.
  Backward 10: 3 activations' gradients, 5 products, 2 differences.
- Plain, 2: sum and activation. Backward 1: the activation's gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from exporter.formulas.operands import Args, Formula, Kwargs, Outputs, argument, result, tensors
from exporter.formulas.registry import register

if TYPE_CHECKING:
    from exporter.formulas.spec import TensorSpec

aten = torch.ops.aten

_LSTM, _GRU = 2, 3  # cuDNN's numbers for the modes; 0 and 1 are plain layers
_FORWARD = {0: 2, 1: 2, _LSTM: 13, _GRU: 10}
_BACKWARD = {0: 1, 1: 1, _LSTM: 13, _GRU: 10}


def _steps(features: TensorSpec) -> int:
    """Time steps x batch, or the sum of the lengths of packed sequences."""
    return features.numel // features.shape[-1]


def _matrices(weights: Any) -> int:
    """Elements of the weight matrices among weights and biases."""
    return sum(t.numel for t in tensors(weights) if len(t.shape) == 2)


@register(aten._cudnn_rnn, aten.miopen_rnn, counts="macs")
def fused_macs(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Steps x elements of all weight matrices."""
    return _steps(args[0]) * _matrices(args[1])


@register(aten._cudnn_rnn_backward, aten.miopen_rnn_backward, counts="macs")
def fused_backward_macs(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """As many as forward for the data's gradients and as many for the weights', if asked for.

    Without the input's gradient, the first layer's input weights (one per direction) are left out.
    """
    weights, stride, mask = args[1], args[2], args[-1]
    gradients = _matrices(weights)
    if not mask[0]:
        # the buffer that output and hidden state share has one matrix per direction of layer 0
        bidirectional = args[17] if len(args) == 22 else args[16]
        first = (weights[0], weights[stride]) if bidirectional else (weights[0],)
        gradients -= _matrices(first)
    if mask[3]:
        gradients += _matrices(weights)
    return _steps(args[0]) * gradients


def _fused_flops(mode: int, per_unit: dict[int, int]) -> Formula:
    """Return the formula for arguments that follow the position of ``mode``."""

    def formula(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
        # (mode, hidden_size, [proj_size,] num_layers, batch_first, dropout, train, bidirectional)
        has_projection = not isinstance(args[mode + 3], bool)
        layers = args[mode + 2 + has_projection]
        bidirectional = args[mode + 6 + has_projection]
        units = args[mode + 1] * layers * (1 + bool(bidirectional))
        return int(_steps(args[0]) * units * per_unit[args[mode]])

    formula.__doc__ = (
        "Steps x hidden units x layers x directions x "
        + ", ".join(
            f"{per_unit[k]} ({n})" for k, n in ((_LSTM, "LSTM"), (_GRU, "GRU"), (0, "plain"))
        )
        + "."
    )
    return formula


register(aten._cudnn_rnn, counts="pointwise_flops")(_fused_flops(6, _FORWARD))
register(aten.miopen_rnn, counts="pointwise_flops")(_fused_flops(5, _FORWARD))
register(aten._cudnn_rnn_backward, aten.miopen_rnn_backward, counts="pointwise_flops")(
    _fused_flops(10, _BACKWARD)
)


@register(aten.mkldnn_rnn_layer, counts="macs")
def mkldnn_macs(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Steps x elements of both weight matrices of the one layer and direction."""
    return _steps(args[0]) * int(args[1].numel + args[2].numel)


@register(aten.mkldnn_rnn_layer_backward, counts="macs")
def mkldnn_backward_macs(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Twice as many as forward."""
    return 2 * _steps(args[0]) * int(args[1].numel + args[2].numel)


@register(aten.mkldnn_rnn_layer, counts="pointwise_flops")
def mkldnn_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Steps x hidden units x 13 (LSTM), 10 (GRU), 2 (plain)."""
    return _steps(args[0]) * int(args[10]) * _FORWARD[args[9]]


@register(aten.mkldnn_rnn_layer_backward, counts="pointwise_flops")
def mkldnn_backward_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Steps x hidden units x 13 (LSTM), 10 (GRU), 1 (plain)."""
    return _steps(args[0]) * int(args[15]) * _BACKWARD[args[14]]


@register(aten.lstm, aten.gru, aten.rnn_tanh, aten.rnn_relu, counts="macs")
def layer_macs(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Steps x elements of all weight matrices."""
    # the states, which may be in a list too, have three dimensions
    return _steps(args[0]) * _matrices([a for a in args if isinstance(a, (list, tuple))])


def _layer_flops(per_unit: int, gates: int) -> Formula:
    def formula(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
        lists = [a for a in args if isinstance(a, (list, tuple))]
        # each layer and direction has one matrix for its input, of (gates x hidden, ...), one more
        # of that height for its state, and with a projection a third one of another height
        matrices = [t for t in tensors(lists) if len(t.shape) == 2]
        height = matrices[0].shape[0]
        layers = sum(t.shape[0] == height for t in matrices) // 2
        return _steps(args[0]) * layers * (height // gates) * per_unit

    formula.__doc__ = f"Steps x hidden units x layers x directions x {per_unit}."
    return formula


register(aten.lstm, counts="pointwise_flops")(_layer_flops(13, 4))
register(aten.gru, counts="pointwise_flops")(_layer_flops(10, 3))
register(aten.rnn_tanh, aten.rnn_relu, counts="pointwise_flops")(_layer_flops(2, 1))


@register(
    aten.lstm_cell, aten.gru_cell, aten.rnn_tanh_cell, aten.rnn_relu_cell,
    counts="macs",
)  # fmt: skip
def cell_macs(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Batch x elements of both weight matrices."""
    return _steps(args[0]) * int(args[2].numel + args[3].numel)


def _cell_flops(per_unit: int, position: int, name: str) -> Formula:
    """Return the formula for a state, or a list that it leads, at a position."""

    def formula(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
        return per_unit * result((argument(args, kwargs, position, name),)).numel

    formula.__doc__ = f"{per_unit} x elements of the state."
    return formula


register(aten.lstm_cell, counts="pointwise_flops")(_cell_flops(13, 1, "hx"))
register(aten.gru_cell, counts="pointwise_flops")(_cell_flops(10, 1, "hx"))
register(aten.rnn_tanh_cell, aten.rnn_relu_cell, counts="pointwise_flops")(_cell_flops(2, 1, "hx"))
register(aten._thnn_fused_lstm_cell, counts="pointwise_flops")(_cell_flops(13, 2, "cx"))
register(aten._thnn_fused_gru_cell, counts="pointwise_flops")(_cell_flops(10, 2, "hx"))
register(
    aten._thnn_fused_lstm_cell_backward,
    aten._thnn_fused_lstm_cell_backward_impl,
    counts="pointwise_flops",
)(_cell_flops(13, 2, "cx"))
register(aten._thnn_differentiable_lstm_cell_backward, counts="pointwise_flops")(
    _cell_flops(13, 6, "cx")
)
register(
    aten._thnn_fused_gru_cell_backward,
    aten._thnn_differentiable_gru_cell_backward,
    counts="pointwise_flops",
)(_cell_flops(10, 0, "grad_hy"))
