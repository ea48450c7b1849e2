"""Stored profiles in the formats of other programs, one file per format.

A file registers its format by ``export_format``; nothing else has to know of it.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from queries.errors import QuestionError
from queries.export.registry import EXPORTS

if TYPE_CHECKING:
    from store import Store

__all__ = ["EXPORTS", "export_profile"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


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
    return EXPORTS[name].write(store, profile_id, device)
