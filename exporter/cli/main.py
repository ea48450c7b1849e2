"""The command ``export-profiles``: parse and echo.

torch is imported by the workers only, and the database layer only when a database is opened: help
and listings answer at once.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Any

import click

from exporter.cli.options import (
    configuration_options,
    is_asked,
    run_options,
    selection_options,
    settings_asked,
    user_asked,
    user_options,
)
from exporter.cli.run import profile
from exporter.pipeline.jobs import Job, Limits
from exporter.zoo.registry import load_zoo, names_of, refuse_untaken, select_models
from store.command import database_option, run_command, shown


def print_version(context: click.Context, _option: click.Parameter, value: bool) -> None:
    """Print the versions that identify a profile, and leave."""
    if value and not context.resilient_parsing:
        packages = ("export-profiles", "torch", "torchvision")
        click.echo(", ".join(f"{package} {version(package)}" for package in packages))
        context.exit()


class Main(click.Group):
    """The command with its subcommands; a stray word gets the way out."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand.

        Raises:
            click.UsageError: if there is none of that name.
        """
        if self.get_command(ctx, args[0]) is None:
            raise click.UsageError(
                f"there is no subcommand {args[0]!r}; models are chosen with --model {args[0]}", ctx
            )
        return super().resolve_command(ctx, args)


@click.group(
    cls=Main,
    invoke_without_command=True,
    context_settings={"max_content_width": 100},
    epilog="""\b
Examples:
  export-profiles --list --model 'resnet*'
  export-profiles --model resnet50 --model 'vit_b_*'
  export-profiles --batch-size 1 --batch-size 8 --eval --forward-only --db study.db
  export-profiles --optimizer adamw --autocast bfloat16 --exclude 'quantized_*'
  export-profiles --zoo reference --model gpt2_medium --set n_layer=4 --seq-len 512
  export-profiles --model my_nets:make --kwarg depth=3 --input 'float32[batch,3,64,64]'
""",
)
@selection_options
@configuration_options
@user_options
@database_option
@run_options
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_version,
    help="Show the versions and exit.",
)
@click.pass_context
def cli(context: click.Context, /, **options: Any) -> None:
    """Profile PyTorch models without data, weights or accelerator, into a database.

    Every chosen model is traced on the meta device, forward and backward. Its graph, FLOP counts
    and memory statistics are stored. Profiles that are in the database already are skipped.

    Exit status: 0 if all that was asked for is in the database, 1 if some model failed (the others
    are stored) or the database did, 2 for wrong usage and for names of nothing, such as a model or
    database that is not there, 130 after an interrupt (what was finished is stored).
    """
    if context.invoked_subcommand is not None:
        return
    try:
        jobs = jobs_asked(context, options)
    except UnicodeError:
        raise
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if options["only_list"]:
        click.echo("\n".join(dict.fromkeys(job.model for job in jobs)))
        return
    from exporter.pipeline.pipeline import Interruption

    with Interruption() as interruption:
        status = profile(
            jobs,
            options["url"],
            workers=options["workers"] or len(os.sched_getaffinity(0)),
            limits=Limits(options["timeout"] or 0.0, options["max_memory"] or 0),
            force=options["force"],
            fail_fast=options["fail_fast"],
            quiet=options["quiet"],
            as_json=options["as_json"],
            interruption=interruption,
        )
    context.exit(status)


def jobs_asked(context: click.Context, options: dict[str, Any]) -> list[Job]:
    """Return a job for every model under every configuration that is asked for.

    Raises:
        ProfileError: if there is no such zoo, model or input.
        ValueError: if options exclude each other.
    """
    user = user_asked(context)
    settings = settings_asked(options)
    if user is None:
        zoo = load_zoo(options["zoo_name"])
        refuse_untaken(zoo, settings[0])  # they differ in their batch size only
        models = select_models(names_of(zoo), options["include"], options["exclude"])
        return [Job(zoo.name, model, one, zoo.package) for model in models for one in settings]
    from exporter.zoo.user.request import user_jobs

    asked = is_asked(context, "batch_size")
    return user_jobs(options["include"], user, settings, batch_asked=asked)


@cli.group()
def db() -> None:
    """Look after a database's schema."""


@db.command()
@database_option
def upgrade(url: str) -> None:
    """Create a database, or bring it to the newest schema; profiles are kept.

    \b
    Example:
      export-profiles db upgrade --db study.db
    """
    from store import upgrade_store

    before, after = upgrade_store(url)
    if before == after:
        change = f"is at the newest schema, {after}"
    else:
        change = f"upgraded from schema {before} to {after}" if before else f"created, {after}"
    click.echo(f"{shown(url)}: {change}")


@db.command()
@database_option
def current(url: str) -> None:
    """Show the schema revision of a database, and the newest one.

    \b
    Example:
      export-profiles db current --db study.db
    """
    from store import current_revision, head_revision

    revision, newest = current_revision(url), head_revision()
    has = f"has schema {revision}" if revision else "has no tables yet"
    state = "which is the newest" if revision == newest else f"the newest is {newest}"
    click.echo(f"{shown(url)}: {has}, {state}")


def main() -> None:
    """Run the command, and end the process with its exit status."""
    run_command(cli, "export-profiles")


if __name__ == "__main__":
    main()
