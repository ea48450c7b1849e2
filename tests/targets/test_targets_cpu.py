"""The rules of the target ``cpu`` against real runs on CPU tensors, operator by operator."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from exporter.targets.rules import device_rules
from store.settings import RunSettings


class Operators(TorchDispatchMode):
    """Name, shapes and dtypes of every operator that runs."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        tensors = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
        self.seen.append((str(func), [(tuple(t.shape), t.dtype) for t in tensors]))
        return out


def observe(device, build, *, train, grad):
    """Return the operators of forward and backward, and the bytes that forward keeps."""
    with torch.device(device):
        module, inputs = build()
    held = [*inputs]
    if isinstance(module, nn.Module):
        module.train(train)
        held += [*module.parameters(), *module.buffers()]
    for tensor in inputs:
        tensor.requires_grad_(grad and tensor.is_floating_point())
    skip = {t.untyped_storage()._cdata for t in held}
    kept = {}

    def pack(t):
        if t.untyped_storage()._cdata not in skip:
            kept[t.untyped_storage()._cdata] = t.untyped_storage().nbytes()
        return t

    with torch.set_grad_enabled(grad), Operators() as operators:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            out = module(*inputs)
        outputs = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor) and t.requires_grad]
        if outputs:
            torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])
    return operators.seen, sum(kept.values())


def sequence(dtype=torch.float32):
    """Return a batch of two sequences of three steps, four wide."""
    return torch.zeros(3, 2, 4, dtype=dtype)


def attention(*shapes, dtype=torch.float32, mask=None, **kwargs):
    """Return a builder of an attention call; the last shape serves key and value."""

    def build():
        bias = None if mask is None else torch.ones(mask[0], dtype=mask[1])

        def call(*qkv):
            return F.scaled_dot_product_attention(*qkv, attn_mask=bias, **kwargs)

        return call, [torch.zeros(s, dtype=dtype) for s in (shapes[0], shapes[-1], shapes[-1])]

    return build


WIDE, SHORT = (2, 4, 6, 8), (2, 4, 5, 8)
CASES = {
    "attention": attention(WIDE),
    "attention_half": attention(WIDE, dtype=torch.half),
    "attention_causal": attention(WIDE, is_causal=True),
    "attention_boolean_mask": attention(WIDE, SHORT, mask=((6, 5), torch.bool)),
    "attention_additive_mask": attention(WIDE, SHORT, mask=((2, 1, 6, 5), torch.float32)),
    "attention_dropout": attention(WIDE, dropout_p=0.5),
    "attention_grouped": attention(WIDE, (2, 2, 6, 8), enable_gqa=True),
    "attention_one_key_head": attention(WIDE, (2, 1, 6, 8)),
    "attention_3d": attention((4, 6, 8)),
    "attention_3d_mask": attention((4, 6, 8), mask=((6, 6), torch.bool)),
    "attention_2d": attention((6, 8)),
    "attention_empty": attention(WIDE, (2, 4, 0, 8)),
    "batch_norm_1d": lambda: (nn.BatchNorm1d(4), [torch.zeros(3, 4)]),
    "batch_norm_2d": lambda: (nn.BatchNorm2d(4), [torch.zeros(2, 4, 3, 3)]),
    "batch_norm_mixed": lambda: (
        nn.BatchNorm2d(4),
        [torch.zeros(2, 4, 3, 3, dtype=torch.bfloat16)],
    ),
    "instance_norm": lambda: (
        nn.InstanceNorm2d(4, track_running_stats=True),
        [torch.zeros(2, 4, 3, 3)],
    ),
    "rms_norm": lambda: (nn.RMSNorm(4), [torch.zeros(3, 4)]),
    "weight_norm": lambda: (
        nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)),
        [torch.zeros(3, 4)],
    ),
    "mish": lambda: (nn.Mish(), [torch.zeros(3, 4)]),
    "dropout": lambda: (nn.Dropout(0.5), [torch.zeros(3, 4)]),
    "channel_shuffle": lambda: (nn.ChannelShuffle(2), [torch.zeros(2, 4, 3, 3)]),
    "bags_sum": lambda: (nn.EmbeddingBag(9, 4, mode="sum"), [torch.zeros(3, 2, dtype=int)]),
    "bags_mean": lambda: (nn.EmbeddingBag(9, 4), [torch.zeros(3, 2, dtype=int)]),
    "bags_max": lambda: (nn.EmbeddingBag(9, 4, mode="max"), [torch.zeros(3, 2, dtype=int)]),
    "lstm": lambda: (nn.LSTM(4, 5, 2, bidirectional=True, dropout=0.5), [sequence()]),
    "lstm_batch_first": lambda: (nn.LSTM(4, 5, batch_first=True, bias=False), [sequence()]),
    "lstm_unbatched": lambda: (nn.LSTM(4, 5), [torch.zeros(3, 4)]),
    "lstm_double": lambda: (
        nn.LSTM(4, 5, 2, bidirectional=True, dtype=torch.double),
        [sequence(torch.double)],
    ),
    "lstm_projected": lambda: (
        nn.LSTM(4, 5, 2, proj_size=2, bidirectional=True, batch_first=True),
        [sequence()],
    ),
    "gru": lambda: (nn.GRU(4, 5, 2, bidirectional=True, dropout=0.5), [sequence()]),
    "gru_batch_first": lambda: (nn.GRU(4, 5, batch_first=True, bias=False), [sequence()]),
    "rnn_tanh": lambda: (nn.RNN(4, 5, 2), [sequence()]),
    "rnn_relu": lambda: (nn.RNN(4, 5, nonlinearity="relu", batch_first=True), [sequence()]),
    "lstm_cell": lambda: (nn.LSTMCell(4, 5), [torch.zeros(3, 4)]),
    "gru_cell": lambda: (nn.GRUCell(4, 5), [torch.zeros(3, 4)]),
    "multihead_attention": lambda: (
        nn.MultiheadAttention(4, 2, batch_first=True),
        [torch.zeros(2, 3, 4)] * 3,
    ),
    "encoder_layer": lambda: (
        nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
        [torch.zeros(2, 3, 4)],
    ),
    "decoder_layer": lambda: (
        nn.TransformerDecoderLayer(4, 2, 8, batch_first=True),
        [torch.zeros(2, 3, 4), torch.zeros(2, 5, 4)],
    ),
    "linear_3d": lambda: (nn.Linear(4, 3), [torch.zeros(2, 3, 4)]),
    "convolution_same": lambda: (nn.Conv2d(4, 3, 3, padding="same"), [torch.zeros(2, 4, 5, 5)]),
}


@pytest.fixture(autouse=True)
def _no_fast_path():
    """Keep to the layers' own forward: the fast path is chosen in Python, by device."""
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(True)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_meta_runs_what_a_real_cpu_runs(name, train, grad):
    """Operators, shapes, dtypes of forward and backward, and kept bytes, are those of a CPU."""
    expected = observe("cpu", CASES[name], train=train, grad=grad)
    with device_rules(RunSettings(target="cpu")):
        assert observe("meta", CASES[name], train=train, grad=grad) == expected


def test_ctc_loss_has_a_backward():
    """Torch has no meta kernel for the gradient of CTC loss; the rules have."""
    scores = torch.zeros(5, 2, 4, device="meta", requires_grad=True)
    targets = torch.ones(2, 3, dtype=torch.long, device="meta")
    with device_rules(RunSettings(target="cpu")):
        F.ctc_loss(scores, targets, (5, 5), (3, 3)).backward()
    assert scores.grad.shape == (5, 2, 4)
