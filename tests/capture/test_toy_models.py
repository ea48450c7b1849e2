"""Toy models, each for one hazard, with figures derived by hand.

A layer of width 4 on 2 rows takes 2 * 4 * 4 = 32 multiply-adds, makes 2 * 4 * 4 = 32 bytes and has
4 * 4 * 4 = 64 bytes of parameters. Backward takes 32 for the weight and 32 for the input, if
something before it wants a gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import toy_models as toy
from torch import nn

from exporter import profile_model
from exporter.errors import TraceError

if TYPE_CHECKING:
    from store.records import Profile

LAYER = 32  # multiply-adds, and bytes of output


def _profile(model: nn.Module, *args: Any, **options: Any) -> Profile:
    return profile_model(model, args, target="cpu", **options)


def _x(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape or (2, 4), dtype=dtype, device="meta")


def _names(profile: Profile) -> list[str]:
    return [node.name for node in profile.nodes]


def _edges(profile: Profile, *kinds: str) -> list[tuple[str, str, int]]:
    names = _names(profile)
    return [
        (names[e.src_node_id], names[e.dst_node_id], e.size_bytes)
        for e in profile.edges
        if not kinds or e.kind in kinds
    ]


def _macs(profile: Profile) -> tuple[int, int]:
    return profile.totals.fwd_macs, profile.totals.bwd_macs


def test_packed_tensors_are_found() -> None:
    """Tensors in dicts, lists, dataclasses are inputs and outputs; one that repeats is one."""
    x, other = _x(), _x(2, 3)
    profile = _profile(
        toy.Packed(), {"nested": [x, x]}, toy.Pair(other), kwargs={"extra": None, "text": "no"}
    )
    assert _names(profile) == ["batch_0", "pair", "lin", "add", "mul", "output"]
    assert _edges(profile) == [
        ("batch_0", "lin", 32),
        ("lin", "add", 24),
        ("pair", "add", 24),
        ("add", "mul", 24),
        *[("lin", "output", 24)] * 3,
        ("mul", "output", 24),
    ]
    assert profile.totals.input_bytes == 32 + 24
    assert _macs(profile) == (2 * 4 * 3, 2 * 4 * 3)
    # The two outputs are kept; the sum between them is read by nothing in backward. Autograd keeps
    # the factor 3 as an integer of 8 bytes, which on a CPU is the device's memory.
    assert [stat.kept_bytes for stat in profile.mem_stats] == [0, 0, 24, 0, 24 + 8, 0]
    # One seed of ones for each of two distinct outputs.
    seeds = [op for op in profile.ops if op.operator == "aten.ones_like.default"]
    assert [seed.node_id for seed in seeds] == [-1, -1]


def test_packed_real_tensors_are_copied() -> None:
    """A dataclass of real tensors is copied as a whole, and stays as it was."""
    pair = toy.Pair(torch.ones(2, 3))
    profile = _profile(toy.Packed(), {"nested": [torch.ones(2, 4)]}, pair)
    assert profile.totals.capture == "meta"
    assert not any(storage.is_host for storage in profile.storages)
    assert torch.equal(pair.first, torch.ones(2, 3))


def test_shared_module_is_one_module_with_two_calls() -> None:
    """Its parameters count once, its work twice, and its gradients are summed."""
    profile = _profile(toy.Shared(), _x())
    assert _names(profile) == ["x", "a", "a_1", "output"]
    assert [(m.path, m.call_count) for m in profile.modules] == [("", 1), ("a", 2)]
    assert profile.totals.param_bytes == 64
    assert _macs(profile) == (2 * LAYER, 3 * LAYER)
    assert profile.totals.bwd_pointwise_flops == 16  # one sum of two gradients of 4 by 4
    assert [s.param_bytes for s in profile.mem_stats] == [0, 64, 0, 0]
    assert [s.kept_bytes for s in profile.mem_stats] == [0, 32, 32, 0]


def test_unused_module_has_bytes_and_no_calls() -> None:
    """A layer that is never called is listed with its parameters and takes no part."""
    profile = _profile(toy.Unused(), _x())
    assert [(m.path, m.call_count, m.fw_pre_order) for m in profile.modules][2] == ("idle", 0, -1)
    assert profile.totals.param_bytes == 2 * 64
    assert _macs(profile) == (LAYER, LAYER)
    gradients = [s for s in profile.storages if s.storage_class == "gradient"]
    assert 64 in [s.size_bytes for s in gradients if s.death_op_id == profile.totals.op_count]
    assert sum(stat.grad_bytes for stat in profile.mem_stats) == 64


def test_frozen_layer_gets_no_gradient() -> None:
    """Freezing the first layer spares its own gradient and the second's towards its input."""
    model = nn.Sequential(toy.square(), toy.square())
    model[0].requires_grad_(False)
    profile = _profile(model, _x())
    assert _macs(profile) == (2 * LAYER, LAYER)
    assert sum(stat.grad_bytes for stat in profile.mem_stats) == 64


def test_hooks_take_part() -> None:
    """What hooks change is followed: edges from the input given, to the output returned."""
    profile = _profile(toy.Hooked(), _x())
    assert _names(profile) == ["x", "lin", "repeat", "output"]
    assert _edges(profile) == [("x", "lin", 32), ("lin", "repeat", 32), ("repeat", "output", 64)]
    assert _macs(profile) == (LAYER, LAYER)
    assert profile.totals.fwd_pointwise_flops == 8  # the hook's addition
    # The changed input (32) is saved for the weight's gradient; the repeated output is 64.
    assert [s.kept_bytes for s in profile.mem_stats] == [0, 32, 64, 0]


def test_custom_function_is_linked_to_its_forward() -> None:
    """The backward of a custom function belongs to the calls in its forward."""
    profile = _profile(toy.Custom(), _x())
    assert _names(profile) == ["x", "lin", "mul", "mul_1", "output"]
    assert profile.totals.fwd_pointwise_flops == 2 * 8
    assert profile.totals.bwd_pointwise_flops == 3 * 8
    products = [
        op for op in profile.ops if (op.phase, op.operator) == ("backward", "aten.mul.Tensor")
    ]
    assert {_names(profile)[op.node_id] for op in products} == {"mul"}
    # Saved: the layer's output. The square between is gone, the cube is the output.
    assert profile.totals.kept_bytes == 2 * 32


def test_tensors_made_inside_are_on_the_device() -> None:
    """Tensors made in forward and plain attributes join the model's device."""
    profile = _profile(toy.MadeInside(), _x())
    assert _macs(profile) == (2 * LAYER, 2 * LAYER)  # layer and mask; gradients of both
    assert profile.totals.buffer_bytes == 16  # the gain
    assert not any(storage.is_host for storage in profile.storages)
    # The mask is saved for backward (64), the result is the output (32); the positions are gone.
    assert profile.totals.kept_bytes == 64 + 32


def test_expanded_and_empty_tensors_count_their_storage() -> None:
    """A view of 100 rows has no bytes of its own, and a product of no rows no work."""
    profile = _profile(toy.Expanded(), _x(1, 4))
    assert _macs(profile) == (16, 16)
    assert profile.totals.kept_bytes == 16
    names = _names(profile)
    stats = {names[s.node_id]: s for s in profile.mem_stats}
    assert stats["expand"].fwd_out_bytes == 0
    assert stats["lin_1"].fwd_out_bytes == 0
    assert ("lin", "expand", 16) in _edges(profile, "alias")


def test_write_into_a_view_waits_for_readers() -> None:
    """The write comes after the whole was read, and what reads later reads what was written."""
    profile = _profile(toy.WritesView(), _x(), backward=False)
    assert _names(profile) == ["x", "mul", "mul_1", "getitem", "add", "add_1", "output"]
    assert ("mul_1", "add", 0) in _edges(profile, "control")
    assert ("add", "add_1", 32) in _edges(profile, "data")
    assert ("mul", "add_1", 32) not in _edges(profile)
    assert all(edge.src_node_id < edge.dst_node_id for edge in profile.edges)


@pytest.mark.parametrize(("use_reentrant", "repeated"), [(True, 2), (False, 1)])
def test_checkpoint_is_a_phase_of_its_own(*, use_reentrant: bool, repeated: int) -> None:
    """Recomputed operators are linked to what they repeat, and the block keeps only its output.

    Without re-entering, torch stops as soon as what backward needs is there: before the last layer.
    """
    profile = _profile(toy.Checkpointed(use_reentrant=use_reentrant), _x())
    again = [op for op in profile.ops if op.phase == "recompute"]
    assert sum(op.macs for op in again) == repeated * LAYER
    names = _names(profile)
    products = [op for op in again if op.operator == "aten.mm.default"]
    assert [names[op.node_id] for op in products] == ["block.0", "block.2"][:repeated]
    for op in again:
        if op.operator in {"aten.mm.default", "aten.tanh.default"}:
            assert profile.ops[op.fwd_op_id].operator == op.operator
            assert profile.ops[op.fwd_op_id].node_id == op.node_id
    # Three layers, of which two hand gradients on: recomputation is no part of either sum.
    assert _macs(profile) == (3 * LAYER, 5 * LAYER)
    assert profile.totals.kept_bytes == 32 + 32  # the block's input and its output
    assert [op.operator for op in profile.ops if op.node_id < 0] == ["aten.ones_like.default"]


def test_without_checkpoint_the_block_keeps_its_insides() -> None:
    """The same model without checkpointing keeps the hyperbolic tangent's output as well."""
    profile = _profile(toy.Checkpointed(use_reentrant=False, again=False), _x())
    assert not [op for op in profile.ops if op.phase == "recompute"]
    # The stem's output, the tangent's and the last layer's; the block's first output is read by
    # nothing in backward.
    assert profile.totals.kept_bytes == 3 * 32


def test_failure_names_module_and_line() -> None:
    """A model that raises is reported with its message, the module's path and the line."""
    with pytest.raises(TraceError, match=r"no 2 dimensions.*'part' \(toy_models\.py:\d+\)"):
        _profile(toy.Raises(), _x())


def test_parameter_list_is_found() -> None:
    """Parameters in a list are parameters, each used by its own call."""
    profile = _profile(toy.Listed(), _x())
    assert profile.totals.param_bytes == 3 * 16
    assert [s.param_bytes for s in profile.mem_stats] == [0, 16, 16, 16, 0]
    assert [s.grad_bytes for s in profile.mem_stats] == [0, 16, 16, 16, 0]
    # Each product's input is saved: the model's own input, then two products; and the output.
    assert profile.totals.kept_bytes == 3 * 32
    assert [s.fwd_in_bytes for s in profile.mem_stats] == [0, 32, 32, 32, 0]


def test_weight_norm_has_two_parameters() -> None:
    """Direction and length are the parameters; the weight is made in every forward."""
    profile = _profile(toy.weight_normed(), _x())
    assert profile.totals.param_count == 4 * 3 + 3
    assert _macs(profile) == (2 * 4 * 3, 2 * 4 * 3)
    # Output, and the three rows' norms; the weight itself is not needed without an input gradient.
    assert profile.totals.kept_bytes == 2 * 3 * 4 + 3 * 4


def test_spectral_norm_iterates() -> None:
    """One step of power iteration takes two products with the weight, its estimate a third."""
    profile = _profile(toy.spectral_normed(), _x())
    assert profile.totals.buffer_bytes == (3 + 4) * 4
    assert profile.totals.fwd_macs == 3 * (3 * 4) + 3 + 2 * 4 * 3


def test_compiled_part_runs_as_written() -> None:
    """A compiled layer is recorded like the layer that it was made from."""
    with pytest.warns(UserWarning, match="global hooks"):
        profile = _profile(toy.compiled(), _x())
    plain = _profile(nn.Sequential(toy.square(), nn.ReLU()), _x())
    assert [op.operator for op in profile.ops] == [op.operator for op in plain.ops]
    assert _macs(profile) == (LAYER, LAYER)
    assert profile.totals.kept_bytes == plain.totals.kept_bytes == 32  # the rectifier's output


def test_complex_product_is_four_real_ones() -> None:
    """A complex multiply-add counts four, and a complex number has eight bytes."""
    profile = _profile(toy.Complex(), _x(2, 4, dtype=torch.complex64))
    assert _macs(profile) == (4 * 2 * 4 * 3, 4 * 2 * 4 * 3)
    assert profile.totals.param_bytes == 4 * 3 * 8
    assert profile.totals.kept_bytes == 2 * 3 * 8


def test_tied_embedding_is_one_parameter() -> None:
    """Integer inputs get no gradient; the tied weight counts once and has one gradient."""
    profile = _profile(toy.Tokens(), torch.zeros(2, 3, dtype=torch.long))
    assert _macs(profile) == (6 * 4 * 10, 2 * 6 * 4 * 10)
    assert profile.totals.param_bytes == 10 * 4 * 4
    # One gradient is left; backward made one per use and summed them.
    assert sum(stat.grad_bytes for stat in profile.mem_stats) == 10 * 4 * 4
    assert profile.totals.kept_bytes == 6 * 4 * 4 + 6 * 10 * 4


def test_lstm_is_one_call() -> None:
    """Each step takes four gates of hidden size from input and state."""
    profile = profile_model(nn.LSTM(4, 5, batch_first=True), (_x(2, 3, 4),))
    assert _names(profile) == ["input", "lstm", "output"]
    assert profile.totals.fwd_macs == 2 * 3 * 4 * 5 * (4 + 5)
    assert profile.nodes[1].shape == "[2, 3, 5]"
    assert len(_edges(profile)) == 1 + 3  # output, hidden and cell state


def test_attention_of_a_tensor_with_itself_has_one_input() -> None:
    """Query, key and value are one tensor: one input, three uses, and products counted dense."""
    x = _x(2, 3, 8)
    model = nn.MultiheadAttention(8, 2, batch_first=True)
    profile = profile_model(model, (x, x, x), {"need_weights": False})
    assert _names(profile) == ["query", "multiheadattention", "output"]
    projections, scores, output = 3 * 6 * 8 * 8, 2 * 2 * 2 * 3 * 3 * 4, 6 * 8 * 8
    assert profile.totals.fwd_macs == projections + scores + output
    assert profile.totals.input_bytes == 2 * 3 * 8 * 4


def test_transformer_layer_is_taken_apart() -> None:
    """A transformer layer is no leaf: its parts are calls, and its work is their sum."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    profile = profile_model(layer, (_x(2, 3, 8),))
    assert [n.name for n in profile.nodes if n.kind == "call_module"] == [
        "self_attn", "dropout1", "norm1", "linear1", "dropout", "linear2", "dropout2", "norm2",
    ]  # fmt: skip
    attention = 3 * 6 * 8 * 8 + 2 * 2 * 2 * 3 * 3 * 4 + 6 * 8 * 8
    assert profile.totals.fwd_macs == attention + 2 * 6 * 8 * 16
