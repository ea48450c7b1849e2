"""Recurrent layers as a CPU runs them: oneDNN for LSTM, else steps on inputs projected at once.

Torch's composite kernels (``native/RNN.cpp``) multiply a whole sequence by the input weights
before they step through it, but only on a CPU; on meta they multiply step by step. Packed
sequences are left as meta runs them: the same arithmetic, step by step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from exporter.targets.kernel import Kernel, composite
from exporter.targets.recurrent_cuda import LSTM

aten = torch.ops.aten

State = tuple[Tensor, ...]  # hidden, and an LSTM's cell
Cell = Callable[[Tensor, State, "Weights"], State]


@dataclass(frozen=True, slots=True)
class Weights:
    """The parameters of one layer and direction."""

    w_ih: Tensor
    w_hh: Tensor
    b_ih: Tensor | None = None
    b_hh: Tensor | None = None
    w_hr: Tensor | None = None

    def hidden(self, hidden: Tensor) -> Tensor:
        """Return the hidden state's part of the gates."""
        return F.linear(hidden, self.w_hh, self.b_hh)


def _gather(params: list[Tensor], has_biases: bool, projects: bool) -> list[Weights]:
    size = (4 if has_biases else 2) + projects
    groups = [params[i : i + size] for i in range(0, len(params), size)]
    if has_biases:
        return [Weights(*group) for group in groups]
    return [Weights(g[0], g[1], None, None, g[2] if projects else None) for g in groups]


def _lstm_step(projected: Tensor, state: State, weights: Weights) -> State:
    hidden, cell = state
    gates = weights.hidden(hidden).add_(projected).unsafe_chunk(4, 1)
    entry, forget, candidate, exit_ = (
        gates[0].sigmoid_(),
        gates[1].sigmoid_(),
        gates[2].tanh_(),
        gates[3].sigmoid_(),
    )
    cell = (forget * cell).add_(entry * candidate)
    hidden = exit_ * cell.tanh()
    if weights.w_hr is not None:
        hidden = torch.matmul(hidden, weights.w_hr.t())
    return hidden, cell


def _gru_step(projected: Tensor, state: State, weights: Weights) -> State:
    (hidden,) = state
    of_input = projected.unsafe_chunk(3, 1)
    of_hidden = weights.hidden(hidden).unsafe_chunk(3, 1)
    reset = of_hidden[0].add_(of_input[0]).sigmoid_()
    update = of_hidden[1].add_(of_input[1]).sigmoid_()
    new = of_input[2].add(of_hidden[2].mul_(reset)).tanh_()
    return ((hidden - new).mul_(update).add_(new),)


def _simple_step(nonlinearity: Callable[[Tensor], Tensor]) -> Cell:
    def step(projected: Tensor, state: State, weights: Weights) -> State:
        return (nonlinearity(weights.hidden(state[0]).add_(projected)),)

    return step


def _direction(
    cell: Cell, value: Tensor, state: State, weights: Weights, *, reverse: bool
) -> tuple[Tensor, State]:
    steps = list(F.linear(value, weights.w_ih, weights.b_ih).unbind(0))
    outputs = []
    for projected in reversed(steps) if reverse else steps:
        state = cell(projected, state, weights)
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if reverse else outputs, 0), state


def _stack_of_layers(
    cell: Cell,
    value: Tensor,
    states: Sequence[Tensor],
    params: list[Tensor],
    options: tuple[bool, int, float, bool, bool, bool],
) -> tuple[Tensor, ...]:
    has_biases, layers, dropout, train, bidirectional, batch_first = options
    projects = len(states) > 1 and states[0].shape[2] != states[1].shape[2]
    weights = _gather(params, has_biases, projects)
    value = value.transpose(0, 1) if batch_first else value
    initial = list(zip(*(state.unbind(0) for state in states), strict=True))
    directions = 2 if bidirectional else 1
    final: list[State] = []
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            index = layer * directions + direction
            output, state = _direction(
                cell, value, initial[index], weights[index], reverse=direction > 0
            )
            outputs.append(output)
            final.append(state)
        value = torch.cat(outputs, outputs[0].dim() - 1) if bidirectional else outputs[0]
        if dropout and train and layer < layers - 1:
            value = torch.dropout(value, dropout, True)
    # An LSTM's cells are stacked before its hidden states: C++ evaluates from the right.
    stacked = [torch.stack(parts, 0) for parts in reversed(list(zip(*final, strict=True)))]
    output = value
    if batch_first:
        output = value.transpose(0, 1) if len(states) > 1 else value.transpose_(0, 1)
    return (output, *reversed(stacked))


@functools.cache
def _supports(dtype: torch.dtype) -> bool:
    name = "bf16" if dtype is torch.bfloat16 else "fp16"
    with _disable_current_modes():  # a question to the build, no operator of the model
        return bool(getattr(torch.ops.mkldnn, f"_is_mkldnn_{name}_supported")())


def _one_dnn_takes(value: Tensor) -> bool:
    if not torch._C._get_mkldnn_enabled() or not value.numel():
        return False
    if value.dtype is torch.bfloat16:
        return _supports(value.dtype)
    if value.dtype is torch.float16:
        return not torch.is_grad_enabled() and _supports(value.dtype)
    return value.dtype is torch.float32


def _lstm_by_one_dnn(
    value: Tensor,
    hx: list[Tensor],
    params: list[Tensor],
    options: tuple[bool, int, float, bool, bool, bool],
) -> tuple[Tensor, Tensor, Tensor]:
    has_biases, layers, dropout, train, bidirectional, batch_first = options
    value = (value.transpose(0, 1) if batch_first else value).contiguous()
    hidden, cell = hx[0].contiguous(), hx[1].contiguous()
    directions = 2 if bidirectional else 1
    states = []
    size = 4 if has_biases else 2
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            index = layer * directions + direction
            weights = list(params[index * size : (index + 1) * size])
            state = hidden[index], cell[index]
            if not has_biases:
                zeros = [
                    torch.zeros(w.shape, dtype=w.dtype, device=w.device) for w in weights[::-1]
                ]
                weights += zeros[::-1]
            output, *state_after, _ = aten.mkldnn_rnn_layer(
                value,
                *weights,
                *state,
                direction > 0,
                [],
                LSTM,
                hx[1].shape[2],
                layers,
                has_biases,
                bidirectional,
                batch_first,
                train,
            )
            outputs.append(output)
            states.append(state_after)
        value = torch.cat(outputs, -1) if bidirectional else outputs[0]
        if dropout and train and layer < layers - 1:
            value = torch.dropout(value, dropout, True)
    hy, cy = (torch.stack(parts, 0) for parts in zip(*states, strict=True))
    return value.transpose(0, 1) if batch_first else value, hy, cy


def lstm_input(
    input: Tensor,  # noqa: A002
    hx: list[Tensor],
    params: list[Tensor],
    *options: Any,
) -> tuple[Tensor, ...]:
    """Return output, hidden and cell state: by oneDNN unless there are projections."""
    if len(hx) != 2 or input.dim() != 3 or not input.numel():
        unchanged: tuple[Tensor, ...] = composite(aten.lstm.input, input, hx, params, *options)
        return unchanged
    if _one_dnn_takes(input) and hx[0].shape[2] == hx[1].shape[2]:
        return _lstm_by_one_dnn(input, hx, params, options)
    return _stack_of_layers(_lstm_step, input, hx, params, options)


def _one_state(name: str, cell: Cell) -> Kernel:
    packet = getattr(aten, name)

    def of_input(
        input: Tensor,  # noqa: A002
        hx: Tensor,
        params: list[Tensor],
        *options: Any,
    ) -> tuple[Tensor, ...]:
        if input.dim() != 3 or not input.numel():
            unchanged: tuple[Tensor, ...] = composite(packet.input, input, hx, params, *options)
            return unchanged
        return _stack_of_layers(cell, input, [hx], params, options)

    return Kernel(f"{name}.input", "AutogradMeta", of_input)


@functools.cache
def _workspace_bytes(shape: tuple[int, ...], hidden: int, dtype: torch.dtype) -> int:
    """Return the bytes that oneDNN keeps for backward, by asking it: one run on zeros."""
    with torch.enable_grad(), torch.autocast("cpu", enabled=False):
        value = torch.zeros(shape, dtype=dtype, device="cpu")
        sizes = ((4 * hidden, shape[2]), (4 * hidden, hidden), (4 * hidden,), (4 * hidden,))
        weights = [torch.zeros(size, dtype=dtype, device="cpu") for size in sizes]
        state = torch.zeros(shape[1], hidden, dtype=dtype, device="cpu")
        flags: tuple[Any, ...] = (False, [], LSTM, hidden, 1, True, False, False, True)
        outputs = aten.mkldnn_rnn_layer(value, *weights, state, state, *flags)
        return int(outputs[3].numel())


def mkldnn_rnn_layer(
    input: Tensor,  # noqa: A002
    weight0: Tensor,
    weight1: Tensor,
    weight2: Tensor,
    weight3: Tensor,
    hx_: Tensor,
    cx_: Tensor,
    *_: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return output, both states and, while gradients are recorded, the workspace."""
    del weight0, weight1, weight2, weight3
    hidden = hx_.shape[-1]
    output = input.new_empty((*input.shape[:2], hidden))
    workspace = None
    if torch.is_grad_enabled():
        kept = _workspace_bytes(tuple(input.shape), hidden, input.dtype)
        workspace = input.new_empty(kept, dtype=torch.uint8)
    return output, hx_.new_empty(hx_.shape), cx_.new_empty(cx_.shape), workspace


def mkldnn_rnn_layer_backward(
    input: Tensor,  # noqa: A002
    weight1: Tensor,
    weight2: Tensor,
    weight3: Tensor,
    weight4: Tensor,
    hx_: Tensor,
    cx_tmp: Tensor,
    *_: Any,
) -> tuple[Tensor, ...]:
    """Return the gradients of input, weights, both biases and states, each in its own memory."""
    bias = weight3.shape[:1], weight4.shape[:1]
    shapes = (input.shape, weight1.shape, weight2.shape, *bias, hx_.shape, cx_tmp.shape)
    return tuple(input.new_empty(shape, dtype=torch.float32) for shape in shapes)


CPU_RECURRENT = (
    Kernel("lstm.input", "AutogradMeta", lstm_input),
    _one_state("gru", _gru_step),
    _one_state("rnn_tanh", _simple_step(torch.tanh)),
    _one_state("rnn_relu", _simple_step(torch.relu)),
    Kernel("mkldnn_rnn_layer", "Meta", mkldnn_rnn_layer),
    Kernel("mkldnn_rnn_layer_backward", "Meta", mkldnn_rnn_layer_backward),
)
