"""What tells one profile, or one model, from another."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from store.records import ProfileInfo
from store.revisions import head_revision

if TYPE_CHECKING:
    from collections.abc import Iterable

# Results of profiling rather than its settings: known only once the model has been traced.
OUTCOMES = frozenset({"capture", "built_on", "structural_hash", "created_at"})
_SETTINGS = tuple(f.name for f in fields(ProfileInfo) if f.name not in OUTCOMES)


def identity(info: ProfileInfo) -> tuple[Any, ...]:
    """Return what makes a profile this profile: its settings and the schema it is stored in.

    Two profiles of equal identity are the same profile traced twice, so a store holds only one.
    How the run went (``OUTCOMES``) is left out, so that the identity is known before tracing.
    """
    return (*(getattr(info, name) for name in _SETTINGS), head_revision())


def digest(values: Iterable[Any]) -> str:
    """Return the SHA-256 of some values, as 64 hexadecimal digits.

    Unique columns hold this rather than the values: a configuration may be longer than the
    longest key of an index (2,704 bytes on PostgreSQL).
    """
    text = json.dumps(list(values), ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
