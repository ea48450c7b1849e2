"""The table of kinds of facts about operators, for CONTRIBUTING.md."""

from __future__ import annotations

import sys

import exporter.profiling  # noqa: F401  # whatever states a fact
from exporter.formulas.registry import FORMULAS
from exporter.ledger import KINDS, load_late

_BEGIN, _END = "<!-- facts -->\n", "<!-- end of facts -->"


def _stated_by(kind: str) -> str:
    """Return what a fact of a kind is stated with, as it is written."""
    for counts, facts in FORMULAS.items():
        if facts.kind == kind:
            return f'`@register(..., counts="{counts}")`'
    facts = KINDS[kind]
    opened = vars(sys.modules[facts.home]).items()
    name = next(attribute for attribute, value in opened if value is facts)
    return f"`{facts.home.removeprefix('exporter.')}.{name}`"


def _places(modules: list[str]) -> str:
    """Return where facts stand: the file, or the folder of several."""
    folders = {module.rpartition(".")[0] for module in modules}
    if len(modules) == 1 or len(folders) > 1:
        return ", ".join(f"`{module.replace('.', '/')}.py`" for module in modules)
    return f"`{folders.pop().replace('.', '/')}/`"


def with_facts(page: str) -> str:
    """Return the page with the table of what the ledger holds today.

    Raises:
        ValueError: if the place of the table is missing.
    """
    if _BEGIN not in page or _END not in page:
        raise ValueError(f"no place {_BEGIN.strip()} ... {_END} in the page")
    load_late()
    rows = [
        f"| {facts.meaning} | {_stated_by(kind)} | {_places(facts.modules())} "
        f"| {len(facts.stated)} |"
        for kind, facts in sorted(KINDS.items(), key=lambda item: item[1].meaning)
    ]
    head = [
        "| a fact that | is stated with | in | how many |",
        "| --- | --- | --- | ---: |",
    ]
    before, _, rest = page.partition(_BEGIN)
    return (
        f"{before}{_BEGIN}\n" + "\n".join([*head, *rows]) + f"\n\n{_END}{rest.partition(_END)[2]}"
    )
