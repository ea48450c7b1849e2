"""How large numbers are that nobody computes: mean and deviation through operators.

Estimates, for outputs that are drawn: independent operands, no padding, no correlation. They
decide whether the scores of an untrained detector pass its threshold, not the third digit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from exporter.capture.values.storage_value import UNIT, Moments, StorageView
from exporter.ledger import Facts, aten_operators

if TYPE_CHECKING:
    from collections.abc import Sequence


Rule = Callable[[Any], Moments]
DRAWN = Facts[Rule](
    __name__,
    "moments that are drawn",
    "says that its output is drawn, and with which mean and deviation",
)
CARRIED = Facts[Rule](
    __name__,
    "moments that it carries",
    "gives the mean and deviation of its output from its operands'",
)

IMAGES = Moments(0.5, 0.29)  # numbers between 0 and 1, evenly spread


def parameter_moments(shape: Sequence[int]) -> Moments:
    """Return the moments of a parameter whose initialisation nobody saw.

    A matrix or kernel keeps the size of what it is applied to; a vector is all zeros.
    """
    if len(shape) < 2:
        return Moments(0.0, 0.0)
    return Moments(0.0, 1 / math.sqrt(max(1, math.prod(shape[1:]))))


def _moments_of(value: Any) -> Moments:
    """Return the moments of an operand that is a number."""
    return _operand(value) or UNIT


def _operand(value: Any) -> Moments | None:
    """Return the moments of one operand, None if it is no number."""
    if isinstance(value, StorageView):
        return value.value.moments
    if isinstance(value, (bool, int, float)):
        return Moments(float(value), 0.0)
    return None


def _contraction(value: Moments, weight: Moments, terms: int, bias: Moments | None) -> Moments:
    """Return the moments of a sum of products."""
    spread = math.sqrt(terms) * value.rms * weight.rms
    if bias is None:
        return Moments(0.0, spread)
    return Moments(bias.mean, math.hypot(spread, bias.std))


def _convolution(args: Any) -> Moments:
    terms = math.prod(args[1].spec.shape[1:])
    return _contraction(_moments_of(args[0]), _moments_of(args[1]), terms, _operand(args[2]))


def _addmm(args: Any) -> Moments:
    return _contraction(
        _moments_of(args[1]), _moments_of(args[2]), args[1].spec.shape[-1], _operand(args[0])
    )


def _mm(args: Any) -> Moments:
    return _contraction(_moments_of(args[0]), _moments_of(args[1]), args[0].spec.shape[-1], None)


def _batch_norm(args: Any) -> Moments:
    """Normalised in training; in evaluation divided by a variance of 1, its first value."""
    return UNIT if args[5] else _moments_of(args[0])


def _first(args: Any) -> Moments:
    return _moments_of(args[0])


def _unit(_args: Any) -> Moments:
    return UNIT


def _rectified(args: Any) -> Moments:
    """Return what a rectifier leaves of normal numbers: the moments of their positive part."""
    moments = _first(args)
    if moments.std == 0:
        return Moments(max(0.0, moments.mean), 0.0)
    ratio = moments.mean / moments.std
    below = (1 + math.erf(ratio / math.sqrt(2))) / 2
    density = math.exp(-(ratio**2) / 2) / math.sqrt(2 * math.pi)
    mean = moments.mean * below + moments.std * density
    square = (moments.mean**2 + moments.std**2) * below + moments.mean * moments.std * density
    return Moments(mean, math.sqrt(max(0.0, square - mean**2)))


def _sum(args: Any) -> Moments:
    one, other = _moments_of(args[0]), _moments_of(args[1])
    return Moments(one.mean + other.mean, math.hypot(one.std, other.std))


def _difference(args: Any) -> Moments:
    one, other = _moments_of(args[0]), _moments_of(args[1])
    return Moments(one.mean - other.mean, math.hypot(one.std, other.std))


def _product(args: Any) -> Moments:
    one, other = _moments_of(args[0]), _moments_of(args[1])
    mean = one.mean * other.mean
    return Moments(mean, math.sqrt(max(0.0, (one.rms * other.rms) ** 2 - mean**2)))


def _quotient(args: Any) -> Moments:
    one, other = _moments_of(args[0]), _moments_of(args[1])
    size = other.rms or 1.0
    return Moments(one.mean / size, one.std / size)


def _widest(args: Any) -> Moments:
    moments = [moments for moments in map(_operand, args[0]) if moments is not None]
    return max(moments, key=lambda moments: moments.rms, default=UNIT)


def _written(args: Any) -> Moments:
    """Return the moments of the largest numbers among what was there and what is put in."""
    moments = [moments for moments in map(_operand, args) if moments is not None]
    return max(moments, key=lambda moments: moments.rms, default=UNIT)


def _copied(args: Any) -> Moments:
    return _moments_of(args[1])


def _highest(args: Any) -> Moments:
    moments = _first(args)
    return Moments(moments.mean + moments.std, moments.std)


def _squashed(_args: Any) -> Moments:
    return Moments(0.5, 0.2)


for _rule, _names in (
    (_convolution, "convolution _convolution"),
    (_addmm, "addmm baddbmm"),
    (_mm, "mm bmm"),
    (_batch_norm, "native_batch_norm cudnn_batch_norm"),
    (_unit, "native_layer_norm native_group_norm _cudnn_rnn lstm gru"),
    (
        _first,
        (
            "cudnn_grid_sampler _scaled_dot_product_flash_attention"
            " _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention"
            " _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_attention_math"
        ),
    ),
):
    DRAWN(*aten_operators(_names))(_rule)
DRAWN("torchvision::deform_conv2d")(_convolution)
DRAWN("torchvision::roi_align", "torchvision::ps_roi_align", "torchvision::roi_pool")(_first)

for _rule, _names in (
    (
        _rectified,
        "relu relu_ hardtanh hardtanh_ hardswish hardswish_ silu silu_ gelu leaky_relu leaky_relu_",
    ),
    (_sum, "add add_"),
    (_difference, "sub sub_"),
    (_product, "mul mul_"),
    (_quotient, "div div_"),
    (_widest, "cat stack"),
    (_highest, "max_pool2d_with_indices"),
    (_copied, "copy_"),
    (_written, "index_put index_put_ _index_put_impl_"),
    (_squashed, "hardsigmoid hardsigmoid_ sigmoid"),
):
    CARRIED(*aten_operators(_names))(_rule)


def carried_moments(func: Any, args: Any) -> Moments:
    """Return the moments of an operator's output: its first operand's, unless known to change."""
    rule = CARRIED.of(func)
    if rule is not None:
        return rule(args)
    return _moments_of(args[0]) if args else UNIT
