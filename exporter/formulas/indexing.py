"""Indexing that adds: one per element that is accumulated.

Reading by index and writing without accumulating are moves, on the zero-cost list.
"""

from __future__ import annotations

import torch

from exporter.formulas.operands import (
    Args,
    Kwargs,
    Outputs,
    argument,
    first_tensor,
)
from exporter.formulas.registry import register
from exporter.formulas.spec import TensorSpec

aten = torch.ops.aten


@register(aten.index_add, aten.index_reduce, counts="pointwise_flops")
def index_add_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the source."""
    return int(argument(args, kwargs, 3, "source").numel)


@register(
    aten.scatter_add, aten.scatter_reduce,
    aten.scatter.reduce, aten.scatter.value_reduce, aten.scatter.reduce_out,
    aten.scatter.value_reduce_out, aten.scatter_.reduce, aten.scatter_.value_reduce,
    counts="pointwise_flops",
)  # fmt: skip
def scatter_add_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the index."""
    return int(argument(args, kwargs, 2, "index").numel)


@register(aten.index_put, aten._index_put_impl, aten._unsafe_index_put, aten.put,
          counts="pointwise_flops")  # fmt: skip
def index_put_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the values if they accumulate, else 0.

    Values without dimensions are spread over the indexed elements, at least as many as the
    largest index has.
    """
    if not argument(args, kwargs, 3, "accumulate", False):
        return 0
    values = args[2]
    indices = args[1] if isinstance(args[1], (list, tuple)) else (args[1],)
    return int(max(values.numel, *(i.numel for i in indices if isinstance(i, TensorSpec))))


@register(aten._unsafe_masked_index_put_accumulate, counts="pointwise_flops")
def masked_index_put_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the values."""
    return int(args[3].numel)


@register(aten.embedding, counts="pointwise_flops")
def embedding_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the input, which are the indices. Source: the published table's convention."""
    return int(args[1].numel)


@register(
    aten.embedding_dense_backward, aten.embedding_sparse_backward, aten.embedding_backward,
    aten.index_select_backward, aten.unfold_backward, aten.col2im,
    aten.value_selecting_reduction_backward, aten.masked_select_backward,
    aten.reflection_pad1d_backward, aten.reflection_pad2d_backward,
    aten.reflection_pad3d_backward, aten.replication_pad1d_backward,
    aten.replication_pad2d_backward, aten.replication_pad3d_backward, aten.gather_backward,
    aten.masked_scatter_backward, aten._pack_padded_sequence_backward,
    counts="pointwise_flops",
)  # fmt: skip
def accumulation_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the output's gradient: each is added where it came from."""
    return first_tensor(args, kwargs).numel


_BAGS = (aten.embedding_bag, aten._embedding_bag, aten._embedding_bag_forward_only)


@register(*_BAGS, counts="pointwise_flops")
def embedding_bag_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """Indices x width for adding (or comparing), and again if samples have weights."""
    weighted = argument(args, kwargs, 6, "per_sample_weights") is not None
    return int(args[1].numel * args[0].shape[-1]) * (1 + weighted)


@register(
    aten._embedding_bag_backward, aten._embedding_bag_dense_backward,
    aten._embedding_bag_sparse_backward, counts="pointwise_flops",
)  # fmt: skip
def embedding_bag_backward_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Indices x width."""
    return int(args[1].numel * args[0].shape[-1])


@register(aten._embedding_bag_per_sample_weights_backward, counts="macs")
def embedding_bag_weights_backward_macs(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Indices x width: a dot product of gradient and vector for each index."""
    return int(args[2].numel * args[0].shape[-1])
