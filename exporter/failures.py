"""Any exception in one line: what it says, and where it was raised."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.errors import UnknownValueError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and each that it comes from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


# What torch's C++ says, outside of any operator, where it makes a tensor of a list of tensors.
_READS_META = "Tensor.item() cannot be called on meta tensors"


def misses_value(error: BaseException) -> bool:
    """Return whether a failure comes from a value that a meta tensor does not have."""
    return any(
        isinstance(one, UnknownValueError)
        or (type(one) is RuntimeError and str(one) == _READS_META)
        for one in chain(error)
    )


def said(error: BaseException) -> str:
    """Return the kind of an error and its text, in one line."""
    try:
        said_by = error.msg if isinstance(error, SyntaxError) else error  # the place comes apart
        text = " ".join(str(said_by).split())
    except Exception:  # noqa: BLE001 - the user's own class may fail here as well
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def innermost(error: BaseException) -> str:
    """Return file and line that raised an error, whoever wrote them."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def explained(error: Exception, model: nn.Module) -> str:
    """Return one line: what failed, in which operator, module and line of the model's code."""
    paths = {id(module): path for path, module in model.named_modules()}
    module_path, place = "", ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        owner = frame.f_locals.get("self")
        if id(owner) in paths:
            module_path = paths[id(owner)]
            code = frame.f_code
            if "torch/nn/modules/module.py" not in code.co_filename:
                place = f"{Path(code.co_filename).name}:{line}"
    text = " ".join(str(error).split()) or type(error).__name__
    operator = getattr(error, "operator", "")
    parts = [text]
    if operator and operator not in text:
        parts.append(f"in operator {operator}")
    parts.append(f"in module {module_path!r}" if module_path else "in the model itself")
    if place:
        parts.append(f"({place})")
    return " ".join(parts)
