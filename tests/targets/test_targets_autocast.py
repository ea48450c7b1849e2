"""Autocast on meta against autocast on real CPU tensors and on fake CUDA tensors."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from exporter.targets.autocast import end_autocast
from exporter.targets.rules import device_rules
from store.settings import RunSettings

WIDTH = 256 * 256
INPUT = 4 * 256


class Operators(TorchDispatchMode):
    """Name, shapes and dtypes of every aten operator that runs."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        tensors = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
        self.seen.append((str(func), [(tuple(t.shape), t.dtype) for t in tensors]))
        return out


def kept_by_three_uses(device):
    """Return what one linear layer used three times keeps, and the output's dtype."""
    layer = nn.Linear(256, 256, bias=False, device=device)
    x = torch.zeros(4, 256, device=device)
    skip = {x.untyped_storage()._cdata, layer.weight.untyped_storage()._cdata}
    seen = {}

    def pack(t):
        if t.untyped_storage()._cdata not in skip:
            seen[t.untyped_storage()._cdata] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = layer(layer(layer(x)))
    return sum(seen.values()), out.dtype


@pytest.mark.parametrize("target", ["cuda", "cpu"])
def test_one_cast_of_a_weight_serves_all_its_uses(target):
    """A bfloat16 copy of 256*256 weights and three bfloat16 inputs of 4*256: 137,216 bytes."""
    with device_rules(RunSettings(target=target, autocast="bfloat16")):
        assert kept_by_three_uses("meta") == (WIDTH * 2 + 3 * INPUT * 2, torch.bfloat16)


@pytest.mark.parametrize("cache", [True, False])
def test_region_entered_by_the_model_is_followed(cache):
    """``torch.autocast("cpu")`` inside the rules acts on meta; without cache two copies stay."""
    with (
        device_rules(RunSettings(target="cpu")),
        torch.autocast("cpu", torch.bfloat16, cache_enabled=cache),
    ):
        kept = kept_by_three_uses("meta")
    copies = 1 if cache else 2
    assert kept == (copies * WIDTH * 2 + 3 * INPUT * 2, torch.bfloat16)


def test_region_switched_off_inside_stays_single():
    """A region with ``enabled=False`` inside runs in single precision."""
    x = torch.empty(4, 4, device="meta")
    with device_rules(RunSettings(target="cuda", autocast="float16")):
        with torch.autocast("cuda", enabled=False):
            assert (x @ x).dtype is torch.float32
        assert (x @ x).dtype is torch.float16


def test_end_of_autocast_drops_copies_and_switches_it_off():
    """After the end the next product is single precision again."""
    x = torch.empty(4, 4, device="meta")
    with device_rules(RunSettings(target="cuda", autocast="float16")):
        assert torch.is_autocast_enabled("cuda")
        end_autocast()
        assert not torch.is_autocast_enabled("cuda")
        assert (x @ x).dtype is torch.float32


def test_state_is_restored_after_an_error():
    """Autocast is off again, with its dtype as before, and meta tensors are left alone."""
    before = torch.get_autocast_dtype("cuda")
    with pytest.raises(KeyError), device_rules(RunSettings(target="cuda", autocast="bfloat16")):
        raise KeyError
    assert not torch.is_autocast_enabled("cuda")
    assert torch.get_autocast_dtype("cuda") is before
    x = torch.empty(4, 4, device="meta")
    with torch.autocast("cpu", torch.bfloat16):
        assert (x @ x).dtype is torch.float32


@pytest.mark.parametrize(
    ("target", "dtype"), [("meta", "bfloat16"), ("cuda", "float32")]
)  # fmt: skip
def test_autocast_without_sense_is_refused(target, dtype):
    """The target and the dtype are named."""
    with (
        pytest.raises(ValueError, match=r"autocast .*(meta|float32)"),
        device_rules(RunSettings(target=target, autocast=dtype)),
    ):
        pass


CALLS = {
    "matmul": lambda x: x @ x,
    "linear": lambda x: F.linear(x, x, x[0]),
    "exp": torch.exp,
    "pow": lambda x: x**2,
    "softmax": lambda x: F.softmax(x, -1),
    "softmax_of_half": lambda x: F.softmax((x @ x), -1),
    "softmax_to_double": lambda x: F.softmax(x @ x, -1, dtype=torch.float64),
    "sum_of_half": lambda x: (x @ x).sum(),
    "sum_rows_of_half": lambda x: (x @ x).sum(0, keepdim=True),
    "cumsum_of_half": lambda x: (x @ x).cumsum(0),
    "norm_of_half": lambda x: (x @ x).norm(),
    "norm_rows_of_half": lambda x: torch.norm(x @ x, dim=0),
    "layer_norm_of_half": lambda x: F.layer_norm(x @ x, (4,)),
    "relu_of_half": lambda x: F.relu(x @ x),
    "cat_mixed": lambda x: torch.cat([x @ x, x]),
    "cat_half": lambda x: torch.cat([x @ x, x @ x]),
    "stack_mixed": lambda x: torch.stack([x @ x, x]),
    "add_mixed": lambda x: x @ x + x,
    "addcmul_mixed": lambda x: torch.addcmul(x @ x, x, x),
    "mse_of_half": lambda x: F.mse_loss(x @ x, x @ x),
    "cross_entropy": lambda x: F.cross_entropy(x @ x, x),
    "double": lambda x: x.double() @ x.double(),
    "einsum": lambda x: torch.einsum("ij,jk->ik", x, x),
    "gelu_of_half": lambda x: F.gelu(x @ x),
    "interpolate_half": lambda x: F.interpolate((x @ x)[None, None], scale_factor=2),
    "conv": lambda x: F.conv2d(x[None, None], x[None, None]),
    "attention": lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None]),
    "group_norm_of_half": lambda x: F.group_norm((x @ x)[None], 2),
    "prod_of_half": lambda x: (x @ x).prod(),
}


@pytest.mark.parametrize("name", CALLS)
def test_call_casts_as_on_a_real_cpu(name):
    """Output dtype, and every cast before it, equal those of real CPU tensors."""

    def run(device):
        x = torch.ones(4, 4, device=device)
        with torch.autocast("cpu", torch.bfloat16), Operators() as operators:
            out = CALLS[name](x)
        casts = [e for e in operators.seen if "_to_copy" in e[0]]
        return out.dtype, out.shape, casts

    expected = run("cpu")
    with device_rules(RunSettings(target="cpu")):
        assert run("meta") == expected


H, S = torch.float16, torch.float32
CUDA_DTYPES = {
    "matmul": H, "linear": H, "exp": S, "pow": S, "softmax": S, "softmax_of_half": S,
    "softmax_to_double": torch.float64, "sum_of_half": S, "sum_rows_of_half": S,
    "cumsum_of_half": S, "norm_of_half": S, "norm_rows_of_half": S, "layer_norm_of_half": S,
    "relu_of_half": H, "cat_mixed": S, "cat_half": H, "stack_mixed": S, "add_mixed": S,
    "addcmul_mixed": S, "mse_of_half": S, "cross_entropy": S, "double": torch.float64,
    "einsum": H, "gelu_of_half": H, "interpolate_half": S, "conv": H,
    "group_norm_of_half": S, "prod_of_half": S,
}  # fmt: skip


@pytest.mark.parametrize("name", CUDA_DTYPES)
def test_call_has_the_dtype_of_torchs_table_for_cuda(name):
    """Output dtypes follow the operator reference of torch's documentation of autocast."""
    x = torch.empty(4, 4, device="meta")
    with device_rules(RunSettings(target="cuda", autocast="float16")):
        assert CALLS[name](x).dtype is CUDA_DTYPES[name]


def test_recurrent_layer_runs_in_half_precision():
    """CuDNN gets weights, input and states in half precision; gradients are single again."""
    layer = nn.LSTM(4, 5, device="meta")
    x = torch.empty(3, 2, 4, device="meta", requires_grad=True)
    with device_rules(RunSettings(target="cuda", autocast="float16")):
        out = layer(x)[0]
        assert out.dtype is torch.float16
        end_autocast()
        out.backward(torch.empty_like(out))
    assert {p.grad.dtype for p in layer.parameters()} == {torch.float32}
