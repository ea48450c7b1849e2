"""What a user asks of a model's configuration, and how a zoo refuses what the model lacks."""

from __future__ import annotations

import difflib
import inspect
import re
from typing import TYPE_CHECKING

from exporter.zoo.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import nn

_UNEXPECTED = re.compile(r"unexpected keyword argument '(\w+)'")


def refuse_key(name: str, key: str, known: Iterable[str]) -> BuildError:
    """Return the error for a key that the configuration of a model lacks, with near names."""
    known = sorted(set(known))
    near = difflib.get_close_matches(key, known, n=3, cutoff=0.5)
    if not near:
        near = [one for one in known if key in one][:3]
    hint = f"did you mean {', '.join(near)}?" if near else f"it has {', '.join(known)}"
    return BuildError(f"{name} has no setting {key!r}; {hint}")


def refuse_build(
    name: str, options: dict[str, object], error: Exception, plain: Callable[[], nn.Module]
) -> BuildError:
    """Return the error for a constructor that failed, with near names of a wrong keyword.

    Args:
        name: of the model.
        options: what its constructor was given.
        error: what it raised.
        plain: builds the model without options, to learn what it takes.
    """
    unexpected = _UNEXPECTED.search(str(error))
    if unexpected and unexpected[1] in options:
        known = [
            key
            for key, parameter in inspect.signature(type(plain()).__init__).parameters.items()
            if key != "self" and parameter.kind is not parameter.VAR_KEYWORD
        ]
        return refuse_key(name, unexpected[1], known)
    reason = " ".join(str(error).split()) or type(error).__name__
    return BuildError(f"{name} cannot be built with {options}: {reason}")
