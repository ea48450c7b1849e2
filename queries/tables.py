"""Rows as text: tables for people, CSV, JSON and Markdown for tools."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from dataclasses import dataclass, field, fields, is_dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, TextIO

from queries.errors import QuestionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FORMATS = ("table", "csv", "json", "md")
_LEAST_TEXT = 16  # characters of a line of text that is still read with ease


@dataclass(frozen=True)
class Table:
    """Columns, rows, and a few figures that stand above them."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    summary: dict[str, Any] = field(default_factory=dict)


def table_of(
    records: Iterable[Any], columns: Sequence[str], summary: dict[str, Any] | None = None
) -> Table:
    """Return some fields or properties of records as a table."""
    rows = [[getattr(record, name) for name in columns] for record in records]
    return Table(columns, rows, summary or {})


def field_names(record: type[Any]) -> list[str]:
    """Return the names of a record's fields."""
    if not is_dataclass(record):
        raise TypeError(f"{record!r} is no record")
    return [f.name for f in fields(record)]


def write_table(table: Table, output_format: str, out: TextIO | None = None) -> None:
    """Write a table in one of FORMATS; the summary only where there is a place for it.

    Numbers are written in full. On a terminal, tables group their digits and have a frame, or
    are written record by record where it is too narrow; in a pipe they are plain columns.

    Raises:
        QuestionError: if JSON has no place for a column.
    """
    out = out or sys.stdout
    if output_format == "csv":
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(table.columns)
        writer.writerows(table.rows)
    elif output_format == "json":
        out.write(_json(table))
    elif output_format == "md":
        out.write(_markdown(table))
    elif out.isatty():
        _framed(table, out)
    else:
        _plain(table, out)


def _json(table: Table) -> str:
    twice = [name for name, count in Counter(table.columns).items() if count > 1]
    if twice:
        raise QuestionError(f"two columns are called {twice[0]!r}; give one a name with AS")

    def record(names: Iterable[str], values: Iterable[Any]) -> dict[str, Any]:
        # JSON has no infinity and no NaN
        return {
            name: None if isinstance(value, float) and not isfinite(value) else value
            for name, value in zip(names, values, strict=True)
        }

    rows = [record(table.columns, row) for row in table.rows]
    summary = record(table.summary.keys(), table.summary.values())
    whole = {"summary": summary, "rows": rows} if summary else rows
    return json.dumps(whole, indent=2, default=str, allow_nan=False) + "\n"


def _markdown(table: Table) -> str:
    def line(cells: Iterable[Any]) -> str:
        escaped = (_text(c).replace("\\", "\\\\").replace("|", "\\|") for c in cells)
        return "| " + " | ".join(" ".join(cell.split("\n")) for cell in escaped) + " |\n"

    rule = ("---:" if _is_numeric(table, i) else "---" for i in range(len(table.columns)))
    return line(table.columns) + line(rule) + "".join(map(line, table.rows))


def _plain(table: Table, out: TextIO) -> None:
    """Write aligned columns: a pipe has no width, so nothing is cut or wrapped."""
    out.writelines(
        f"{name}: {_cell(value, grouped=False)}\n" for name, value in table.summary.items()
    )
    if table.summary:
        out.write("\n")
    lines = [[str(name) for name in table.columns]]
    lines += [[" ".join(_cell(v, grouped=False).split("\n")) for v in row] for row in table.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    numeric = [_is_numeric(table, i) for i in range(len(table.columns))]
    for line in lines:
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        )
        out.write("  ".join(cells).rstrip() + "\n")


def _framed(table: Table, out: TextIO) -> None:
    from rich import box  # noqa: PLC0415 - loaded only for a terminal
    from rich.console import Console  # noqa: PLC0415
    from rich.measure import Measurement  # noqa: PLC0415
    from rich.table import Table as RichTable  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(file=out)
    for name, value in table.summary.items():
        console.print(Text(f"{name}: {_cell(value, grouped=True)}"))
    view = RichTable(box=box.SIMPLE_HEAD, header_style="bold")
    for i, name in enumerate(table.columns):
        numeric = _is_numeric(table, i)
        view.add_column(
            name,
            justify="right" if numeric else "left",
            overflow="fold",
            no_wrap=numeric,
            min_width=_least_width(table, i),
        )
    # Text, not str: a name such as [bold] is no markup
    for row in table.rows:
        view.add_row(*(Text(_cell(value, grouped=True)) for value in row))
    unbounded = console.options.update(max_width=sys.maxsize)
    if Measurement.get(console, unbounded, view).minimum <= console.width:
        console.print(view)
        return
    # too narrow for the columns: one record below the other
    widest = max(map(len, table.columns))
    for row in table.rows:
        console.print()
        for name, value in zip(table.columns, row, strict=True):
            line = Text(f"{name.ljust(widest)}  {_cell(value, grouped=True)}")
            console.print(line, soft_wrap=True)


def _least_width(table: Table, column: int) -> int:
    """Return how narrow a column may become: numbers and the column's name stay whole."""
    cells = [(_cell(row[column], grouped=True), row[column]) for row in table.rows]
    return max(
        [
            len(table.columns[column]),
            *(
                len(cell) if isinstance(value, (int, float)) else min(len(cell), _LEAST_TEXT)
                for cell, value in cells
            ),
        ]
    )


def _cell(value: Any, *, grouped: bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if grouped else str(value)
    if isinstance(value, float):
        return f"{value:,.4g}" if grouped else repr(value)
    return _text(value)


def _text(value: Any) -> str:
    """Return a value as text; nothing at all is none."""
    return "" if value is None else str(value)


def _is_numeric(table: Table, column: int) -> bool:
    return bool(table.rows) and all(
        row[column] is None
        or (isinstance(row[column], (int, float)) and not isinstance(row[column], bool))
        for row in table.rows
    )
