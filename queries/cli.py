"""The command ``query-profiles``: parse and echo.

What a subcommand needs is imported in it: ``list`` loads no graph or plotting library.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from queries.cli_options import (
    cut,
    format_option,
    opened,
    the_profile,
    top_option,
)
from queries.tables import Table, field_names, table_of, write_table
from store.command import database_option, run_command


@click.group(
    context_settings={"max_content_width": 100},
    epilog="""\b
Examples:
  query-profiles list
  query-profiles liveness resnet50
  query-profiles totals vit_b_16@b4 --by module --depth 2 --format csv
""",
)
@click.version_option(
    package_name="export-profiles",
    prog_name="query-profiles",
    message="%(prog)s %(version)s",
    help="Show the version and exit.",
)
def cli() -> None:
    """Ask questions about stored profiles; nothing is ever changed.

    A profile is named by its id (17), its model (resnet50), or its model and what tells it from
    the model's other profiles: resnet50@b4, resnet50@b4,eval, resnet50@bfloat16,cpu.

    Exit status: 0 if the question was answered, 1 if that failed, such as for a full disk, 2 for
    wrong usage and for names of nothing, such as a profile, device or database that is not there.
    """


LISTED = (
    "profile_id", "zoo", "model", "batch_size", "dtype", "mode", "target", "op_count",
    "unknown_op_count", "fwd_flops", "bwd_flops", "param_bytes", "kept_bytes", "peak_bytes",
)  # fmt: skip


@cli.command("list", short_help="List the stored profiles.")
@click.argument("pattern", metavar="[GLOB]", required=False)
@database_option
@format_option
def list_(pattern: str | None, url: str, form: str) -> None:
    """List the stored profiles, or those whose model matches.

    Their configurations are shown if some profiles of one name differ in nothing else.

    \b
    Example:
      query-profiles list 'resnet*' --format csv
    """
    from fnmatch import fnmatchcase

    from queries.names import telling_configs

    with opened(url) as store:
        totals = store.totals()
        found = [t for t in totals if pattern is None or fnmatchcase(t.model, pattern)]
        configs = telling_configs(store, found)
    table = table_of(found, LISTED)
    if configs:
        rows = [[*row, configs[t.profile_id]] for row, t in zip(table.rows, found, strict=True)]
        table = Table((*LISTED, "config"), rows)
    write_table(table, form)


@cli.command(short_help="Show all that is known of one profile.")
@click.argument("profile")
@database_option
@format_option
def show(profile: str, url: str, form: str) -> None:
    """Show all that is known of one profile as a whole.

    \b
    Example:
      query-profiles show resnet50@b4
    """
    from queries.names import profile_facts

    with opened(url) as store:
        values = profile_facts(store, the_profile(store, profile))
    write_table(Table(("name", "value"), list(values.items())), form)


@cli.command("critical-path", short_help="Show the chain that no parallelism shortens.")
@click.argument("profile")
@click.option(
    "--weight",
    metavar="NAME",
    default="flops",
    show_default=True,
    help="macs, flops, bytes, time (needs --device), or any number in the graph.",
)
@click.option(
    "--phase",
    type=click.Choice(("forward", "backward", "step")),
    default="forward",
    show_default=True,
    help="The pass; step is everything from the first operator to the last.",
)
@click.option(
    "--level",
    type=click.Choice(("nodes", "ops")),
    help="Calls or operators.  [default: nodes; ops for step]",
)
@click.option("--device", default="", metavar="NAME", help="Where times are estimated for.")
@click.option("--all", "everything", is_flag=True, help="All nodes with their slack, not the path.")
@click.option(
    "--plot",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Draw it into a PNG, PDF or SVG.",
)
@top_option
@database_option
@format_option
def critical_path(
    profile: str,
    weight: str,
    phase: str,
    level: str | None,
    device: str,
    everything: bool,
    plot: str | None,
    top: int | None,
    url: str,
    form: str,
) -> None:
    """Show the chain of work that no parallelism can shorten.

    \b
    Examples:
      query-profiles critical-path inception_v3 --weight macs
      query-profiles critical-path resnet50 --phase step --weight time --device A100
    """
    from queries.errors import QuestionError
    from queries.path_rows import path_rows, phase_path

    if weight == "time" and not device:
        raise QuestionError("--weight time needs --device, such as --device A100")
    with opened(url) as store:
        profile_id = the_profile(store, profile)
        level = level or ("ops" if phase == "step" else "nodes")
        graph, path = phase_path(store, profile_id, weight, phase, level, device)
    if plot:
        from queries.plot import plot_critical_path

        plot_critical_path(graph, path, plot, title=profile)
    write_table(cut(path_rows(graph, path, everything=everything), top), form)


@cli.command(short_help="Show the memory of a step, and what fills its peak.")
@click.argument("profile")
@click.option(
    "--by",
    type=click.Choice(("storage", "class", "module", "call", "outliving", "step")),
    default="storage",
    show_default=True,
    help="What to list: what is live at the peak, one by one or in sums; what outlives its last"
    " use; or the live bytes of every step.",
)
@click.option(
    "--plot",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Draw it into a PNG, PDF or SVG.",
)
@top_option
@database_option
@format_option
def liveness(profile: str, by: str, plot: str | None, top: int | None, url: str, form: str) -> None:
    """Show the memory of a step: its peak, what is live there, and how little would do.

    \b
    Examples:
      query-profiles liveness resnet50 --top 10
      query-profiles liveness resnet50 --by step --format csv
    """
    from queries.liveness import liveness as live
    from queries.liveness_rows import liveness_rows

    with opened(url) as store:
        result = live(store, the_profile(store, profile))
    if plot:
        from queries.plot import plot_liveness

        plot_liveness(result, plot, title=profile)
    write_table(cut(liveness_rows(result, by), top), form)


@cli.command(short_help="Show sums by module, by operator or by phase.")
@click.argument("profile")
@click.option(
    "--by",
    type=click.Choice(("module", "operator", "phase")),
    default="module",
    show_default=True,
    help="What to sum over.",
)
@click.option(
    "--depth", metavar="N", type=click.IntRange(min=0), help="Modules down to this depth only."
)
@top_option
@database_option
@format_option
def totals(profile: str, by: str, depth: int | None, top: int | None, url: str, form: str) -> None:
    """Show sums of work and memory: by module, by operator or by phase.

    \b
    Example:
      query-profiles totals resnet50 --by module --depth 1
    """
    from queries import totals as sums

    rows: list[Any]
    with opened(url) as store:
        profile_id = the_profile(store, profile)
        if by == "module":
            rows = list(sums.module_totals(store, profile_id, depth=depth))
            columns = field_names(sums.ModuleTotals)
        elif by == "operator":
            rows = list(sums.operator_totals(store, profile_id))
            columns = field_names(sums.OperatorTotals)
        else:
            rows = list(sums.phase_totals(store, profile_id))
            columns = field_names(sums.PhaseTotals)
    write_table(cut(table_of(rows, columns), top), form)


@cli.command(short_help="Show two profiles side by side, call by call.")
@click.argument("a")
@click.argument("b")
@click.option("--changed", is_flag=True, help="Only calls that differ.")
@database_option
@format_option
def compare(a: str, b: str, changed: bool, url: str, form: str) -> None:
    """Show two profiles side by side, call by call.

    \b
    Example:
      query-profiles compare resnet18 resnet34 --changed
    """
    from queries.compare import ComparedCall
    from queries.compare import compare as compared

    with opened(url) as store:
        calls = compared(store, the_profile(store, a), the_profile(store, b))
    shown = [call for call in calls if not (changed and call.is_equal)]
    summary = {
        f"{side}_{name}": sum(getattr(call, f"{side}_{name}") for call in calls)
        for name in ("fwd_flops", "bwd_flops", "kept_bytes", "param_bytes")
        for side in "ab"
    }
    write_table(table_of(shown, field_names(ComparedCall), summary), form)


@cli.command(short_help="Show whether a step fits into devices.")
@click.argument("profile")
@click.option(
    "--device", "devices", metavar="NAME", multiple=True, help="Repeatable.  [default: all]"
)
@click.option(
    "--optimizer",
    metavar="NAME",
    default="",
    help="Add the state of sgd, momentum, adam or adamw to a profile without optimizer.",
)
@click.option("--batches", is_flag=True, help="List the model's stored batch sizes instead.")
@database_option
@format_option
def fits(
    profile: str, devices: tuple[str, ...], optimizer: str, batches: bool, url: str, form: str
) -> None:
    """Show whether a step fits into the memory of devices, and what fills it.

    \b
    Example:
      query-profiles fits resnet50 --device T4 --optimizer adam
    """
    from queries.devices import list_devices
    from queries.fits import BatchPoint, Fit
    from queries.fits import fits as fit_of

    with opened(url) as store:
        profile_id = the_profile(store, profile)
        chosen = devices or tuple(device.name for device in list_devices(store))
        results = [fit_of(store, profile_id, name, optimizer=optimizer) for name in chosen]
    if batches:
        points = results[0].batches if results else ()
        write_table(table_of(points, field_names(BatchPoint)), form)
        return
    columns = [name for name in field_names(Fit) if name != "batches"]
    write_table(table_of(results, ["device", "is_fitting", *columns[1:]]), form)


@cli.command(short_help="Answer one SELECT.")
@click.argument("query", required=False)
@database_option
@format_option
def sql(query: str | None, url: str, form: str) -> None:
    """Answer one SELECT; without QUERY it is read from standard input. Nothing can be changed.

    \b
    Example:
      query-profiles sql 'SELECT model, peak_bytes FROM profile_totals ORDER BY 2 DESC'
    """
    text = query if query is not None else sys.stdin.read()
    with opened(url) as store:
        columns, rows = store.query(text)
    write_table(Table(columns, rows), form)


@cli.command(short_help="Write one profile as a page to look at.")
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
def report(profile: str, output: str, device: str, url: str) -> None:
    """Write one profile as a page to look at; it needs no network.

    \b
    Example:
      query-profiles report resnet50 -o resnet50.html
    """
    from queries.files import write_whole
    from queries.report import report_page

    with opened(url) as store:
        page = report_page(store, the_profile(store, profile), device)
    write_whole(output, page.encode())
    click.echo(f"{output}: {len(page) / 2**20:.1f} MiB", err=True)


@cli.command(short_help="Write one profile for another program.")
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
def export(profile: str, name: str, output: str, device: str, url: str) -> None:
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
    from queries.export import export_profile
    from queries.files import write_whole

    with opened(url) as store:
        data = export_profile(store, the_profile(store, profile), name, device=device)
    write_whole(output, data)
    click.echo(f"{output}: {len(data)} bytes", err=True)


def main() -> None:
    """Run the command, and end the process with its exit status."""
    run_command(cli, "query-profiles")


if __name__ == "__main__":
    main()
