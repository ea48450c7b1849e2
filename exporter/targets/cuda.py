"""What a CUDA device runs where torch's composite operators ask which device they are on.

Found by comparing operators on fake CUDA tensors with those on meta tensors, torch 2.14.1.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from exporter.targets.attention import cuda_attention
from exporter.targets.kernel import COMMON_KERNELS, Kernel, composite, one_hot
from exporter.targets.recurrent_cuda import CUDA_RECURRENT

aten = torch.ops.aten

CUDNN_MIN_EPSILON = 1e-5  # CUDNN_BN_MIN_EPSILON as torch compares it
CUDNN_MAX_BATCH_TRAINING = 880801
CUDNN_MAX_BATCH_EVAL = 65535
CUDNN_GRID_MAX_CHANNELS = 1024
CUDNN_DTYPES = (torch.float16, torch.float32, torch.float64)
INT32_LIMIT = 2**31 - 1


def dropout(input: Tensor, p: float, train: bool) -> Tensor:  # noqa: A002
    """Return dropout's output by the fused kernel, which keeps a mask of one byte per element.

    Feature and alpha dropout, and dropout in place, have no fused kernel on any device.
    """
    if train and 0 < p < 1 and input.numel():
        output: Tensor = aten.native_dropout(input, p, train)[0]
        return output
    unfused: Tensor = composite(aten.dropout.default, input, p, train)
    return unfused


def _cudnn_takes_batch_norm(
    tensors: tuple[Tensor, Tensor | None, Tensor | None],
    running: tuple[Tensor | None, Tensor | None],
    *,
    training: bool,
    eps: float,
) -> bool:
    value, weight, bias = tensors
    if weight is None or bias is None or not torch.backends.cudnn.enabled:
        return False
    has_running = running[0] is not None and running[1] is not None
    has_none = running[0] is None and running[1] is None
    limit = CUDNN_MAX_BATCH_TRAINING if training else CUDNN_MAX_BATCH_EVAL
    return (
        torch.bfloat16 not in (value.dtype, weight.dtype)
        and (value.dtype is not torch.float16 or weight.dtype is torch.float32)
        and (has_running or (has_none and training))
        and value.dim() >= 3
        and value.shape[0] <= limit
        and eps >= CUDNN_MIN_EPSILON
        and value.numel() < INT32_LIMIT
    )


def batch_norm_impl_index(
    input: Tensor,  # noqa: A002
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> tuple[Any, ...]:
    """Return batch norm's outputs by cuDNN where torch's ``_select_batch_norm_backend`` takes it.

    cuDNN's reserve space is empty without a fused activation.
    """
    args = (input, weight, bias, running_mean, running_var, training, momentum, eps)
    if input.numel() and _cudnn_takes_batch_norm(
        (input, weight, bias), (running_mean, running_var), training=training, eps=eps
    ):
        dense = [
            None if t is None else t.contiguous() for t in (weight, bias, running_mean, running_var)
        ]
        if not input.is_contiguous():
            layout = torch._prims_common.suggest_memory_format(input)
            input = input.contiguous(memory_format=layout)  # noqa: A001
        outputs = aten.cudnn_batch_norm.default(input, *dense, training, momentum, eps)
        return (*outputs, 1)
    native: tuple[Any, ...] = composite(
        aten._batch_norm_impl_index.default, *args, cudnn_enabled
    )  # fmt: skip
    return native


def softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:  # noqa: A002
    """Return softmax; half to single precision is one kernel, without a converted copy."""
    if input.dtype is torch.float16 and dtype is torch.float32:
        output: Tensor = aten._softmax(input, dim, True)
        return output
    converted: Tensor = composite(aten.softmax.int, input, dim, dtype)
    return converted


def log_softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:  # noqa: A002
    """Return log-softmax; half to single precision is one kernel, without a converted copy."""
    if input.dtype is torch.float16 and dtype is torch.float32:
        output: Tensor = aten._log_softmax(input, dim, True)
        return output
    converted: Tensor = composite(aten.log_softmax.int, input, dim, dtype)
    return converted


def log_sigmoid_forward(self: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output and an empty buffer: only the CPU's backward wants it."""
    return torch.empty_like(self), self.new_empty(0)


def fused_rms_norm(
    input: Tensor,  # noqa: A002
    normalized_shape: list[int],
    weight: Tensor | None,
    eps: float | None,
) -> tuple[Tensor, Tensor]:
    """Return the output and the reciprocal root mean square of each row, in single precision."""
    del weight, eps
    kept = input.dim() - len(normalized_shape)
    statistics = torch.float64 if input.dtype is torch.float64 else torch.float32
    rows = (*input.shape[:kept], *(1 for _ in normalized_shape))
    output = torch.empty_like(input, memory_format=torch.contiguous_format)
    return output, input.new_empty(rows, dtype=statistics)


def fused_rms_norm_backward(
    grad_out: Tensor,
    input: Tensor,  # noqa: A002
    normalized_shape: list[int],
    rstd: Tensor,
    weight: Tensor | None,
    output_mask: list[bool],
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of input and weight that are asked for."""
    del grad_out, normalized_shape, rstd
    grad_input = torch.empty_like(input) if output_mask[0] else None
    wants_weight = output_mask[1] and weight is not None
    return grad_input, torch.empty_like(weight) if wants_weight and weight is not None else None


def grid_sampler(
    input: Tensor,  # noqa: A002
    grid: Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> Tensor:
    """Return the samples by cuDNN for bilinear, zero-padded, corner-aligned images."""
    if (
        (interpolation_mode, padding_mode, align_corners) == (0, 0, True)
        and torch.backends.cudnn.enabled
        and input.dim() == 4
        and input.shape[1] <= CUDNN_GRID_MAX_CHANNELS
        and input.numel()
        and grid.numel()
        and input.dtype in CUDNN_DTYPES
        and grid.dtype in CUDNN_DTYPES
        and max(input.numel(), grid.numel()) < INT32_LIMIT
    ):
        output: Tensor = aten.cudnn_grid_sampler(input, grid)
        return output
    native: Tensor = composite(
        aten.grid_sampler.default, input, grid, interpolation_mode, padding_mode, align_corners
    )
    return native


def cudnn_grid_sampler(self: Tensor, grid: Tensor) -> Tensor:
    """Return the samples: batch and channels of the input, height and width of the grid."""
    return self.new_empty((*self.shape[:2], *grid.shape[1:3]))


def cudnn_grid_sampler_backward(
    self: Tensor, grid: Tensor, grad_output: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of input and grid."""
    del grad_output
    return torch.empty_like(self), torch.empty_like(grid)


_CUDA_KERNELS = (
    Kernel("dropout", "AutogradMeta", dropout),
    Kernel("_batch_norm_impl_index", "AutogradMeta", batch_norm_impl_index),
    Kernel("softmax.int", "AutogradMeta", softmax),
    Kernel("log_softmax.int", "AutogradMeta", log_softmax),
    Kernel("log_sigmoid_forward", "Meta", log_sigmoid_forward),
    Kernel("_fused_rms_norm", "Meta", fused_rms_norm),
    Kernel("_fused_rms_norm_backward", "Meta", fused_rms_norm_backward),
    Kernel("grid_sampler", "AutogradMeta", grid_sampler),
    Kernel("one_hot", "AutogradMeta", one_hot),
    Kernel("cudnn_grid_sampler", "Meta", cudnn_grid_sampler),
    Kernel("cudnn_grid_sampler_backward", "Meta", cudnn_grid_sampler_backward),
    *CUDA_RECURRENT,
)


def cuda_kernels(attention: str) -> tuple[Kernel, ...]:
    """Return the rules of the target ``cuda`` with an attention kernel of choice."""
    return (*COMMON_KERNELS, *_CUDA_KERNELS, cuda_attention(attention))
