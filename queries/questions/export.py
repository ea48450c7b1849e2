"""One profile for another program."""

from __future__ import annotations

import click

from queries.cli_options import opened, the_profile
from queries.export import EXPORTS, export_profile
from queries.files import write_whole
from store.command import database_option

_FORMATS = "\n".join(f"  {one.name:11} for {one.read_by}" for one in EXPORTS.values())


@click.command(
    "export",
    short_help="Write one profile for another program.",
    help=f"""Write one profile for another program.

\b
Formats:
{_FORMATS}

\b
Example:
  query-profiles export resnet50 --to minimalloc -o resnet50.csv
""",
)
@click.argument("profile")
@click.option("--to", "name", metavar="NAME", required=True, help="One of those listed below.")
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(dir_okay=False), required=True,
    help="The file to write.",
)  # fmt: skip
@click.option(
    "--device", default="A100", metavar="NAME", show_default=True,
    help="Where times are estimated for.",
)  # fmt: skip
@database_option
def command(profile: str, name: str, output: str, device: str, url: str) -> None:
    """Write one profile to a file."""
    with opened(url) as store:
        data = export_profile(store, the_profile(store, profile), name, device=device)
    write_whole(output, data)
    click.echo(f"{output}: {len(data)} bytes", err=True)
