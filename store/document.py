"""The page that describes the schema, docs/schema.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Double, ForeignKeyConstraint, Text, UniqueConstraint

from store.models import METADATA
from store.revisions import head_revision
from store.views import VIEWS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Column, Table

INTRODUCTION = """# Schema

The tables and views of revision {revision}, written by `python -m tools.regenerate schema`.

No column holds NULL.
What is absent is -1 in an identifier, '' in a text and [] in a JSON list.
Bytes end in `_bytes`, times in `_us` or `_seconds`; macs are multiply-adds, FLOPs are 2 * macs + \
pointwise FLOPs.
Identifiers count from 0 in execution order within their profile, and steps are operators: a \
storage is alive at step i when `birth_op_id <= i <= death_op_id`.
Sums over many rows may pass 2^63-1, where SQLite's `sum()` fails: add such counts up outside.

"""


def updated(_: str = "") -> str:
    """Return the page, Markdown with one section per table and view."""
    sections = map(_table_section, METADATA.tables.values())
    introduction = INTRODUCTION.format(revision=head_revision())
    return introduction + "\n".join([*sections, *map(_view_section, VIEWS)])


def _table_section(table: Table) -> str:
    head = ["| column | type | key | meaning |", "|---|---|---|---|"]
    lines = [f"## {table.name}", "", table.comment or "", "", *head]
    lines += [
        f"| `{column.name}` | {_kind(column)} | {_role(column)} | {_escaped(column.comment)} |"
        for column in table.columns
    ]
    rules = list(_rules(table))
    if rules:
        lines += ["", *rules]
    return "\n".join(lines) + "\n"


def _view_section(view: Table) -> str:
    head = ["| column | type | meaning |", "|---|---|---|"]
    lines = [f"## {view.name} (view)", "", view.comment or "", "", *head]
    lines += [
        f"| `{column.name}` | {_kind(column)} | {_escaped(column.comment)} |"
        for column in view.columns
    ]
    return "\n".join(lines) + "\n"


def _kind(column: Column[object]) -> str:
    if isinstance(column.type, Text):
        return "text"
    if isinstance(column.type, Double):
        return "real"
    return "integer (64 bit)" if isinstance(column.type, BigInteger) else "integer"


def _role(column: Column[object]) -> str:
    """Return the part of a column in keys: its own table's, and those that it refers to."""
    roles = ["primary"] if column.primary_key else []
    targets = {key.column for key in column.foreign_keys}
    if column.name == "profile_id":
        targets = {target for target in targets if target.table.name == "profiles"}
    roles += sorted(f"→ {target.table.name}.{target.name}" for target in targets)
    return ", ".join(roles)


def _rules(table: Table) -> Iterator[str]:
    """Yield a line for what a table's rows are tied by, beyond single columns."""
    for constraint in sorted(table.constraints, key=lambda item: str(item.name)):
        names = ", ".join(f"`{column.name}`" for column in getattr(constraint, "columns", ()))
        if isinstance(constraint, UniqueConstraint):
            yield f"- Unique: {names}."
        elif isinstance(constraint, ForeignKeyConstraint) and constraint.ondelete:
            yield f"- Deleted with its row in `{constraint.referred_table.name}`."


def _escaped(comment: str | None) -> str:
    return (comment or "").replace("|", "\\|")
