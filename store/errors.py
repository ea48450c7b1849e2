"""What can go wrong with a store, each in one line that names the thing and the way out."""

from __future__ import annotations


class ProfileError(Exception):
    """The base of every error that this project raises on purpose."""

    # What a command ends with: 2 if what it was asked is wrong, 1 if the work failed.
    exit_status = 2


class StoreError(ProfileError):
    """A database that cannot be opened, read or written."""


class StoreMissing(StoreError):  # noqa: N818  # says what is the matter, like FileNotFoundError's kin
    """No database at this address."""


class StoreOutdated(StoreError):  # noqa: N818
    """A database of an older schema; the message holds the command that upgrades it."""


class StoreTooNew(StoreError):  # noqa: N818
    """A database of a schema that this version does not know."""


class StoreForeign(StoreError):  # noqa: N818
    """A file or database that holds something else than profiles."""


class StoreReadOnly(StoreError):  # noqa: N818
    """A database that may not be changed."""


class StoreFull(StoreError):  # noqa: N818
    """No space left for what was to be written; nothing of it was."""

    exit_status = 1


class StoreFailed(StoreError):  # noqa: N818
    """Reading or writing failed where the database lies."""

    exit_status = 1


class StoreBusy(StoreError):  # noqa: N818
    """Another process kept the database locked for too long."""

    exit_status = 1


class QueryError(StoreError):
    """SQL that the database does not answer with rows."""


class ProfileExists(ProfileError):  # noqa: N818
    """A profile of the same identity is stored already."""


class ProfileMissing(ProfileError, LookupError):  # noqa: N818
    """No profile of this number."""


class InvalidProfile(ProfileError, ValueError):  # noqa: N818
    """A record that does not fit its table."""

    exit_status = 1
