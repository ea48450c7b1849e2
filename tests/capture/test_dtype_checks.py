"""What torch refuses on a device is refused on meta, in one line."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from exporter import profile_model
from exporter.errors import TraceError


class _Calls(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.function(*args)
        return result


HALF, FULL = torch.ones(4, 4, dtype=torch.bfloat16), torch.ones(4, 4)


@pytest.mark.parametrize(
    ("function", "args", "text"),
    [
        (torch.mm, (HALF, FULL), "bfloat16 and float32"),
        (torch.matmul, (FULL, FULL.double()), "float32 and float64"),
        (torch.bmm, (HALF[None], FULL[None]), "bfloat16 and float32"),
        (functional.linear, (FULL.long(), FULL, FULL[0]), "float32 and int64"),
        (torch.addmm, (FULL, HALF, HALF), "float32 and bfloat16"),
        (functional.cross_entropy, (FULL, FULL[0]), "classes must be int64, not float32"),
    ],
)
def test_types_that_do_not_fit_are_refused(
    function: Any, args: tuple[torch.Tensor, ...], text: str
) -> None:
    """Torch refuses each when it really runs; here the message names the types and the operator."""
    with pytest.raises(RuntimeError):
        function(*args)
    for target in ("cuda", "cpu"):
        with pytest.raises(TraceError, match=f"{text}.* in operator aten"):
            profile_model(_Calls(function), args, target=target, capture="meta")


def test_integer_products_are_refused_for_cuda_only() -> None:
    """The CPU multiplies matrices of integers, CUDA does not."""
    whole = torch.ones(4, 4, dtype=torch.int64)
    assert profile_model(_Calls(torch.mm), (whole, whole), target="cpu").totals.fwd_macs == 64
    with pytest.raises(TraceError, match="int64 do not exist on CUDA"):
        profile_model(_Calls(torch.mm), (whole, whole), target="cuda", capture="meta")


def test_what_is_no_model_and_no_tuple_is_refused() -> None:
    """A function and a bare tensor are frequent slips: each message says what to pass."""
    with pytest.raises(TypeError, match="wrap a function in one"):
        profile_model(torch.relu, (FULL,))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"as a tuple: \(x,\)"):
        profile_model(nn.ReLU(), FULL)  # type: ignore[arg-type]


def test_inference_says_that_there_was_no_backward() -> None:
    """So that it is another profile than that of training, and both can be stored."""
    with torch.no_grad():
        info = profile_model(nn.Linear(4, 4), (FULL,)).info
    assert not info.backward
    assert profile_model(nn.Linear(4, 4), (FULL,)).info.backward
