"""One profile as a page to look at."""

from __future__ import annotations

import click

from queries.cli_options import opened, the_profile
from queries.files import write_whole
from queries.report import report_page
from store.command import database_option


@click.command("report", short_help="Write one profile as a page to look at.")
@click.argument("profile")
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(dir_okay=False), required=True,
    help="The page to write.",
)  # fmt: skip
@click.option(
    "--device", default="A100", metavar="NAME", show_default=True,
    help="Where times are estimated for.",
)  # fmt: skip
@database_option
def command(profile: str, output: str, device: str, url: str) -> None:
    """Write one profile as a page to look at; it needs no network.

    \b
    Example:
      query-profiles report resnet50 -o resnet50.html
    """
    with opened(url) as store:
        page = report_page(store, the_profile(store, profile), device)
    write_whole(output, page.encode())
    click.echo(f"{output}: {len(page) / 2**20:.1f} MiB", err=True)
