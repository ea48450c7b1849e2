"""Recurrent layers and cells as CUDA runs them: one cuDNN operator, one fused cell.

On a GPU the parameters of ``nn.LSTM``, ``nn.GRU`` and ``nn.RNN`` are views of one flat buffer that
the layer makes when it moves there, so cuDNN copies no weights and saves nothing for them beyond
the parameters. On meta they stay separate; their bytes are the same in sum.

cuDNN does not publish the size of its reserve space, what forward leaves for backward. Taken here
is what backward needs: per step, sequence, direction and layer, the activated gates (LSTM 4, GRU
3 and the hidden part of the candidate, RNN 1), the cell state of an LSTM, and the output of every
layer but the last, each of the hidden size and in the input's dtype; and one byte per element for
the dropout mask between layers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from exporter.targets.kernel import Function, Kernel, composite

aten = torch.ops.aten

RNN_RELU, RNN_TANH, LSTM, GRU = range(4)  # cudnnRNNMode_t
_SAVED_GATES = {RNN_RELU: 1, RNN_TANH: 1, LSTM: 5, GRU: 4}  # with an LSTM's cell state
_CUDNN_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def reserve_bytes(
    mode: int,
    steps: int,
    *,
    hidden_size: int,
    output_size: int,
    layers: int,
    directions: int,
    dropout: float,
    item_bytes: int,
) -> int:
    """Return the bytes taken for cuDNN's reserve space (see the module's text).

    Args:
        mode: cuDNN's number of the cell.
        steps: steps of all sequences together: batch * length, less what packing leaves out.
        hidden_size: of the cell.
        output_size: of one direction: the projection's size if there is one.
        layers: stacked layers.
        directions: 2 if bidirectional.
        dropout: probability between layers.
        item_bytes: of the input's dtype.
    """
    gates = steps * layers * directions * _SAVED_GATES[mode] * hidden_size
    between = steps * (layers - 1) * directions * output_size
    mask = between if dropout else 0
    return (gates + between) * item_bytes + mask


def _is_acceptable(value: Tensor) -> bool:
    return bool(
        torch.backends.cudnn.enabled and value.dtype in _CUDNN_DTYPES and value.numel()
    )  # fmt: skip


def _cudnn(
    mode: int,
    data: Tensor,
    state: tuple[Tensor, Tensor | None],
    params: list[Tensor],
    options: tuple[bool, int, float, bool, bool, bool],
    batch_sizes: list[int],
) -> tuple[Tensor, Tensor, Tensor]:
    has_biases, layers, dropout, train, bidirectional, batch_first = options
    hx, cx = state
    hidden_size, proj_size = hx.shape[2], 0
    if cx is not None and cx.shape[2] != hx.shape[2]:
        hidden_size, proj_size = cx.shape[2], hx.shape[2]
    per_layer = (4 if has_biases else 2) + (1 if proj_size else 0)
    output, hy, cy, *_ = aten._cudnn_rnn(
        data,
        params,
        per_layer,
        params[0].detach(),  # stands for the flat buffer: memory that the parameters already hold
        hx,
        cx,
        mode,
        hidden_size,
        proj_size,
        layers,
        batch_first,
        dropout,
        train,
        bidirectional,
        batch_sizes,
        None,
    )
    return output, hy, cy


def _lengths(batch_sizes: Tensor) -> list[int]:
    if batch_sizes.is_meta:
        return [int(size) for size in batch_sizes.unbind()]
    return [int(size) for size in batch_sizes.tolist()]


def lstm_input(
    input: Tensor,  # noqa: A002
    hx: list[Tensor],
    params: list[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return output, hidden and cell state by one cuDNN operator."""
    options = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
    if len(hx) == 2 and _is_acceptable(input):
        return _cudnn(LSTM, input, (hx[0], hx[1]), params, options, [])
    steps: tuple[Tensor, Tensor, Tensor] = composite(aten.lstm.input, input, hx, params, *options)
    return steps


def lstm_data(
    data: Tensor,
    batch_sizes: Tensor,
    hx: list[Tensor],
    params: list[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return output, hidden and cell state of packed sequences by one cuDNN operator."""
    options = (has_biases, num_layers, dropout, train, bidirectional)
    if len(hx) == 2 and _is_acceptable(data):
        lengths = _lengths(batch_sizes)
        return _cudnn(LSTM, data, (hx[0], hx[1]), params, (*options, False), lengths)
    steps: tuple[Tensor, Tensor, Tensor] = composite(
        aten.lstm.data, data, batch_sizes, hx, params, *options
    )
    return steps


def _one_state(name: str, mode: int) -> tuple[Kernel, Kernel]:
    packet = getattr(aten, name)

    def of_input(
        input: Tensor,  # noqa: A002
        hx: Tensor,
        params: list[Tensor],
        *options: Any,
    ) -> tuple[Tensor, Tensor]:
        if _is_acceptable(input):
            return _cudnn(mode, input, (hx, None), params, options, [])[:2]
        steps: tuple[Tensor, Tensor] = composite(packet.input, input, hx, params, *options)
        return steps

    def of_data(
        data: Tensor, batch_sizes: Tensor, hx: Tensor, params: list[Tensor], *options: Any
    ) -> tuple[Tensor, Tensor]:
        if _is_acceptable(data):
            lengths = _lengths(batch_sizes)
            flags: Any = (*options, False)
            return _cudnn(mode, data, (hx, None), params, flags, lengths)[:2]
        steps: tuple[Tensor, Tensor] = composite(
            packet.data, data, batch_sizes, hx, params, *options
        )
        return steps

    return (
        Kernel(f"{name}.input", "AutogradMeta", of_input),
        Kernel(f"{name}.data", "AutogradMeta", of_data),
    )


def cudnn_rnn(
    input: Tensor,  # noqa: A002
    weight: list[Tensor],
    weight_stride0: int,
    weight_buf: Tensor | None,
    hx: Tensor,
    cx: Tensor | None,
    mode: int,
    hidden_size: int,
    proj_size: int,
    num_layers: int,
    batch_first: bool,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_sizes: list[int],
    dropout_state: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """Return output, hidden state, cell state, reserve space and the weight buffer."""
    del weight, weight_stride0, dropout_state
    directions = 2 if bidirectional else 1
    output_size = proj_size or hidden_size
    if batch_sizes:
        batch, steps = batch_sizes[0], input.shape[0]
        rows: tuple[int, ...] = (steps,)
    else:
        batch = input.shape[0 if batch_first else 1]
        steps = input.shape[0] * input.shape[1]
        rows = (input.shape[0], input.shape[1])
    output = input.new_empty((*rows, output_size * directions))
    hy = hx.new_empty((num_layers * directions, batch, output_size))
    cy = input.new_empty(0 if cx is None else (num_layers * directions, batch, hidden_size))
    kept = reserve_bytes(
        mode,
        steps,
        hidden_size=hidden_size,
        output_size=output_size,
        layers=num_layers,
        directions=directions,
        dropout=dropout,
        item_bytes=input.element_size(),
    )
    reserve = input.new_empty(kept if train else 0, dtype=torch.uint8)
    return output, hy, cy, reserve, weight_buf


def cudnn_rnn_backward(
    input: Tensor,  # noqa: A002
    weight: list[Tensor],
    weight_stride0: int,
    weight_buf: Tensor,
    hx: Tensor,
    cx: Tensor | None,
    *rest: Any,
) -> tuple[Tensor, Tensor, Tensor | None, list[Tensor]]:
    """Return the gradients of input, states and weights.

    Raises:
        RuntimeError: in eval mode, where cuDNN keeps nothing for backward.
    """
    del weight_stride0, weight_buf
    train, output_mask = rest[10], rest[-1]
    if not train:
        raise RuntimeError("cudnn RNN backward can only be called in training mode")
    grad_cx = torch.empty_like(cx) if cx is not None else None
    # One flat buffer holds all weight gradients; each is a view of it.
    grads: list[Tensor] = []
    if output_mask[3]:
        flat = weight[0].new_empty(sum(w.numel() for w in weight))
        start = 0
        for w in weight:
            grads.append(flat.narrow(0, start, w.numel()).view(w.shape))
            start += w.numel()
    return torch.empty_like(input), torch.empty_like(hx), grad_cx, grads


def lstm_cell(
    input: Tensor,  # noqa: A002
    hx: list[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return hidden and cell state by the fused cell."""
    if len(hx) != 2 or not input.numel():
        unfused: tuple[Tensor, Tensor] = composite(
            aten.lstm_cell.default, input, hx, w_ih, w_hh, b_ih, b_hh
        )
        return unfused
    gates = torch.matmul(input, w_ih.t()), torch.matmul(hx[0], w_hh.t())
    hy, cy, _ = aten._thnn_fused_lstm_cell(*gates, hx[1], b_ih, b_hh)
    return hy, cy


def gru_cell(
    input: Tensor,  # noqa: A002
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:
    """Return the hidden state by the fused cell."""
    gates = torch.matmul(input, w_ih.t()), torch.matmul(hx, w_hh.t())
    hy: Tensor = aten._thnn_fused_gru_cell(*gates, hx, b_ih, b_hh)[0]
    return hy


def fused_lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return hidden state, cell state and the activated gates; torch's own wants biases."""
    del hidden_gates, input_bias, hidden_bias
    dense = torch.contiguous_format
    hy, cy = (torch.empty_like(cx, memory_format=dense) for _ in range(2))
    return hy, cy, torch.empty_like(input_gates, memory_format=dense)


def fused_gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the hidden state and the workspace that backward reads: five values per unit."""
    del input_gates, hidden_gates, input_bias, hidden_bias
    workspace = hx.new_empty((hx.shape[0], hx.shape[1] * 5))
    return torch.empty_like(hx, memory_format=torch.contiguous_format), workspace


def fused_gru_cell_backward(
    grad_hy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Return the gradients of both gates, the state and both biases."""
    batch, hidden = workspace.shape[0], workspace.shape[1] // 5
    gates = [workspace.new_empty((batch, hidden * 3)) for _ in range(2)]
    biases = [workspace.new_empty(hidden * 3) if has_bias else None for _ in range(2)]
    state = torch.empty_like(grad_hy, memory_format=torch.contiguous_format)
    return gates[0], gates[1], state, biases[0], biases[1]


def _kernels() -> tuple[Kernel, ...]:
    composites: tuple[tuple[str, Function], ...] = (
        ("lstm.input", lstm_input),
        ("lstm.data", lstm_data),
        ("lstm_cell", lstm_cell),
        ("gru_cell", gru_cell),
    )
    returns: tuple[tuple[str, Function], ...] = (
        ("_cudnn_rnn", cudnn_rnn),
        ("_cudnn_rnn_backward", cudnn_rnn_backward),
        ("_thnn_fused_lstm_cell", fused_lstm_cell),
        ("_thnn_fused_gru_cell", fused_gru_cell),
        ("_thnn_fused_gru_cell_backward", fused_gru_cell_backward),
    )
    return (
        *(Kernel(name, "AutogradMeta", function) for name, function in composites),
        *_one_state("gru", GRU),
        *_one_state("rnn_tanh", RNN_TANH),
        *_one_state("rnn_relu", RNN_RELU),
        *(Kernel(name, "Meta", function) for name, function in returns),
    )


CUDA_RECURRENT = _kernels()
