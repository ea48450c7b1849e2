"""The tables of formulas for docs/formulas.md.

The table follows a marker line; what stands above it is written by hand.
"""

from __future__ import annotations

import inspect
import re
import sys
from typing import TYPE_CHECKING

import torch

from exporter.formulas.registry import flops_status, formulas
from exporter.formulas.zero_cost import groups

if TYPE_CHECKING:
    from exporter.formulas.operands import Formula

MARKER = "<!-- Below: python -m tools.regenerate formulas -->"


def render() -> str:
    """Return the tables of formulas by duty and the zero-cost list, as Markdown."""
    by_module: dict[str, dict[tuple[str, str], list[str]]] = {}
    for name, kinds in sorted(formulas().items()):
        for counts, formula in kinds.items():
            rows = by_module.setdefault(_module_of(formula), {})
            rows.setdefault((counts, _derivation(formula)), []).append(name)
    parts = []
    for module, rows in sorted(by_module.items()):
        parts.append(f"### {module.capitalize()}\n")
        parts.append(f"{_module_text(module)}\n")
        parts.append("| operators | counts | formula |\n| --- | --- | --- |")
        parts += [
            f"| {_operators(names)} | `{counts}` | {derivation} |"
            for (counts, derivation), names in sorted(rows.items(), key=lambda row: row[1])
        ]
        parts.append("")
    parts.append("## Zero-cost operators\n")
    for kind, names in groups().items():
        parts.append(f"- {kind}: {_operators(names)}")
    parts.append("\n## Unknown operators\n")
    parts.append(
        "All others; of `aten`, without views and test operators: " + _operators(_unknown())
    )
    return "\n".join(parts) + "\n"


def _module_of(formula: Formula) -> str:
    return formula.__module__.rpartition(".")[2]


def _module_text(module: str) -> str:
    text = sys.modules[f"exporter.formulas.{module}"].__doc__ or ""
    return inspect.cleandoc(text)


def _derivation(formula: Formula) -> str:
    return " ".join(inspect.cleandoc(formula.__doc__ or "").split()).replace("|", "\\|")


def _operators(names: list[str]) -> str:
    """Return names in code marks, aten's without its prefix, the in-place variants left out."""
    return ", ".join(f"`{name.removeprefix('aten::')}`" for name in names)


def _unknown() -> list[str]:
    unknown = set()
    for full_name in torch._C._dispatch_get_all_op_names():
        packet, _, overload = full_name.partition(".")
        namespace, _, name = packet.partition("::")
        # operators that only test the dispatcher itself
        if namespace != "aten" or name.startswith(("_test_", "_foobar")):
            continue
        func = getattr(getattr(torch.ops.aten, name), overload or "default")
        if flops_status(func) == "unknown":
            unknown.add(re.sub("(?<=[^_])_$", "", packet))
    return sorted(unknown)


def updated(text: str) -> str:
    """Return a document with its generated part written anew.

    Raises:
        ValueError: if the marker line is missing.
    """
    by_hand, marker, _ = text.partition(MARKER)
    if not marker:
        raise ValueError(f"no line {MARKER!r}: add it where the tables belong")
    return f"{by_hand}{MARKER}\n\n{render()}"
