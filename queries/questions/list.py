"""Which profiles there are."""

from __future__ import annotations

from fnmatch import fnmatchcase

import click

from queries.cli_options import format_option, opened
from queries.names import telling_configs
from queries.tables import Table, table_of, write_table
from store.command import database_option

_COLUMNS = (
    "profile_id", "zoo", "model", "batch_size", "dtype", "mode", "target", "op_count",
    "unknown_op_count", "fwd_flops", "bwd_flops", "param_bytes", "kept_bytes", "peak_bytes",
)  # fmt: skip


@click.command("list", short_help="List the stored profiles.")
@click.argument("pattern", metavar="[GLOB]", required=False)
@database_option
@format_option
def command(pattern: str | None, url: str, output_format: str) -> None:
    """List the stored profiles, or those whose model matches.

    Their configurations are shown if some profiles of one name differ in nothing else.

    \b
    Example:
      query-profiles list 'resnet*' --format csv
    """
    with opened(url) as store:
        totals = store.totals()
        found = [t for t in totals if pattern is None or fnmatchcase(t.model, pattern)]
        configs = telling_configs(store, found)
    table = table_of(found, _COLUMNS)
    if configs:
        rows = [[*row, configs[t.profile_id]] for row, t in zip(table.rows, found, strict=True)]
        table = Table((*_COLUMNS, "config"), rows)
    write_table(table, output_format)
