"""What the subcommands of ``query-profiles`` share: options, and opening the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

from queries.tables import FORMATS, Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from store import Store

P = ParamSpec("P")
R = TypeVar("R")


def format_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add ``--format``."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="Tables for people, the others for tools.",
    )(command)


def top_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add ``--top``."""
    return click.option(
        "--top", metavar="N", type=click.IntRange(min=1), help="Show the first N rows only."
    )(command)


def opened(url: str) -> Store:
    """Return the store, open for reading only."""
    from store import open_store

    return open_store(url, read_only=True)


def the_profile(store: Store, name: str) -> int:
    """Return the id of the profile that a name means."""
    from queries.names import find_profile

    return find_profile(store, name)


def cut(table: Table, top: int | None) -> Table:
    """Return the first rows of a table, all without ``top``."""
    return Table(table.columns, table.rows[:top], table.summary)
