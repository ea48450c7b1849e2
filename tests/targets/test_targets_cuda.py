"""The rules of the target ``cuda`` against fake CUDA tensors, and against hand arithmetic."""

import contextlib
import warnings

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from exporter.targets.recurrent_cuda import LSTM, reserve_bytes
from exporter.targets.rules import device_rules
from store.settings import RunSettings


class Operators(TorchDispatchMode):
    """Name, shapes and dtypes of every aten operator that runs."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func.namespace == "aten":
            tensors = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
            self.seen.append((str(func), [(tuple(t.shape), t.dtype) for t in tensors]))
        return out

    @property
    def names(self):
        return [name.split(".")[1] for name, _ in self.seen]


def saved_bytes(function, *not_counted):
    """Return the bytes of distinct storages that autograd keeps, and the function's value."""
    skip = {t.untyped_storage()._cdata for t in not_counted}
    seen = {}

    def pack(t):
        if t.untyped_storage()._cdata not in skip:
            seen[t.untyped_storage()._cdata] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = function()
    return sum(seen.values()), out


def observe(device, build, *, train, grad):
    """Return operators and saved bytes of a forward pass of what ``build`` makes on a device."""
    fake = FakeTensorMode() if device == "cuda" else contextlib.nullcontext()
    with fake:
        module, inputs = build(device)
        held = [*inputs]
        if isinstance(module, nn.Module):
            module.train(train)
            held += [*module.parameters(), *module.buffers()]
        for tensor in inputs:
            tensor.requires_grad_(grad)
        with torch.set_grad_enabled(grad), Operators() as operators:
            kept, _ = saved_bytes(lambda: module(*inputs), *held)
    return operators.seen, kept


def of(factory, *shapes, dtype=torch.float32):
    """Return a builder of a module, or of a function, and its inputs."""

    def build(device):
        module = factory(device)
        return module, [torch.empty(shape, dtype=dtype, device=device) for shape in shapes]

    return build


class ChannelsLast(nn.Module):
    def forward(self, x):
        return x.to(memory_format=torch.channels_last)


IMAGE = (2, 8, 4, 4)
MODULES = {
    "dropout": of(lambda _: nn.Dropout(0.5), (4, 8)),
    "dropout_all": of(lambda _: nn.Dropout(1.0), (4, 8)),
    "dropout_none": of(lambda _: nn.Dropout(0.0), (4, 8)),
    "dropout_in_place": of(lambda _: lambda x: F.dropout(x * 1, 0.5, inplace=True), (4, 8)),
    "dropout_empty": of(lambda _: nn.Dropout(0.5), (0, 8)),
    "feature_dropout": of(lambda _: nn.Dropout2d(0.5), IMAGE),
    "alpha_dropout": of(lambda _: nn.AlphaDropout(0.5), (4, 8)),
    "feature_alpha_dropout": of(lambda _: nn.FeatureAlphaDropout(0.5), (4, 8, 3)),
    "batch_norm": of(lambda d: nn.BatchNorm2d(8, device=d), IMAGE),
    "batch_norm_half": of(lambda d: nn.BatchNorm2d(8, device=d), IMAGE, dtype=torch.half),
    "batch_norm_3d": of(lambda d: nn.BatchNorm3d(8, device=d), (2, 8, 2, 2, 2)),
    "batch_norm_no_stats": of(
        lambda d: nn.BatchNorm2d(8, track_running_stats=False, device=d), IMAGE
    ),
    "batch_norm_nhwc": of(
        lambda d: nn.Sequential(ChannelsLast(), nn.BatchNorm2d(8, device=d)), IMAGE
    ),
    "instance_norm": of(lambda d: nn.InstanceNorm2d(8, affine=True, device=d), IMAGE),
    "group_norm": of(lambda d: nn.GroupNorm(2, 8, device=d), IMAGE),
    "layer_norm": of(lambda d: nn.LayerNorm(8, device=d), (4, 8)),
    "rms_norm": of(lambda d: nn.RMSNorm(8, device=d), (4, 8)),
    "rms_norm_half": of(
        lambda d: nn.RMSNorm(8, device=d, dtype=torch.half), (4, 8), dtype=torch.half
    ),
    "rms_norm_plain": of(lambda _: nn.RMSNorm(8, elementwise_affine=False), (4, 8)),
    "weight_norm": of(
        lambda d: nn.utils.parametrizations.weight_norm(nn.Linear(8, 3, device=d)), (4, 8)
    ),
    "lstm_cell": of(lambda d: nn.LSTMCell(8, 5, device=d), (4, 8)),
    "softmax_half": of(
        lambda _: lambda x: F.softmax(x, -1, dtype=torch.float32), (4, 8), dtype=torch.half
    ),
    "softmax_bfloat16": of(
        lambda _: lambda x: F.softmax(x, -1, dtype=torch.float32), (4, 8), dtype=torch.bfloat16
    ),
    "log_softmax_half": of(
        lambda _: lambda x: F.log_softmax(x, -1, dtype=torch.float32), (4, 8), dtype=torch.half
    ),
    "log_sigmoid": of(lambda _: nn.LogSigmoid(), (4, 8)),
    "attention_with_weights": of(
        lambda d: nn.MultiheadAttention(8, 2, dropout=0.1, device=d), *[(4, 2, 8)] * 3
    ),
    "linear_3d": of(lambda d: nn.Linear(8, 3, device=d), (2, 4, 8)),
    "convolution": of(lambda d: nn.Conv2d(8, 4, 4, padding="same", device=d), IMAGE),
    "grid_sampler_corners": of(lambda _: lambda x: F.interpolate(x, scale_factor=2), IMAGE),
}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_forward_runs_what_fake_cuda_runs(name, train, grad):
    """Operators, shapes, dtypes and saved bytes equal those of fake CUDA tensors."""
    expected = observe("cuda", MODULES[name], train=train, grad=grad)
    with device_rules(RunSettings(target="cuda")):
        assert observe("meta", MODULES[name], train=train, grad=grad) == expected


def heads(*shape, dtype=torch.float16):
    """Return query, key and value of one shape on meta."""
    return [torch.empty(shape, dtype=dtype, device="meta", requires_grad=True) for _ in "qkv"]


@pytest.mark.parametrize(("length", "fused"), [(128, 135168), (1024, 1081344)])
def test_attention_in_half_precision_keeps_output_and_log_sum_exp(length, fused):
    """Flash attention keeps 8*S*64*2 + 8*S*4 bytes, a two-word random state and an empty scalar."""
    qkv = heads(1, 8, length, 64)
    with device_rules(RunSettings(target="cuda")):
        kept, _ = saved_bytes(lambda: F.scaled_dot_product_attention(*qkv), *qkv)
    assert kept == fused + 16 + 8


def test_attention_in_single_precision_pads_its_log_sum_exp():
    """The memory-efficient kernel rounds the rows of its log-sum-exp up to 32."""
    qkv = heads(1, 2, 40, 8, dtype=torch.float32)
    with device_rules(RunSettings(target="cuda")):
        kept, _ = saved_bytes(lambda: F.scaled_dot_product_attention(*qkv), *qkv)
    assert kept == 2 * 40 * 8 * 4 + 2 * 64 * 4 + 8 + 8


def attention_operators(*shape, dtype=torch.float16, attention="auto", **kwargs):
    """Return the operators of one attention call and its output."""
    qkv = heads(*shape, dtype=dtype)
    with device_rules(RunSettings(target="cuda", attention=attention)), Operators() as operators:
        out = F.scaled_dot_product_attention(*qkv, **kwargs)
    return operators.names, out


def test_attention_pads_the_head_for_flash_and_slices_the_output():
    """A head of 20 is padded to 24 three times, and the output is a view of 20 of 24."""
    names, out = attention_operators(1, 2, 16, 20)
    assert names[:4] == [*["constant_pad_nd"] * 3, "_scaled_dot_product_flash_attention"]
    assert "slice" in names
    assert out.shape == (1, 2, 16, 20)
    assert out.untyped_storage().nbytes() == 2 * 16 * 24 * 2


def test_attention_with_a_mask_is_memory_efficient():
    """A boolean mask of odd length becomes an additive one, padded to 8, sliced and expanded."""
    mask = torch.empty(16, 13, dtype=torch.bool, device="meta")
    query = torch.empty(1, 2, 16, 8, dtype=torch.half, device="meta")
    key = torch.empty(1, 2, 13, 8, dtype=torch.half, device="meta")
    with device_rules(RunSettings(target="cuda")), Operators() as operators:
        F.scaled_dot_product_attention(query, key, key, attn_mask=mask)
    assert operators.names[-4:] == [
        "constant_pad_nd",
        "slice",
        "expand",
        "_scaled_dot_product_efficient_attention",
    ]
    shapes = dict(operators.seen)
    assert shapes["aten.constant_pad_nd.default"] == [((16, 16), torch.half)]
    # Nothing wants gradients: no log-sum-exp.
    assert shapes["aten._scaled_dot_product_efficient_attention.default"][1][0] == (1, 2, 0)


@pytest.mark.parametrize(
    ("shape", "dtype", "attention", "kernel"),
    [
        ((1, 2, 16, 8), torch.float32, "auto", "_scaled_dot_product_efficient_attention"),
        ((1, 2, 16, 8), torch.float32, "flash", "bmm"),
        ((1, 2, 16, 8), torch.float16, "efficient", "_scaled_dot_product_efficient_attention"),
        ((1, 2, 16, 8), torch.float16, "math", "bmm"),
        ((1, 2, 16, 8), torch.float64, "auto", "bmm"),
        ((1, 2, 16, 264), torch.float16, "auto", "_scaled_dot_product_efficient_attention"),
        ((1, 2, 16, 6), torch.float32, "auto", "bmm"),
        ((2, 16, 8), torch.float16, "auto", "_scaled_dot_product_flash_attention"),
        ((16, 8), torch.float16, "auto", "mm"),
    ],
)
def test_attention_kernel_follows_dtype_shape_and_choice(shape, dtype, attention, kernel):
    """Half precision goes to flash, single to memory-efficient, and what neither takes to math."""
    names, _ = attention_operators(*shape, dtype=dtype, attention=attention)
    fused = [n for n in names if n.startswith("_scaled_dot_product_")]
    assert fused == ([kernel] if kernel.startswith("_scaled") else [])
    assert kernel in names


def test_attention_respects_the_kernel_that_the_model_chooses():
    """Inside ``sdpa_kernel`` only the named kernels run, and none is an error as in torch."""
    with sdpa_kernel(SDPBackend.MATH):
        assert "bmm" in attention_operators(1, 2, 16, 8)[0]
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        assert attention_operators(1, 2, 16, 8)[0][0] == "_scaled_dot_product_cudnn_attention"
    flash = sdpa_kernel(SDPBackend.FLASH_ATTENTION)
    with flash, pytest.raises(RuntimeError, match="No available kernel"):
        attention_operators(1, 2, 16, 8, dtype=torch.float32)


def test_attention_counts_the_same_flops_with_grouped_heads():
    """Six query heads over two key heads: 12,288 forward; the fused backward does five products."""
    query = torch.empty(2, 6, 8, 8, device="meta", dtype=torch.half, requires_grad=True)
    key = torch.empty(2, 2, 8, 8, device="meta", dtype=torch.half, requires_grad=True)
    with device_rules(RunSettings(target="cuda")):
        with FlopCounterMode(display=False) as forward:
            out = F.scaled_dot_product_attention(query, key, key, enable_gqa=True)
        with FlopCounterMode(display=False) as backward:
            out.sum().backward()
    assert forward.get_total_flops() == 2 * 2 * (2 * 6 * 8 * 8 * 8)
    assert backward.get_total_flops() == 5 * 2 * (2 * 6 * 8 * 8 * 8)
    assert key.grad.shape == key.shape


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_attention_backward_is_fused(dtype):
    """Backward of a fused attention is one operator with gradients of all three inputs."""
    qkv = heads(1, 2, 16, 8, dtype=dtype)
    with device_rules(RunSettings(target="cuda")):
        out = F.scaled_dot_product_attention(*qkv)
        with Operators() as operators:
            out.backward(torch.empty_like(out))
    assert [n for n in operators.names if n.endswith("attention_backward")]
    assert "bmm" not in operators.names
    assert [t.grad.shape for t in qkv] == [t.shape for t in qkv]


@pytest.mark.parametrize(("train", "kept"), [(True, 64), (False, 0)])
@pytest.mark.parametrize("target", ["cuda", "cpu", "meta"])
def test_batch_norm_keeps_statistics_only_in_training(target, train, kept):
    """Eight channels: two vectors of 32 bytes in training, nothing in eval."""
    norm = nn.BatchNorm2d(8, device="meta").train(train)
    x = torch.empty(2, 8, 4, 4, device="meta", requires_grad=True)
    with device_rules(RunSettings(target=target)):
        saved, out = saved_bytes(lambda: norm(x), x, *norm.parameters(), *norm.buffers())
        out.backward(torch.empty_like(out))
    assert saved == kept
    assert norm.weight.grad.shape == (8,)


def test_dropout_inside_a_fused_module_keeps_one_byte_per_element():
    """Dropout of attention weights, called from C++, runs the fused kernel as well."""
    attention = nn.MultiheadAttention(8, 2, dropout=0.5, device="meta")
    x = torch.empty(4, 2, 8, device="meta")
    with device_rules(RunSettings(target="cuda", attention="math")), Operators() as operators:
        attention(x, x, x, need_weights=False)
    assert "native_dropout" in operators.names
    assert "bernoulli_" not in operators.names


@pytest.mark.parametrize("factory", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layer_is_one_operator_forward_and_backward(factory):
    """Two bidirectional layers with dropout: ``_cudnn_rnn`` and its backward, all gradients."""
    layer = factory(4, 5, 2, bidirectional=True, dropout=0.1, device="meta")
    x = torch.empty(3, 2, 4, device="meta", requires_grad=True)
    with device_rules(RunSettings(target="cuda")), Operators() as operators:
        out = layer(x)[0]
        out.backward(torch.empty_like(out))
    assert out.shape == (3, 2, 10)
    assert [n for n in operators.names if "rnn" in n] == ["_cudnn_rnn", "_cudnn_rnn_backward"]
    assert "addmm" not in operators.names
    assert [p.grad.shape for p in layer.parameters()] == [p.shape for p in layer.parameters()]


def test_recurrent_layer_keeps_output_states_and_reserve_but_no_weights():
    """One LSTM layer, 3 steps of batch 2, width 5: reserve 3*2*5*5*4, output and two states."""
    layer = nn.LSTM(4, 5, device="meta")
    x = torch.empty(3, 2, 4, device="meta", requires_grad=True)
    with device_rules(RunSettings(target="cuda")):
        kept, _ = saved_bytes(lambda: layer(x), x, *layer.parameters())
    reserve = 3 * 2 * 5 * 5 * 4
    assert kept == reserve + 3 * 2 * 5 * 4 + 2 * (1 * 2 * 5 * 4)


def test_reserve_holds_gates_cell_layer_outputs_and_dropout_mask():
    """Two bidirectional LSTM layers: 5 * hidden per layer, one inner output, one inner mask."""
    kept = reserve_bytes(
        LSTM,
        6,
        hidden_size=5,
        output_size=5,
        layers=2,
        directions=2,
        dropout=0.5,
        item_bytes=2,
    )
    assert kept == 6 * 2 * 2 * (5 * 5) * 2 + 6 * 2 * 5 * 2 + 6 * 2 * 5


def test_recurrent_backward_in_eval_mode_is_refused_as_cudnn_does():
    """CuDNN keeps nothing for backward in eval mode."""
    layer = nn.GRU(4, 5, device="meta").eval()
    with device_rules(RunSettings(target="cuda")):
        out = layer(torch.empty(3, 2, 4, device="meta"))[0]
        with pytest.raises(RuntimeError, match="training mode"):
            out.sum().backward()


@pytest.mark.parametrize("factory", [nn.LSTM, nn.GRU])
def test_packed_sequences_run_through_cudnn(factory):
    """Lengths 3, 2 and 1 make packed rows of batch 3, 2 and 1: six rows of output."""
    layer = factory(4, 5, device="meta")
    data = torch.empty(6, 4, device="meta")
    packed = nn.utils.rnn.PackedSequence(data, torch.tensor([3, 2, 1]))
    with device_rules(RunSettings(target="cuda")), Operators() as operators:
        out, _ = layer(packed)
    assert out.data.shape == (6, 5)
    assert "_cudnn_rnn" in operators.names


def test_lstm_cell_without_bias_is_fused():
    """Torch's own meta kernel of the fused cell insists on biases; a device does not."""
    cell = nn.LSTMCell(8, 5, bias=False, device="meta")
    x = torch.empty(4, 8, device="meta", requires_grad=True)
    with device_rules(RunSettings(target="cuda")), Operators() as operators:
        out, _ = cell(x)
        out.backward(torch.empty_like(out))
    assert "_thnn_fused_lstm_cell" in operators.names
    assert [p.grad.shape for p in cell.parameters()] == [p.shape for p in cell.parameters()]


def test_gru_cell_is_fused_and_keeps_five_values_per_unit():
    """Batch 4, width 5: a workspace of 4*25 floats, and both gates for second derivatives."""
    cell = nn.GRUCell(8, 5, device="meta")
    x, hx = (torch.empty(4, n, device="meta", requires_grad=True) for n in (8, 5))
    with device_rules(RunSettings(target="cuda")), Operators() as operators:
        kept, out = saved_bytes(lambda: cell(x, hx), x, hx, *cell.parameters())
        out.backward(torch.empty_like(out))
    assert [n for n in operators.names if "gru" in n] == [
        "_thnn_fused_gru_cell",
        "_thnn_fused_gru_cell_backward",
    ]
    assert kept == 4 * 25 * 4 + 2 * (4 * 15 * 4)
    assert [p.grad.shape for p in cell.parameters()] == [p.shape for p in cell.parameters()]


def test_grid_sampling_by_cudnn_has_shapes_of_input_and_grid():
    """Bilinear, zero-padded, corner-aligned: cuDNN's operator, with both gradients."""
    x = torch.empty(2, 4, 6, 6, device="meta", requires_grad=True)
    grid = torch.empty(2, 3, 5, 2, device="meta", requires_grad=True)
    with device_rules(RunSettings(target="cuda")), Operators() as operators:
        out = F.grid_sample(x, grid, align_corners=True)
        out.backward(torch.empty_like(out))
    assert out.shape == (2, 4, 3, 5)
    assert "cudnn_grid_sampler_backward" in operators.names
    assert (x.grad.shape, grid.grad.shape) == (x.shape, grid.shape)


def test_mish_backward_is_one_operator():
    """Meta would run nine operators where a device runs one."""
    x = torch.empty(4, 8, device="meta", requires_grad=True)
    with device_rules(RunSettings(target="cuda")):
        out = F.mish(x)
        with Operators() as operators:
            out.backward(torch.empty_like(out))
    assert [n for n in operators.names if n != "detach"] == ["empty_like", "mish_backward"]


def test_rms_norm_backward_returns_both_gradients():
    """The fused kernel's backward is one operator."""
    norm = nn.RMSNorm(8, device="meta")
    x = torch.empty(4, 8, device="meta", requires_grad=True)
    with device_rules(RunSettings(target="cuda")), Operators() as operators:
        out = norm(x)
        out.backward(torch.empty_like(out))
    assert "_fused_rms_norm_backward" in operators.names
    assert (x.grad.shape, norm.weight.grad.shape) == ((4, 8), (8,))


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("train", [True, False])
def test_multihead_attention_counts_alike_in_all_modes(train, grad):
    """Four projections and two products of batch 3, length 5, width 8: 10,080 FLOPs."""
    attention = nn.MultiheadAttention(8, 2, batch_first=True, device="meta").train(train)
    x = torch.empty(3, 5, 8, device="meta")
    with (
        device_rules(RunSettings(target="cuda")),
        FlopCounterMode(display=False) as counter,
        torch.set_grad_enabled(grad),
    ):
        attention(x, x, x, need_weights=False)
    assert counter.get_total_flops() == 10080


def test_rules_hold_only_inside_and_are_gone_after_an_error():
    """After an exception inside, meta runs its own dropout again, without a warning."""
    x = torch.empty(4, 8, device="meta")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(KeyError), device_rules(RunSettings(target="cuda")):
            raise KeyError
        with Operators() as operators:
            F.dropout(x, 0.5)
    assert operators.names == ["empty_like", "bernoulli_", "div_", "mul"]


def test_rules_inside_rules_are_refused():
    """A second set of rules names the way out, and the first stays in force."""
    with device_rules(RunSettings(target="cuda")):
        with (
            pytest.raises(RuntimeError, match="leave them"),
            device_rules(RunSettings(target="cpu")),
        ):
            pass
        x = torch.empty(4, 8, device="meta")
        with Operators() as operators:
            F.dropout(x, 0.5)
    assert operators.names == ["native_dropout"]


@pytest.mark.parametrize(
    ("target", "attention", "named"),
    [("tpu", "auto", "'tpu'"), ("cuda", "fused", "'fused'")],
)
def test_unknown_target_or_attention_is_refused(target, attention, named):
    """The word at fault and the choices are named."""
    with (
        pytest.raises(ValueError, match=named),
        device_rules(RunSettings(target=target, attention=attention)),
    ):
        pass
