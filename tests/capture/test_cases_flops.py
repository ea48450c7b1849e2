"""FLOPs of whole profiles: cases from public reports, and others of each kind.

Contractions are checked by counting: with every operand one, each product is 1, so the sums of a
real result and of its gradients are the numbers of multiply-adds that made them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from case_models import macs, profile_call
from torch import nn
from torch.utils.checkpoint import checkpoint
from zoo_profiles import profile_of

from exporter import profile_model
from exporter.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.records import Profile

TARGETS = ("cuda", "cpu", "meta")


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a tensor of ones that requires a gradient."""
    return torch.ones(shape, dtype=dtype, requires_grad=True)


def counted(function: Callable[..., torch.Tensor], *operands: torch.Tensor) -> tuple[int, int]:
    """Return forward and backward products by adding up results of a real run on ones."""
    result = function(*operands)
    gradients = torch.autograd.grad(result, operands, torch.ones_like(result))
    return int(result.sum()), sum(int(g.sum()) for g in gradients)


CONVOLUTIONS: dict[str, tuple[Callable[..., torch.Tensor], tuple[int, ...], tuple[int, ...]]] = {
    # F01, then others: x and weight are the only operands.
    "depthwise": (lambda x, w: F.conv2d(x, w, groups=8), (2, 8, 5, 5), (8, 1, 3, 3)),
    "2 groups": (lambda x, w: F.conv2d(x, w, groups=2), (1, 4, 6, 6), (6, 2, 3, 3)),
    "depthwise 1d": (lambda x, w: F.conv1d(x, w, groups=4), (3, 4, 9), (4, 1, 3)),
    "depthwise 3d": (lambda x, w: F.conv3d(x, w, groups=4), (1, 4, 4, 5, 3), (4, 1, 2, 2, 3)),
    "groups 1d, stride": (lambda x, w: F.conv1d(x, w, stride=2, groups=3), (2, 6, 9), (9, 2, 3)),
    "groups 3d": (lambda x, w: F.conv3d(x, w, groups=2), (2, 4, 3, 4, 5), (6, 2, 2, 1, 3)),
    "multiplier": (lambda x, w: F.conv2d(x, w, groups=4), (2, 4, 5, 5), (12, 1, 3, 3)),
    "dilated": (lambda x, w: F.conv2d(x, w, dilation=2, groups=2), (2, 4, 7, 7), (4, 2, 3, 3)),
    "strided": (lambda x, w: F.conv2d(x, w, stride=(2, 1)), (2, 3, 7, 7), (5, 3, 3, 2)),
    "pointwise": (F.conv2d, (2, 3, 5, 5), (7, 3, 1, 1)),
    "no batch": (F.conv2d, (3, 5, 5), (4, 3, 2, 2)),
    # F02, then others.
    "transposed": (lambda x, w: F.conv_transpose2d(x, w, stride=2), (2, 3, 4, 4), (3, 5, 2, 2)),
    "transposed 1d": (lambda x, w: F.conv_transpose1d(x, w, stride=3), (2, 3, 4), (3, 5, 2)),
    "transposed 3d": (F.conv_transpose3d, (1, 2, 3, 4, 2), (2, 3, 2, 2, 3)),
    "transposed groups": (
        lambda x, w: F.conv_transpose2d(x, w, groups=2), (2, 4, 3, 3), (4, 3, 2, 2),
    ),
    "transposed depthwise 1d": (
        lambda x, w: F.conv_transpose1d(x, w, stride=2, groups=4), (2, 4, 5), (4, 1, 3),
    ),
    "transposed depthwise 3d": (
        lambda x, w: F.conv_transpose3d(x, w, groups=3), (2, 3, 2, 3, 2), (3, 2, 2, 2, 1),
    ),
    "transposed dilated": (
        lambda x, w: F.conv_transpose2d(x, w, dilation=2, stride=2), (1, 3, 3, 3), (3, 2, 2, 2),
    ),
    "transposed, padded output": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2, output_padding=1), (1, 3, 3, 3),
        (3, 2, 3, 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution_costs_its_products_forward_and_twice_backward(name: str, target: str) -> None:
    """Groups divide backward as they divide forward; transposed ones count input positions."""
    function, x, w = CONVOLUTIONS[name]
    expected = counted(function, ones(*x), ones(*w))
    assert expected[1] == 2 * expected[0]  # each product takes part once in every gradient
    profile = profile_call(function, ones(*x), ones(*w), target=target)
    assert macs(profile) == expected


@pytest.mark.parametrize(
    ("name", "fwd_flops"),
    [("depthwise", 2592), ("2 groups", 3456), ("transposed", 3840)],
)
def test_convolution_has_the_figures_of_the_reports(name: str, fwd_flops: int) -> None:
    """2 * macs is 2,592, 3,456 and 3,840 forward, twice that backward."""
    function, x, w = CONVOLUTIONS[name]
    profile = profile_call(function, ones(*x), ones(*w))
    assert macs(profile) == (fwd_flops // 2, fwd_flops)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("target", ["cuda", "cpu"])
def test_convolution_costs_the_same_in_every_precision(target: str, dtype: torch.dtype) -> None:
    """The dtype changes bytes, not products."""
    x, w = ones(2, 8, 5, 5, dtype=dtype), ones(8, 1, 3, 3, dtype=dtype)
    profile = profile_call(lambda x, w: F.conv2d(x, w, groups=8), x, w, target=target)
    assert macs(profile) == (1296, 2592)


def test_convolution_modules_cost_their_weights_gradient_only_without_input_gradient() -> None:
    """Data needs no gradient: backward of the first layer is as dear as its forward."""
    net = nn.Sequential(nn.Conv2d(4, 8, 3, groups=4), nn.Conv2d(8, 8, 1))
    first, second = 2 * 8 * 36 * 9, 2 * 8 * 36 * 8
    assert macs(profile_model(net, (torch.ones(2, 4, 8, 8),))) == (
        first + second, first + 2 * second,
    )  # fmt: skip
    assert macs(profile_model(net, (torch.ones(2, 4, 8, 8),), input_grad=True)) == (
        first + second, 2 * first + 2 * second,
    )  # fmt: skip


PRODUCTS: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...], int]] = {
    # F05: the reports' figures are 2 * macs.
    "broadcast batches": (torch.matmul, (ones(2, 1, 4, 8), ones(3, 8, 5)), 1920),
    "matrix-vector": (torch.matmul, (ones(4, 8), ones(8)), 64),
    "batched matrix-vector": (torch.matmul, (ones(2, 4, 8), ones(8)), 128),
    "dot": (torch.matmul, (ones(8), ones(8)), 16),
    "addmv": (lambda a, x: torch.addmv(torch.zeros(4, device=a.device), a, x),
              (ones(4, 8), ones(8)), 64),
    "addbmm": (lambda a, b: torch.addbmm(torch.zeros(4, 6, device=a.device), a, b),
               (ones(3, 4, 5), ones(3, 5, 6)), 720),
    "baddbmm": (lambda a, b: torch.baddbmm(torch.zeros(1, 4, 6, device=a.device), a, b),
                (ones(3, 4, 5), ones(3, 5, 6)), 720),
    "linear of a vector": (F.linear, (ones(8), ones(16, 8)), 256),
    # Others of the family.
    "vector-matrix": (torch.matmul, (ones(8), ones(8, 5)), 80),
    "vector-batch": (torch.matmul, (ones(8), ones(3, 8, 5)), 240),
    "mm": (torch.mm, (ones(3, 4), ones(4, 5)), 120),
    "bmm": (torch.bmm, (ones(2, 3, 4), ones(2, 4, 5)), 240),
    "mv": (torch.mv, (ones(3, 4), ones(4)), 24),
    "inner": (torch.inner, (ones(3, 4), ones(5, 4)), 120),
    "addmm": (lambda a, b: torch.addmm(torch.zeros(5, device=a.device), a, b),
              (ones(3, 4), ones(4, 5)), 120),
    "linear of a cube": (F.linear, (ones(2, 3, 4), ones(5, 4)), 240),
    "einsum": (lambda a, b: torch.einsum("bij,bjk->bik", a, b),
               (ones(2, 3, 4), ones(2, 4, 5)), 240),
    "einsum over two axes": (lambda a, b: torch.einsum("hij,hjk->ik", a, b),
                             (ones(2, 3, 4), ones(2, 4, 5)), 240),
    "tensordot": (lambda a, b: torch.tensordot(a, b, dims=2), (ones(2, 3, 4), ones(3, 4, 5)), 240),
    "transposed operand": (lambda a, b: a @ b.t(), (ones(3, 4), ones(5, 4)), 120),
    "broadcast matrix": (torch.matmul, (ones(2, 3, 4), ones(4, 5)), 240),
    "5 dimensions": (torch.matmul, (ones(2, 1, 3, 2, 4), ones(5, 1, 4, 3)), 1440),
    "empty": (torch.matmul, (ones(0, 4), ones(4, 5)), 0),
    "half": (torch.matmul, (ones(3, 4, dtype=torch.float16),
                            ones(4, 5, dtype=torch.float16)), 120),
    "bfloat16": (torch.bmm, (ones(2, 3, 4, dtype=torch.bfloat16),
                             ones(2, 4, 5, dtype=torch.bfloat16)), 240),
    "double": (torch.mm, (ones(3, 4, dtype=torch.float64), ones(4, 5, dtype=torch.float64)), 120),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PRODUCTS)
def test_product_costs_results_times_contracted_length(name: str, target: str) -> None:
    """Output elements after broadcasting times the contracted length; twice that backward."""
    function, operands, flops = PRODUCTS[name]
    assert 2 * counted(function, *operands)[0] == flops
    profile = profile_call(function, *operands, target=target)
    # Gradients of both operands: each product takes part in each once. Those of a dot product sum
    # nothing, a number scales a vector: pointwise.
    assert macs(profile) == (flops // 2, 0 if name == "dot" else flops)


def test_chain_of_products_costs_its_cheapest_order() -> None:
    """A multi-dot multiplies the two small matrices first."""
    operands = (ones(10, 2), ones(2, 10), ones(10, 3))
    totals = profile_call(lambda *m: torch.linalg.multi_dot(m), *operands, backward=False).totals
    assert totals.fwd_macs == 2 * 10 * 3 + 10 * 2 * 3
    assert totals.unknown_op_count == 0


@pytest.mark.parametrize("target", TARGETS)
def test_outer_products_count_every_pair(target: str) -> None:
    """3 x 5 products, whether called so, written as a broadcast, or with a matrix added."""

    def totals(function: Callable[..., torch.Tensor], *operands: torch.Tensor) -> Any:
        return profile_call(function, *operands, backward=False, target=target).totals

    outer = totals(torch.outer, ones(3), ones(5))
    assert (outer.fwd_macs, outer.fwd_pointwise_flops) == (15, 0)
    written = totals(lambda a, b: a[:, None] * b, ones(3), ones(5))
    assert (written.fwd_macs, written.fwd_pointwise_flops) == (15, 0)
    update = totals(torch.addr, ones(3, 5), ones(3), ones(5))
    assert (update.fwd_macs, update.unknown_op_count) == (15, 0)
    scaled = totals(lambda a, b: a * b, ones(3, 1), ones(3, 5))  # rows scaled: pointwise
    assert scaled.fwd_macs == 0


def test_bilinear_layer_counts_both_contractions() -> None:
    """Sum over both inputs for every output: batch * out * in1 * in2, then * in2 is summed."""
    totals = profile_model(nn.Bilinear(3, 4, 5), (ones(2, 3), ones(2, 4)), backward=False).totals
    assert totals.unknown_op_count == 0
    # The kernel multiplies x1 into the weight (2*5*3*4) and the result with x2 (2*5*4) or both in
    # one sum of products of three factors (2*5*3*4): no fewer than one per weight and row.
    assert totals.fwd_macs >= 2 * 5 * 3 * 4


def test_complex_product_costs_four_real_ones() -> None:
    """A complex multiply-add is four real ones, in both directions."""
    a, b = ones(3, 4, dtype=torch.complex64), ones(4, 5, dtype=torch.complex64)
    assert macs(profile_call(torch.mm, a, b)) == (4 * 60, 8 * 60)


def test_operands_without_gradient_cost_nothing_backward() -> None:
    """Only the gradients that somebody asks for are computed."""
    profile = profile_call(torch.mm, ones(3, 4), torch.ones(4, 5))
    assert macs(profile) == (60, 60)
    assert macs(profile_call(torch.mm, torch.ones(3, 4), torch.ones(4, 5))) == (60, 0)


HEADS = {  # batch, query heads, key heads, queries, keys, width, width of values
    "F03": (2, 6, 2, 8, 8, 4, 4),
    "one head for all": (2, 4, 1, 8, 8, 8, 8),
    "more keys than queries": (2, 6, 2, 3, 8, 4, 4),
    "more queries than keys": (1, 4, 2, 9, 2, 8, 8),
    "one query": (1, 8, 8, 1, 16, 8, 8),
    "wide values": (2, 2, 2, 5, 7, 8, 16),
}


@pytest.mark.parametrize("attention", ["auto", "math", "efficient"])
@pytest.mark.parametrize("target", ["cuda", "cpu"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", HEADS)
def test_attention_counts_dense_products_whatever_runs(
    name: str, causal: bool, target: str, attention: str
) -> None:
    """Two products forward, four backward; heads are the query's; a causal mask changes nothing."""
    batch, heads, key_heads, queries, keys, width, values = HEADS[name]
    if target == "cpu" and attention != "auto":
        pytest.skip("the kernel is chosen for cuda")
    if attention == "efficient" and heads != key_heads:
        pytest.skip("that kernel has no grouped heads")
    q = ones(batch, heads, queries, width)
    k, v = ones(batch, key_heads, keys, width), ones(batch, key_heads, keys, values)
    profile = profile_call(
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, is_causal=causal, enable_gqa=heads != key_heads
        ),
        q, k, v, target=target, attention=attention,
    )  # fmt: skip
    forward = batch * heads * queries * keys * (width + values)
    assert macs(profile) == (forward, 2 * forward)
    if name == "F03":
        assert (2 * forward, 4 * forward) == (12288, 24576)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("attention", ["auto", "flash", "efficient", "math"])
def test_attention_in_half_precision_counts_alike(attention: str, dtype: torch.dtype) -> None:
    """Padding of heads and kernels' own recomputation are no work of the model."""
    q, k, v = (ones(2, 4, 6, 20, dtype=dtype) for _ in "qkv")  # 20: padded to 24 for flash
    profile = profile_call(F.scaled_dot_product_attention, q, k, v, attention=attention)
    forward = 2 * 2 * 4 * 6 * 6 * 20
    assert macs(profile) in {(forward, 2 * forward), (forward * 24 // 20, 2 * forward * 24 // 20)}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mode", ["train", "eval", "eval without gradients", "inference mode"])
@pytest.mark.parametrize("weights", [False, True])
def test_multihead_attention_costs_the_same_in_every_mode(
    mode: str, target: str, weights: bool
) -> None:
    """F04: four projections and two products are 10,080 FLOPs, in the fast path too."""
    model = nn.MultiheadAttention(8, 2, batch_first=True).train(mode == "train")
    x = torch.zeros(3, 5, 8)
    context: Any = {
        "eval without gradients": torch.no_grad, "inference mode": torch.inference_mode,
    }.get(mode, torch.enable_grad)  # fmt: skip
    with context():
        profile = profile_model(model, (x, x, x), {"need_weights": weights}, target=target)
    assert 2 * profile.totals.fwd_macs == 10080
    assert profile.totals.unknown_op_count == 0


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mode", ["train", "eval", "eval without gradients"])
def test_cross_attention_with_other_widths_costs_its_projections(mode: str, target: str) -> None:
    """Keys of width 6 and values of width 4: each projection has its own size."""
    model = nn.MultiheadAttention(8, 2, kdim=6, vdim=4, batch_first=True).train(mode == "train")
    q, k, v = torch.zeros(3, 5, 8), torch.zeros(3, 7, 6), torch.zeros(3, 7, 4)
    with torch.set_grad_enabled(mode != "eval without gradients"):
        profile = profile_model(model, (q, k, v), target=target)
    products = 2 * 3 * 5 * 7 * 8
    projections = 2 * 3 * 5 * 8 * 8 + 3 * 7 * 6 * 8 + 3 * 7 * 4 * 8
    assert profile.totals.fwd_macs == products + projections


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mode", ["train", "eval", "eval without gradients"])
@pytest.mark.parametrize("kind", ["encoder layer", "encoder", "decoder layer"])
def test_transformer_layers_cost_the_same_in_every_mode(kind: str, mode: str, target: str) -> None:
    """The fused fast path of evaluation hides no layer."""
    x, memory = torch.zeros(3, 5, 8), torch.zeros(3, 7, 8)
    attention = 4 * 15 * 8 * 8 + 2 * 3 * 5 * 5 * 8
    feed_forward = 2 * 15 * 8 * 16
    args: tuple[torch.Tensor, ...] = (x,)
    layer: nn.Module = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    expected = attention + feed_forward
    if kind == "encoder":
        layer, expected = nn.TransformerEncoder(layer, 2), 2 * expected
    elif kind == "decoder layer":
        layer, args = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), (x, memory)
        expected += 2 * 15 * 64 + 2 * 21 * 64 + 2 * 3 * 5 * 7 * 8
    layer.train(mode == "train")
    with torch.set_grad_enabled(mode != "eval without gradients"):
        profile = profile_model(layer, args, target=target)
    assert profile.totals.fwd_macs == expected
    assert profile.totals.unknown_op_count == 0


RECURRENT: dict[str, tuple[Callable[[], nn.Module], int]] = {
    # gates * hidden * (input + hidden) multiply-adds per step and sequence
    "lstm": (lambda: nn.LSTM(5, 7), 4 * 7 * (5 + 7)),
    "gru": (lambda: nn.GRU(5, 7), 3 * 7 * (5 + 7)),
    "rnn": (lambda: nn.RNN(5, 7), 7 * (5 + 7)),
    "relu rnn": (lambda: nn.RNN(5, 7, nonlinearity="relu"), 7 * (5 + 7)),
    "two layers": (lambda: nn.LSTM(5, 7, num_layers=2), 4 * 7 * (5 + 7) + 4 * 7 * (7 + 7)),
    "both directions": (lambda: nn.GRU(5, 7, bidirectional=True), 2 * 3 * 7 * (5 + 7)),
    "without bias": (lambda: nn.LSTM(5, 7, bias=False), 4 * 7 * (5 + 7)),
    "projected": (lambda: nn.LSTM(5, 7, proj_size=3), 4 * 7 * (5 + 3) + 7 * 3),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mode", ["train", "eval without gradients"])
@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layer_costs_its_gates(name: str, mode: str, target: str) -> None:
    """Every step multiplies input and hidden state into all gates, fused or not."""
    build, per_step = RECURRENT[name]
    with torch.set_grad_enabled(mode == "train"):
        profile = profile_model(build().train(mode == "train"), (torch.zeros(3, 2, 5),),
                                target=target)  # fmt: skip
    assert profile.totals.fwd_macs == 3 * 2 * per_step
    assert profile.totals.unknown_op_count == 0


FROZEN = {  # F09: frozen layers, gradient of the data wanted, 2 * bwd_macs
    "all trained, input": ((), True, 2304),
    "all trained": ((), False, 2112),
    "middle frozen": ((1,), False, 1344),
    "first frozen": ((0,), False, 1152),
    "first and middle frozen": ((0, 1), False, 192),
    # Others: a 192, b 768, c 192 as in the report.
    "last frozen": ((2,), False, 2112 - 192),
    "all frozen": ((0, 1, 2), False, 0),
    "all frozen, input": ((0, 1, 2), True, 192 + 768 + 192),
    "first frozen, input": ((0,), True, 2304 - 192),
    "middle frozen, input": ((1,), True, 2304 - 768),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FROZEN)
def test_frozen_layers_cost_no_weight_gradient(name: str, target: str) -> None:
    """Backward costs what somebody needs, not twice forward."""
    frozen, input_grad, flops = FROZEN[name]
    net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 16), nn.Linear(16, 2))
    for i in frozen:
        net[i].requires_grad_(False)
    profile = profile_model(net, (torch.zeros(3, 4),), target=target, input_grad=input_grad)
    assert 2 * profile.totals.fwd_macs == 1152
    assert 2 * profile.totals.bwd_macs == flops
    if not flops:
        assert set(profile.ops.column("phase")) == {"forward"}


def test_frozen_bias_or_weight_alone_costs_the_rest() -> None:
    """A frozen weight leaves the bias gradient (a sum) and the data's."""
    net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 16))
    net[1].weight.requires_grad_(False)
    assert profile_model(net, (torch.zeros(3, 4),)).totals.bwd_macs == 3 * 8 * 16 + 3 * 4 * 8
    net[1].weight.requires_grad_(True)
    net[1].bias.requires_grad_(False)
    assert profile_model(net, (torch.zeros(3, 4),)).totals.bwd_macs == 2 * 3 * 8 * 16 + 3 * 4 * 8


def test_detached_branch_costs_nothing_backward() -> None:
    """What is computed under ``no_grad`` or cut off has no backward."""

    def forward(first: nn.Module, second: nn.Module, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            hidden = first(x)
        return second(hidden.detach())

    members = {"first": nn.Linear(4, 8), "second": nn.Linear(8, 16)}
    profile = profile_call(forward, torch.zeros(3, 4), members=members)
    assert macs(profile) == (3 * 32 + 3 * 128, 3 * 128)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("target", TARGETS)
def test_recomputed_work_is_neither_forward_nor_backward(target: str, reentrant: bool) -> None:
    """Checkpointing repeats the forward products; they are a phase of their own."""

    def forward(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(layer, x, use_reentrant=reentrant)

    layer = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
    x = ones(3, 4)
    profile = profile_call(forward, x, members={"layer": layer}, target=target)
    repeated = sum(op.macs for op in profile.ops if op.phase == "recompute")
    assert macs(profile) == (3 * 64, 2 * 3 * 64)
    # Without early stop both products run again; the second one's result is needed by nobody.
    assert repeated in {3 * 32, 3 * 64}
    assert profile.totals.fwd_macs == sum(profile.flop_counts.column("fwd_macs"))


@pytest.mark.parametrize("autocast", ["", "bfloat16", "float16"])
@pytest.mark.parametrize("target", ["cuda", "cpu"])
def test_autocast_changes_no_products(target: str, autocast: str) -> None:
    """Casts are copies."""
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 5))
    profile = profile_model(net, (torch.zeros(2, 3, 6, 6),), target=target, autocast=autocast)
    first, last = 2 * 4 * 16 * 27, 2 * 64 * 5
    assert macs(profile) == (first + last, first + 2 * last)


def test_work_of_calls_adds_up_to_the_totals() -> None:
    """Every product belongs to one call, functions outside layers included."""

    def forward(layer: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.bmm(layer(x) @ y, y.transpose(1, 2))

    profile = profile_call(
        forward, ones(2, 3, 4), ones(2, 5, 6), members={"layer": nn.Linear(4, 5)}
    )
    by_name = {
        node.name: profile.flop_counts[node.node_id].fwd_macs
        for node in profile.nodes
        if profile.flop_counts[node.node_id].fwd_macs
    }
    assert by_name == {"layer": 2 * 3 * 4 * 5, "matmul": 2 * 3 * 5 * 6, "bmm": 2 * 3 * 6 * 5}


def test_tied_projection_is_not_dropped() -> None:
    """M08's work: the projection runs, with both of its gradients."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(10, 4)
            self.out = nn.Linear(4, 10, bias=False)
            self.out.weight = self.emb.weight

        def forward(self, i: torch.Tensor) -> torch.Tensor:
            return self.out(self.emb(i))

    profile = profile_model(Tied(), (torch.zeros(2, 3, dtype=torch.long),))
    assert tuple(2 * m for m in macs(profile)) == (480, 960)


def _pointwise(profile: Profile) -> tuple[int, int]:
    return profile.totals.fwd_pointwise_flops, profile.totals.bwd_pointwise_flops


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "activation",
    [F.relu, F.gelu, F.silu, F.sigmoid, F.tanh, F.hardswish, F.hardtanh, F.softplus, F.elu,
     F.leaky_relu, F.mish, F.selu, F.celu, F.logsigmoid, F.softsign, F.tanhshrink, F.hardshrink,
     F.softshrink, F.hardsigmoid, F.relu6],
)  # fmt: skip
def test_pointwise_work_stays_apart_from_products(
    activation: Callable[..., torch.Tensor], target: str
) -> None:
    """An activation has no multiply-adds, and costs at least one operation per element."""
    profile = profile_call(activation, ones(4, 5), target=target)
    assert macs(profile) == (0, 0)
    forward, backward = _pointwise(profile)
    assert forward >= 20
    assert backward >= 20


PUBLISHED = {  # forward and backward, macs + pointwise, batch 4,000 (data/published_flops.csv)
    "vgg11": (30490748928000, 60927113120000),
    "resnet18": (7321522176000, 14578522016000),
    "mobilenet_v3_small": (260871680000, 7640462784000),
    "resnext50_32x4d": (17287200768000, 62879690656000),
}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cuda", "meta"])
@pytest.mark.parametrize("name", PUBLISHED)
def test_profile_of_a_step_has_the_published_flops(name: str, target: str) -> None:
    """Every digit, once grad_weight of grouped convolutions counts as often as it has groups."""
    settings = Settings(batch_size=4000, input_grad=True, target=target)
    profile = profile_of(name, settings)
    totals = profile.totals
    surplus = 0
    for op in profile.ops:
        if op.operator == "aten.convolution_backward.default":
            arguments = json.loads(op.arguments)
            groups, mask = arguments[9], arguments[10]
            assert mask[:2] == [True, True]  # both gradients, of equal cost
            surplus += (groups - 1) * op.macs // 2
    assert totals.fwd_macs + totals.fwd_pointwise_flops == PUBLISHED[name][0]
    assert totals.bwd_macs + totals.bwd_pointwise_flops + surplus == PUBLISHED[name][1]
