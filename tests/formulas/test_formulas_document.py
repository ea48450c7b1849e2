"""The written account of the formulas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from exporter.formulas.document import MARKER, updated
from exporter.formulas.registry import formulas

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "formulas.md"


def test_document_is_current():
    """The committed tables are those that the registry gives."""
    text = DOCUMENT.read_text(encoding="utf-8")
    assert updated(text) == text


def test_document_derives_every_formula():
    """Every formula says in its docstring what it counts."""
    silent = [
        (name, counts)
        for name, kinds in formulas().items()
        for counts, formula in kinds.items()
        if not (formula.__doc__ or "").strip().endswith(".")
    ]
    assert silent == []


def test_document_command_rewrites_the_tables(tmp_path):
    """The command replaces what follows the marker and keeps what stands above it."""
    target = tmp_path / "formulas.md"
    target.write_text(f"By hand.\n\n{MARKER}\nstale\n", encoding="utf-8")
    subprocess.run(
        [sys.executable, "-m", "exporter.formulas.document", str(target)], check=True, cwd=ROOT
    )
    text = target.read_text(encoding="utf-8")
    assert text.startswith(f"By hand.\n\n{MARKER}\n\n### Attention\n")
    assert "stale" not in text


def test_document_without_marker_is_refused():
    """A file without the marker line is not touched."""
    with pytest.raises(ValueError, match="add it where the tables belong"):
        updated("No tables here.\n")
