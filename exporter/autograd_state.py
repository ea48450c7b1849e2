"""What surrounds a call of ``profile_model`` and would change the recording unseen."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


def surrounding_autocast(target: str) -> str:
    """Return the dtype of the autocast region of the target that the caller is in, "" outside."""
    if target not in {"cuda", "cpu"} or not torch.is_autocast_enabled(target):
        return ""
    return str(torch.get_autocast_dtype(target)).removeprefix("torch.")


@contextlib.contextmanager
def clean_autograd_state() -> Iterator[None]:
    """Return a context in which a recording means what its settings say.

    The caller's ``no_grad`` holds: a profile of inference has no backward and keeps nothing for
    it. ``inference_mode`` becomes ``no_grad``, as it would hide which operators composite ones are
    made of. Anomaly detection is off, as it reads values. Autocast is off: a region of the target's
    device is among the settings (:func:`surrounding_autocast`).
    """
    records = torch.is_grad_enabled()
    regions = {device: torch.is_autocast_enabled(device) for device in ("cuda", "cpu")}
    with (
        torch.inference_mode(False),
        torch.set_grad_enabled(records),
        torch.autograd.set_detect_anomaly(False),
    ):
        try:
            for device in regions:
                torch.set_autocast_enabled(device, False)
            yield
        finally:
            for device, enabled in regions.items():
                torch.set_autocast_enabled(device, enabled)
