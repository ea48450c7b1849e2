"""The questions and the exports, for docs/queries.md."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import click

from queries.export import EXPORTS
from queries.questions import question, question_names
from queries.tables import Table, write_table

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOT = re.compile(r"<!-- (\w+) -->\n.*?<!-- end -->", re.DOTALL)
PROGRAM = "query-profiles"


def with_questions(page: str) -> str:
    """Return the page with what the program knows today in its slots."""
    parts = {"questions": _questions(), "exports": _exports(), "help": _help()}

    def filled(slot: re.Match[str]) -> str:
        name = slot.group(1)
        return f"<!-- {name} -->\n{parts.pop(name)}<!-- end -->"

    page = SLOT.sub(filled, page)
    if parts:
        raise LookupError(f"docs/queries.md has no slot for {sorted(parts)}")
    return page


def contexts() -> Iterator[tuple[click.Command, click.Context]]:
    """Yield every subcommand with a context to ask for its help in."""
    for name in question_names():
        command = question(name)
        if command is not None:
            program = click.Context(click.Group(PROGRAM), info_name=PROGRAM)
            yield command, click.Context(command, program, name, terminal_width=100)


def _usage(command: click.Command, context: click.Context) -> str:
    """Return a subcommand with its arguments and the options that it needs."""
    words = [str(command.name)]
    for one in command.params:
        if isinstance(one, click.Argument):
            words.append(one.make_metavar(context))
        elif one.required:
            words += [one.opts[0], one.make_metavar(context)]
    return " ".join(words)


def _questions() -> str:
    rows = [(f"`{_usage(*pair)}`", pair[0].short_help) for pair in contexts()]
    return _markdown(Table(("subcommand", "what it does"), rows))


def _exports() -> str:
    rows = [(f"`{one.name}`", one.read_by, one.holds) for one in EXPORTS.values()]
    return _markdown(Table(("format", "read by", "what it holds"), rows))


def _help() -> str:
    return "\n".join(
        f"### {command.name}\n\n```text\n{command.get_help(context)}\n```\n"
        for command, context in contexts()
    )


def _markdown(table: Table) -> str:
    out = io.StringIO()
    write_table(table, "md", out)
    return out.getvalue()
