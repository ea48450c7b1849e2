"""What can go wrong while tracing."""

from __future__ import annotations

from store.errors import ProfileError


class TraceError(ProfileError):
    """A model could not be traced; the text names operator and module, and nothing is stored."""


class UnknownValueError(TraceError):
    """The model asks for a value, or a size that depends on one, that no meta tensor has."""
