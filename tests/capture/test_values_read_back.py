"""Values that a model's code reads back while it is recorded, against what torch computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from exporter import profile_model

TARGETS = ("cuda", "cpu", "meta")


def _table(device: str | None) -> torch.Tensor:
    return torch.arange(12, device=device).view(3, 4)


def _selected(device: str | None) -> list[Any]:
    """Return what masks and indices select, as tensors and as Python data."""
    a = _table(device)
    mask = a % 3 == 0
    rows = torch.tensor([2, 0], device=device)
    return [
        a[mask].tolist(),
        a[mask.any(1)].tolist(),
        a[rows].tolist(),
        a[[2, 0]].tolist(),
        a[:, [0, 2]].tolist(),
        a[:, (3, 1)].tolist(),
        a[range(2)].tolist(),
        a[[]].tolist(),
        a[[True, False, True]].tolist(),
        a[[[0, 1], [2, 3]]].tolist(),
        a[1, [[0, 1], [2, 3]]].tolist(),
        a[np.array([1, 1])].tolist(),
        a[np.int64(1)].tolist(),
        mask.nonzero().tolist(),
        torch.argwhere(mask).tolist(),
        torch.where(mask)[0].tolist(),
        torch.where(mask, a, -a).tolist(),
        torch.masked_select(a, mask).tolist(),
        a.take(rows).tolist(),
        torch.repeat_interleave(torch.tensor([1, 0, 2], device=device)).tolist(),
    ]


def _written(device: str | None) -> list[Any]:
    """Return a table after each of several writes."""
    a = _table(device)
    mask = a % 3 == 0
    one = torch.tensor([0, 1], device=device)
    found = []
    b = a.clone()
    b[mask] = -1
    found.append(b.tolist())
    b[1] = 7
    found.append(b.tolist())
    b[mask] = b[mask] * 2
    found.append(b.tolist())
    b[one, one + 1] += 5
    found.append(b.tolist())
    b[:, [1, 3]] = 0
    found.append(b.tolist())
    b[[0, 2]] = one.repeat(2)
    found.append(b.tolist())
    c = torch.zeros(3, 4, device=device)
    c.index_add_(0, torch.tensor([0, 2], device=device), torch.ones(2, 4, device=device))
    c.scatter_(1, a % 4, 9.0)
    c.masked_fill_(mask, 3)
    found.append(c.tolist())
    return found


def _computed(device: str | None) -> list[Any]:
    """Return what sorting, counting and reducing yield."""
    a = _table(device)
    mask = a % 3 == 0
    f = a.float() / 3
    return [
        f.sort(descending=True)[1].tolist(),
        f.topk(2)[0].tolist(),
        f.mean().item(),
        int(a.max()),
        bool(mask.all()),
        torch.count_nonzero(mask).item(),
        torch.unique(a % 4).tolist(),
        torch.unique_consecutive(a // 3).tolist(),
        torch.bincount(a.flatten() % 3).tolist(),
        a.cumsum(1).flip(0).roll(1).tolist(),
        torch.searchsorted(
            torch.tensor([1, 3, 5], device=device), torch.tensor([2, 4], device=device)
        ).tolist(),
        torch.isin(a, torch.tensor([1, 2], device=device)).tolist(),
        nn.functional.one_hot(a % 3).tolist(),
        [part.tolist() for part in torch.split(a.flatten(), [2, 4, 6])],
        torch.equal(a, a.clone()),
    ]


def _shared(device: str | None) -> list[Any]:
    """Return what is seen through one view after a write through another, or of another type."""
    a = torch.arange(6, device=device)
    a.view(2, 3).t()[0, 1] = 100
    z = torch.arange(4, device=device) * (1 + 2j)
    conjugate = z.conj()
    imaginary = conjugate.imag.tolist()
    conjugate.clone()[0] = 5j
    z[1] = 3j
    words = torch.zeros(4, dtype=torch.int32, device=device)
    words.view(torch.int16)[2] = 7
    turned = torch.arange(9, device=device).reshape(3, 3)
    turned.t_()
    shorter = torch.arange(3, device=device)
    shorter.resize_(2)
    before = torch.ones(3, device=device)
    after = before * 2
    before.zero_()
    strided = torch.arange(10, device=device)[::2]
    strided.mul_(3)
    parts = torch.arange(6, device=device).split(2)
    parts[1].fill_(9)
    return [
        a.tolist(),
        imaginary,
        conjugate.tolist(),
        words.tolist(),
        (turned > 3).nonzero()[:, 1].tolist(),
        shorter.tolist(),
        before.tolist(),
        after.tolist(),
        strided.tolist(),
        [part.tolist() for part in parts],
    ]


def _handed_over(device: str | None) -> list[Any]:
    """Return what is written from the device to the host, into ``out``, and by a changed array."""
    a = torch.arange(4, device=device)
    count = torch.zeros((), dtype=torch.long, device="cpu")
    count.add_(a.sum())
    copied = torch.zeros(4, dtype=torch.long, device="cpu")
    copied.copy_(a)
    copied[0] = a[3]
    grown = torch.empty(0, dtype=a.dtype, device=device)
    torch.add(a, a, out=grown)
    large = torch.zeros(10_000, device=device)
    places = np.arange(0, 10_000, 2)
    large[places] = 1
    places[:] = 0
    odd = torch.arange(5, dtype=torch.int16, device=device)
    wide = odd[:4].view(torch.int32)
    return [
        int(count), copied.tolist(), grown.tolist(), float(large.sum()), wide.tolist(),
    ]  # fmt: skip


def _repeated(device: str | None) -> list[Any]:
    """Return tables, small and large, after thousands of steps, half of them in place."""
    found = []
    for size in (8, 1 << 13):
        table = torch.arange(size, device=device)
        for step in range(1000):
            table = table + 1 if step % 2 else table.add_(1)
        found.append(table[-2:].tolist())
    return found


class _Reads(nn.Module):
    def __init__(self, read: Any, device: str | None) -> None:
        super().__init__()
        self.read, self.device = read, device
        self.found: list[Any] = []

    def __deepcopy__(self, _: dict[int, Any]) -> _Reads:
        return self  # so that what was found can be seen

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.found = self.read(self.device)
        return x * 2


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("device", ["cpu", None])
@pytest.mark.parametrize("read", [_selected, _written, _computed, _shared, _handed_over, _repeated])
def test_values_are_those_that_torch_computes(read: Any, device: str | None, target: str) -> None:
    """Tensors of the device whose values are determined, and host tensors, are read back right."""
    model = _Reads(read, device)
    profile = profile_model(model, (torch.ones(2, requires_grad=True),), target=target)
    assert profile.info.capture == "meta"
    assert model.found == read("cpu")


class _Columns(nn.Module):
    def __init__(self, index: Any) -> None:
        super().__init__()
        self.index = index

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, self.index() if callable(self.index) else self.index]


@pytest.mark.parametrize("index", [[0, 2], (0, 2), range(0, 3, 2), np.array([0, 2])])
def test_table_of_indices_lives_on_the_device_and_is_kept(index: Any) -> None:
    """A table in Python data is a tensor of two int64 that backward needs, as one made before is.

    Forward keeps 3 x 2 floats of the result and the two indices.
    """
    x = torch.ones(3, 4, requires_grad=True)
    found = profile_model(_Columns(index), (x,))
    given = profile_model(_Columns(lambda: torch.tensor([0, 2])), (x,))
    assert found.totals.kept_bytes == given.totals.kept_bytes == 24 + 16
    assert found.totals.buffer_bytes == 0
    assert [n.name for n in found.nodes] == ["x", "getitem", "output"]
    assert found.ops.column("operator") == [
        name for name in given.ops.column("operator") if name != "aten._to_copy.default"
    ]


class _Mapped(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda row: row[[0, 2]] * row.new_tensor([1.0, 2.0]))(x)


def test_tables_inside_vmap_are_left_to_torch() -> None:
    """The rows' table is made for all of them: 3 x 2 results, as without a recording."""
    profile = profile_model(_Mapped(), (torch.ones(3, 4, requires_grad=True),))
    assert profile.nodes[-1].name == "output"
    product = next(op for op in profile.ops if op.operator == "aten.mul.Tensor")
    assert product.pointwise_flops == 6
