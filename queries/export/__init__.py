"""Stored profiles in the formats of other programs, one file per format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queries.errors import QuestionError
from queries.export.chakra import chakra_trace
from queries.export.chrome import chrome_trace
from queries.export.minimalloc import minimalloc_csv
from queries.export.snapshot import memory_snapshot
from queries.export.solver import solver_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from store import Store

__all__ = [
    "EXPORTS",
    "chakra_trace",
    "chrome_trace",
    "export_profile",
    "memory_snapshot",
    "minimalloc_csv",
    "solver_json",
]

EXPORTS: dict[str, Callable[[Store, int, str], bytes]] = {
    "chakra": chakra_trace,
    "chrome": chrome_trace,
    "minimalloc": lambda store, profile_id, _: minimalloc_csv(store, profile_id),
    "snapshot": lambda store, profile_id, _: memory_snapshot(store, profile_id),
    "solver": solver_json,
}


def export_profile(store: Store, profile_id: int, name: str, *, device: str = "A100") -> bytes:
    """Return a stored profile in one of EXPORTS.

    Args:
        store: an open store.
        profile_id: a stored profile.
        name: the format.
        device: a row of ``devices``, for the formats that have times.

    Raises:
        ProfileMissing: if there is no such profile.
        QuestionError: if the format or the device does not exist.
    """
    if name not in EXPORTS:
        raise QuestionError(f"no export {name!r}; exports: {', '.join(EXPORTS)}")
    return EXPORTS[name](store, profile_id, device)
