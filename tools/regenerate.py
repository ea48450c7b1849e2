"""Write what is generated in this repository: ``python -m tools.regenerate [NAME ...]``.

Pages and databases are written in an order in which each finds what it reads. A file is touched
only if what it says has changed, so running this twice changes nothing the second time.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).parents[1]
COMMAND = "python -m tools.regenerate"


@dataclass(frozen=True, slots=True)
class Generated:
    """A file of this repository that a program writes."""

    name: str
    path: Path
    maker: str  # module:function, see ``is_text``
    meaning: str
    is_text: bool = True  # the function gives the new text for the old one; else it writes the file
    is_slow: bool = False  # traces models for a minute or so

    def made(self, text: str) -> str:
        """Return the new text for the old one."""
        return str(self._function()(text))

    def write(self) -> bool:
        """Write the file if it is out of date, and return whether it was."""
        if not self.is_text:
            return bool(self._function()())
        before = self.path.read_text("utf-8") if self.path.exists() else ""
        after = self.made(before)
        if after != before:
            self.path.write_text(after, "utf-8")
        return after != before

    def _function(self) -> Callable[..., str | bool]:
        module, _, function = self.maker.partition(":")
        made: Callable[..., str | bool] = getattr(import_module(module), function)
        return made


def _page(name: str, path: str, maker: str, meaning: str, *, is_slow: bool = False) -> Generated:
    return Generated(name, ROOT / path, maker, meaning, is_slow=is_slow)


GENERATED = (
    _page("schema", "docs/schema.md", "store.document:updated", "tables, views and columns"),
    _page("formulas", "docs/formulas.md", "exporter.formulas.document:updated",
          "how each operator is counted"),
    _page("facts", "CONTRIBUTING.md", "tools.ledger_docs:with_facts",
          "kinds of facts about operators"),
    _page("names", "queries/__init__.py", "tools.public_names:with_names",
          "public names of the questions"),
    _page("cli", "docs/cli.md", "tools.cli_docs:with_help", "help of the commands"),
    _page("questions", "docs/queries.md", "tools.question_docs:with_questions",
          "questions and exports, with their help"),
    Generated("revision", ROOT / "data" / "revisions", "tools.revision_database:write",
              "a small database of the newest schema", is_text=False),
    Generated("example", ROOT / "data" / "example.db", "tools.example_database:write",
              "the database of the questions in docs/sql.md", is_text=False, is_slow=True),
    _page("sql", "docs/sql.md", "tools.sql_docs:with_answers", "answers to the questions in SQL"),
    _page("metadata", "data/metadata.json", "tools.sql_docs:metadata",
          "descriptions and questions for Datasette"),
    _page("sizes", "data/README.md", "tools.data_files:with_sizes", "sizes of the files in data"),
    _page("accuracy", "docs/accuracy.md", "tools.accuracy_docs:updated",
          "figures against published and measured ones", is_slow=True),
    _page("readme", "README.md", "tools.readme:with_outputs", "outputs of the examples",
          is_slow=True),
)  # fmt: skip
PAGES = tuple(one for one in GENERATED if one.is_text)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the files that are out of date, and say which."""
    listed = "\n".join(f"  {one.name:10} {one.meaning}" for one in GENERATED)
    parser = argparse.ArgumentParser(
        prog=COMMAND,
        description="Write the generated pages and databases of this repository anew.",
        epilog=f"names:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [one.name for one in GENERATED]
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="what to write; without any, everything"
    )
    asked = parser.parse_args(arguments).names
    unknown = [name for name in asked if name not in names]
    if unknown:
        parser.error(f"there is no {unknown[0]!r}; names are {', '.join(names)}")
    sys.path.insert(1, str(ROOT / "tests"))  # some pages show what the tests compare
    for one in GENERATED:
        if not asked or one.name in asked:
            state = "written" if one.write() else "up to date"
            sys.stdout.write(f"{one.name}: {state}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
