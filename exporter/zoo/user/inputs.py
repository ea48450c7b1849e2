"""How the inputs of a user's model are written.

Standard library only: the command reads and checks all of it long before torch is imported.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from exporter.zoo.errors import ZooError

if TYPE_CHECKING:
    from exporter.settings import UserModel

BATCH = "batch"  # a size that --batch-size gives

# Smallest and largest value; a floating type has none that a range may name.
_LIMITS = {
    "bool": (0, 1),
    "uint8": (0, 2**8 - 1),
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
# "float" is the type that --dtype gives.
_TYPES = (
    "float", "float16", "bfloat16", "float32", "float64", "complex64", "complex128", *_LIMITS,
)  # fmt: skip

_FORMS = (
    "the form is [NAME=]TYPE[SIZE,...]{LOW:HIGH}, such as 'float32[4,3,224,224]' or "
    "'ids=int64[batch,128]{0:50257}', or [NAME=]VALUE, such as 'causal=true'"
)
_TENSOR = re.compile(r"(\w+)\s*\[([^\[\]]*)\]\s*(?:\{\s*(-?\d+)\s*:\s*(-?\d+)\s*\})?")
_NAMED = re.compile(r"([A-Za-z_]\w*)\s*=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TensorInput:
    """A tensor to be made: type, sizes, and the range of its values."""

    dtype: str  # "float": the type that --dtype gives
    sizes: tuple[int | str, ...]  # BATCH stands for the batch size
    low: int = 0
    high: int = 0  # values are below; equal to ``low``: values are unknown

    def shape(self, batch_size: int) -> tuple[int, ...]:
        """Return the sizes for a batch size."""
        return tuple(batch_size if size == BATCH else int(size) for size in self.sizes)


@dataclass(frozen=True, slots=True)
class Input:
    """One input of ``forward``: a tensor, or a plain value."""

    name: str  # "": by position
    value: Any  # a TensorInput, or what is passed as it is


def lacks_range(user: UserModel) -> bool:
    """Return whether the values of an input are unknown that a range would give."""
    tensors = (one.value for one in parsed_inputs(user) if isinstance(one.value, TensorInput))
    return any(one.dtype in _LIMITS and one.low == one.high for one in tensors)


def tells_batch(user: UserModel) -> bool:
    """Return whether the inputs are known to have a batch size before they are made."""
    if user.inputs_from:
        return not user.user_batch
    values = (one.value for one in parsed_inputs(user))
    return any(isinstance(value, TensorInput) and value.sizes for value in values)


def parsed_inputs(user: UserModel) -> list[Input]:
    """Return the inputs that are written out.

    Raises:
        ZooError: if one of them does not parse, or a name is given twice.
    """
    parsed = [parse_input(text) for text in user.inputs]
    names = [one.name for one in parsed if one.name]
    for name in names:
        if names.count(name) > 1:
            raise ZooError(f"--input gives {name!r} twice")
    return parsed


def parse_input(text: str) -> Input:
    """Return what ``[NAME=]TYPE[SIZE,...]{LOW:HIGH}`` or ``[NAME=]VALUE`` says.

    A size is a number or the word ``batch``. With a range, values are drawn from ``LOW`` up to but
    not including ``HIGH``; without one they are unknown. A value is written as JSON.

    Raises:
        ZooError: if it says neither; the text shows the forms.
    """
    named = _NAMED.fullmatch(text.strip())
    name, body = named.groups() if named else ("", text)
    body = body.strip()
    tensor = _TENSOR.fullmatch(body)
    if tensor is not None:
        return Input(name, _tensor(text, *tensor.groups()))
    try:
        value = json.loads(body)
    except ValueError:
        raise ZooError(f"--input {text!r} does not parse; {_FORMS}") from None
    return Input(name, value)


def _tensor(text: str, dtype: str, sizes: str, low: str | None, high: str | None) -> TensorInput:
    """Return a tensor's description, checked.

    Raises:
        ZooError: if a part of it is none of its choices.
    """
    if dtype not in _TYPES:
        near = difflib.get_close_matches(dtype, _TYPES, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"types are {', '.join(_TYPES)}"
        raise ZooError(f"--input {text!r}: {dtype!r} is no type; {hint}")
    shape: list[int | str] = []
    for size in filter(None, (part.strip() for part in sizes.split(","))):
        if size != BATCH and not size.isdecimal():
            raise ZooError(
                f"--input {text!r}: size {size!r} is neither a number nor {BATCH!r}; {_FORMS}"
            )
        shape.append(size if size == BATCH else int(size))
    if low is None or high is None:
        return TensorInput(dtype, tuple(shape))
    if dtype not in _LIMITS:
        raise ZooError(f"--input {text!r}: only bool and integers have a range, not {dtype}")
    least, most = _LIMITS[dtype]
    if not least <= int(low) < int(high) <= most + 1:
        raise ZooError(
            f"--input {text!r}: the range holds no value of {dtype}; {{LOW:HIGH}} is from LOW up "
            f"to but not including HIGH, within {least}:{most + 1}"
        )
    return TensorInput(dtype, tuple(shape), int(low), int(high))
