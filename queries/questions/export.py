"""One profile for another program."""

from __future__ import annotations

import click

from queries.cli_options import opened, the_profile
from queries.export import export_profile
from queries.files import write_whole
from store.command import database_option


@click.command("export", short_help="Write one profile for another program.")
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
    """Write one profile for another program.

    \b
    Formats:
      minimalloc  buffers with lifetimes, CSV for memory planners
      snapshot    a torch memory snapshot, for torch.cuda._memory_viz
      chrome      a trace for Perfetto, chrome://tracing and HTA
      solver      chain, graph and module rows for checkpointing solvers, JSON
      chakra      an MLCommons Chakra execution trace
    \b
    Example:
      query-profiles export resnet50 --to minimalloc -o resnet50.csv
    """
    with opened(url) as store:
        data = export_profile(store, the_profile(store, profile), name, device=device)
    write_whole(output, data)
    click.echo(f"{output}: {len(data)} bytes", err=True)
