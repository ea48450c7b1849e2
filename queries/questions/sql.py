"""One SELECT."""

from __future__ import annotations

import sys

import click

from queries.cli_options import format_option, opened
from queries.tables import Table, write_table
from store.command import database_option


@click.command("sql", short_help="Answer one SELECT.")
@click.argument("query", required=False)
@database_option
@format_option
def command(query: str | None, url: str, output_format: str) -> None:
    """Answer one SELECT; without QUERY it is read from standard input. Nothing can be changed.

    \b
    Example:
      query-profiles sql 'SELECT model, peak_bytes FROM profile_totals ORDER BY 2 DESC'
    """
    text = query if query is not None else sys.stdin.read()
    with opened(url) as store:
        columns, rows = store.query(text)
    write_table(Table(columns, rows), output_format)
