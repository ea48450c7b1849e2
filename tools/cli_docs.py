"""Writes the help of every command into docs/cli.md: ``python tools/cli_docs.py``."""

import re
from collections.abc import Iterator
from pathlib import Path

import click

from exporter.cli.main import cli
from tools.arguments import refuse_arguments

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
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


if __name__ == "__main__":
    refuse_arguments(__doc__)
    PAGE.write_text(with_help(PAGE.read_text("utf-8")), "utf-8")
