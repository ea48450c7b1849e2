"""The public names of ``queries``, for its ``__init__.py``: what its files have in ``__all__``."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = ("queries", "queries/questions")
_MOST_CHARACTERS = 100  # of a line, as for ruff


def with_names(page: str) -> str:
    """Return the package's file with the imports that its files ask for."""
    head, mark, _ = page.partition("from __future__ import annotations\n")
    public = public_names()
    imports = [_statement(f"from {module} import ", "(", names, ")") for module, names in public]
    everything = [f'"{name}"' for name in sorted(name for _, names in public for name in names)]
    return f"{head}{mark}\n{''.join(imports)}\n{_statement('__all__ = ', '[', everything, ']')}"


def public_names() -> list[tuple[str, list[str]]]:
    """Return each module that has public names with these, both in the order of imports."""
    found = []
    for place in PLACES:
        for path in sorted((ROOT / place).glob("*.py")):
            names = _declared(path)
            if path.stem != "__init__" and names:
                module = f"{place.replace('/', '.')}.{path.stem}"
                # classes first, whatever the case of what follows
                found.append((module, sorted(names, key=lambda n: (n[0].islower(), n.lower()))))
    return sorted(found)


def _declared(path: Path) -> list[str]:
    """Return the names in the ``__all__`` of a file, which is not imported for it."""
    for statement in ast.parse(path.read_text("utf-8")).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return list(ast.literal_eval(statement.value))
    return []


def _statement(start: str, opening: str, items: list[str], closing: str) -> str:
    """Return a statement with a list, on one line if that is not too long."""
    brackets = ("", "") if start.startswith("from") else (opening, closing)
    line = f"{start}{brackets[0]}{', '.join(items)}{brackets[1]}"
    if len(line) <= _MOST_CHARACTERS:
        return f"{line}\n"
    lines = "".join(f"    {item},\n" for item in items)
    return f"{start}{opening}\n{lines}{closing}\n"
