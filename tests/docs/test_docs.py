"""The documentation says what is so."""

from __future__ import annotations

import re
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.profiling import profile_built
from exporter.settings import Settings
from exporter.zoo.registry import build_model, load_zoo
from store import open_store
from tools.readme import CONSOLE, PYTHON, README

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "benchmarks/README.md"])


def test_readme_shows_examples() -> None:
    """There are commands and a program to run; what they print is compared as a generated page."""
    page = README.read_text("utf-8")
    assert len(CONSOLE.findall(page)) >= 4
    assert len(PYTHON.findall(page)) == 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    """Every relative link names a file of the repository."""
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_readme_shows_the_two_commands_that_a_newcomer_needs() -> None:
    """Set-up and main job in one line, set-up and tests in another."""
    page = README.read_text()
    start = "python3 -m venv .venv && . .venv/bin/activate && pip install "
    assert f"{start}. && export-profiles --zoo torchvision" in page
    assert f"{start}'.[test]' && pytest" in page


def test_version_has_a_changelog() -> None:
    """The package's version is released or being prepared."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert "## Unreleased" in changelog or f"## {project['version']}" in changelog


def test_example_database_holds_what_is_traced_today(tmp_path: Path) -> None:
    """The models of the example, traced again, have the same rows; only times differ."""
    shutil.copy(ROOT / "data" / "example.db", tmp_path / "example.db")
    with open_store(f"sqlite:///{tmp_path / 'example.db'}") as store:
        for totals in store.totals():
            stored = store.read(totals.profile_id)
            settings = Settings(
                batch_size=totals.batch_size, mode=totals.mode, backward=stored.info.backward
            )
            fresh = profile_built(
                build_model(load_zoo("torchvision"), totals.model, settings), settings
            )
            assert fresh.info.structural_hash == stored.info.structural_hash
            for name in ("ops", "tensors", "storages", "nodes", "edges", "mem_stats"):
                assert getattr(fresh, name) == getattr(stored, name), (totals.model, name)
            assert (
                replace(fresh.totals, profile_id=totals.profile_id, seconds=totals.seconds)
                == totals
            )
