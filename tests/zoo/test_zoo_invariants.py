"""What holds for every model of the torchvision zoo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from zoo_profiles import MODELS, check_profile, profile_of

from exporter import profile_model
from exporter.settings import Settings
from store import open_store

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MODELS, "fasterrcnn_mobilenet_v3_large_320_fpn"])
def test_profile_of_zoo_model_satisfies_invariants_and_survives_the_database(
    name: str, tmp_path: Path
) -> None:
    """Sums, lives and addresses agree, and rows read back equal the records written."""
    profile = profile_of(name, Settings())
    check_profile(profile)
    with open_store(f"sqlite:///{tmp_path / 'zoo.db'}", create=True) as store:
        profile_id = store.write(profile)
        same = store.read(profile_id)
        assert same == profile
        assert same.totals.profile_id == profile_id
        assert store.query("PRAGMA integrity_check", {})[1] == [("ok",)]
        assert store.query("PRAGMA foreign_key_check", {})[1] == []


def test_zoo_has_109_models_without_the_detectors() -> None:
    """The zoo is complete."""
    assert len(MODELS) == 109


@pytest.mark.parametrize("name", ["resnet18", "swin_t", "googlenet"])
@pytest.mark.parametrize("target", ["cpu", "meta"])
def test_profile_for_other_targets_satisfies_invariants(name: str, target: str) -> None:
    """The invariants do not depend on the target."""
    check_profile(profile_of(name, Settings(target=target, batch_size=1)))


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adamw"])
def test_profile_with_optimizer_satisfies_invariants(optimizer: str) -> None:
    """An optimizer step is a phase of its own and its state outlives it."""
    profile = profile_of("resnet18", Settings(optimizer=optimizer, batch_size=1))
    check_profile(profile)
    kept = sum(
        s.size_bytes for s in profile.storages if s.storage_class == "optimizer" and not s.is_host
    )
    moments = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}[optimizer]
    assert kept == moments * profile.totals.param_bytes
    assert "optimizer" in profile.ops.column("phase")


def test_profile_of_forward_only_ends_with_forward() -> None:
    """Without backward every operator is forward and what is kept is alive at the end."""
    profile = profile_of("resnet18", Settings(backward=False, mode="eval", batch_size=1))
    check_profile(profile)
    assert set(profile.ops.column("phase")) == {"forward"}


@pytest.mark.parametrize("target", ["cuda", "cpu", "meta"])
@pytest.mark.parametrize(
    "options", [{}, {"bidirectional": True}, {"proj_size": 4}, {"dropout": 0.5}]
)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_satisfy_invariants(
    kind: type[nn.RNNBase], options: dict[str, Any], target: str
) -> None:
    """Gradients of weights that lie in one buffer are one storage, which lives to the end."""
    if "proj_size" in options and kind is not nn.LSTM:
        pytest.skip("only LSTM has projections")
    layer = kind(8, 8, 2, **options)
    profile = profile_model(layer, (torch.ones(5, 3, 8),), target=target)
    check_profile(profile)
    if target == "cuda":
        param_bytes = profile.totals.param_bytes
        gradients = [s for s in profile.storages if s.storage_class == "gradient"]
        assert [s.size_bytes for s in gradients if s.death_op_id == profile.totals.op_count] == [
            param_bytes
        ]
