"""Keeping Python's cycle collector away from work that makes many small objects."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def gc_paused() -> Iterator[None]:
    """Return a context, or a decorator, in which the cycle collector does not run.

    It would walk tens of thousands of rows again and again, and while a model is recorded it would
    move the deaths of storages about. It is put back as it was found.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
