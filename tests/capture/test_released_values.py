"""Values go when nobody can ask for them any more, and a recording goes with its run."""

from __future__ import annotations

import gc
import math
from typing import TYPE_CHECKING

import pytest
import torch
from tiny_detectors import SIDE, drawn_profile, tiny_faster_rcnn, tiny_retinanet
from torch import nn

from exporter import profile_model
from exporter.capture.state import Recording
from exporter.capture.values.storage_value import LazyCall, StorageValue
from exporter.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable

ELEMENTS = 1 << 13  # enough that a value is worked out only when somebody asks


class Mixed(nn.Module):
    """Combines a large determined table with a number that lives on the host."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        number = torch.tensor(2) + 1
        table = torch.arange(ELEMENTS, device=x.device) * number
        return x * table[:4]


class Rounds(nn.Module):
    """Makes a large determined table in each round, decides by it, and drops it."""

    def __init__(self, rounds: int, tables: list[int]) -> None:
        super().__init__()
        self.rounds = rounds
        self.note = tables.append  # of how many are alive on the host at the end

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for step in range(self.rounds):
            table = torch.arange(ELEMENTS, device=x.device) * step
            if (table > step).any():  # true from the second round on
                x = x * 2
            del table
        with torch._C.DisableTorchFunction():
            self.note(
                sum(
                    type(one) is torch.Tensor and one.is_cpu and one.numel() == ELEMENTS
                    for one in gc.get_objects()
                )
            )
        return x


class Broken(nn.Module):
    """Decides by a drawn value, then fails."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(SIDE, 2)

    def forward(self, images: list[torch.Tensor]) -> torch.Tensor:
        if self.lin(images[0]).sum() < math.inf:
            raise RuntimeError("as expected")
        return images[0]


def _failed() -> None:
    with pytest.raises(TraceError, match="as expected"):
        drawn_profile(Broken, train=False)


def _alive() -> int:
    """Return how many objects of recordings there are."""
    while gc.collect():  # what tensors hold in C++ becomes rubbish only when they are gone
        pass
    kinds = (Recording, StorageValue, LazyCall)
    return sum(type(one) in kinds for one in gc.get_objects())


@pytest.mark.parametrize(
    "profile",
    [
        lambda: drawn_profile(tiny_faster_rcnn, train=True),
        lambda: drawn_profile(tiny_retinanet, train=True),
        lambda: profile_model(Mixed(), (torch.empty(4, device="meta"),)),
        lambda: profile_model(Rounds(2, []), (torch.empty(4, device="meta"),)),
        _failed,
    ],
    ids=["two-stage", "one-stage", "mixed", "rounds", "failed"],
)
def test_recording_goes_with_its_run(profile: Callable[[], object]) -> None:
    """A profile leaves no recording, no value and no operator that would work one out."""
    before = _alive()
    profile()
    assert _alive() == before


def test_values_go_with_their_storage() -> None:
    """Tables that the model has dropped take no memory of the host while it goes on."""
    tables: list[int] = []
    profile = profile_model(Rounds(8, tables), (torch.empty(4, device="meta"),), backward=False)
    assert [op.operator for op in profile.ops].count("aten.mul.Tensor") == 8 + 7
    assert tables == [0]
