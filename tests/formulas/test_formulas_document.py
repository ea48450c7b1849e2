"""The written account of the formulas."""

from __future__ import annotations

import pytest

from exporter.formulas.document import MARKER, updated
from exporter.formulas.registry import formulas


def test_document_derives_every_formula():
    """Every formula says in its docstring what it counts."""
    silent = [
        (name, counts)
        for name, kinds in formulas().items()
        for counts, formula in kinds.items()
        if not (formula.__doc__ or "").strip().endswith(".")
    ]
    assert silent == []


def test_tables_are_rewritten_below_the_marker():
    """What follows the marker is replaced, what stands above it stays."""
    text = updated(f"By hand.\n\n{MARKER}\nstale\n")
    assert text.startswith(f"By hand.\n\n{MARKER}\n\n### Attention\n")
    assert "stale" not in text


def test_document_without_marker_is_refused():
    """A file without the marker line is not touched."""
    with pytest.raises(ValueError, match="add it where the tables belong"):
        updated("No tables here.\n")
