"""Contractions against an independent truth: with operands of ones, results sum to products."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_recorder import OperatorRecorder, call_cost, spec_of
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from exporter.formulas import cost

aten = torch.ops.aten


def ones(*shape, **kwargs):
    """Return ones of a type whose sums are exact."""
    return torch.ones(*shape, dtype=torch.float64, **kwargs)


def count(tensor):
    """Return the number of products that made a tensor of sums of products of ones."""
    return int(tensor.sum())


@st.composite
def convolutions(draw):
    """Draw the operands of an unpadded convolution of one to three dimensions."""
    rank = draw(st.integers(1, 3))
    sizes = st.lists(st.integers(1, 3), min_size=rank, max_size=rank)
    groups, stride, dilation, kernel = (
        draw(st.integers(1, 3)),
        draw(sizes),
        draw(sizes),
        draw(sizes),
    )
    transposed = draw(st.booleans())
    channels_in, channels_out = (groups * draw(st.integers(1, 2)) for _ in range(2))
    extra = draw(sizes)
    positions = extra if transposed else [
        d * (k - 1) + e for d, k, e in zip(dilation, kernel, extra, strict=True)
    ]  # fmt: skip
    first, second = (channels_in, channels_out) if transposed else (channels_out, channels_in)
    features = ones(draw(st.integers(1, 2)), channels_in, *positions)
    weight = ones(first, second // groups, *kernel)
    none = [0] * rank
    return features, weight, (stride, none, dilation, transposed, none, groups)


@settings(max_examples=60, deadline=None)
@given(convolutions(), st.booleans(), st.booleans())
def test_convolution_counts_products(case, wants_input, wants_weight):
    """Forward and each gradient that is asked for count the products that they sum."""
    features, weight, geometry = case
    output = aten.convolution.default(features, weight, None, *geometry)
    assert call_cost(aten.convolution.default, features, weight, None, *geometry).macs == count(
        output
    )
    mask = [wants_input, wants_weight, True]
    call = (ones(*output.shape), features, weight, [weight.shape[0]], *geometry, mask)
    grad_input, grad_weight, _ = aten.convolution_backward.default(*call)
    products = sum(count(g) for g in (grad_input, grad_weight) if g is not None)
    assert call_cost(aten.convolution_backward.default, *call).macs == products


def test_convolution_hand_counts():
    """Depthwise, grouped and transposed convolutions count as derived by hand."""
    geometry = ([1, 1], [0, 0], [1, 1], False, [0, 0])
    depthwise = call_cost(
        aten.convolution.default, ones(2, 8, 5, 5), ones(8, 1, 3, 3), None, *geometry, 8
    )
    assert depthwise.macs == 2 * 8 * 9 * 9
    grouped = (ones(1, 6, 4, 4), ones(1, 4, 6, 6), ones(6, 2, 3, 3), [0], *geometry, 2)
    grouped_backward = call_cost(aten.convolution_backward.default, *grouped, [True, True, False])
    assert grouped_backward.macs == 2 * (6 * 16 * 2 * 9)
    transposed = call_cost(
        aten.convolution.default,
        ones(2, 3, 4, 4), ones(3, 5, 2, 2), None, [2, 2], [0, 0], [1, 1], True, [0, 0], 1,
    )  # fmt: skip
    assert transposed.macs == 2 * 3 * 5 * 4 * 16


def test_convolution_counts_padding_like_data():
    """Padded positions meet the kernel like any other."""
    call = (ones(1, 1, 3, 3), ones(1, 1, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    assert call_cost(aten.convolution.default, *call).macs == 9 * 9


def test_convolution_kernels_agree_with_convolution():
    """The operators that back a convolution on other devices count what it counts."""
    features, weight = torch.ones(2, 4, 5, 5), torch.ones(6, 2, 3, 3)
    one, none = [1, 1], [0, 0]
    backend = call_cost(aten.mkldnn_convolution.default, features, weight, None, none, one, one, 2)
    assert backend.macs == 2 * 6 * 9 * 2 * 9
    # three time steps, a kernel of two, from three channels to five
    taps = call_cost(aten.conv_tbc.default, ones(3, 2, 3), ones(2, 3, 5), ones(5), 0)
    assert taps.macs == count(aten.conv_tbc(ones(3, 2, 3), ones(2, 3, 5), 0 * ones(5), 0))


SIZE = st.integers(0, 4)


@settings(max_examples=60, deadline=None)
@given(SIZE, SIZE, SIZE, SIZE)
def test_products_count_products(b, m, k, n):
    """Every member of the matrix product family counts the products that it sums."""
    zero = torch.zeros((), dtype=torch.float64)
    for func, args in (
        (aten.mm.default, (ones(m, k), ones(k, n))),
        (aten.addmm.default, (zero.expand(m, n), ones(m, k), ones(k, n))),
        (aten.bmm.default, (ones(b, m, k), ones(b, k, n))),
        (aten.baddbmm.default, (zero.expand(b, m, n), ones(b, m, k), ones(b, k, n))),
        (aten.addbmm.default, (zero.expand(m, n), ones(b, m, k), ones(b, k, n))),
        (aten.mv.default, (ones(m, k), ones(k))),
        (aten.addmv.default, (zero.expand(m), ones(m, k), ones(k))),
        (aten.dot.default, (ones(k), ones(k))),
        (aten.vdot.default, (ones(k), ones(k))),
        (aten.addr.default, (zero.expand(m, n), ones(m), ones(n))),
        (aten.ger.default, (ones(m), ones(n))),
        (aten.outer.default, (ones(m), ones(n))),
        (aten.linear.default, (ones(b, m, k), ones(n, k))),
        (aten.einsum.default, ("bmk,bkn->bmn", [ones(b, m, k), ones(b, k, n)])),
        (aten.einsum.default, ("mk,nk", [ones(m, k), ones(n, k)])),
    ):
        assert call_cost(func, *args).macs == count(func(*args)), func


def test_bilinear_counts_terms():
    """A form of two vectors counts output elements times both lengths, forward and backward."""
    left, right = ones(2, 3, requires_grad=True), ones(2, 4, requires_grad=True)
    weight = ones(5, 3, 4, requires_grad=True)
    with OperatorRecorder() as forward:
        output = functional.bilinear(left, right, weight)
    assert forward.total_macs == count(output) == 2 * 5 * 3 * 4
    assert call_cost(aten.bilinear.default, left, right, weight).macs == count(output)
    with OperatorRecorder() as backward:
        output.backward(ones(2, 5))
    assert backward.total_macs == 3 * count(output)


@settings(max_examples=60, deadline=None)
@given(st.data(), SIZE, SIZE, SIZE)
def test_matmul_counts_products_after_broadcasting(data, m, k, n):
    """Vectors and broadcast batches count output elements times contracted length."""
    shapes = [
        ((2, 1, m, k), (3, k, n)),
        ((m, k), (k,)),
        ((2, m, k), (k,)),
        ((k,), (k,)),
        ((k,), (3, k, n)),
        ((m, k), (2, k, n)),
    ]
    left, right = (ones(*shape) for shape in data.draw(st.sampled_from(shapes)))
    product = left @ right
    assert call_cost(aten.matmul.default, left, right).macs == count(product)
    with OperatorRecorder() as recorder:
        torch.matmul(left, right)
    assert recorder.total_macs == count(product)


def test_products_hand_counts():
    """The matrix product family counts as derived by hand."""
    with OperatorRecorder() as recorder:
        ones(2, 1, 4, 8) @ ones(3, 8, 5)
    assert 2 * recorder.total_macs == 1920
    with OperatorRecorder() as recorder:
        functional.linear(ones(8), ones(16, 8))
    assert 2 * recorder.total_macs == 256
    baddbmm = call_cost(aten.baddbmm.default, ones(1, 4, 6), ones(3, 4, 5), ones(3, 5, 6))
    assert 2 * baddbmm.macs == 720


def test_complex_products_count_four():
    """A complex multiply-add is four real ones, a mixed one two."""
    left, right = ones(2, 3) + 0j, ones(3, 4) + 0j
    assert call_cost(aten.mm.default, left, right).macs == 4 * 24
    signal, kernel = (ones(1, 1, n, device="meta") + 0j for n in (4, 2))
    convolved = call_cost(
        aten.convolution.default, signal, kernel, None, [1], [0], [1], False, [0], 1
    )
    assert convolved.macs == 4 * 6


def test_grouped_products_count_each_row_once():
    """Ragged groups share the rows; batched operands multiply them."""
    tokens = torch.empty(8, 16, dtype=torch.bfloat16, device="meta")
    experts = torch.empty(4, 16, 32, dtype=torch.bfloat16, device="meta")
    offsets = torch.empty(4, dtype=torch.int32, device="meta")
    assert call_cost(aten._grouped_mm.default, tokens, experts, offsets).macs == 8 * 16 * 32
    batched = torch.empty(4, 8, 16, dtype=torch.bfloat16, device="meta")
    assert call_cost(aten._grouped_mm.default, batched, experts).macs == 4 * 8 * 16 * 32


B, HQ, HKV, S, D = 2, 6, 2, 8, 4
ATTENTION = 2 * B * HQ * S * S * D


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_counts_dense_products(device, causal):
    """Two products forward, four backward, causal or not, with the query's heads."""
    q = torch.zeros(B, HQ, S, D, device=device, requires_grad=True)
    k, v = (torch.zeros(B, HKV, S, D, device=device, requires_grad=True) for _ in "kv")
    with OperatorRecorder() as forward:
        output = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    with OperatorRecorder() as backward:
        output.sum().backward()
    assert (forward.total_macs, backward.total_macs) == (ATTENTION, 2 * ATTENTION)


def attention_operands(heads_first):
    """Return query, key and value on meta, with another width for the value."""
    shapes = ((B, HQ, S, D), (B, HKV, 5, D), (B, HKV, 5, 3))
    tensors = [torch.empty(*s, device="meta") for s in shapes]
    return tensors if heads_first else [t.transpose(1, 2) for t in tensors]


@pytest.mark.parametrize(
    ("func", "heads_first", "arguments"),
    [
        (aten._scaled_dot_product_flash_attention.default, True, (0.1,)),
        (aten._scaled_dot_product_efficient_attention.default, True, (None, True, 0.1)),
        (aten._scaled_dot_product_cudnn_attention.default, True, (None, True, 0.1)),
        (aten._scaled_dot_product_flash_attention_for_cpu.default, True, (0.1,)),
        (aten._scaled_dot_product_fused_attention_overrideable.default, True, (None, 0.1)),
        (aten._flash_attention_forward.default, False, (None, None, S, 5, 0.1, False, False)),
        (aten._efficient_attention_forward.default, False, (None, None, None, S, 5, 0.1, 0)),
        (aten.scaled_dot_product_attention.default, True, (None, 0.1)),
    ],
)
def test_fused_attention_counts_both_widths(func, heads_first, arguments):
    """Each kernel counts its products in its own layout, softmax and dropout once per score."""
    # no device has all kernels, so they are not run
    operands = [spec_of(t) for t in attention_operands(heads_first)]
    counted = cost(func, (*operands, *arguments), {}, (operands[0],))
    scores = B * HQ * S * 5
    assert counted.macs == scores * (D + 3)
    assert counted.pointwise_flops == 2 * scores


def test_attention_backward_leaves_out_unwanted_gradients():
    """Without the gradients of key and value, two of the four products remain."""
    q, k, v = (torch.zeros(B, HQ, S, D, device="meta") for _ in "qkv")
    output, log_sum, seed, offset = aten._scaled_dot_product_efficient_attention(
        q, k, v, None, compute_log_sumexp=True
    )
    call = (torch.ones_like(output), q, k, v, None, output, log_sum, seed, offset, 0.0)
    func = aten._scaled_dot_product_efficient_attention_backward.default
    assert call_cost(func, *call, [True] * 3 + [False]).macs == 2 * ATTENTION
    assert call_cost(func, *call, [True] + [False] * 3).macs == ATTENTION


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("grad", [False, True])
def test_multihead_attention_counts_on_every_path(device, grad):
    """Four projections and two attention products, also on the inference fast path."""
    batch, length, width = 3, 5, 8
    layer = nn.MultiheadAttention(width, 2, batch_first=True, device=device).eval()
    tokens = torch.zeros(batch, length, width, device=device)
    with torch.set_grad_enabled(grad), OperatorRecorder() as recorder:
        layer(tokens, tokens, tokens, need_weights=False)
    assert recorder.unknown == set()
    assert 2 * recorder.total_macs == 10080


@pytest.mark.parametrize("grad", [False, True])
def test_encoder_layer_counts_on_every_path(grad):
    """The fused encoder layer of inference counts the macs of the one that is trained."""
    batch, length, width, hidden = 2, 5, 8, 12
    layer = nn.TransformerEncoderLayer(width, 2, hidden, dropout=0.0, batch_first=True).eval()
    tokens = torch.zeros(batch, length, width)
    with torch.set_grad_enabled(grad), OperatorRecorder() as recorder:
        layer(tokens)
    projections = 4 * batch * length * width**2 + 2 * batch * length * width * hidden
    assert recorder.unknown == set()
    assert recorder.total_macs == projections + 2 * batch * length**2 * width


@pytest.mark.parametrize(
    ("frozen", "input_grad", "flops"),
    [
        ([], True, 2304),
        ([], False, 2112),
        ([1], False, 1344),
        ([0], False, 1152),
        ([0, 1], False, 192),
    ],
)
def test_frozen_layers_cost_no_weight_gradient(frozen, input_grad, flops):
    """Backward counts each layer once per gradient that somebody wants."""
    net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 16), nn.Linear(16, 2)).to("meta")
    for index in frozen:
        net[index].requires_grad_(False)
    total = net(torch.zeros(3, 4, device="meta", requires_grad=input_grad)).sum()
    with FlopCounterMode(display=False) as counter, OperatorRecorder() as recorder:
        total.backward()
    assert 2 * recorder.total_macs == flops == counter.get_total_flops()
