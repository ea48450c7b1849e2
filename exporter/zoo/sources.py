"""Where a package's models stand, found without importing the package."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from exporter.zoo.errors import BuildError


def models_folder(package: str) -> Path:
    """Return the folder ``models`` of an installed package.

    Raises:
        BuildError: if the package is not installed.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise BuildError(f"the package {package} is not installed")
    return Path(spec.submodule_search_locations[0]) / "models"
