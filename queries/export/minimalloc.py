"""Buffers with lifetimes as CSV, for MiniMalloc and the planners that read its format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queries.export.registry import export_format
from queries.fetch import profile_exists, rows_of

if TYPE_CHECKING:
    from store import Store


@export_format(
    "minimalloc",
    read_by="MiniMalloc, omnimalloc and other planners",
    holds="`id,lower,upper,size`: buffers born in the step, half-open lifetimes, "
    "allocator block sizes",
)
def minimalloc_csv(store: Store, profile_id: int, _device: str) -> bytes:
    """Return what is born in the step as ``id,lower,upper,size`` lines.

    Times are steps, half-open: a buffer is alive at ``lower <= i < upper``. Sizes are those of the
    allocator's blocks, rounded up already, since the format's readers ignore alignment.
    What exists before the step, parameters above all, is left out: it never moves.

    Raises:
        ProfileMissing: if there is no such profile.
    """
    profile_exists(store, profile_id)
    rows = rows_of(store, "SELECT id, lower, upper, size FROM v_minimalloc", profile_id, "id")
    return "".join(
        ["id,lower,upper,size\n", *(f"{i},{a},{b},{n}\n" for i, a, b, n in rows)]
    ).encode()
