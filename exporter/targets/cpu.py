"""What a CPU runs where torch's composite operators ask which device they are on."""

from __future__ import annotations

import torch
from torch import Tensor

from exporter.targets.attention import CPU_ATTENTION
from exporter.targets.kernel import COMMON_KERNELS, Kernel, one_hot
from exporter.targets.recurrent_cpu import CPU_RECURRENT


def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the bags, and what backward reads, in the CPU's sizes (``EmbeddingBag.cpp``).

    The fast kernel for sums of contiguous rows needs no table from offsets to bags.
    """
    del scale_grad_by_freq, sparse
    bags = offsets.shape[0] - include_last_offset
    output = weight.new_empty((bags, weight.shape[1]))
    scale_fits = per_sample_weights is None or per_sample_weights.stride(0) == 1
    is_fast = (
        weight.dtype in (torch.float32, torch.float16, torch.bfloat16)
        and weight.stride(1) == 1
        and padding_idx < 0
        and scale_fits
    )
    offset2bag = offsets.new_empty(0)
    if not (is_fast and mode == 0):
        # Built one element longer and then cut, which leaves the storage as it was.
        offset2bag = offsets.new_empty(indices.shape[0] + 1)[:-1]
    bag_size = offsets.new_empty(bags)
    max_indices = offsets.new_empty((bags, weight.shape[1]) if mode == 2 else bags)
    return output, offset2bag, bag_size, max_indices


def checked_one_hot(self: Tensor, num_classes: int = -1) -> Tensor:
    """Return the classes; the CPU looks for the lowest and the highest first.

    That it reads both back is left out: nobody may know them.
    """
    if self.numel():
        torch.aminmax(self)
    return one_hot(self, num_classes)


CPU_KERNELS: tuple[Kernel, ...] = (
    *COMMON_KERNELS,
    CPU_ATTENTION,
    *CPU_RECURRENT,
    Kernel("_embedding_bag", "Meta", embedding_bag),
    Kernel("one_hot", "AutogradMeta", checked_one_hot),
)
