"""Allocator columns of profiles, and models hard to trace: cases, and others of each kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from case_models import profile_call
from torch import nn

from exporter import profile_model
from exporter.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable

K, M = 1 << 10, 1 << 20
TARGETS = ("cuda", "cpu", "meta")


def byte_model(*sizes: int) -> nn.Module:
    """Return a model whose buffers have these sizes in bytes, in this order."""
    model = nn.Module()
    for i, size in enumerate(sizes):
        model.register_buffer(f"b{i}", torch.empty(size, dtype=torch.int8, device="meta"))
    model.forward = lambda x: x  # type: ignore[method-assign]
    return model


# --- A01 to A04: the allocator's columns --------------------------------------------------------

ALLOCATED: dict[str, tuple[tuple[int, ...], int, int]] = {
    # sizes in bytes, allocated and reserved bytes of the model alone
    "rounding": ((0, 1, 511, 512, 513), 2560, 2 * M),
    "19.5 MiB": ((39 * M // 2,), 20 * M, 20 * M),
    "19 MiB": ((19 * M,), 20 * M, 20 * M),
    "19 MiB less 512": ((19 * M - 512,), 19 * M - 512, 20 * M),
    # Others.
    "a byte": ((1,), 512, 2 * M),
    "1 MiB": ((M,), M, 2 * M),
    "two of 1 MiB": ((M, M), 2 * M, 2 * M),
    "three of 1 MiB": ((M, M, M), 3 * M, 4 * M),
    "a byte above 1 MiB": ((M + 1,), M + 512, 20 * M),
    "just below 10 MiB": ((10 * M - 512,), 10 * M - 512, 20 * M),
    "two just below 10 MiB": ((10 * M - 512, 10 * M - 512), 2 * (10 * M - 512) + 1024, 20 * M),
    "10 MiB": ((10 * M,), 10 * M, 10 * M),
    # 12 MiB are reserved; what is left is above 1 MiB and split off.
    "10 MiB and a byte": ((10 * M + 1,), 10 * M + 512, 12 * M),
    "small and large": ((1, 2 * M), 512 + 2 * M, 22 * M),
}
# 20 MiB hold two requests of 10 MiB less 512 bytes; the 1,024 bytes that are left are less than
# what is split off (more than 1 MiB), so they belong to the second.


@pytest.mark.parametrize("name", ALLOCATED)
def test_model_is_allocated_by_the_published_rules(name: str) -> None:
    """Blocks round up to 512 bytes and keep tails that are not split off."""
    sizes, allocated, reserved = ALLOCATED[name]
    totals = profile_model(byte_model(*sizes), (torch.empty(0),), backward=False).totals
    assert totals.buffer_bytes == sum(sizes)
    assert totals.model_allocated_bytes == allocated
    assert totals.peak_reserved_bytes == reserved


def test_requested_and_allocated_differ_only_for_a_gpu() -> None:
    """Other targets have no such allocator."""
    for target in ("cpu", "meta"):
        totals = profile_model(byte_model(1, 513), (torch.empty(0),), target=target,
                               backward=False).totals  # fmt: skip
        assert totals.model_allocated_bytes == totals.peak_reserved_bytes == 514


def fragmenting(x: torch.Tensor) -> torch.Tensor:
    """Allocate 6, 6 and 6 MiB, free the first and third, then ask for 9 and 5.5."""

    def make(size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.int8, device=x.device)

    a, b, c = make(6 * M), make(6 * M), make(6 * M)
    del a, c
    d = make(9 * M)
    e = make(11 * M // 2)
    return b, d, e  # type: ignore[return-value]


def test_fragmented_memory_is_reserved_twice() -> None:
    """A03: 21 MiB allocated for 20.5 requested, 40 reserved."""
    totals = profile_call(fragmenting, torch.empty(0), backward=False).totals
    assert totals.kept_bytes == 20 * M + M // 2
    assert totals.forward_allocated_bytes == 21 * M
    assert totals.peak_reserved_bytes == 40 * M


def test_freed_neighbours_serve_a_larger_request() -> None:
    """Two holes of 6 MiB side by side, and the rest of the segment, are one of 14 MiB and more."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        a = torch.empty(6 * M, dtype=torch.int8, device=x.device)
        b = torch.empty(6 * M, dtype=torch.int8, device=x.device)
        del a, b
        return torch.empty(9 * M, dtype=torch.int8, device=x.device)

    totals = profile_call(forward, torch.empty(0), backward=False).totals
    assert (totals.forward_allocated_bytes, totals.peak_reserved_bytes) == (9 * M, 20 * M)


def test_workspace_of_products_is_listed_apart() -> None:
    """A04: 8,519,680 bytes on their own line; the layer's four tensors are 2,048."""
    totals = profile_model(nn.Linear(1, 1), (torch.zeros(1, 1),), backward=False).totals
    assert totals.workspace_bytes == 8519680
    assert totals.forward_allocated_bytes == 2048
    assert profile_call(torch.cos, torch.zeros(1)).totals.workspace_bytes == 0
    on_cpu = profile_model(nn.Linear(1, 1), (torch.zeros(1, 1),), target="cpu").totals
    assert on_cpu.workspace_bytes == 0


def test_addresses_of_storages_alive_together_do_not_overlap() -> None:
    """The plan of a chain places every block in reserved memory, apart from its contemporaries."""
    net = nn.Sequential(*(nn.Sequential(nn.Linear(300, 300), nn.GELU()) for _ in range(4)))
    profile = profile_model(net, (torch.zeros(64, 300),), optimizer="adam")
    placed = [s for s in profile.storages if s.address >= 0]
    for i, a in enumerate(placed):
        for b in placed[:i]:
            together = a.birth_op_id <= b.death_op_id and b.birth_op_id <= a.death_op_id
            apart = a.address + a.block_bytes <= b.address or b.address + b.block_bytes <= a.address
            assert apart or not together


# --- T01: values --------------------------------------------------------------------------------


class ByShape(nn.Module):
    """Branches on what is known."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return twice a large batch."""
        return x * 2 if x.shape[0] > 2 else x


class ByValue(nn.Module):
    """Branches on what is not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return twice a positive batch."""
        return x * 2 if x.sum() > 0 else x


class Pick(nn.Module):
    """Has a result of unknown size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the positive elements."""
        return x[x > 0]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rows", [2, 4])
def test_branches_on_shapes_dtypes_and_modes_are_followed(rows: int, target: str) -> None:
    """The branch that really runs is recorded."""
    meta = torch.zeros(rows, 3, device="meta")
    profile = profile_model(ByShape(), (meta,), target=target)
    assert len(profile.ops) == (1 if rows == 4 else 0)

    def by_dtype(x: torch.Tensor) -> torch.Tensor:
        return x.float() if x.dtype is torch.float16 else x * 2

    half = profile_call(by_dtype, torch.zeros(2, dtype=torch.float16, device="meta"),
                        target=target, backward=False)  # fmt: skip
    assert half.ops.column("operator") == ["aten._to_copy.default"]


UNKNOWN: dict[str, tuple[nn.Module, str]] = {
    "branch": (ByValue(), "aten._local_scalar_dense"),
    "mask": (Pick(), "aten.index"),
}


def _unknown(function: Callable[[torch.Tensor], Any]) -> nn.Module:
    class Inner(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return function(x)

    return Inner()


for _name, _function, _operator in (
    ("nonzero", lambda x: x.nonzero(), "aten.nonzero"),
    ("unique", lambda x: x.unique(), "aten._unique2"),
    ("masked select", lambda x: x.masked_select(x > 0), "aten.masked_select"),
    ("item", lambda x: x * x.max().item(), "aten._local_scalar_dense"),
    ("number", lambda x: x[: int(x.sum())], "aten._local_scalar_dense"),
    ("list", lambda x: x * x.sum(1).tolist()[0], ""),
    ("where", lambda x: torch.where(x > 0)[0], "aten.nonzero"),
    ("repeats", lambda x: x.repeat_interleave(x.sum(1).long(), 0), "aten.repeat_interleave"),
    ("all", lambda x: x if (x > 0).all() else -x, "aten._local_scalar_dense"),
):
    UNKNOWN[_name] = (_unknown(_function), _operator)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_values_are_refused_by_name(name: str, target: str) -> None:
    """Operator and module are named and no size is made up."""
    inner, operator = UNKNOWN[name]
    model = nn.Sequential()
    model.add_module("outer", nn.Sequential())
    model.outer.add_module("chooser", inner)
    with pytest.raises(TraceError) as caught:
        profile_model(model, (torch.zeros(4, 3, device="meta"),), target=target, capture="meta")
    assert operator in str(caught.value)
    assert "outer.chooser" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("value", "elements"), [(1.0, 12), (0.0, 0)])
def test_real_inputs_decide_sizes_in_a_real_run(value: float, elements: int) -> None:
    """Given values, the model runs for real: 12 or 0 elements, and the profile says so."""
    profile = profile_model(Pick(), (torch.full((4, 3), value),), target="cpu", backward=False)
    # Small inputs with values may be known on meta; either way the size is the true one.
    assert profile.nodes[-2].shape == f"[{elements}]"


def test_assumption_is_stored_with_the_profile_and_the_operator() -> None:
    """An upper bound keeps everything and says what was assumed."""
    profile = profile_model(Pick(), (torch.zeros(4, 3, device="meta"),), assume="keep-all")
    assert profile.nodes[-2].shape == "[12]"
    assert profile.info.assumption
    assert any(op.assumption for op in profile.ops)


def test_values_that_follow_from_shapes_are_known() -> None:
    """Positions, masks made of sizes, and numbers read back from them need no input values."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(x.shape[1], device=x.device)
        keep = positions < 2
        if keep.all():
            return x
        return x[:, keep] * positions[keep].sum().item()

    profile = profile_call(forward, torch.zeros(4, 3, device="meta"))
    assert profile.nodes[-2].shape == "[4, 2]"


# --- T02: where tensors are made ----------------------------------------------------------------


class Mask(nn.Module):
    """Makes tensors on the default device and keeps one in a plain attribute."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.gain = torch.ones(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the masked layer."""
        pos = torch.arange(x.shape[1], dtype=torch.float32)
        keep = torch.tril(torch.ones(x.shape[1], x.shape[1]))
        return (self.lin(x) * self.gain + pos) @ keep


class Attributes(nn.Module):
    """Keeps tensors in a list, a dictionary and an object."""

    def __init__(self):
        super().__init__()
        self.tables = [torch.ones(4), torch.ones(4)]
        self.named = {"a": torch.ones(4)}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scaled input."""
        return x * self.tables[0] * self.tables[1] + self.named["a"]


@pytest.mark.parametrize("capture", ["meta", "real"])
@pytest.mark.parametrize("target", TARGETS)
def test_tensors_made_inside_forward_run_where_the_model_runs(target: str, capture: str) -> None:
    """Layer and mask product: 128 FLOPs, output (2, 4), wherever the model was built."""
    with torch.device("meta"):
        on_meta = Mask()
    for model in (Mask(), Mask().to("meta"), on_meta):
        profile = profile_model(model, (torch.zeros(2, 4),), target=target, capture=capture)
        assert 2 * profile.totals.fwd_macs == 128
        assert profile.nodes[-2].shape == "[2, 4]"
    assert profile_model(Attributes(), (torch.zeros(2, 4),), target=target).totals.op_count >= 3


@pytest.mark.parametrize("where", ["cpu", None])
def test_explicit_cpu_tensors_follow_the_model(where: str | None) -> None:
    """``device="cpu"`` inside forward does not stop a recording on meta."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        return x + torch.ones(4, device=where)

    for target in ("cpu", "meta"):
        assert profile_call(forward, torch.zeros(2, 4), target=target).nodes[-2].shape == "[2, 4]"


# --- T03: construction --------------------------------------------------------------------------


class Stack(nn.Module):
    """Reads values while it is built."""

    def __init__(self, depth: int = 4):
        super().__init__()
        rates = [v.item() for v in torch.linspace(0, 0.3, depth)]
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Dropout(r)) for r in rates)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the last layer's result."""
        for layer in self.layers:
            x = layer(x)
        return x


def test_model_built_on_the_cpu_is_profiled_with_its_values() -> None:
    """80 parameters; the rates 0, 0.1, 0.2, 0.3 make three masks of one byte per element."""
    model = Stack()
    profile = profile_model(model, (torch.zeros(2, 4),))
    assert profile.totals.param_count == 80
    masks = [op for op in profile.ops if op.operator == "aten.native_dropout.default"]
    assert len(masks) == 3
    assert profile.info.built_on == "cpu"


def test_model_that_no_machine_holds_is_profiled_from_meta() -> None:
    """2 TiB of bfloat16 weights are reported and none are used."""
    with torch.device("meta"):
        big = nn.Linear(1 << 20, 1 << 20, bias=False, dtype=torch.bfloat16)
    x = torch.empty(1, 1 << 20, dtype=torch.bfloat16, device="meta")
    profile = profile_model(big, (x,), backward=False)
    assert profile.totals.param_bytes == 2199023255552
    assert profile.totals.model_allocated_bytes == 2199023255552
    assert profile.totals.fwd_macs == 1 << 40
    assert profile.info.built_on == "meta"


def test_too_large_a_model_is_not_run_for_real() -> None:
    """Asking for a real run of 2 TiB is refused in a line that says what to do."""
    with torch.device("meta"):
        big = nn.Linear(1 << 20, 1 << 20, bias=False, dtype=torch.bfloat16)
    x = torch.empty(1, 1 << 20, dtype=torch.bfloat16, device="meta")
    with pytest.raises(TraceError, match="GiB"):
        profile_model(big, (x,), capture="real")


def test_lazy_layers_take_their_sizes_from_the_first_input() -> None:
    """A layer that is initialised by its first input is profiled, and stays as it was."""
    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU())
    profile_or_error: Any
    try:
        profile_or_error = profile_model(model, (torch.zeros(2, 5),)).totals.param_count
    except TraceError as error:
        profile_or_error = str(error)
    assert profile_or_error == 18 or "\n" not in str(profile_or_error)
    assert isinstance(model[0], nn.LazyLinear)


def test_compiled_torchscript_is_refused_by_name() -> None:
    """Its weights cannot be moved to another device by a copy."""
    scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 3), nn.ReLU()))
    with pytest.raises(TraceError, match="module 'm' is compiled TorchScript"):
        profile_call(lambda m, x: m(x), torch.zeros(2, 4), members={"m": scripted})


def test_mapped_functions_are_profiled() -> None:
    """A function mapped over a batch runs as its batched operators do."""
    mapped = profile_call(
        lambda w, x: torch.vmap(lambda row: F.linear(row, w))(x),
        torch.zeros(2, 4),
        members={"w": nn.Parameter(torch.ones(3, 4))},
    )
    assert mapped.totals.fwd_macs == 24
