"""What every device does and torch's meta kernels do not."""

from __future__ import annotations

import torch
from torch import Tensor

from exporter.targets.kernel import Kernel


def _batch_norm() -> Kernel:
    """Return the rule by which batch norm keeps no statistics in eval mode.

    On meta torch invents two tensors that backward never reads. In training, its own kernel runs.
    """
    original = torch.library.get_kernel("aten::native_batch_norm", "Meta")

    def native_batch_norm(
        keyset: torch._C.DispatchKeySet,
        input: Tensor,  # noqa: A002
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        training: bool,
        momentum: float,
        eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        args = (input, weight, bias, running_mean, running_var, training, momentum, eps)
        output, mean, invstd = original.call_boxed(keyset, *args)
        if not training:
            mean, invstd = mean.new_empty(0), invstd.new_empty(0)
        return output, mean, invstd

    return Kernel("native_batch_norm", "Meta", native_batch_norm, with_keyset=True)


def layer_norm_backward(
    grad_out: Tensor,
    input: Tensor,  # noqa: A002
    normalized_shape: list[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    output_mask: list[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients that are asked for, row-major as every device makes them.

    On meta torch keeps the strides of the gradient that comes in (``layer_norm_kernel.cpp`` and
    ``layer_norm_kernel.cu`` ask for the contiguous format).
    """
    del grad_out, normalized_shape, mean, rstd

    def dense(tensor: Tensor | None, *, wanted: bool) -> Tensor | None:
        if tensor is None or not wanted:
            return None
        return torch.empty_like(tensor, memory_format=torch.contiguous_format)

    return (
        dense(input, wanted=output_mask[0]),
        dense(weight, wanted=output_mask[1]),
        dense(bias, wanted=output_mask[2]),
    )


def _convolution() -> Kernel:
    """Return the rule by which a convolution passes on the channels-last layout.

    The CPU's and cuDNN's kernels do so if image or weight has it (``ConvUtils.h``); torch's meta
    kernel, which does not know the device, always answers row-major. Images of one dimension are
    made row-major first.
    """
    original = torch.library.get_kernel("aten::convolution", "Meta")

    def convolution(
        keyset: torch._C.DispatchKeySet,
        input: Tensor,  # noqa: A002
        weight: Tensor,
        bias: Tensor | None,
        stride: list[int],
        padding: list[int],
        dilation: list[int],
        transposed: bool,
        output_padding: list[int],
        groups: int,
    ) -> Tensor:
        output: Tensor = original.call_boxed(
            keyset, input, weight, bias, stride, padding, dilation, transposed, output_padding,
            groups,
        )  # fmt: skip
        suggested = torch._prims_common.suggest_memory_format
        for operand in (input, weight):
            layout = suggested(operand)
            if layout is not torch.contiguous_format:
                return torch.empty_like(output, memory_format=layout)
        return output

    return Kernel("convolution", "Meta", convolution, with_keyset=True)


def common_kernels() -> tuple[Kernel, ...]:
    """Return the rules of all targets."""
    return (
        _batch_norm(),
        _convolution(),
        Kernel("native_layer_norm_backward", "Meta", layer_norm_backward),
    )
