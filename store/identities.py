"""What tells one profile, or one model, from another."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from store.columns import columns
from store.records import ProfileInfo
from store.revisions import head_revision

if TYPE_CHECKING:
    from collections.abc import Iterable

_SETTINGS = tuple(item.name for item in columns(ProfileInfo) if not item.declared.is_outcome)


def identity(info: ProfileInfo) -> tuple[Any, ...]:
    """Return what makes a profile this profile: its settings and the schema it is stored in.

    Two profiles of equal identity are the same profile traced twice, so a store holds only one.
    How the run went (``is_outcome``) is left out, so that the identity is known before tracing.
    """
    return (*(getattr(info, name) for name in _SETTINGS), head_revision())


def digest(values: Iterable[Any]) -> str:
    """Return the SHA-256 of some values, as 64 hexadecimal digits.

    Unique columns hold this rather than the values: a configuration may be longer than the
    longest key of an index (2,704 bytes on PostgreSQL).
    """
    text = json.dumps(list(values), ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
