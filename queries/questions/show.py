"""All that is known of one profile as a whole."""

from __future__ import annotations

import click

from queries.cli_options import format_option, opened, the_profile
from queries.names import profile_facts
from queries.tables import Table, write_table
from store.command import database_option


@click.command("show", short_help="Show all that is known of one profile.")
@click.argument("profile")
@database_option
@format_option
def command(profile: str, url: str, output_format: str) -> None:
    """Show all that is known of one profile as a whole.

    \b
    Example:
      query-profiles show resnet50@b4
    """
    with opened(url) as store:
        values = profile_facts(store, the_profile(store, profile))
    write_table(Table(("name", "value"), list(values.items())), output_format)
