"""Traces PyTorch models on the meta device and turns them into profiles.

``profile_model`` is imported on first use: it needs torch, which the command does not always.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exporter.profiling import profile_model

__all__ = ["profile_model"]


def __getattr__(name: str) -> Any:
    """Return ``profile_model``, importing torch only now."""
    if name == "profile_model":
        from exporter.profiling import profile_model  # noqa: PLC0415  # imports torch

        return profile_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
