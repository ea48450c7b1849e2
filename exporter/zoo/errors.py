"""What can go wrong before a model runs."""

from __future__ import annotations

from store.errors import ProfileError


class ZooError(ProfileError):
    """A model cannot be had from a zoo."""


class UnknownZooError(ZooError):
    """No installed package offers a zoo of that name."""


class BuildError(ZooError):
    """The model cannot be built with these settings."""
