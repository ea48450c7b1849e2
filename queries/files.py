"""Files that are there whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from queries.errors import QuestionError


def write_whole(path: str, data: bytes) -> None:
    """Write a file beside its place, then move it there.

    Raises:
        QuestionError: if it cannot be written; what was there before is untouched.
    """
    target = Path(path)
    try:
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
    except OSError as error:
        raise QuestionError(f"cannot write {path}: {error.strerror}") from error
