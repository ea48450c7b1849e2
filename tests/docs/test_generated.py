"""What programs write in this repository is what they would write now."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tools.data_files import with_sizes
from tools.databases import replaced
from tools.regenerate import COMMAND, GENERATED, PAGES, ROOT


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(one, marks=pytest.mark.slow if one.is_slow else (), id=one.name)
        for one in PAGES
    ],
)
def test_page_is_what_its_program_writes(page) -> None:
    """Figures, tables, help texts and outputs of examples are those of today."""
    text = page.path.read_text("utf-8")
    assert page.made(text) == text, f"{page.path.name} is out of date: {COMMAND} {page.name}"


def _regenerate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tools.regenerate", *arguments],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip


def test_help_names_every_generated_file() -> None:
    """Whoever asks for help gets the names with what they mean, and nothing is written."""
    done = _regenerate("--help")
    assert done.returncode == 0
    assert all(f"  {one.name:10} {one.meaning}\n" in done.stdout for one in GENERATED)
    assert all(one.path.exists() for one in GENERATED)


def test_unknown_name_is_refused_with_the_names() -> None:
    """A name of nothing ends with 2 and the names that there are."""
    done = _regenerate("shema")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no 'shema'; names are schema, formulas," in done.stderr


def test_page_that_is_up_to_date_is_not_touched() -> None:
    """A second run changes nothing."""
    page = ROOT / "docs" / "cli.md"
    before = page.stat().st_mtime_ns
    done = _regenerate("cli")
    assert (done.returncode, done.stdout) == (0, "cli: up to date\n")
    assert page.stat().st_mtime_ns == before


def test_database_is_replaced_only_by_other_contents(tmp_path: Path) -> None:
    """Equal rows with other times leave the stored file; another row, or column, replaces it."""

    def make(value: int, seconds: float):
        def write(path: Path) -> None:
            database = sqlite3.connect(path)
            database.execute("CREATE TABLE t (value INTEGER, seconds REAL)")
            database.execute("INSERT INTO t VALUES (?, ?)", (value, seconds))
            database.commit()
            database.close()

        return write

    path = tmp_path / "kept.db"
    assert replaced(path, make(1, 0.5))
    kept = path.read_bytes()
    assert not replaced(path, make(1, 0.75))
    assert path.read_bytes() == kept
    assert replaced(path, make(2, 0.5))
    assert path.read_bytes() != kept


def test_sizes_list_every_file_of_data() -> None:
    """Each committed file of ``data`` has its row, and each row its file."""
    page = (ROOT / "data" / "README.md").read_text("utf-8")
    listed = subprocess.run(
        ["git", "ls-files", "data"], capture_output=True, text=True, check=False, cwd=ROOT
    ).stdout.split()
    if not listed:
        pytest.skip("this is no checkout")
    for name in listed:
        path = Path(name).relative_to("data")
        if path.name != "README.md":
            assert f"| `{path}` | {(ROOT / name).stat().st_size} |" in with_sizes(page)


def test_a_new_revision_gets_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of revisions follows the folder."""
    shutil.copytree(ROOT / "data", tmp_path / "data", ignore=shutil.ignore_patterns("profiles.db*"))
    shutil.copy(
        ROOT / "data" / "revisions" / "0001.db", tmp_path / "data" / "revisions" / "0999.db"
    )
    monkeypatch.setattr("tools.data_files.DATA", tmp_path / "data")
    page = with_sizes((ROOT / "data" / "README.md").read_text("utf-8"))
    size = (ROOT / "data" / "revisions" / "0001.db").stat().st_size
    assert f"| `revisions/0999.db` | {size} | written at revision 0999 of the schema |" in page
