"""The formats that profiles are exported in; each registers itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from store import Store

    Writer = Callable[[Store, int, str], bytes]


@dataclass(frozen=True, slots=True)
class Export:
    """A format of another program."""

    name: str
    read_by: str  # programs
    holds: str
    write: Writer  # of an open store, a stored profile and the name of a device


EXPORTS: dict[str, Export] = {}


def export_format(name: str, *, read_by: str, holds: str) -> Callable[[Writer], Writer]:
    """Return what registers a function as the writer of a format.

    Args:
        name: of the format, as ``--to`` takes it.
        read_by: the programs that it is for.
        holds: what of a profile is in it.
    """

    def register(write: Writer) -> Writer:
        if name in EXPORTS:
            raise ValueError(f"two formats are called {name!r}")
        EXPORTS[name] = Export(name, read_by, holds, write)
        return write

    return register
