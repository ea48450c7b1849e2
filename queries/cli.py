"""The command ``query-profiles``, whose subcommands are the files of ``queries.questions``."""

from __future__ import annotations

import click

from queries.questions import question, question_names
from store.command import run_command


class Questions(click.Group):
    """A command with a subcommand for each question, loaded when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - of the protocol
        """Return the names of the questions."""
        return question_names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the subcommand of a question, None if there is none of that name."""
        return question(cmd_name)


@click.group(
    cls=Questions,
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


def main() -> None:
    """Run the command, and end the process with its exit status."""
    run_command(cli, "query-profiles")


if __name__ == "__main__":
    main()
