"""What the rules are made of: kernels, the keys they are registered at, and the originals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function to run instead of an aten operator's own, at one dispatch key.

    ``AutogradMeta`` replaces a composite operator before autograd records anything, so what the
    function calls is recorded; ``Meta`` says what an operator returns, below autograd.
    """

    operator: str  # "dropout", "lstm.input", ...
    key: str  # "AutogradMeta" or "Meta"
    function: Function
    with_keyset: bool = False  # the function also wants the dispatch keys, first


def composite(operator: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Return what torch's own composite kernel makes of the arguments.

    ``OpOverload.decompose`` is no substitute: it prefers decompositions written in Python.
    """
    return operator._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


def mish_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    """Return the gradient of mish by its own kernel; on meta it would be nine operators."""
    del self
    return torch.empty_like(grad_output)


def gradient_of_input(grad_output: Tensor, self: Tensor, *_: Any, **__: Any) -> Tensor:
    """Return the gradient of the second operand, row-major, where torch has no meta kernel."""
    del grad_output
    return torch.empty_like(self, memory_format=torch.contiguous_format)


def one_hot(self: Tensor, num_classes: int = -1) -> Tensor:
    """Return the classes as devices write them; on meta torch compares, without writing.

    Source: ``ATen/native/Onehot.cpp``.
    """
    if self.dtype is not torch.int64 or not self.numel() or num_classes == 0 or num_classes < -1:
        refused: Tensor = composite(torch.ops.aten.one_hot.default, self, num_classes)
        return refused
    if num_classes == -1:
        num_classes = int(self.max().item()) + 1
    output = torch.zeros((*self.shape, num_classes), dtype=self.dtype, device=self.device)
    return output.scatter_(-1, self.unsqueeze(-1), 1)


COMMON_KERNELS = (
    Kernel("mish_backward", "Meta", mish_backward),
    Kernel("multi_margin_loss_backward", "Meta", gradient_of_input),
    Kernel("multilabel_margin_loss_backward", "Meta", gradient_of_input),
    Kernel("fractional_max_pool3d_backward", "Meta", gradient_of_input),
    Kernel("_ctc_loss_backward", "Meta", gradient_of_input),
    Kernel("_ctc_loss_backward.Tensor", "Meta", gradient_of_input),
)
