"""Small wrappers that make any function a model, for tests at the level of profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from exporter import profile_model

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from store.records import Profile


class Call(nn.Module):
    """A model that is one function; members become submodules or parameters."""

    def __init__(self, function: Callable[..., Any], **members: Any) -> None:
        super().__init__()
        self.function = function
        for name, member in members.items():
            if isinstance(member, nn.Module):
                self.add_module(name, member)
            else:
                setattr(self, name, member)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the function makes of the members and the inputs."""
        members = (*self._modules.values(), *self._parameters.values())
        return self.function(*members, *args, **kwargs)


def profile_call(
    function: Callable[..., Any],
    *args: Any,
    train: bool = True,
    members: dict[str, Any] | None = None,
    **options: Any,
) -> Profile:
    """Return the profile of one call of a function on tensors."""
    model = Call(function, **(members or {})).train(train)
    return profile_model(model, args, **options)


def alive_at_end_of_forward(profile: Profile) -> int:
    """Return the device bytes born in forward and alive when it ends, from the storages alone."""
    last = sum(op.phase == "forward" for op in profile.ops) - 1
    return sum(
        s.size_bytes
        for s in profile.storages
        if not s.is_host and 0 <= s.birth_op_id <= last < s.death_op_id
    )


def saved_bytes(profile: Profile, *, classes: tuple[str, ...] = ()) -> int:
    """Return the bytes of distinct storages saved for backward that were born in forward.

    Args:
        profile: of a forward pass.
        classes: classes of storages that count as well, such as "input".
    """
    storages = profile.storages
    homes = profile.tensors.column("storage_id")
    saved = {homes[row.tensor_id] for row in profile.saved_tensors}
    return sum(
        s.size_bytes
        for s in storages
        if s.storage_id in saved
        and not s.is_host
        and (s.storage_class in classes or s.birth_op_id >= 0)
    )


def macs(profile: Profile) -> tuple[int, int]:
    """Return forward and backward multiply-adds; every operator must be counted."""
    assert profile.totals.unknown_op_count == 0
    return profile.totals.fwd_macs, profile.totals.bwd_macs


def storage_of(profile: Profile, tensor: torch.Tensor | int) -> Any:
    """Return the storage of a tensor by its identifier."""
    return profile.storages[profile.tensors[int(tensor)].storage_id]
