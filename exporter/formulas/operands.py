"""Readers of an operator's operands, shared by the formulas.

Operators reach a dispatch mode with trailing defaults dropped, so an argument may be positional,
named or absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from exporter.formulas.spec import TensorSpec

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]
Outputs = tuple[Any, ...]
Formula = Callable[[Args, Kwargs, Outputs], int]


def argument(args: Args, kwargs: Kwargs, position: int, name: str, default: Any = None) -> Any:
    """Return an argument by its position or its name, or the default if the call left it out."""
    if position < len(args):
        return args[position]
    return kwargs.get(name, default)


def tensors(values: Any) -> Iterator[TensorSpec]:
    """Yield every tensor of nested lists and tuples, in order."""
    for value in values:
        if isinstance(value, TensorSpec):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors(value)


def first_tensor(args: Args, kwargs: Kwargs) -> TensorSpec:
    """Return the first tensor among the arguments.

    Raises:
        TypeError: if no argument is a tensor.
    """
    for tensor in tensors(args):
        return tensor
    for tensor in tensors(tuple(kwargs.values())):
        return tensor
    raise TypeError("no argument is a tensor")


def result(outputs: Outputs) -> TensorSpec:
    """Return the first tensor that comes back.

    Raises:
        TypeError: if none does.
    """
    for tensor in tensors(outputs):
        return tensor
    raise TypeError("no result is a tensor")


def first_output(args: Args, kwargs: Kwargs, outputs: Outputs) -> TensorSpec:
    """Return the first tensor that comes back, or the first operand of a call without results."""
    for tensor in tensors(outputs):
        return tensor
    return first_tensor(args, kwargs)


def first_operand_elements(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the first tensor operand, whatever its rank."""
    return first_tensor(args, kwargs).numel


def output_elements(args: Args, kwargs: Kwargs, outputs: Outputs) -> int:
    """Elements of the first result, after broadcasting."""
    return first_output(args, kwargs, outputs).numel


def dtype_factor(*operands: TensorSpec) -> int:
    """Return 4 if both factors of a contraction are complex, 2 if one is, else 1.

    A complex multiply-add is four real ones; a complex number times a real one is two.
    """
    return int(2 ** sum(operand.dtype.is_complex for operand in operands))


def ceil_log2(n: int) -> int:
    """Return the smallest k with 2**k >= n, 0 for n below 2."""
    return (n - 1).bit_length() if n > 1 else 0
