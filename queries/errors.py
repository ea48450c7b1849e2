"""What can go wrong with a question, each in one line that names the way out."""

from __future__ import annotations

from store.errors import ProfileError, ProfileMissing

__all__ = ["GraphError", "ProfileNameError", "QuestionError"]


class GraphError(ProfileError, ValueError):
    """A graph, or a weight on it, that has no critical path."""


class ProfileNameError(ProfileMissing):
    """A name that means no stored profile, or more than one."""


class QuestionError(ProfileError, ValueError):
    """An argument that a query has no answer for."""


class OutputError(ProfileError):
    """An answer that cannot be written to where it is to go."""

    exit_status = 1
