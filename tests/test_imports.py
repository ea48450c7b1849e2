"""Imports go one way, and each library stays where it belongs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("exporter", "store", "queries", "migrations")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))

COMMAND = ROOT / "store" / "command.py"  # what both commands have in common

# What a package may import of the project.
MAY_IMPORT = {
    "exporter": {"exporter", "store"},
    "queries": {"queries", "store"},
    "store": {"store", "migrations"},
    "migrations": {"store", "migrations"},
}
# Where a library may appear.
HOMES = {
    "torch": {"exporter"},
    "torchvision": {"exporter"},
    "sqlalchemy": {"store", "migrations"},
    "alembic": {"store", "migrations"},
    "networkx": {"queries"},
}


def _imports(path: Path) -> set[str]:
    """Return the top-level names that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add((node.module or "").partition(".")[0])
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_file_imports_only_what_its_package_may(path: Path) -> None:
    """Exporter and queries use the store, nothing uses the exporter, libraries have homes."""
    package = path.relative_to(ROOT).parts[0]
    imported = _imports(path)
    assert imported & set(PACKAGES) <= MAY_IMPORT[package]
    for library, homes in HOMES.items():
        if library in imported:
            assert package in homes
    if "click" in imported or "store.command" in path.read_text():
        in_folder = path.parent.name in {"cli", "questions"}
        assert in_folder or path.name.startswith("cli") or path == COMMAND


def test_store_is_used_without_click(tmp_path: Path) -> None:
    """A program that creates and reads a database loads nothing that only commands need."""
    code = (
        "import sys; from store import open_store; "
        f"open_store(r'{tmp_path / 'profiles.db'}', create=True).totals(); "
        "print([m for m in ('click', 'rich', 'store.command') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert result.stdout.strip() == "[]"


def test_revisions_import_no_project_code() -> None:
    """A released migration does not change with the code."""
    for path in (ROOT / "migrations" / "versions").glob("0*.py"):
        assert not _imports(path) & set(PACKAGES)


def test_records_need_the_standard_library_only() -> None:
    """Whoever reads records needs nothing else installed."""
    modules = _modules_of_ours()
    needed = {"store.records"}
    while more := {one for name in needed for one in _uses(modules[name], modules)} - needed:
        needed |= more
    imported = set().union(*(_imports(modules[name]) for name in needed))
    assert imported <= set(sys.stdlib_module_names) | {"__future__", "store"}


@pytest.mark.parametrize("module", ["exporter.cli.main", "queries.cli", "store", "exporter"])
def test_commands_start_without_heavy_libraries(module: str) -> None:
    """torch, networkx and pandas are imported where they are needed, not at the start."""
    code = (
        f"import {module}, sys; "
        "print([m for m in ('torch', 'networkx', 'pandas', 'plotly', 'alembic') "
        "if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert result.stdout.strip() == "[]"


def _modules_of_ours() -> dict[str, Path]:
    """Return every module of the project by its dotted name."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in FILES
    }


def _uses(path: Path, modules: dict[str, Path]) -> set[str]:
    """Return the modules of the project that a file imports, anywhere and for types, too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    named = found & set(modules)
    # "from package import module" is of the module, unless the package offers names itself.
    return {name for name in named if not any(other.startswith(f"{name}.") for other in named)}


def test_no_imports_go_in_a_circle() -> None:
    """Whatever a module needs can be understood without it; late and typing imports count."""
    modules = _modules_of_ours()
    graph = nx.DiGraph(
        (name, used) for name, path in modules.items() for used in _uses(path, modules)
    )
    circles = [" -> ".join([*circle, circle[0]]) for circle in nx.simple_cycles(graph)]
    assert not circles, (
        "imports go in a circle; move what both sides need into a module that neither imports: "
        + "; ".join(circles)
    )
