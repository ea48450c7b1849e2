"""Profiling changes nothing of the caller's, and what surrounds it changes no profile."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import random
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils import parametrizations

from exporter import profile_model
from exporter.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from store.records import Profile


class Recurring(nn.Module):
    """Uses one layer twice, a buffer that it updates, and the random state."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))
        self.seen = []  # a list that forward appends to

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen.append(tuple(x.shape))
        return self.layer(self.layer(x)) + torch.rand(4)


def small_net() -> nn.Module:
    """A frozen norm under a training parent."""
    net = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.SiLU(), nn.Dropout(0.5))
    net[1].eval()
    return net


def with_hooks() -> nn.Module:
    """Forward, pre-forward and backward hooks of the user's."""
    net = small_net()
    net[0].register_forward_hook(lambda *_: None)
    net[2].register_forward_pre_hook(lambda *_: None)
    net[0].register_full_backward_hook(lambda *_: None)
    return net


def with_gradients() -> nn.Module:
    """Gradients of an earlier step."""
    net = small_net()
    net.eval()(torch.ones(2, 3, 4, 4)).sum().backward()
    net.train()
    return net


def parametrized() -> nn.Module:
    """A weight made of two parameters."""
    net = small_net()
    parametrizations.weight_norm(net[0])
    return net


def spectral() -> nn.Module:
    """A weight that every forward in training updates."""
    net = small_net()
    parametrizations.spectral_norm(net[0])
    return net


def on_meta() -> nn.Module:
    """No values at all."""
    return small_net().to("meta")


def frozen() -> nn.Module:
    """Parameters without gradients."""
    net = small_net()
    net[0].requires_grad_(False)
    return net


def in_eval() -> nn.Module:
    """Evaluation mode throughout."""
    return small_net().eval()


NETS: tuple[Callable[[], nn.Module], ...] = (
    small_net, with_hooks, with_gradients, parametrized, spectral, on_meta, frozen, in_eval,
)  # fmt: skip
IMAGES = (2, 3, 4, 4)


def look(model: nn.Module) -> Any:
    """Return all that a caller can see of a model."""

    def values(tensors: Any) -> Any:
        return [
            (name, t.device, t.dtype, t.requires_grad, id(t), t._version,
             None if t.is_meta else t.tolist(),
             None if t.grad is None or t.is_meta else t.grad.tolist())
            for name, t in tensors
        ]  # fmt: skip

    return (
        values(model.named_parameters()),
        values(model.named_buffers()),
        sorted(model.state_dict()),
        [module.training for module in model.modules()],
        [
            [len(hooks) for name, hooks in sorted(vars(module).items()) if name.endswith("hooks")]
            for module in model.modules()
        ],
        [sorted(vars(module)) for module in model.modules()],
        [type(module) for module in model.modules()],
    )


def surroundings() -> Any:
    """Return the global state that profiling could change."""
    return (
        torch.get_rng_state().tolist(),
        random.getstate(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.is_anomaly_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        len(nn.modules.module._global_forward_hooks),
        len(nn.modules.module._global_forward_pre_hooks),
    )


def content(profile: Profile) -> Any:
    """Return a profile without the moment and the time it took."""
    return dataclasses.replace(
        profile,
        info=dataclasses.replace(profile.info, created_at=""),
        totals=dataclasses.replace(profile.totals, seconds=0.0),
    )


@pytest.mark.filterwarnings("ignore:Full backward hook")
@pytest.mark.parametrize("capture", ["meta", "real"])
@pytest.mark.parametrize("target", ["cuda", "cpu", "meta"])
@pytest.mark.parametrize("build", NETS)
def test_profiling_leaves_the_model_as_it_was_and_repeats_itself(
    build: Callable[[], nn.Module], target: str, capture: str
) -> None:
    """Twice the same profile, and nothing of the model or the process has changed."""
    model, args = build(), (torch.ones(IMAGES),)
    before, around = look(model), surroundings()
    options: dict[str, Any] = {"target": target, "capture": capture, "optimizer": "adam"}
    first = content(profile_model(model, args, **options))
    second = content(profile_model(model, args, **options))
    assert first == second
    assert look(model) == before
    assert surroundings() == around
    assert args[0].grad is None
    assert args[0].tolist() == torch.ones(IMAGES).tolist()


@pytest.mark.filterwarnings("ignore:Full backward hook")
@pytest.mark.parametrize("capture", ["meta", "real"])
@pytest.mark.parametrize("build", NETS)
def test_failed_profiling_leaves_the_model_as_it_was(
    build: Callable[[], nn.Module], capture: str
) -> None:
    """A forward that raises (wrong number of channels) leaves no trace either."""
    model = build()
    before, around = look(model), surroundings()
    for _ in range(2):
        with pytest.raises(TraceError):
            profile_model(model, (torch.ones(2, 5, 4, 4),), capture=capture)
    assert look(model) == before
    assert surroundings() == around
    profile_model(model, (torch.ones(IMAGES),))  # and the next one works


def test_profiling_leaves_what_forward_writes_as_it_was() -> None:
    """Buffers and attributes that forward changes, and random numbers, are the copy's."""
    model = Recurring()
    before, around = look(model), surroundings()
    first = content(profile_model(model, (torch.ones(2, 4),), input_grad=True))
    assert first == content(profile_model(model, (torch.ones(2, 4),), input_grad=True))
    assert look(model) == before
    assert surroundings() == around
    assert model.seen == []


def test_profiling_leaves_inputs_that_require_gradients_as_they_were() -> None:
    """The caller's inputs keep their flags, gradients and values."""
    given = torch.ones(2, 4, requires_grad=True)
    profile_model(nn.Linear(4, 4), (given,))
    assert given.requires_grad
    assert given.grad is None
    plain = torch.ones(2, 4)
    profile_model(nn.Linear(4, 4), (plain,), input_grad=True)
    assert not plain.requires_grad


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Change the default dtype for a while."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    """Ask for deterministic algorithms for a while."""
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def default_device() -> Iterator[None]:
    """Make meta the default device for a while."""
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


SURROUNDINGS: dict[str, Callable[[], Any]] = {
    "default dtype float64": lambda: default_dtype(torch.float64),
    "default device meta": default_device,
    "device context meta": lambda: torch.device("meta"),
    "device context cpu": lambda: torch.device("cpu"),
    "deterministic algorithms": deterministic,
    "anomaly detection": torch.autograd.detect_anomaly,
    "enable_grad": torch.enable_grad,
}


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("capture", ["meta", "real"])
@pytest.mark.parametrize("target", ["cuda", "cpu"])
@pytest.mark.parametrize("around", SURROUNDINGS)
def test_surroundings_do_not_change_the_profile(around: str, target: str, capture: str) -> None:
    """What the caller has switched on for other purposes changes no figure, and stays on."""
    model = nn.Sequential(small_net(), nn.Flatten(), nn.TransformerEncoderLayer(48, 2, 8))
    args = (torch.ones(IMAGES),)
    options: dict[str, Any] = {"target": target, "capture": capture, "optimizer": "momentum"}
    expected = content(profile_model(model, args, **options))
    with SURROUNDINGS[around]():
        before = surroundings()
        found = content(profile_model(model, args, **options))
        assert surroundings() == before
    assert found == expected


@pytest.mark.parametrize("capture", ["meta", "real"])
@pytest.mark.parametrize("target", ["cuda", "cpu", "meta"])
def test_inference_mode_and_no_grad_profile_inference(target: str, capture: str) -> None:
    """Composite operators are taken apart under both, nothing is kept and nothing goes backward."""
    model, args = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (torch.ones(3, 5, 8),)
    options: dict[str, Any] = {"target": target, "capture": capture}
    with torch.no_grad():
        expected = content(profile_model(model, args, **options))
    with torch.inference_mode():
        found = content(profile_model(model, args, **options))
    assert found == expected
    totals = found.totals
    assert set(found.ops.column("phase")) == {"forward"}
    assert len(found.saved_tensors) == 0
    assert totals.kept_bytes == 3 * 5 * 8 * 4  # the output
    # Four projections, two products of attention, and the two layers of the feed-forward part.
    assert totals.fwd_macs == 4 * 15 * 8 * 8 + 2 * 3 * 5 * 5 * 8 + 2 * 15 * 8 * 16
    assert totals.unknown_op_count == 0


def test_model_built_under_inference_mode_can_be_profiled_for_training() -> None:
    """Its copy is made of ordinary tensors."""
    with torch.inference_mode():
        model = nn.Linear(4, 2)
        given = torch.ones(3, 4)
    totals = profile_model(model, (given,)).totals
    assert (totals.fwd_macs, totals.bwd_macs) == (24, 24)


@pytest.mark.parametrize("capture", ["meta", "real"])
def test_autocast_around_the_call_is_the_profile_s_autocast(capture: str) -> None:
    """A region of the target's device counts as the setting; of another device, not at all."""
    model, args = nn.Linear(256, 256, bias=False), (torch.zeros(4, 256),)
    options: dict[str, Any] = {"target": "cpu", "capture": capture}
    asked = content(profile_model(model, args, autocast="bfloat16", **options))
    with torch.autocast("cpu", torch.bfloat16):
        before = surroundings()
        around = content(profile_model(model, args, **options))
        assert surroundings() == before
        plain = content(profile_model(model, args, target="cuda", capture=capture))
    assert around == asked
    assert asked.info.autocast == "bfloat16"
    assert plain == content(profile_model(model, args, target="cuda", capture=capture))


def test_default_dtype_decides_what_factories_make() -> None:
    """A first profile under one default dtype does not answer for another."""

    class Positions(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.arange(5.0)

    given = torch.ones(5, dtype=torch.float64)
    single = profile_model(Positions(), (given,))
    with default_dtype(torch.float64):
        double = profile_model(Positions(), (given,))
    sizes = [[t.size_bytes for t in p.tensors if t.op_id == 0] for p in (single, double)]
    assert sizes == [[20], [40]]


def test_copies_of_a_model_profile_alike() -> None:
    """Identity of objects plays no part: a deep copy has the same profile."""
    model, args = small_net(), (torch.ones(IMAGES),)
    assert content(profile_model(model, args)) == content(profile_model(copy.deepcopy(model), args))


@pytest.mark.parametrize("target", ["cuda", "cpu"])
def test_tensors_offloaded_by_hooks_are_not_kept_on_the_device(target: str) -> None:
    """``save_on_cpu`` around a chain keeps its saved tensors in host memory."""

    class Offloaded(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autograd.graph.save_on_cpu():
                return x.exp().exp()

    profile = profile_model(Offloaded(), (torch.ones(1024, requires_grad=True),), target=target)
    if target == "cuda":
        # Each exponential's result is packed into host memory; the first result dies, the second
        # is the model's output.
        assert profile.totals.kept_bytes == 4096
        assert sum(s.size_bytes for s in profile.storages if s.is_host) == 2 * 4096
    else:
        assert profile.totals.kept_bytes == 3 * 4096  # the host is the device


@pytest.mark.parametrize("target", ["cuda", "cpu", "meta"])
def test_profiling_leaves_torchs_kernels_as_they_were(target: str) -> None:
    """Meta and fake tensors run torch's own kernels afterwards."""

    def run(device: str) -> list[Any]:
        image = torch.empty(2, 3, 6, 6, device=device).to(memory_format=torch.channels_last)
        conv = torch.nn.functional.conv2d(image, torch.empty(4, 3, 3, 3, device=device))
        inside = [torch.empty(3, device=device)] * 2
        rows = torch.ops.aten.native_layer_norm(image.permute(0, 2, 3, 1), [3], *inside, 1e-5)
        grads = torch.ops.aten.native_layer_norm_backward(
            torch.empty_like(image).permute(0, 2, 3, 1), image.permute(0, 2, 3, 1), [3], *rows[1:],
            *inside, [True, True, True],
        )  # fmt: skip
        norm = torch.nn.functional.batch_norm(
            image, torch.empty(3, device=device), torch.empty(3, device=device)
        )
        return [(t.shape, t.stride(), t.dtype) for t in (conv, *rows, *grads, norm)]

    def everywhere() -> list[Any]:
        with FakeTensorMode():
            fake = run("cuda")
        return [run("meta"), fake]

    before = everywhere()
    profile_model(small_net(), (torch.ones(IMAGES),), target=target)
    assert everywhere() == before
