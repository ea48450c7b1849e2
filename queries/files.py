"""Files that are there whole, or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from queries.errors import OutputError, QuestionError


def write_whole(path: str, data: bytes) -> None:
    """Write a file beside its place, then move it there.

    What cannot be replaced is written through: ``-`` is standard output, pipes and devices stay
    what they are, and of a symbolic link the file that it points to is written.

    Raises:
        QuestionError: if it has no name.
        OutputError: if it cannot be written; a file that was there before is untouched.
    """
    if path == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    if not path:
        raise QuestionError("the output has no name; give -o a file, or - for standard output")
    target = Path(path)
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(data)
        else:
            _replace(target.resolve(), data)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from error
    except RuntimeError as error:  # how Python before 3.13 says that links go in a circle
        raise OutputError(f"cannot write {path}: {error}") from error


def _replace(target: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)  # mkstemp's own files are for their owner only
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
