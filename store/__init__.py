"""The store of profiles: records, the database they are kept in, and the way between.

SQLAlchemy is loaded when a name that needs it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from store.revisions import head_revision

if TYPE_CHECKING:
    from store.identities import identity
    from store.session import Store, current_revision, open_store, upgrade_store

__all__ = [
    "DEFAULT_URL",
    "Store",
    "current_revision",
    "head_revision",
    "identity",
    "open_store",
    "upgrade_store",
]

DEFAULT_URL = "sqlite:///data/profiles.db"

_HOMES = dict.fromkeys(__all__, "store.session") | {"identity": "store.identities"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'store' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value  # not asked for again
    return value
