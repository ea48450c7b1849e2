"""The answers in docs/sql.md, and data/metadata.json.

Every SQL block of the page is run against ``data/example.db``; the table after it is its answer.
The metadata tells Datasette what tables and columns mean, and offers the page's questions.
"""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

from queries.tables import Table, write_table
from store import open_store
from store.errors import StoreOutdated
from store.models import METADATA
from store.views import VIEWS

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "sql.md"
EXAMPLE = ROOT / "data" / "example.db"
QUESTION = re.compile(r"### ([^\n]*)\n\n```sql\n(.*?)```\n(?:\n\|.*?\n(?=\n|\Z))?", re.DOTALL)
VIEW = re.compile(r"^- `(\w+)`: (.*)$", re.MULTILINE)


def questions(page: str) -> dict[str, str]:
    """Return the queries of the page, by question."""
    return {match.group(1): match.group(2) for match in QUESTION.finditer(page)}


def answer(sql: str) -> str:
    """Return a query's answer as a Markdown table, as ``query-profiles sql --format md`` does.

    Raises:
        StoreOutdated: if the example is of an older schema, naming the command that makes it anew.
    """
    try:
        with open_store(f"sqlite:///{EXAMPLE}", read_only=True) as store:
            columns, rows = store.query(sql)
    except StoreOutdated as error:
        remedy = "python -m tools.regenerate example sql"
        raise StoreOutdated(f"data/example.db is of an older schema: {remedy}") from error
    out = io.StringIO()
    write_table(Table(columns, rows), "md", out)
    return out.getvalue()


def with_answers(page: str) -> str:
    """Return the page with the current answer below each query."""
    return QUESTION.sub(lambda m: f"### {m[1]}\n\n```sql\n{m[2]}```\n\n{answer(m[2])}", page)


def metadata(_: str = "") -> str:
    """Return Datasette's metadata for a database of profiles, under the names of ours."""
    page = PAGE.read_text("utf-8")
    tables: dict[str, dict[str, object]] = {
        name: {
            "description": table.comment,
            "columns": {column.name: column.comment for column in table.columns},
        }
        for name, table in METADATA.tables.items()
    }
    meaning = {view.name: {c.name: c.comment for c in view.columns} for view in VIEWS}
    for name, description in VIEW.findall(page):
        tables[name] = {
            "description": description,
            "columns": meaning[name],
            "units": {column: "byte" for column in meaning[name] if column.endswith("_bytes")},
        }
    tables["profile_totals"]["sort_desc"] = "peak_bytes"
    tables["profile_totals"]["facets"] = ["zoo", "mode", "target"]
    tables["models"]["label_column"] = "name"
    queries = {
        re.sub(r"\W+", "_", title).strip("_").lower(): {"title": title, "sql": sql.strip()}
        for title, sql in questions(page).items()
    }
    whole = {
        "title": "Profiles of PyTorch models",
        "description": "Sizes are bytes, times microseconds; FLOPs are 2 * macs + pointwise FLOPs.",
        "databases": {n: {"tables": tables, "queries": queries} for n in ("example", "profiles")},
    }
    return json.dumps(whole, indent=1) + "\n"
