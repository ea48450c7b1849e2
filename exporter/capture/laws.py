"""How large numbers are that nobody computes: mean and deviation through operators.

Estimates, for outputs that are drawn: independent operands, no padding, no correlation. They
decide whether the scores of an untrained detector pass its threshold, not the third digit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from exporter.capture.contents import UNIT, Law, Read

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

IMAGES = Law(0.5, 0.29)  # numbers between 0 and 1, evenly spread


def given_law(values: torch.Tensor) -> Law:
    """Return mean and deviation of numbers that are there."""
    if not values.numel() or not values.is_floating_point():
        return UNIT
    numbers = values.detach().double()
    return Law(float(numbers.mean()), float(numbers.std(correction=0)))


def parameter_law(shape: Sequence[int]) -> Law:
    """Return the law of a parameter whose initialisation nobody saw.

    A matrix or kernel keeps the size of what it is applied to; a vector is all zeros.
    """
    if len(shape) < 2:
        return Law(0.0, 0.0)
    return Law(0.0, 1 / math.sqrt(max(1, math.prod(shape[1:]))))


def _law(value: Any) -> Law:
    """Return the law of an operand that is a number."""
    return _operand(value) or UNIT


def _operand(value: Any) -> Law | None:
    """Return the law of one operand, None if it is no number."""
    if isinstance(value, Read):
        return value.contents.law
    if isinstance(value, (bool, int, float)):
        return Law(float(value), 0.0)
    return None


def _contraction(value: Law, weight: Law, terms: int, bias: Law | None) -> Law:
    """Return the law of a sum of products."""
    spread = math.sqrt(terms) * value.rms * weight.rms
    if bias is None:
        return Law(0.0, spread)
    return Law(bias.mean, math.hypot(spread, bias.std))


def _convolution(args: Any) -> Law:
    terms = math.prod(args[1].spec.shape[1:])
    return _contraction(_law(args[0]), _law(args[1]), terms, _operand(args[2]))


def _addmm(args: Any) -> Law:
    return _contraction(_law(args[1]), _law(args[2]), args[1].spec.shape[-1], _operand(args[0]))


def _mm(args: Any) -> Law:
    return _contraction(_law(args[0]), _law(args[1]), args[0].spec.shape[-1], None)


def _batch_norm(position: int) -> Callable[[Any], Law]:
    def law(args: Any) -> Law:
        """Normalised in training; in evaluation divided by a variance of 1, its first value."""
        return UNIT if args[position] else _law(args[0])

    return law


def _first(args: Any) -> Law:
    return _law(args[0])


def _unit(_args: Any) -> Law:
    return UNIT


# Operators whose output is drawn instead of computed.
DRAWN: dict[str, Callable[[Any], Law]] = {
    "convolution": _convolution,
    "_convolution": _convolution,
    "addmm": _addmm,
    "baddbmm": _addmm,
    "mm": _mm,
    "bmm": _mm,
    "native_batch_norm": _batch_norm(5),
    "cudnn_batch_norm": _batch_norm(5),
    "native_layer_norm": _unit,
    "native_group_norm": _unit,
    "roi_align": _first,
    "ps_roi_align": _first,
    "roi_pool": _first,
    "deform_conv2d": _convolution,
    "cudnn_grid_sampler": _first,
    "_scaled_dot_product_flash_attention": _first,
    "_scaled_dot_product_efficient_attention": _first,
    "_scaled_dot_product_cudnn_attention": _first,
    "_scaled_dot_product_flash_attention_for_cpu": _first,
    "_scaled_dot_product_attention_math": _first,
    "_cudnn_rnn": _unit,
    "lstm": _unit,
    "gru": _unit,
}


def _rectified(args: Any) -> Law:
    """Return what a rectifier leaves of a normal law: the moments of its positive part."""
    law = _first(args)
    if law.std == 0:
        return Law(max(0.0, law.mean), 0.0)
    ratio = law.mean / law.std
    below = (1 + math.erf(ratio / math.sqrt(2))) / 2
    density = math.exp(-(ratio**2) / 2) / math.sqrt(2 * math.pi)
    mean = law.mean * below + law.std * density
    square = (law.mean**2 + law.std**2) * below + law.mean * law.std * density
    return Law(mean, math.sqrt(max(0.0, square - mean**2)))


def _sum(args: Any, sign: int) -> Law:
    one, other = _law(args[0]), _law(args[1])
    return Law(one.mean + sign * other.mean, math.hypot(one.std, other.std))


def _product(args: Any) -> Law:
    one, other = _law(args[0]), _law(args[1])
    mean = one.mean * other.mean
    return Law(mean, math.sqrt(max(0.0, (one.rms * other.rms) ** 2 - mean**2)))


def _quotient(args: Any) -> Law:
    one, other = _law(args[0]), _law(args[1])
    size = other.rms or 1.0
    return Law(one.mean / size, one.std / size)


def _widest(args: Any) -> Law:
    laws = [law for law in map(_operand, args[0]) if law is not None]
    return max(laws, key=lambda law: law.rms, default=UNIT)


def _written(args: Any) -> Law:
    """Return the law of the largest numbers among what was there and what is put in."""
    laws = [law for law in map(_operand, args) if law is not None]
    return max(laws, key=lambda law: law.rms, default=UNIT)


def _copied(args: Any) -> Law:
    return _law(args[1])


def _highest(args: Any) -> Law:
    law = _first(args)
    return Law(law.mean + law.std, law.std)


def _squashed(_args: Any) -> Law:
    return Law(0.5, 0.2)


_CARRIED: dict[str, Callable[[Any], Law]] = {
    "relu": _rectified,
    "relu_": _rectified,
    "hardtanh": _rectified,
    "hardtanh_": _rectified,
    "hardswish": _rectified,
    "hardswish_": _rectified,
    "silu": _rectified,
    "silu_": _rectified,
    "gelu": _rectified,
    "leaky_relu": _rectified,
    "leaky_relu_": _rectified,
    "add": lambda args: _sum(args, 1),
    "add_": lambda args: _sum(args, 1),
    "sub": lambda args: _sum(args, -1),
    "sub_": lambda args: _sum(args, -1),
    "mul": _product,
    "mul_": _product,
    "div": _quotient,
    "div_": _quotient,
    "cat": _widest,
    "stack": _widest,
    "max_pool2d_with_indices": _highest,
    "copy_": _copied,
    "index_put": _written,
    "index_put_": _written,
    "_index_put_impl_": _written,
    "hardsigmoid": _squashed,
    "hardsigmoid_": _squashed,
    "sigmoid": _squashed,
}


def carried_law(name: str, args: Any) -> Law:
    """Return the law of an operator's output: its first operand's, unless it is known to change."""
    rule = _CARRIED.get(name)
    if rule is not None:
        return rule(args)
    return _law(args[0]) if args else UNIT
