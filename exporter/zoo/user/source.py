"""Where the source of a user's own module is, found without running any of it.

Whether a profile is stored already is known before anything is imported. So a module that no
installed distribution stands for is identified by the text of its source and of whatever else it
imports that is not installed either: an edited file is profiled again.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import json
import pkgutil
import re
import sys
import sysconfig
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, PackageNotFoundError, packages_distributions
from importlib.util import resolve_name
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from exporter.zoo.errors import ZooError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from importlib.machinery import ModuleSpec

_SPEC = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")


def split_name(text: str) -> tuple[str, str]:
    """Return module and attribute of ``package.module:attribute``.

    Raises:
        ZooError: if it has another form.
    """
    match = _SPEC.fullmatch(text)
    if match is not None:
        return match[1], match[2]
    path, _, attribute = text.rpartition(":")
    if path.endswith(".py"):
        file = Path(path)
        raise ZooError(
            f"{path} is a file; name its module, {file.stem}:{attribute}, and its folder with "
            f"--module-path {file.parent}"
        )
    raise ZooError(f"{text!r} is not of the form package.module:name")


class SourceFinder:
    """Finds modules as an import would, with some folders first, and runs nothing.

    Args:
        folders: in which modules are looked for before everywhere else.
    """

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = list(folders)
        self._path = [*self._folders, *sys.path]

    def find(self, module: str) -> ModuleSpec:
        """Return the spec of a module.

        Raises:
            ZooError: if there is none, with near names.
        """
        spec: ModuleSpec | None = None
        for name in _parents(module):
            parent, spec = spec, self._spec(name, spec)
            if spec is None:
                raise ZooError(self._missing(name, parent))
        if spec is None:
            raise ZooError("a module without a name")
        return spec

    def digest(self, modules: Sequence[str]) -> str:
        """Return a digest of the modules' source that is not installed, "" if all of it is."""
        found: dict[str, bytes] = {}
        waiting = [name for module in modules for name in _parents(module)]
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            spec = self._known(name)
            if spec is None or not spec.origin or is_installed(spec.origin):
                continue
            try:
                found[name] = Path(spec.origin).read_bytes()
                tree = ast.parse(found[name])
            except (OSError, SyntaxError, ValueError):
                continue  # importing it will tell
            package = name if spec.submodule_search_locations else name.rpartition(".")[0]
            waiting.extend(part for one in _imported(tree, package) for part in _parents(one))
        if not found:
            return ""
        total = hashlib.sha256()
        for name, text in sorted(found.items()):
            total.update(f"{name} {len(text)}\n".encode() + text)
        return total.hexdigest()[:16]

    def _known(self, module: str) -> ModuleSpec | None:
        spec: ModuleSpec | None = None
        for name in _parents(module):
            spec = self._spec(name, spec)
            if spec is None:
                return None
        return spec

    def _spec(self, name: str, parent: ModuleSpec | None) -> ModuleSpec | None:
        if parent is None:
            path = self._path
        elif parent.submodule_search_locations is None:
            return None
        else:
            path = list(parent.submodule_search_locations)
        for finder in sys.meta_path:
            searched = path if parent is not None or finder is PathFinder else None
            spec = finder.find_spec(name, searched)
            if spec is not None:
                return spec
        return None

    def _missing(self, name: str, parent: ModuleSpec | None) -> str:
        """Return why there is no such module, and what there is."""
        last = name.rpartition(".")[2]
        if parent is None:
            known = [one.name for one in pkgutil.iter_modules(self._folders)]
            where = f"in {' or '.join(self._folders)}, and none is installed"
        elif parent.submodule_search_locations is None:
            return f"{parent.name!r} is no package, so there is no module {name!r}"
        else:
            known_at = list(parent.submodule_search_locations)
            known = [one.name for one in pkgutil.iter_modules(known_at)]
            where = f"in the package {parent.name!r} of {known_at[0]}"
        near = difflib.get_close_matches(last, known, n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else "--module-path says where to look"
        return f"there is no module {last!r} {where}; {hint}"


def distribution_of(spec: ModuleSpec) -> str:
    """Return the installed distribution that a module belongs to, "" if there is none."""
    if not spec.origin:
        return ""
    names = packages_distributions().get(spec.name.partition(".")[0], [])
    for name in dict.fromkeys(names):
        try:
            distribution = Distribution.from_name(name)
        except PackageNotFoundError:
            continue
        if not is_installed(spec.origin):
            if _is_editable(distribution, spec.origin):
                return name
        elif len(set(names)) == 1 or any(
            Path(str(file.locate())) == Path(spec.origin) for file in distribution.files or ()
        ):
            return name
    return ""


def is_installed(file: str) -> bool:
    """Return whether a file is part of Python, of an installed package or of this program."""
    path = Path(file)
    if {"site-packages", "dist-packages"} & set(path.parts) or file.startswith("<"):
        return True
    ours = [Path(__file__).parents[3] / name for name in ("exporter", "store", "migrations")]
    homes = [Path(sysconfig.get_path("stdlib")), *ours]
    return file in ("built-in", "frozen") or any(path.is_relative_to(home) for home in homes)


def _is_editable(distribution: Distribution, file: str) -> bool:
    """Return whether a distribution is installed as a link to a folder that holds the file."""
    try:
        url = json.loads(distribution.read_text("direct_url.json") or "{}").get("url", "")
    except ValueError:
        return False
    parts = urlsplit(url)
    return parts.scheme == "file" and Path(file).is_relative_to(unquote(parts.path))


def _parents(module: str) -> Iterator[str]:
    """Yield the packages that a module is in, outermost first, and the module."""
    parts = module.split(".")
    for i in range(len(parts)):
        yield ".".join(parts[: i + 1])


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    """Yield the modules that a source may import; some of the names may be no modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            try:
                base = resolve_name("." * node.level + (node.module or ""), package)
            except ImportError:  # beyond the top
                continue
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")
