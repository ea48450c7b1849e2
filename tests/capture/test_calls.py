"""The graph of calls, against torch.fx."""

from __future__ import annotations

import pytest
import torch
import torchvision
from torch import fx, nn

from exporter import profile_model


def _fx_calls(model: nn.Module) -> list[tuple[str, str]]:
    """Return kind and target of every call that symbolic tracing finds, in order."""
    kinds = {"call_module", "call_function", "call_method"}
    return [
        (node.op, node.target if isinstance(node.target, str) else node.target.__name__)
        for node in fx.symbolic_trace(model).graph.nodes
        if node.op in kinds
    ]


def test_calls_of_resnet18_are_those_of_torch_fx() -> None:
    """The same modules and functions in the same order, with names that a person recognises."""
    with torch.device("meta"):
        model = torchvision.models.resnet18(weights=None)
        image = torch.empty(1, 3, 64, 64)
    profile = profile_model(model, (image,))
    calls = [
        (node.kind, node.target.removeprefix("i"))
        for node in profile.nodes
        if node.kind.startswith("call")
    ]
    assert calls == _fx_calls(model)
    names = profile.nodes.column("name")
    assert {"layer1.0.conv1", "layer4.1.relu_1", "add", "add_7", "flatten", "fc"} <= set(names)
    assert (names[0], names[-1]) == ("x", "output")


class _Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.shared(torch.relu(self.shared(x)))


def test_module_called_twice_is_two_nodes() -> None:
    """Each call has its own node, name and figures; the parameters belong to the first."""
    profile = profile_model(_Twice(), (torch.zeros(2, 4),))
    assert profile.nodes.column("name") == ["x", "shared", "relu", "shared_1", "output"]
    assert profile.flop_counts.column("fwd_macs") == [0, 32, 0, 32, 0]
    assert profile.mem_stats.column("param_bytes") == [0, 80, 0, 0, 0]
    shared = next(module for module in profile.modules if module.path == "shared")
    assert shared.call_count == 2
    edges = [(e.src_node_id, e.dst_node_id, e.size_bytes, e.kind) for e in profile.edges]
    assert edges == [(0, 1, 32, "data"), (1, 2, 32, "data"), (2, 3, 32, "data"), (3, 4, 32, "data")]


class _Tries(nn.Module):
    """Goes on without a layer that does not fit, as some models do with optional parts."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(8, 8)
        self.gate = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return self.wide(x)
        except RuntimeError:
            return torch.relu(self.gate(x) + 1)


def test_calls_after_a_leaf_that_failed_are_still_seen() -> None:
    """A leaf module that raises is left like any other: what follows is recorded call by call."""
    profile = profile_model(_Tries(), (torch.zeros(2, 4),))
    names = [node.name for node in profile.nodes if node.name != "wide"]
    assert names == ["x", "gate", "add", "relu", "output"]


class _Interrupted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()
        self.act.register_forward_pre_hook(self._stop)

    def _stop(self, *_: object) -> None:
        raise KeyboardInterrupt

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(x)


def test_an_interruption_inside_a_leaf_leaves_torch_as_it_was() -> None:
    """No mode stays in force when a run is broken off, and the next recording is whole."""
    modes = torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()
    with pytest.raises(KeyboardInterrupt):
        profile_model(_Interrupted(), (torch.zeros(2, 4),))
    after = torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()
    assert after == modes
    profile = profile_model(_Twice(), (torch.zeros(2, 4),))
    assert profile.nodes.column("name") == ["x", "shared", "relu", "shared_1", "output"]


class _Images(nn.Module):
    def forward(self, images: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack([image.mean((1, 2)) for image in images])


def test_batch_size_is_the_number_of_samples() -> None:
    """A list of images is a batch of as many; otherwise the first dimension says it."""
    images = [torch.ones(3, 8, 6), torch.ones(3, 4, 4)]
    assert profile_model(_Images(), (images,)).info.batch_size == 2
    assert profile_model(_Twice(), (torch.zeros(5, 4),)).info.batch_size == 5
