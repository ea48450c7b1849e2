"""The help of every command, for docs/cli.md."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from exporter.cli.main import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOT = re.compile(r"<!-- help: (.*?) -->\n.*?<!-- end -->", re.DOTALL)


def commands(
    command: click.Command = cli, name: str = "export-profiles"
) -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its full name."""
    yield name, command
    if isinstance(command, click.Group):
        for child in command.commands.values():
            yield from commands(child, f"{name} {child.name}")


def with_help(page: str) -> str:
    """Return the page with each command's current help in its slot."""
    helps = {}
    for name, command in commands():
        context = click.Context(command, info_name=name, terminal_width=100)
        helps[name] = command.get_help(context)

    def filled(slot: re.Match[str]) -> str:
        name = slot.group(1)
        return f"<!-- help: {name} -->\n```text\n{helps.pop(name)}\n```\n<!-- end -->"

    page = SLOT.sub(filled, page)
    if helps:
        raise LookupError(f"docs/cli.md has no slot for {sorted(helps)}")
    return page
