"""Tensors in plain attributes and closures: found when used, there from the start."""

from __future__ import annotations

import torch
from torch import nn
from zoo_profiles import check_profile

from exporter import profile_model


class _Anchored(nn.Module):
    """Uses a tensor of a list after two other calls."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(4, 4)
        self.anchors = [torch.ones(8, 4)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.line(x)) + self.anchors[0].sum()


def test_constant_found_late_counts_once_from_the_start() -> None:
    """Live bytes of every step follow from births and deaths; module sums equal totals."""
    profile = profile_model(_Anchored(), (torch.zeros(2, 4),), target="meta")
    check_profile(profile)
    totals = profile.totals
    assert totals.buffer_bytes == 8 * 4 * 4
    assert sum(profile.modules.column("buffer_bytes")) == totals.buffer_bytes
    assert sum(profile.mem_stats.column("buffer_bytes")) == totals.buffer_bytes
    # weight 64, bias 16, input 32, constant 128; then the line's output 32
    assert profile.ops[1].live_bytes == 64 + 16 + 32 + 128 + 32
    line = profile.nodes.column("name").index("line")
    assert profile.mem_stats[line].fwd_transient_bytes == 0
