"""Memory of whole profiles: cases from public reports, and others of each kind.

Figures are derived by hand beside each case; A is the bytes of one activation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from case_models import alive_at_end_of_forward, profile_call, saved_bytes
from torch import nn

from exporter import profile_model

if TYPE_CHECKING:
    from collections.abc import Callable

TARGETS = ("cuda", "cpu", "meta")


def grad(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a tensor of ones that requires a gradient."""
    return torch.ones(shape, dtype=dtype, requires_grad=True)


# --- M01: identity of storages ------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_storages_are_told_apart_without_addresses(target: str) -> None:
    """Two tensors and a view of the first: two storages, 28 bytes."""

    def forward(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return a.view(3, 1), b, a

    profile = profile_call(forward, torch.zeros(3), torch.zeros(4), target=target)
    assert profile.totals.input_bytes == 28
    assert len(profile.storages) == 2
    assert profile.totals.kept_bytes == 0  # the view adds nothing


def test_dead_storages_leave_their_identity_to_nobody() -> None:
    """A loop that makes and drops a tensor makes a new storage every time."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        total = x
        for _ in range(5):
            total = total + x.cos().sum()
        return total

    profile = profile_call(forward, torch.zeros(4), target="cuda", backward=False)
    born = [s for s in profile.storages if s.birth_op_id >= 0]
    assert len(born) == 3 * 5
    assert profile.totals.kept_bytes == 16
    # Most at once: x, the running total, the cosine and its sum; or both totals and the sum.
    assert profile.totals.peak_bytes == 16 + 16 + 16 + 4


# --- M02: bytes come from the storage -----------------------------------------------------------


def _zeros(*shape: int, **options: Any) -> torch.Tensor:
    return torch.zeros(shape, **options)


HALF = torch.float16
MADE: dict[str, tuple[Callable[..., torch.Tensor], int]] = {
    # What a model returns, and the bytes that stay alive for it when forward ends.
    "slice": (lambda: _zeros(1 << 18)[:3], 1048576),
    "clone of a slice": (lambda: _zeros(1 << 18)[:3].clone(), 12),  # noqa: PLW0108  # made anew
    "expanded": (lambda: _zeros(64, 1, dtype=HALF).expand(64, 5000), 128),
    "cast after expanding": (lambda: _zeros(64, 1, dtype=HALF).expand(64, 5000).float(), 1280000),
    "cast before expanding": (lambda: _zeros(64, 1, dtype=HALF).float().expand(64, 5000), 256),
    "transposed": (lambda: _zeros(64, 32).t(), 8192),
    "transposed and flattened": (lambda: _zeros(64, 32).t().reshape(-1), 8192),
    "gap": (lambda: torch.empty_strided((2, 3), (100, 1)), 412),
    "empty": (lambda: _zeros(3, 0, 7), 0),
    "chunk": (lambda: _zeros(8, 300).chunk(3, 1)[1], 9600),
    "bool": (lambda: torch.empty(5, dtype=torch.bool), 5),
    "bfloat16": (lambda: torch.empty(5, dtype=torch.bfloat16), 10),
    "float8": (lambda: torch.empty(5, dtype=torch.float8_e4m3fn), 5),
    "int64": (lambda: torch.empty(5, dtype=torch.int64), 40),
    "complex64": (lambda: torch.empty(5, dtype=torch.complex64), 40),
    "complex128": (lambda: torch.empty(5, dtype=torch.complex128), 80),
    # Others.
    "float8 of the other kind": (lambda: torch.empty(5, dtype=torch.float8_e5m2), 5),
    "complex32": (lambda: torch.empty(5, dtype=torch.complex32), 20),
    "int8": (lambda: torch.empty(5, dtype=torch.int8), 5),
    "uint16": (lambda: torch.empty(5, dtype=torch.uint16), 10),
    "float64": (lambda: torch.empty(5, dtype=torch.float64), 40),
    "one of a stack": (lambda: torch.stack([_zeros(10), _zeros(10)])[0], 80),
    "last of a split": (lambda: _zeros(10, 7).split([3, 4], dim=1)[1], 280),
    "unbound": (lambda: _zeros(5, 8).unbind()[2], 160),
    "diagonal": (lambda: _zeros(6, 6).diagonal(), 144),
    "every other": (lambda: _zeros(10)[::2], 40),
    "every other, dense": (lambda: torch.clone(_zeros(10)[::2]), 20),
    "unfolded": (lambda: _zeros(10).unfold(0, 3, 1), 40),
    "sliding windows, dense": (lambda: _zeros(10).unfold(0, 3, 1).contiguous(), 96),
    "real part": (lambda: torch.zeros(5, dtype=torch.complex64).real, 40),
    "as real": (lambda: torch.view_as_real(torch.zeros(5, dtype=torch.complex64)), 40),
    "conjugate": (lambda: torch.zeros(5, dtype=torch.complex64).conj(), 40),
    "conjugate, resolved": (lambda: torch.zeros(5, dtype=torch.complex64).conj().resolve_conj(),
                            40),
    "other dtype, same bytes": (lambda: _zeros(6).view(torch.int16), 24),
    "already contiguous": (lambda: _zeros(4, 4).contiguous(), 64),
    "same dtype": (lambda: _zeros(4, 4).to(torch.float32), 64),
    "copy asked for": (lambda: _zeros(4, 4).to(torch.float32, copy=True), 64),
    "channels last": (lambda: _zeros(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),
                      384),
    "mask": (lambda: _zeros(10) > 0, 10),
    "index": (lambda: _zeros(10, 4).argmax(1), 80),
    "sum of a mask": (lambda: torch.sum(_zeros(10) > 0), 8),
    "scalar": (lambda: torch.full((), 1.5), 4),
    "broadcast view": (lambda: torch.broadcast_to(_zeros(1, 3), (1000, 3)), 12),
    "one row of an outer sum": (lambda: (_zeros(10, 1) + _zeros(10))[0], 400),
    "permuted": (lambda: _zeros(2, 3, 4).permute(2, 0, 1), 96),
    "flattened, permuted": (lambda: _zeros(2, 3, 4).permute(2, 0, 1).flatten(), 96),
    "as strided": (lambda: _zeros(100).as_strided((2, 2), (50, 1)), 400),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MADE)
def test_what_stays_alive_is_the_whole_storage(name: str, target: str) -> None:
    """Views keep all of their storage, copies their own, dtypes and gaps count as they are."""
    make, expected = MADE[name]
    profile = profile_call(lambda _: make(), torch.zeros(1), target=target)
    assert profile.totals.kept_bytes == expected
    assert alive_at_end_of_forward(profile) == expected
    real = make()  # the same on a real CPU
    assert real.untyped_storage().nbytes() == expected


@pytest.mark.parametrize("target", TARGETS)
def test_inputs_and_weights_count_by_storage(target: str) -> None:
    """An expanded input, two views of one storage, and a weight that is a slice of a larger one."""
    model = nn.Linear(3, 2, bias=False)
    model.weight = nn.Parameter(torch.zeros(1000)[:6].view(2, 3))
    shared = torch.zeros(4, 6)
    args = (torch.zeros(1, 3).expand(50, 3), shared[:, :3], shared[:, 3:])
    profile = profile_call(
        lambda layer, a, b, c: layer(a).sum() + layer(b).sum() + layer(c).sum(),
        *args, members={"layer": model}, target=target,
    )  # fmt: skip
    assert profile.totals.input_bytes == 12 + 96
    assert profile.totals.param_bytes == 4000
    assert profile.totals.param_count == 6
    grads = [s.size_bytes for s in profile.storages if s.storage_class == "gradient"
             and s.death_op_id == profile.totals.op_count]  # fmt: skip
    assert grads == [24]  # a gradient is dense


SAVED: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], int]] = {
    # What autograd keeps of what forward made; the inputs are no part of it.
    "slice saved": (lambda x: x.exp()[:, :1].cos(), (grad(64, 64),), 64 * 64 * 4),
    # exp keeps its result, 16,384 bytes; the cosine keeps the slice of it: one storage.
    "slice cloned first": (lambda x: x.neg()[:, :1].clone().cos(), (grad(64, 64),), 64 * 4),
    # Negation keeps nothing; the cosine keeps the clone.
    "expanded and saved": (lambda x: x.neg().expand(64, 1000).cos(), (grad(64, 1),), 64 * 4),
    "expanded, made dense": (lambda x: x.neg().expand(64, 10).clone().cos(), (grad(64, 1),), 2560),
    "mask saved": (lambda x: x.neg().masked_fill(torch.ones(8, 8, dtype=torch.bool,
                                                            device=x.device), 0.0),
                   (grad(8, 8),), 64),
    "where saves the condition": (lambda x: torch.where(x > 0, x, -x), (grad(8, 8),), 64),
    "complex saved": (lambda x: (x * 1j).exp(), (grad(10),), 10 * 8),
    "chunk saved whole": (lambda x: x.neg().chunk(3, 1)[1].cos(), (grad(8, 300),), 9600),
    "clamp keeps its input": (lambda x: x.neg().clamp(0, 1), (grad(10),), 40),
    "maximum keeps places": (lambda x: x.neg().max(1).values, (grad(4, 10),), 4 * 8),
    "sorting keeps places": (lambda x: x.sort().values, (grad(10),), 80),
    "two of three": (lambda x: torch.addcmul(x, x.neg(), x.sin()), (grad(10),), 2 * 40),
    "pooling keeps places": (lambda x: F.max_pool2d(x.neg(), 2), (grad(1, 2, 4, 4),),
                             128 + 2 * 4 * 8),
    "average pooling keeps its input": (lambda x: F.avg_pool2d(x.neg(), 2), (grad(1, 2, 4, 4),),
                                        128),
    "division keeps both": (lambda x: x.neg() / x.exp(), (grad(10),), 80),
    "square root keeps its result": (lambda x: x.sqrt(), (grad(10),), 40),
    "power keeps its base": (lambda x: x.neg() ** 3, (grad(10),), 40),
    "number times tensor keeps nothing": (lambda x: 3 * x.neg(), (grad(10),), 0),
    "sum keeps nothing": (lambda x: x.neg().sum(), (grad(10),), 0),
    "cat keeps nothing": (lambda x: torch.cat([x.neg(), x.neg()]), (grad(10),), 0),
    "mean keeps nothing": (lambda x: x.neg().mean(0), (grad(10, 2),), 0),
    "embedding keeps its indices": (
        lambda w: F.embedding(torch.arange(6, device=w.device), w), (grad(10, 4),), 48),
    "softmax keeps its result": (lambda x: x.softmax(1), (grad(4, 8),), 128),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SAVED)
def test_saved_for_backward_counts_each_storage_once(name: str, target: str) -> None:
    """Slices keep all, expanded tensors little, masks a byte, places eight."""
    function, args, expected = SAVED[name]
    profile = profile_call(function, *args, target=target)
    # Python numbers are saved as host scalars: memory of a CPU, not of a GPU.
    scalars = {"complex saved": 16, "number times tensor keeps nothing": 8}.get(name, 0)
    assert saved_bytes(profile) == expected + (scalars if target == "cpu" else 0)
    assert _really_saved(function, *args) == expected  # hooks are not shown such scalars


def _really_saved(function: Callable[..., Any], *args: torch.Tensor) -> int:
    """Return the bytes of distinct storages that a real CPU run keeps beyond its inputs."""
    skip = {t.untyped_storage()._cdata for t in args}
    seen: dict[int, int] = {}

    def pack(t: torch.Tensor) -> torch.Tensor:
        if t.untyped_storage()._cdata not in skip:
            seen[t.untyped_storage()._cdata] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        result = function(*args)
    del result
    return sum(seen.values())


# --- M03: activations in place ------------------------------------------------------------------

A = 2 * 8 * 8 * 8 * 4  # one activation
STATISTICS = 2 * 8 * 4
# What the derivative reads: the result, the input, or both alike.
IN_PLACE: dict[str, tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor], str]] = {
    "relu": (F.relu, F.relu_, "result"),
    "leaky relu": (F.leaky_relu, F.leaky_relu_, "either"),
    "elu": (F.elu, F.elu_, "either"),
    "celu": (F.celu, F.celu_, "either"),
    "selu": (F.selu, F.selu_, "either"),
    "threshold": (
        lambda t: F.threshold(t, 0.1, 0.0),
        lambda t: F.threshold_(t, 0.1, 0.0),
        "input",
    ),
    "sigmoid": (torch.sigmoid, torch.sigmoid_, "result"),
    "tanh": (torch.tanh, torch.tanh_, "result"),
    "exp": (torch.exp, torch.exp_, "result"),
    "relu6": (F.relu6, lambda t: F.relu6(t, inplace=True), "input"),
    "hardtanh": (F.hardtanh, F.hardtanh_, "input"),
    "silu": (F.silu, lambda t: F.silu(t, inplace=True), "input"),
    "hardswish": (F.hardswish, lambda t: F.hardswish(t, inplace=True), "input"),
    "hardsigmoid": (F.hardsigmoid, lambda t: F.hardsigmoid(t, inplace=True), "input"),
    "mish": (F.mish, lambda t: F.mish(t, inplace=True), "input"),
}


def conv_norm_act(act: Callable[..., torch.Tensor], target: str, **options: Any) -> Any:
    """Return the totals of convolution, batch norm and activation on 2 x 8 x 8 x 8."""
    members = {"conv": nn.Conv2d(3, 8, 3, padding=1, bias=False), "norm": nn.BatchNorm2d(8)}
    return profile_call(
        lambda conv, norm, x: act(norm(conv(x))),
        torch.zeros(2, 3, 8, 8), members=members, target=target, **options,
    ).totals  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", IN_PLACE)
def test_activation_in_place_saves_what_its_derivative_allows(name: str, target: str) -> None:
    """Whose derivative reads the result lowers the peak; whose reads the input is cloned first."""
    plain, in_place, reads = IN_PLACE[name]
    held = conv_norm_act(plain, target).kept_bytes
    held_in_place = conv_norm_act(in_place, target).kept_bytes
    # Batch norm keeps its input (A) and statistics; the result is alive (A); where the derivative
    # reads the input, batch norm's output is kept as well (A).
    more = 0 if reads == "result" else A
    assert held == 2 * A + STATISTICS + more
    assert held_in_place == 2 * A + STATISTICS + (A if reads == "input" else 0)


@pytest.mark.parametrize("target", TARGETS)
def test_activation_in_place_has_the_figures_of_the_reports(target: str) -> None:
    """Held 8,256, 8,256 and 12,352; peaks of forward 12,352 and 8,256."""

    def run(act: Callable[..., torch.Tensor]) -> tuple[int, int]:
        totals = conv_norm_act(act, target, backward=False)
        before = totals.param_bytes + totals.buffer_bytes + totals.input_bytes
        return totals.kept_bytes, totals.peak_bytes - before

    assert run(F.relu) == (8256, 12352)
    assert run(F.relu_) == (8256, 8256)
    assert run(F.relu6)[0] == run(lambda t: F.relu6(t, inplace=True))[0] == 12352


@pytest.mark.parametrize("target", TARGETS)
def test_call_in_place_leaves_no_output_of_its_own(target: str) -> None:
    """``fwd_out`` is 0 for views and calls in place, A for others."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        y = x.cos()
        z = y.view(-1)
        z.relu_()
        return z.sin()

    profile = profile_call(forward, grad(4, 256), target=target)
    out = {
        node.name: profile.mem_stats[node.node_id].fwd_out_bytes
        for node in profile.nodes
        if node.kind.startswith("call")
    }
    assert out == {"cos": 4096, "view": 0, "relu": 0, "sin": 4096}


# --- M04: what backward keeps -------------------------------------------------------------------

KEPT: dict[str, tuple[Callable[..., Any], int | None]] = {
    # x is (4, 256), one activation is 4,096 bytes; the linear's weight is 256 x 256.
    "square of an input": (lambda _, x: x * x, 0),
    "square": (lambda _, x: (y := -x) * y, 4096),
    "linear, relu, linear": (lambda w, x: F.linear(F.relu(F.linear(x, w)), w), 4096),
    "linear, gelu, linear": (lambda w, x: F.linear(F.gelu(F.linear(x, w)), w), 8192),
    "cross entropy": (
        lambda _, x: F.cross_entropy(x, torch.zeros(4, dtype=torch.long, device=x.device)),
        4096 + 4 * 8 + 4),
    # Others: chains.
    "linear, silu, linear": (lambda w, x: F.linear(F.silu(F.linear(x, w)), w), 8192),
    "linear, tanh, linear": (lambda w, x: F.linear(torch.tanh(F.linear(x, w)), w), 4096),
    "linear, sigmoid, linear": (lambda w, x: F.linear(torch.sigmoid(F.linear(x, w)), w), 4096),
    "linear, softmax, linear": (lambda w, x: F.linear(F.linear(x, w).softmax(1), w), 4096),
    "linear, linear": (lambda w, x: F.linear(F.linear(x, w), w), 4096),
    "gated": (lambda w, x: F.silu(F.linear(x, w)) * F.linear(x, w), 3 * 4096),
    # Others: losses; log-probabilities, labels, weights, inputs and targets as each reads them.
    "nll": (
        lambda _, x: F.nll_loss(F.log_softmax(x, 1),
                                torch.zeros(4, dtype=torch.long, device=x.device)),
        4096 + 32 + 4),
    "cross entropy, smoothed": (
        lambda _, x: F.cross_entropy(x, torch.zeros(4, dtype=torch.long, device=x.device),
                                     label_smoothing=0.1),
        None),
    "cross entropy of probabilities": (
        lambda _, x: F.cross_entropy(x, torch.zeros(4, 256, device=x.device)), None),
    "mean squared error": (lambda _, x: F.mse_loss(-x, torch.zeros(4, 256, device=x.device)),
                           8192),
    "absolute error": (lambda _, x: F.l1_loss(-x, torch.zeros(4, 256, device=x.device)), None),
    "smooth absolute error": (
        lambda _, x: F.smooth_l1_loss(-x, torch.zeros(4, 256, device=x.device)), 8192),
    "huber": (lambda _, x: F.huber_loss(-x, torch.zeros(4, 256, device=x.device)), 8192),
    "binary cross entropy with logits": (
        lambda _, x: F.binary_cross_entropy_with_logits(
            -x, torch.zeros(4, 256, device=x.device)), 8192),
    "divergence": (
        lambda _, x: F.kl_div(F.log_softmax(x, 1), torch.ones(4, 256, device=x.device)), None),
    "cosine embedding": (
        lambda _, x: F.cosine_embedding_loss(x, x.neg(), torch.ones(4, device=x.device)), None),
    # Others: norms; the input, statistics per row or group.
    "layer norm": (lambda _, x: F.layer_norm(-x, (256,)), 4096 + 2 * 4 * 4),
    "group norm": (lambda _, x: F.group_norm(-x, 8), 4096 + 2 * 4 * 8 * 4),
    "batch norm": (
        lambda _, x: F.batch_norm(-x, None, None, training=True), 4096 + 2 * 256 * 4),
    "instance norm": (
        lambda _, x: F.instance_norm(-x.view(4, 16, 16)), 4096 + 2 * 4 * 16 * 4),
    "normalize": (lambda _, x: F.normalize(-x), None),
    "rms norm": (lambda _, x: F.rms_norm(-x, (256,)), None),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_backward_keeps_distinct_storages_without_inputs_and_weights(name: str) -> None:
    """What autograd keeps is counted once, whichever node keeps it; a real CPU run agrees."""
    function, expected = KEPT[name]
    weight, x = nn.Parameter(torch.ones(256, 256)), grad(4, 256)
    profile = profile_call(function, x, members={"w": weight}, target="cpu")
    really = _really_saved(function, weight, x)
    assert saved_bytes(profile) == really
    if expected is not None:
        assert really == expected
        on_cuda = profile_call(function, x, members={"w": weight}, target="cuda")
        assert saved_bytes(on_cuda) == expected


# --- M05: dropout -------------------------------------------------------------------------------

DROPOUTS: dict[str, tuple[Callable[..., torch.Tensor], tuple[int, ...], int, int]] = {
    # bytes kept on a GPU and on a CPU
    "dropout": (lambda x: F.dropout(x, 0.5), (4, 256), 1024, 4096),
    # Whole channels: a mask of one value per channel, on every device.
    "dropout1d": (lambda x: F.dropout1d(x, 0.5), (4, 8, 32), 4 * 8 * 4, 4 * 8 * 4),
    "dropout2d": (lambda x: F.dropout2d(x, 0.5), (4, 8, 4, 8), 4 * 8 * 4, 4 * 8 * 4),
    "dropout3d": (lambda x: F.dropout3d(x, 0.5), (4, 8, 2, 4, 4), 4 * 8 * 4, 4 * 8 * 4),
    # In place there is no fused kernel.
    "dropout in place": (lambda x: F.dropout(x.neg(), 0.5, inplace=True), (4, 256), 4096, 4096),
    # Nothing dropped: no mask.
    "dropout of nothing": (lambda x: F.dropout(x, 0.0), (4, 256), 0, None),
    "evaluation": (lambda x: F.dropout(x, 0.5, training=False), (4, 256), 0, 0),
    # A binary mask in the dtype of the input, twice: its noise is scaled into another.
    "alpha dropout": (lambda x: F.alpha_dropout(x, 0.5), (4, 256), None, None),
    "feature alpha dropout": (lambda x: F.feature_alpha_dropout(x, 0.5), (4, 8, 32), None, None),
}  # fmt: skip


@pytest.mark.parametrize("name", DROPOUTS)
def test_dropout_keeps_a_byte_per_element_on_a_gpu(name: str) -> None:
    """The fused kernel keeps a bool mask; a CPU, and kinds without fused kernel, a float one."""
    function, shape, on_cuda, on_cpu = DROPOUTS[name]
    cuda = profile_call(function, grad(*shape), target="cuda")
    cpu = profile_call(function, grad(*shape), target="cpu")
    assert saved_bytes(cpu) == _really_saved(function, grad(*shape))
    if on_cuda is not None:
        assert saved_bytes(cuda) == on_cuda
    else:  # no fused kernel: as on a CPU
        assert saved_bytes(cuda) == saved_bytes(cpu)
    if on_cpu is not None:
        assert saved_bytes(cpu) == on_cpu


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dropout_mask_does_not_grow_with_the_dtype(dtype: torch.dtype) -> None:
    """One byte per element on a GPU; on a CPU the mask has the input's dtype."""
    x = grad(4, 256, dtype=dtype)
    assert saved_bytes(profile_call(lambda x: F.dropout(x, 0.5), x, target="cuda")) == 1024
    on_cpu = profile_call(lambda x: F.dropout(x, 0.5), x, target="cpu")
    assert saved_bytes(on_cpu) == 1024 * dtype.itemsize


def test_dropout_layers_inside_others_follow_the_target() -> None:
    """An encoder layer with dropout keeps less on a GPU than on a CPU."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.5, batch_first=True)
    x = torch.zeros(2, 8, 16)
    cuda, cpu = (profile_model(layer, (x,), target=t).totals.kept_bytes for t in ("cuda", "cpu"))
    masks = 2 * 8 * 16 + 2 * 8 * 16 + 2 * 8 * 32  # after attention, at the end, inside
    assert cpu - cuda >= 3 * masks


# --- M06: attention -----------------------------------------------------------------------------


@pytest.mark.parametrize("length", [128, 1024])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_fused_attention_is_linear_in_the_sequence(length: int, dtype: torch.dtype) -> None:
    """Output and log-sum-exp, and two seeds of the random state on a GPU; unfused, the scores."""
    h, d = 8, 64
    qkv = [torch.zeros(1, h, length, d, dtype=dtype, requires_grad=True) for _ in "qkv"]
    fused = h * length * d * 2 + h * length * 4
    assert fused == {128: 135168, 1024: 1081344}[length]
    unfused = 3 * h * length * d * 4 + h * length * length * 4
    assert unfused == {128: 1310720, 1024: 39845888}[length]
    call = F.scaled_dot_product_attention
    assert saved_bytes(profile_call(call, *qkv, target="cpu")) == fused
    assert saved_bytes(profile_call(call, *qkv, target="meta")) == unfused
    assert 0 <= saved_bytes(profile_call(call, *qkv, target="cuda")) - fused <= 32
    math = profile_call(call, *qkv, target="cuda", attention="math")
    assert saved_bytes(math) >= h * length * length * 2


@pytest.mark.parametrize("attention", ["auto", "flash", "efficient"])
@pytest.mark.parametrize("causal", [False, True])
def test_fused_attention_keeps_no_scores_whatever_kernel(attention: str, causal: bool) -> None:
    """Twice the length keeps twice the bytes."""

    def kept(length: int) -> int:
        qkv = [grad(1, 4, length, 32, dtype=torch.float16) for _ in "qkv"]
        profile = profile_call(
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
            *qkv, attention=attention,
        )  # fmt: skip
        return saved_bytes(profile)

    assert kept(1024) - kept(512) == 4 * 512 * (32 * 2 + 4)


def test_grouped_heads_repeat_no_keys_where_the_kernel_groups() -> None:
    """With more keys than queries, flash attention keeps what the queries' heads make."""
    q, k, v = (
        grad(2, 6, 3, 8, dtype=HALF),
        grad(2, 2, 64, 8, dtype=HALF),
        grad(2, 2, 64, 8, dtype=HALF),
    )
    profile = profile_call(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), q, k, v
    )  # fmt: skip
    output, log_sum_exp = 2 * 6 * 3 * 8 * 2, 2 * 6 * 3 * 4
    assert 0 <= saved_bytes(profile) - output - log_sum_exp <= 32


# --- M07: batch norm ----------------------------------------------------------------------------

NORMS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    # layer, shape of its input, bytes kept in training beyond input, weights and buffers
    "batch norm": (lambda: nn.BatchNorm2d(8), (2, 8, 4, 4), 64),
    "batch norm 1d": (lambda: nn.BatchNorm1d(8), (4, 8), 64),
    "batch norm 1d, long": (lambda: nn.BatchNorm1d(8), (4, 8, 3), 64),
    "batch norm 3d": (lambda: nn.BatchNorm3d(8), (2, 8, 2, 2, 2), 64),
    "without weights": (lambda: nn.BatchNorm2d(8, affine=False), (2, 8, 4, 4), 64),
    "without buffers": (lambda: nn.BatchNorm2d(8, track_running_stats=False), (2, 8, 4, 4), 64),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("name", NORMS)
def test_batch_norm_keeps_statistics_only_where_it_makes_them(
    name: str, train: bool, target: str
) -> None:
    """64 bytes in training, none in evaluation with running statistics; buffers stay buffers."""
    build, shape, kept = NORMS[name]
    profile = profile_model(build().train(train), (grad(*shape),), target=target)
    running = name != "without buffers"
    assert saved_bytes(profile) == (kept if train or not running else 0)
    assert profile.totals.buffer_bytes == (72 if running else 0)
    size = 4 * torch.Size(shape).numel()
    assert profile.totals.kept_bytes == size + (kept if train or not running else 0)


@pytest.mark.parametrize("target", TARGETS)
def test_frozen_norm_under_a_training_parent_keeps_nothing(target: str) -> None:
    """Each module's own mode decides."""
    net = nn.Sequential(nn.BatchNorm2d(8), nn.BatchNorm2d(8))
    net[0].eval()
    profile = profile_model(net, (grad(2, 8, 4, 4),), target=target)
    # The first one's output is the second one's input (1,024 bytes) and kept with its statistics.
    assert saved_bytes(profile) == 1024 + 64


@pytest.mark.parametrize("target", TARGETS)
def test_group_and_instance_norm_keep_statistics_in_every_mode(target: str) -> None:
    """They have no running statistics: evaluation keeps what training keeps."""
    for train in (True, False):
        group = profile_model(nn.GroupNorm(2, 8).train(train), (grad(2, 8, 4, 4),), target=target)
        assert saved_bytes(group) == 2 * 2 * 2 * 4
        layer = profile_model(nn.LayerNorm(16).train(train), (grad(2, 8, 16),), target=target)
        assert saved_bytes(layer) == 2 * 16 * 4


# --- M08: tied weights --------------------------------------------------------------------------


class TiedByAttribute(nn.Module):
    """Embedding and projection are one parameter."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(10, 4)
        self.out = nn.Linear(4, 10, bias=False)
        self.out.weight = self.emb.weight

    def forward(self, i: torch.Tensor) -> torch.Tensor:
        """Return scores."""
        return self.out(self.emb(i))


class TiedByModule(TiedByAttribute):
    """The very module is used twice, its weight transposed by a function."""

    def __init__(self):
        nn.Module.__init__(self)
        self.emb = nn.Embedding(10, 4)
        self.again = self.emb

    def forward(self, i: torch.Tensor) -> torch.Tensor:
        """Return scores."""
        return F.linear(self.emb(i), self.again.weight)


class TiedByData(TiedByAttribute):
    """Two parameters on one storage: one memory, but two gradients, as in torch."""

    def __init__(self):
        super().__init__()
        self.out.weight = nn.Parameter(self.emb.weight.data)


def built_on_meta(build: Callable[[], nn.Module]) -> nn.Module:
    """Build a model on the meta device."""
    with torch.device("meta"):
        return build()


@pytest.mark.parametrize("place", ["cpu", "meta"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("build", "grad_bytes"), [(TiedByAttribute, 160), (TiedByModule, 160), (TiedByData, 320)]
)
def test_tied_weights_stay_tied(
    build: Callable[[], nn.Module], grad_bytes: int, target: str, place: str
) -> None:
    """160 bytes of parameters, one gradient per parameter, forward 480 FLOPs, backward 960."""
    model = built_on_meta(build) if place == "meta" else build()
    profile = profile_model(model, (torch.zeros(2, 3, dtype=torch.long),), target=target)
    totals = profile.totals
    assert totals.param_bytes == 160
    assert (2 * totals.fwd_macs, 2 * totals.bwd_macs) == (480, 960)
    left = [s.size_bytes for s in profile.storages if s.storage_class == "gradient"
            and s.death_op_id == totals.op_count and s.size_bytes == 160]  # fmt: skip
    assert sum(left) == grad_bytes
    assert sum(profile.mem_stats.column("param_bytes")) == 160


@pytest.mark.parametrize("target", TARGETS)
def test_layer_used_three_times_has_one_weight_and_one_gradient(target: str) -> None:
    """A recurrence over one layer counts its parameters once and its work thrice."""
    profile = profile_call(
        lambda layer, x: layer(layer(layer(x))),
        torch.zeros(2, 4), members={"layer": nn.Linear(4, 4, bias=False)}, target=target,
    )  # fmt: skip
    assert profile.totals.param_bytes == 64
    assert profile.totals.fwd_macs == 3 * 2 * 16
    assert sum(profile.mem_stats.column("param_bytes")) == 64


# --- M11: optimizers ----------------------------------------------------------------------------

OPTIMIZERS: dict[str, tuple[Any, int, int]] = {
    # bytes of state on the device per 1,000 parameters of float32, and bytes on the host
    "adam": (torch.optim.Adam, 8000, 4),
    "adam without first moment": (lambda p: torch.optim.Adam(p, betas=(0.0, 0.999)), 8000, 4),
    "adam, amsgrad": (lambda p: torch.optim.Adam(p, amsgrad=True), 12000, 4),
    "adam, weight decay": (lambda p: torch.optim.Adam(p, weight_decay=0.1), 8000, 4),
    "adam, foreach": (lambda p: torch.optim.Adam(p, foreach=True), 8000, 4),
    "adamw": (torch.optim.AdamW, 8000, 4),
    "adamw, amsgrad": (lambda p: torch.optim.AdamW(p, amsgrad=True), 12000, 4),
    "nadam": (torch.optim.NAdam, 8000, 8),
    "radam": (torch.optim.RAdam, 8000, 4),
    "adamax": (torch.optim.Adamax, 8000, 4),
    "sgd": (lambda p: torch.optim.SGD(p, lr=0.1), 0, 0),
    "momentum": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), 4000, 0),
    "nesterov": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True), 4000, 0),
    "sgd, weight decay": (lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.1), 0, 0),
    "rmsprop": (torch.optim.RMSprop, 4000, 4),
    "rmsprop, centered": (lambda p: torch.optim.RMSprop(p, centered=True, momentum=0.9), 12000, 4),
    "adagrad": (torch.optim.Adagrad, 4000, 4),
    "adadelta": (torch.optim.Adadelta, 8000, 4),
    # Its step reads values: it is run for real, where host and device are one.
    "rprop": (torch.optim.Rprop, 8004, 0),
    "asgd": (torch.optim.ASGD, None, None),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_state_is_born_at_the_first_step(name: str) -> None:
    """Nothing before the step; moments have the parameter's size; counters stay on the host."""
    factory, on_device, on_host = OPTIMIZERS[name]
    weight = nn.Parameter(torch.ones(1000))
    profile = profile_call(lambda w, x: (w * x).sum(), torch.ones(1000), members={"w": weight},
                           optimizer=factory)  # fmt: skip
    assert profile.totals.unknown_op_count == 0
    first = profile.ops.column("phase").index("optimizer")
    state = [s for s in profile.storages if s.storage_class == "optimizer"]
    assert all(s.birth_op_id >= first for s in state)
    if on_device is not None:
        assert sum(s.size_bytes for s in state if not s.is_host) == on_device
        assert sum(s.size_bytes for s in state if s.is_host) == on_host
    # What the step really leaves: the same optimizer on real tensors.
    real = nn.Parameter(torch.ones(1000))
    real.grad = torch.ones(1000)
    stepper = factory([real])
    stepper.step()
    kept = {
        t.untyped_storage()._cdata: t.untyped_storage().nbytes()
        for t in stepper.state[real].values()
        if isinstance(t, torch.Tensor)
    }
    assert sum(s.size_bytes for s in state) == sum(kept.values())


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "adamw"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("target", ["cuda", "cpu"])
def test_named_optimizers_keep_moments_in_the_parameters_dtype(
    name: str, dtype: torch.dtype, target: str
) -> None:
    """2,000 bytes per moment for 1,000 parameters of bfloat16; host memory is a CPU's memory."""
    weight = nn.Parameter(torch.ones(1000, dtype=dtype))
    profile = profile_call(
        lambda w, x: (w * x).sum(), torch.ones(1000, dtype=dtype),
        members={"w": weight}, optimizer=name, target=target,
    )  # fmt: skip
    moments = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}[name]
    counter = 4 if moments == 2 else 0
    state = [s for s in profile.storages if s.storage_class == "optimizer"]
    on_device = sum(s.size_bytes for s in state if not s.is_host)
    assert on_device == moments * 1000 * dtype.itemsize + (counter if target == "cpu" else 0)
    assert sum(s.size_bytes for s in state) == moments * 1000 * dtype.itemsize + counter


def test_frozen_and_unused_parameters_get_no_state() -> None:
    """State belongs to parameters with gradients."""
    net = nn.Sequential(nn.Linear(10, 10, bias=False), nn.Linear(10, 10, bias=False))
    net[0].requires_grad_(False)
    net.unused = nn.Parameter(torch.ones(500))
    profile = profile_call(
        lambda net, x: net[1](net[0](x)), torch.ones(2, 10), members={"net": net}, optimizer="adam"
    )  # fmt: skip
    state = [s for s in profile.storages if s.storage_class == "optimizer" and not s.is_host]
    assert sum(s.size_bytes for s in state) == 2 * 400


# --- M12: autocast ------------------------------------------------------------------------------

X, W = 4 * 256, 256 * 256


class Thrice(nn.Module):
    """One linear, three times, in an autocast region of its own if a cache is given."""

    def __init__(self, cache: bool | None = None):
        super().__init__()
        self.layer = nn.Linear(256, 256, bias=False)
        self.cache = cache

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the third result."""
        layer = self.layer
        if self.cache is None:
            return layer(layer(layer(x)))
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=self.cache):
            return layer(layer(layer(x)))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("target", ["cuda", "cpu"])
def test_autocast_reaches_meta_tensors(target: str, dtype: str) -> None:
    """One half-precision copy of the weight, three half-precision inputs: 137,216 bytes."""
    profile = profile_model(Thrice(), (torch.zeros(4, 256),), target=target, autocast=dtype)
    assert saved_bytes(profile) == W * 2 + 3 * X * 2 == 137216
    assert profile.nodes[-2].dtype == dtype


@pytest.mark.parametrize(("cache", "expected"), [(True, 137216), (False, 268288)])
def test_autocast_region_of_the_model_is_followed(cache: bool, expected: int) -> None:
    """Without the cache, the second and third call keep copies of their own."""
    profile = profile_model(Thrice(cache), (torch.zeros(4, 256),), target="cpu")
    assert saved_bytes(profile) == expected


AUTOCAST: dict[str, tuple[Callable[..., torch.Tensor], dict[str, Any], tuple[int, ...], str]] = {
    # What runs in half precision and what stays single, by torch's lists for CUDA.
    "conv2d": (lambda m, x: m(x), {"m": nn.Conv2d(3, 4, 3)}, (2, 3, 8, 8), "bfloat16"),
    "conv1d": (lambda m, x: m(x), {"m": nn.Conv1d(3, 4, 3)}, (2, 3, 8), "bfloat16"),
    "transposed": (lambda m, x: m(x), {"m": nn.ConvTranspose2d(3, 4, 3)}, (2, 3, 8, 8),
                   "bfloat16"),
    "bmm": (lambda x: torch.bmm(x, x), {}, (2, 4, 4), "bfloat16"),
    "matmul": (lambda x: x @ x, {}, (4, 4), "bfloat16"),
    "einsum": (lambda x: torch.einsum("ij,jk->ik", x, x), {}, (4, 4), "bfloat16"),
    "softmax": (lambda x: x.softmax(-1), {}, (4, 4), "float32"),
    "log softmax": (lambda x: x.log_softmax(-1), {}, (4, 4), "float32"),
    "layer norm": (lambda m, x: m(x), {"m": nn.LayerNorm(4)}, (4, 4), "float32"),
    "exp": (lambda x: x.exp(), {}, (4, 4), "float32"),
    "relu": (lambda x: x.relu(), {}, (4, 4), "float32"),  # passes dtypes on
    "relu of a product": (lambda x: (x @ x).relu(), {}, (4, 4), "bfloat16"),
    "softmax of a product": (lambda x: (x @ x).softmax(-1), {}, (4, 4), "float32"),
    "sum of both kinds": (lambda x: (x @ x) + x, {}, (4, 4), "float32"),  # promoted
    "cat of both kinds": (lambda x: torch.cat([x @ x, x]), {}, (4, 4), "float32"),
    "mean squared error": (lambda x: F.mse_loss(x @ x, x), {}, (4, 4), "float32"),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x), {}, (1, 2, 4, 8),
                  "bfloat16"),
}  # fmt: skip


@pytest.mark.parametrize("name", AUTOCAST)
def test_autocast_follows_the_lists_of_cuda(name: str) -> None:
    """Products run in half precision, sums and norms in single, others as they get it."""
    function, members, shape, dtype = AUTOCAST[name]
    profile = profile_call(function, grad(*shape), members=members, autocast="bfloat16")
    assert profile.nodes[-2].dtype == dtype
    assert profile.totals.unknown_op_count == 0


@pytest.mark.parametrize("name", [n for n in AUTOCAST if n != "attention"])
def test_autocast_on_a_cpu_keeps_what_a_real_cpu_keeps(name: str) -> None:
    """Saved bytes under autocast equal those of a real run under ``torch.autocast``."""
    function, members, shape, _ = AUTOCAST[name]
    x = grad(*shape)
    profile = profile_call(function, x, members=members, autocast="bfloat16", target="cpu")
    modules = tuple(members.values())
    parameters = [p for m in modules for p in m.parameters()]
    skip = {t.untyped_storage()._cdata for t in (x, *parameters)}
    seen: dict[int, int] = {}

    def pack(t: torch.Tensor) -> torch.Tensor:
        if t.untyped_storage()._cdata not in skip:
            seen[t.untyped_storage()._cdata] = t.untyped_storage().nbytes()
        return t

    with (
        torch.autocast("cpu", torch.bfloat16),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t),
    ):
        result = function(*modules, x)
    assert saved_bytes(profile) == sum(seen.values())
    assert profile.nodes[-2].dtype == str(result.dtype).removeprefix("torch.")
