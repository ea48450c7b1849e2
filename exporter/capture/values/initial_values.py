"""What a tensor held, or what its initialisation draws, remembered when it goes to meta.

Both hang on the tensor object itself, as ``_ep_value`` and ``_ep_moments``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import init
from torch.overrides import TorchFunctionMode

from exporter.capture.values.limits import is_kept
from exporter.capture.values.storage_value import Moments

if TYPE_CHECKING:
    from collections.abc import Callable


def remember_value(meta: torch.Tensor, real: torch.Tensor) -> None:
    """Let a meta tensor know what the real one holds, if it is small and no parameter."""
    if real.is_meta or isinstance(real, nn.Parameter) or real.device.type != "cpu":
        return
    if is_kept(real):
        meta._ep_value = real.detach().clone()  # type: ignore[attr-defined]


def remembered_value(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return what a meta tensor held before, None if that is unknown."""
    return getattr(tensor, "_ep_value", None)


def remembered_moments(tensor: torch.Tensor) -> Moments | None:
    """Return what the initialisation of a tensor draws, None if that is unknown."""
    return getattr(tensor, "_ep_moments", None)


def _uniform(low: float, high: float) -> Moments:
    return Moments((low + high) / 2, (high - low) / math.sqrt(12))


def _after_normal(tensor: torch.Tensor, mean: float = 0.0, std: float = 1.0, **_: Any) -> Moments:
    del tensor
    return Moments(float(mean), float(std))


def _after_uniform(tensor: torch.Tensor, a: float = 0.0, b: float = 1.0, **named: Any) -> Moments:
    del tensor
    return _uniform(float(named.get("from", a)), float(named.get("to", b)))


def _after_constant(tensor: torch.Tensor, value: float = 0.0, **named: Any) -> Moments:
    del tensor
    return Moments(float(named.get("val", value)), 0.0)


def _after_kaiming_uniform(
    tensor: torch.Tensor,
    a: float = 0.0,
    mode: Any = "fan_in",
    nonlinearity: Any = "leaky_relu",
    **_: Any,
) -> Moments:
    fan = init._calculate_correct_fan(tensor, mode)
    return Moments(0.0, init.calculate_gain(nonlinearity, a) / math.sqrt(max(1, fan)))


_INITIALISERS: dict[Any, Callable[..., Moments]] = {
    torch.Tensor.normal_: _after_normal,
    torch.Tensor.uniform_: _after_uniform,
    torch.Tensor.fill_: _after_constant,
    torch.Tensor.zero_: _after_constant,
    init.normal_: _after_normal,
    init.uniform_: _after_uniform,
    init.constant_: _after_constant,
    init.kaiming_uniform_: _after_kaiming_uniform,
}


class RememberMoments(TorchFunctionMode):
    """Notes what initialisers draw while a model is constructed, be it on meta or not.

    Compound initialisers (truncated normal) end in scaling that is not followed; who asks for
    their moments gets none, and the size of a layer's weights from their shape.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the function and note the moments of what it filled."""
        kwargs = dict(kwargs or {})
        result = func(*args, **kwargs)
        after = _INITIALISERS.get(func)
        if after is not None:
            operands = args or (kwargs.pop("tensor"),)
            operands[0]._ep_moments = after(*operands, **kwargs)
        elif func is torch.Tensor.erfinv_ and hasattr(args[0], "_ep_moments"):
            del args[0]._ep_moments
        return result
