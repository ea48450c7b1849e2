"""The command ``export-profiles``: parse, echo, translate errors.

torch is imported by the workers only, and the database layer only when a database is opened: help
and listings answer at once.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version

import click

from exporter.cli_run import Refusal, database_option, key_and_value, profile, shown
from exporter.settings import ATTENTIONS, AUTOCASTS, DTYPES, OPTIMIZERS, Settings
from exporter.zoo.registry import load_zoo, select_models
from store.errors import ProfileError
from store.records import TARGETS


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
""",
)
@click.option(
    "--zoo",
    "zoo_name",
    metavar="NAME",
    default="torchvision",
    show_default=True,
    help="Where the models come from.",
)
@click.option(
    "--model",
    "include",
    metavar="GLOB",
    multiple=True,
    help="Profile the models that match; repeatable.  [default: all]",
)
@click.option(
    "--exclude", metavar="GLOB", multiple=True, help="Leave out the models that match; repeatable."
)
@click.option(
    "--batch-size",
    "batch_sizes",
    metavar="N",
    type=click.IntRange(min=1),
    multiple=True,
    default=(4,),
    show_default=True,
    help="Batch size; repeat it to profile each.",
)
@click.option(
    "--image-size",
    metavar="N",
    type=click.IntRange(min=1),
    default=None,
    help="Height and width of images.  [default: the model's own]",
)
@click.option(
    "--seq-len",
    metavar="N",
    type=click.IntRange(min=1),
    default=None,
    help="Tokens in a sequence.  [default: the zoo's or the model's own]",
)
@click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    callback=lambda _context, _option, values: tuple(map(key_and_value, values)),
    help="Change a model's configuration; repeatable.",
)
@click.option("--train/--eval", "train", default=True, show_default=True, help="Mode of the model.")
@click.option("--forward-only", is_flag=True, help="Leave out the backward pass.")
@click.option("--input-grad", is_flag=True, help="Compute gradients of the inputs, too.")
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    default="float32",
    show_default=True,
    help="Type of parameters and of floating inputs.",
)
@click.option(
    "--target",
    type=click.Choice(TARGETS),
    default="cuda",
    show_default=True,
    help="Device that the profile is for; none is needed.",
)
@click.option(
    "--attention",
    type=click.Choice(ATTENTIONS),
    default="auto",
    show_default=True,
    help="Kernel of scaled dot-product attention.",
)
@click.option(
    "--autocast",
    type=click.Choice([name for name in AUTOCASTS if name]),
    help="Run under automatic mixed precision.",
)
@click.option(
    "--optimizer",
    type=click.Choice(["none", *(name for name in OPTIMIZERS if name)]),
    default="none",
    show_default=True,
    help="Add its step after the backward pass.",
)
@database_option
@click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(min=1),
    default=None,
    help="Processes that trace.  [default: the number of CPU cores]",
)
@click.option("--list", "only_list", is_flag=True, help="List the chosen models and exit.")
@click.option("--force", is_flag=True, help="Replace profiles that are in the database already.")
@click.option("--fail-fast", is_flag=True, help="Stop at the first model that fails.")
@click.option("--quiet", is_flag=True, help="Show failures only.")
@click.option("--json", "as_json", is_flag=True, help="Print a summary in JSON on standard output.")
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_version,
    help="Show the versions and exit.",
)
@click.pass_context
def cli(
    context: click.Context,
    *,
    zoo_name: str,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    batch_sizes: tuple[int, ...],
    image_size: int | None,
    seq_len: int | None,
    overrides: tuple[tuple[str, str], ...],
    train: bool,
    forward_only: bool,
    input_grad: bool,
    dtype: str,
    target: str,
    attention: str,
    autocast: str | None,
    optimizer: str,
    url: str,
    workers: int | None,
    only_list: bool,
    force: bool,
    fail_fast: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Profile PyTorch models without data, weights or accelerator, into a database.

    Every chosen model is traced on the meta device, forward and backward. Its graph, FLOP counts
    and memory statistics are stored. Profiles that are in the database already are skipped.

    Exit status: 0 if all that was asked for is in the database, 1 if some model failed (the others
    are stored), 2 for wrong usage, 130 after an interrupt (what was finished is stored).
    """
    if context.invoked_subcommand is not None:
        return
    try:
        zoo = load_zoo(zoo_name)
        models = select_models(zoo.names(), include, exclude)
        settings = [
            Settings(
                batch_size=batch_size,
                image_size=image_size or 0,
                seq_len=seq_len or 0,
                overrides=overrides,
                mode="train" if train else "eval",
                backward=not forward_only,
                input_grad=input_grad,
                dtype=dtype,
                target=target,
                attention=attention,
                autocast=autocast or "",
                optimizer="" if optimizer == "none" else optimizer,
            )
            for batch_size in dict.fromkeys(batch_sizes)
        ]
    except (ProfileError, ValueError) as error:
        raise Refusal(str(error)) from error
    if only_list:
        click.echo("\n".join(models))
        return
    from exporter.pipeline import Interruption, jobs_for

    with Interruption() as interruption:
        status = profile(
            jobs_for(zoo, models, settings),
            url,
            package=zoo.package,
            workers=workers or len(os.sched_getaffinity(0)),
            force=force,
            fail_fast=fail_fast,
            quiet=quiet,
            as_json=as_json,
            interruption=interruption,
        )
    context.exit(status)


@cli.group()
def db() -> None:
    """Look after a database's schema."""


@db.command()
@database_option
def upgrade(url: str) -> None:
    r"""Create a database, or bring it to the newest schema; profiles are kept.

    \b
    Example:
      export-profiles db upgrade --db study.db
    """
    from store import upgrade_store

    try:
        before, after = upgrade_store(url)
    except ProfileError as error:
        raise Refusal(str(error)) from error
    if before == after:
        change = f"is at the newest schema, {after}"
    else:
        change = f"upgraded from schema {before} to {after}" if before else f"created, {after}"
    click.echo(f"{shown(url)}: {change}")


@db.command()
@database_option
def current(url: str) -> None:
    r"""Show the schema revision of a database, and the newest one.

    \b
    Example:
      export-profiles db current --db study.db
    """
    from store import current_revision, head_revision

    try:
        revision, newest = current_revision(url), head_revision()
    except ProfileError as error:
        raise Refusal(str(error)) from error
    has = f"has schema {revision}" if revision else "has no tables yet"
    state = "which is the newest" if revision == newest else f"the newest is {newest}"
    click.echo(f"{shown(url)}: {has}, {state}")


def main() -> None:
    """Run the command; whatever is wrong is said in one line, and so is an interrupt."""
    try:
        status = cli.main(prog_name="export-profiles", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        click.echo(f"Error: {error.format_message()}", err=True)
        status = error.exit_code
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        status = 130
    sys.exit(status)


if __name__ == "__main__":
    main()
