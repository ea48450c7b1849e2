"""Independent of the product's capture: sums the costs of every operator that a block runs."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from exporter.formulas import TensorSpec, cost


def spec_of(value):
    """Return the spec of a tensor, anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    return TensorSpec(
        tuple(value.shape), tuple(value.stride()), value.storage_offset(), value.dtype
    )


def call_cost(func, *args, **kwargs):
    """Run an operator on real or meta tensors and return its cost."""
    output = func(*args, **kwargs)
    outputs = output if isinstance(output, (tuple, list)) else (output,)
    return cost(func, *tree_map(spec_of, (args, kwargs, tuple(outputs))))


class OperatorRecorder(TorchDispatchMode):
    """Counts macs and pointwise FLOPs per operator, and the calls of each flops_status."""

    def __init__(self):
        super().__init__()
        self.macs, self.pointwise = Counter(), Counter()
        self.statuses = {}  # operator -> flops_status
        self.grouped_surplus = 0  # macs that a weight gradient not divided by its groups adds

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        outputs = tuple(output) if isinstance(output, (tuple, list)) else (output,)
        counted = cost(func, *tree_map(spec_of, (args, kwargs, outputs)))
        self.macs[func] += counted.macs
        self.pointwise[func] += counted.pointwise_flops
        self.statuses[func] = counted.flops_status
        if func is torch.ops.aten.convolution_backward.default and args[10][1]:
            grad_output, weight, groups = args[0], args[2], args[9]
            forward = grad_output.numel() * weight[0].numel()
            self.grouped_surplus += forward * (groups - 1)
        return output

    @property
    def total_macs(self):
        return sum(self.macs.values())

    @property
    def total_pointwise(self):
        return sum(self.pointwise.values())

    @property
    def unknown(self):
        return {str(f) for f, status in self.statuses.items() if status == "unknown"}


@contextmanager
def no_initialization():
    """Leave parameters as allocated: initialising them is most of a large model's building time.

    Some constructors read values (regnet's widths), so models are built on the CPU and moved.
    """
    functions = (
        "uniform_", "normal_", "trunc_normal_", "constant_", "ones_", "zeros_", "xavier_uniform_",
        "xavier_normal_", "kaiming_uniform_", "kaiming_normal_",
    )  # fmt: skip
    patches = [patch.object(torch.nn.init, f, lambda tensor, *_, **__: tensor) for f in functions]
    for p in patches:
        p.start()
    try:
        yield
    finally:
        for p in patches:
            p.stop()


def output_tensors(output):
    """Return the differentiable tensors of a model's output."""
    return [t for t in tree_leaves(output) if isinstance(t, torch.Tensor) and t.requires_grad]
