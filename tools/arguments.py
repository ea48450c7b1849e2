"""What the programs of this folder share."""

from __future__ import annotations

import sys
from pathlib import Path


def refuse_arguments(usage: str | None) -> None:
    """End the program if it was given any argument, before it writes a file.

    Args:
        usage: the docstring of a program that takes none.
    """
    if len(sys.argv) > 1:
        sys.exit(f"{Path(sys.argv[0]).name} takes no arguments.\n\n{usage or ''}".rstrip())
