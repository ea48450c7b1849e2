"""Torch's own samples of every operator, recorded on meta and really run on the CPU.

Both recordings have the same operators with the same arguments and arithmetic, the same tensors,
and storages that are born and die at the same steps.
"""

from __future__ import annotations

import json
import random
import warnings
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map

from exporter import profile_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.records import Profile

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

SHARDS = 24  # tests, so that cores share them
SAMPLES = 3  # of each operator

# The CPU cannot run these samples, or not as plain tensors: sparse, complex, or for CUDA only.
NOT_RUN = (
    "as_strided.partial_views", "imag", "istft", "jiterator_", "nn.functional.batch_norm.without",
    "nn.functional.silu.complex", "sparse.", "to_sparse", "torch.ops.aten._efficient",
    "torch.ops.aten._flash", "view_as_real",
)  # fmt: skip
DIFFERENT = {
    # LAPACK's results lie column by column, and the CPU's transforms row by row; torch's meta
    # kernels say otherwise.
    "fft.irfftn": "layout",
    "fft.rfftn": "layout",
    "linalg.cond": "layout",
    "linalg.eig": "layout",
    "linalg.eigvals": "layout",
    "linalg.matrix_rank": "layout",
    "linalg.svdvals": "layout",
    "norm.nuc": "layout",
    "pca_lowrank": "layout",
    "svd_lowrank": "layout",
    # The device decides, and torch asks whether it is the CPU.
    "_native_batch_norm_legit": "device",
    "nn.functional.one_hot": "device",  # the CPU reads two values back
    "tensor_split": "device",  # wants its indices on the host
    # Workspace in a storage of a result.
    "linalg.lstsq": "workspace",
    "linalg.lstsq.grad_oriented": "workspace",
    # Makes tables from lists inside a function of torch's own, in Python.
    "unravel_index": "tables",
    # The indices that a mask becomes are seen on meta, not in the CPU's kernel.
    "index_put": "mask",
}


class _Runs(nn.Module):
    def __init__(self, op: Any) -> None:
        super().__init__()
        self.op = op

    def forward(self, value: Any, args: Any, kwargs: Any) -> Any:
        return self.op(value, *args, **kwargs)


def _samples(op: Any) -> Iterator[Any]:
    """Yield the operator's first samples, of floats with gradients where it has any."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  # what torch's samples draw from
    floats = torch.float32 in op.supported_dtypes("cpu")
    dtype = torch.float32 if floats else torch.int64
    found = op.sample_inputs("cpu", dtype, requires_grad=op.supports_autograd and floats)
    return islice(found, SAMPLES)


def _rows(op: Any, sample: Any, capture: str) -> tuple[list[Any], list[Any], list[Any]]:
    """Return operators, tensors and storages of one run, in comparable form."""
    inputs = tree_map(_copy, (sample.input, sample.args, sample.kwargs))
    torch.manual_seed(0)
    profile = profile_model(_Runs(op), inputs, target="cpu", capture=capture)
    return (
        [
            (
                op.operator, op.arguments.replace('"meta"', '"cpu"'), op.phase, op.macs,
                op.pointwise_flops, op.bytes_read, op.bytes_written,
            )
            for op in profile.ops
        ],
        [(t.op_id, t.output_index, t.dtype, *_geometry(t)) for t in profile.tensors],
        _lives(profile),
    )  # fmt: skip


def _copy(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def _geometry(tensor: Any) -> tuple[Any, ...]:
    """Return shape, strides and offset, without strides that reach no element."""
    shape, stride = json.loads(tensor.shape), json.loads(tensor.stride)
    if 0 in shape:
        return (shape,)
    return shape, [s for s, n in zip(stride, shape, strict=True) if n > 1], tensor.storage_offset


def _lives(profile: Profile) -> list[tuple[Any, ...]]:
    return sorted(
        (s.birth_op_id, s.death_op_id, s.size_bytes, s.storage_class) for s in profile.storages
    )


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_operators_are_recorded_on_meta_as_they_run_on_the_cpu(shard: int) -> None:
    """Every sample of an operator agrees; where a difference is known, it is still there."""
    wrong: list[str] = []
    warnings.simplefilter("ignore")
    for op in op_db[shard::SHARDS]:
        name = f"{op.name}.{op.variant_test_name}".removesuffix(".")
        if name.startswith(NOT_RUN):
            continue
        agrees = []
        for sample in _samples(op):
            try:
                agrees.append(_rows(op, sample, "meta") == _rows(op, sample, "real"))
            except Exception as error:  # noqa: BLE001  # reported with the others
                agrees.append(False)
                if name not in DIFFERENT:
                    wrong.append(f"{name}: {error}")
        if all(agrees) == (name in DIFFERENT):
            wrong.append(f"{name}: {agrees}")
    assert not wrong


@pytest.mark.parametrize("target", ["cuda", "cpu"])
def test_a_reduced_loss_holds_its_elements(target: str) -> None:
    """The mean of 20 squared errors lies in the 80 bytes that they were computed in."""
    x = torch.ones(4, 5, requires_grad=True)
    assert nn.functional.mse_loss(x, x.detach()).untyped_storage().nbytes() == 80
    profile = profile_model(nn.MSELoss(), (x, x.detach()), target=target)
    loss = next(t for t in profile.tensors if t.op_id == 0)
    assert (loss.shape, loss.size_bytes) == ("[]", 4)
    assert profile.storages[loss.storage_id].size_bytes == 80
