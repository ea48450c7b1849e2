"""What is no contraction: conventions and hand-derived counts."""

from __future__ import annotations

import pytest
import torch
import torchvision.ops  # noqa: F401  # defines its operators
from operator_recorder import OperatorRecorder, call_cost, spec_of

from exporter.formulas import Cost, cost

aten = torch.ops.aten


def flops(func, *args, **kwargs):
    """Return the pointwise FLOPs of a call that has no macs."""
    counted = call_cost(func, *args, **kwargs)
    assert (counted.macs, counted.flops_status) == (0, "formula")
    return counted.pointwise_flops


X = torch.ones(2, 3, 4)


def test_named_operators_count_their_first_operand():
    """Broadcasting does not change the count of what the published convention names."""
    row = torch.ones(4)
    assert flops(aten.add.Tensor, row, X) == 4
    assert flops(aten.mul.Tensor, X, row) == 24
    assert flops(aten.sum.dim_IntList, X, [0]) == 24
    assert flops(aten.mean.default, X) == 24
    assert flops(aten.where.self, row > 0, X, X) == 4
    assert flops(aten.pow.Tensor_Scalar, X, 2) == 24
    assert flops(aten._softmax.default, X, -1, False) == 24


def test_named_operators_count_nothing_without_dimensions():
    """A single number is free by the published convention."""
    number = torch.tensor(2.0)
    assert flops(aten.mul.Tensor, number, X) == 0
    assert flops(aten.add_.Tensor, number.clone(), 1) == 0


def test_other_operators_count_their_result():
    """All other arithmetic counts the elements after broadcasting."""
    assert flops(aten.sub.Tensor, torch.ones(4), X) == 24
    assert flops(aten.exp.default, torch.tensor(2.0)) == 1
    assert flops(aten.lerp.Scalar, X, X, 0.5) == 24
    assert flops(aten.clamp_.default, X.clone(), 0, 1) == 24
    assert flops(aten.native_dropout.default, X, 0.5, True) == 48
    assert flops(aten.dropout.default, X, 0.5, False) == 0


def test_norms_count_five_per_element():
    """Batch, layer and group norm count five per element of the input, both ways."""
    for layer in (
        torch.nn.BatchNorm2d(4),
        torch.nn.LayerNorm(3),
        torch.nn.GroupNorm(2, 4),
    ):
        x = torch.ones(2, 4, 3, 3, requires_grad=True)
        with OperatorRecorder() as forward:
            output = layer(x)
        assert forward.total_pointwise >= 5 * 72
        assert max(forward.pointwise.values()) == 5 * 72
        with OperatorRecorder() as backward:
            output.backward(torch.ones_like(output))
        assert backward.total_pointwise == 5 * 72


def test_pooling_counts_the_larger_side():
    """Pooling counts the input's elements, its backward those of the input's gradient."""
    for pool in (torch.nn.MaxPool2d(2), torch.nn.AvgPool2d(2), torch.nn.AdaptiveAvgPool2d(2)):
        x = torch.ones(1, 2, 4, 4, requires_grad=True)
        with OperatorRecorder() as forward:
            output = pool(x)
        with OperatorRecorder() as backward:
            output.backward(torch.ones_like(output))
        assert (forward.total_pointwise, backward.total_pointwise) == (32, 32)


def test_lists_count_like_their_members():
    """An operator over a list counts what the single one counts for each member."""
    tensors = [torch.ones(2, 3), torch.tensor(1.0), torch.ones(4)]
    assert flops(aten._foreach_add_.Scalar, [t.clone() for t in tensors], 1) == 6 + 0 + 4
    assert flops(aten._foreach_sqrt.default, tensors) == 6 + 1 + 4
    assert flops(aten._foreach_norm.Scalar, tensors) == 6 + 1 + 4
    products = call_cost(aten._foreach_mm.default, [torch.ones(2, 3)] * 2, [torch.ones(3, 5)] * 2)
    assert products == Cost(60, 0, "formula")


def adam_step(fused):
    """Return the pointwise FLOPs of one step of AdamW over two parameters."""
    parameters = [torch.ones(n, requires_grad=True) for n in (5, 7)]
    optimizer = torch.optim.AdamW(parameters, fused=fused, foreach=not fused)
    for p in parameters:
        p.grad = torch.ones_like(p)
    optimizer.step()  # creates the state
    with OperatorRecorder() as recorder:
        optimizer.step()
    assert recorder.unknown == set()
    return recorder.total_pointwise


def test_fused_optimizer_counts_like_unfused():
    """A fused step counts the element-wise work of the step over lists."""
    assert adam_step(fused=True) == adam_step(fused=False) == 8 * 12


def test_accumulating_writes_count_and_moves_do_not():
    """Index writes count what they add; plain ones move."""
    index, values = torch.tensor([0, 1, 1]), torch.ones(3, 4)
    target = torch.zeros(2, 4)
    assert flops(aten.index_put.default, target, [index], values, True) == 12
    assert flops(aten.index_put.default, target, [index], values) == 0
    assert flops(aten.index_add.default, target, 0, index, values) == 12
    column = index[:, None].expand(3, 4)
    assert flops(aten.scatter_add.default, target, 0, column, values) == 12
    assert flops(aten.embedding_dense_backward.default, values, index, 2, -1, False) == 12
    assert flops(aten.embedding.default, target, index) == 3


def test_resampling_counts_neighbours():
    """Interpolation counts one per neighbour of each output element."""
    image = torch.ones(1, 2, 4, 4)
    assert flops(aten.upsample_bilinear2d.default, image, [8, 8], False) == 4 * 128
    assert flops(aten.upsample_bicubic2d.default, image, [8, 8], False) == 16 * 128
    # halving the image doubles the filter: rows to 4x2, then columns to 2x2, four taps each
    assert flops(aten._upsample_bilinear2d_aa.default, image, [2, 2], False) == 2 * (8 + 4) * 4
    grid = torch.zeros(1, 3, 3, 2)
    assert flops(aten.grid_sampler_2d.default, image, grid, 0, 0, False) == 4 * 18


def test_losses_count_the_prediction():
    """Element-wise losses count the prediction, the likelihood loss its targets."""
    prediction, target = torch.ones(3, 5), torch.zeros(3, dtype=torch.int64)
    assert flops(aten.mse_loss.default, prediction, prediction) == 15
    assert flops(aten.nll_loss_forward.default, prediction, target, None, 1, -100) == 3
    # 4 steps, batch 2, targets of 3 labels: 4 x 2 x 7 states
    log_probs, labels = torch.zeros(4, 2, 5), torch.ones(2, 3, dtype=torch.int64)
    assert flops(aten._ctc_loss.default, log_probs, labels, [4, 4], [3, 3]) == 56


@pytest.mark.parametrize(
    ("func", "shapes", "expected"),
    [
        (aten.linalg_cholesky_ex.default, [(2, 6, 6)], 2 * 72),
        (aten.linalg_lu_factor_ex.default, [(6, 6)], 144),
        (aten.linalg_lu_factor_ex.default, [(6, 3)], 2 * 54 - 9 * 9 + 18),
        (aten.linalg_inv_ex.default, [(6, 6)], 432),
        (aten._linalg_solve_ex.default, [(6, 6), (6, 2)], 144 + 2 * 36 * 2),
        (aten.geqrf.default, [(6, 3)], 2 * 6 * 9 - 18),
        (aten.linalg_qr.default, [(6, 3)], 2 * (2 * 6 * 9 - 18)),
        (aten._linalg_eigh.default, [(6, 6)], 9 * 216),
        (aten.linalg_eig.default, [(6, 6)], 25 * 216),
        (aten._linalg_svd.default, [(6, 3)], 14 * 54 + 8 * 27),
        (aten.linalg_lstsq.default, [(6, 3), (6, 2)], 2 * 6 * 9 - 18 + 2 * (4 * 18 - 9)),
    ],
)
def test_factorisations_count_their_leading_terms(func, shapes, expected):
    """Factorisations count the textbook's terms, worked out here for small sides."""
    operands = [torch.eye(s[-2], s[-1]).expand(*s).contiguous() for s in shapes]
    assert flops(func, *operands) == expected


def test_transforms_count_five_n_log_n():
    """A complex transform of 8 points counts 5 x 8 x 3, a real one half of it."""
    assert flops(aten._fft_c2c.default, torch.ones(2, 8) + 0j, [1], 0, True) == 2 * 120
    assert flops(aten._fft_r2c.default, torch.ones(2, 8), [1], 0, True) == 120
    assert flops(aten._fft_c2r.default, torch.ones(2, 5) + 0j, [1], 0, 8) == 120


def test_distances_count_by_the_kernel_that_runs():
    """Few vectors are compared one by one, many by a matrix product with two more columns."""
    few, many = torch.ones(3, 4), torch.ones(30, 4)
    assert call_cost(aten._cdist_forward.default, few, few, 2.0, None) == Cost(0, 36, "formula")
    assert call_cost(aten._cdist_forward.default, many, few, 2.0, None) == Cost(
        90 * 6, 90, "formula"
    )


def test_torchvision_operators_count():
    """Region and deformable operators count samples times neighbours, and their products."""
    vision = torch.ops.torchvision
    assert cost(vision.nms.default, (spec_of(torch.ones(3, 4)),), {}, ()).pointwise_flops == 3 * 15
    image, boxes = torch.ones(1, 2, 8, 8), torch.tensor([[0.0, 0, 0, 4, 4]])
    assert flops(vision.roi_align.default, image, boxes, 1.0, 3, 3, 2, False) == 18 * 4 * 4
    weight, offset, mask = torch.ones(4, 2, 3, 3), torch.zeros(1, 18, 6, 6), torch.ones(1, 9, 6, 6)
    call = (image, weight, offset, mask, torch.zeros(4), 1, 1, 0, 0, 1, 1, 1, 1, True)
    counted = call_cost(vision.deform_conv2d.default, *call)
    assert counted == Cost(4 * 36 * 2 * 9, 36 * 2 * 9 * 5, "formula")


@pytest.mark.parametrize(("kind", "projection"), [("LSTM", 0), ("LSTM", 2), ("GRU", 0), ("RNN", 0)])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_fused_recurrent_layer_counts_like_its_cells(kind, projection, bidirectional):
    """One fused operator counts what the layer counts that is run step by step."""
    steps, batch, width, hidden, layers = 3, 2, 5, 4, 2
    extra = {"proj_size": projection} if projection else {}
    layer = getattr(torch.nn, kind)(
        width, hidden, layers, bias=False, bidirectional=bidirectional, device="meta", **extra
    )
    x = torch.empty(steps, batch, width, device="meta", requires_grad=True)
    directions = 1 + bidirectional
    state = torch.empty(
        layers * directions, batch, projection or hidden, device="meta", requires_grad=True
    )
    cell = torch.empty(layers * directions, batch, hidden, device="meta", requires_grad=True)
    with OperatorRecorder() as forward:
        output, _ = layer(x, (state, cell) if kind == "LSTM" else state)
    with OperatorRecorder() as backward:
        output.backward(torch.empty_like(output))

    weights = [spec_of(w) for w in layer.parameters()]
    per_direction = len(weights) // (layers * directions)
    mode = {"RNN": 1, "LSTM": 2, "GRU": 3}[kind]
    geometry = (mode, hidden, projection, layers, False, 0.0, True, bidirectional, [])
    x_spec, state_spec, cell_spec = spec_of(x), spec_of(state), spec_of(cell)
    fused = cost(
        aten._cudnn_rnn.default,
        (x_spec, weights, per_direction, None, state_spec, cell_spec, *geometry, None),
        {},
        (),
    )
    assert (fused.macs, fused.pointwise_flops) == (forward.total_macs, forward.total_pointwise)

    def fused_backward(mask):
        tensors = (x_spec, weights, per_direction, None, state_spec, cell_spec, x_spec)
        arguments = (*tensors, x_spec, None, None, *geometry, None, x_spec, mask)
        return cost(aten._cudnn_rnn_backward.default, arguments, {}, ())

    assert fused_backward([True] * 4).macs == backward.total_macs == 2 * forward.total_macs
    first = sum(weights[i * per_direction].numel for i in range(directions))
    without_input = fused_backward([False, True, True, True]).macs
    assert without_input == 2 * forward.total_macs - steps * batch * first
    assert fused_backward([True, True, True, False]).macs == forward.total_macs


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layer_counts_alike_on_every_device(kind):
    """The kernels that a CPU runs count the macs of the steps that the meta device runs."""
    totals = []
    for device in ("cpu", "meta"):
        layer = getattr(torch.nn, kind)(5, 4, 2, bidirectional=True, device=device)
        x = torch.ones(3, 2, 5, device=device, requires_grad=True)
        state = torch.ones(4, 2, 4, device=device, requires_grad=True)
        with OperatorRecorder() as forward:
            output, _ = layer(x, (state, state) if kind == "LSTM" else state)
        with OperatorRecorder() as backward:
            output.backward(torch.ones_like(output))
        assert forward.unknown | backward.unknown == set()
        totals.append((forward.total_macs, backward.total_macs))
    assert totals[0] == totals[1]
    # gates x hidden x (width + hidden) per direction, then (2 x hidden + hidden)
    gates = {"LSTM": 4, "GRU": 3}[kind]
    assert totals[0][0] == 6 * 2 * gates * 4 * ((5 + 4) + (8 + 4))
