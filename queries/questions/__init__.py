"""The questions, one a file: what it returns in Python, its rows, and its subcommand.

A file ``fewest_bytes.py`` is the subcommand ``fewest-bytes``, which it names ``command``; what it
offers in Python is in its ``__all__``. Nothing else has to know of it. It imports what is slow to
load where that is used, so that the list of all subcommands is shown at once.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click


def question_names() -> list[str]:
    """Return the names of all questions as subcommands, sorted."""
    return sorted(module.name.replace("_", "-") for module in iter_modules(__path__))


def question(name: str) -> click.Command | None:
    """Return the subcommand of a question, None if there is none of that name."""
    if name not in question_names():
        return None
    command: click.Command = import_module(f"{__name__}.{name.replace('-', '_')}").command
    return command
