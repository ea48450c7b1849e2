"""A copy of the caller's model on the recording's device; the original is not touched.

Copies share nothing with the original but read-only Python objects: parameters that were tied stay
tied, tensors in plain attributes move too, no data is copied to the meta device.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from exporter.capture.values.initial_values import (
    remember_value,
    remembered_moments,
    remembered_value,
)
from exporter.errors import TraceError

if TYPE_CHECKING:
    from torch import nn


class _Moving(TorchFunctionMode):
    """Replaces the copy of a tensor by a tensor of the same geometry on another device."""

    def __init__(self, copier: TensorCopier) -> None:
        super().__init__()
        self._copier = copier

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name == "__deepcopy__":
            memo = args[1]
            if id(args[0]) not in memo:
                memo[id(args[0])] = self._copier.copy(args[0])
            return memo[id(args[0])]
        if name == "clone":  # Parameter.__deepcopy__ clones its data
            return self._copier.copy(args[0])
        return func(*args, **(kwargs or {}))


class TensorCopier:
    """Copies tensors to a device, each storage once, and remembers small values."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        # Values that nobody knows are the same in every profile.
        self.generator = torch.Generator().manual_seed(0)
        self._storages: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor on the device: same shape, strides and dtype, shared storages shared.

        Raises:
            TraceError: for a layout without strides (sparse, nested).
        """
        with torch._C.DisableTorchFunction():
            if tensor.layout is not torch.strided:
                raise TraceError(f"a tensor of layout {tensor.layout} has no strided storage")
            source = tensor.detach()
            value = remembered_value(tensor)
            if value is not None and self.device.type != "meta":
                result = value.to(self.device, copy=True)
            else:
                result = self._view_of_shared(source)
            if self.device.type == "meta":
                remember_value(result, source if value is None else value)
            return result.requires_grad_(tensor.requires_grad)

    def _view_of_shared(self, source: torch.Tensor) -> torch.Tensor:
        untyped = source.untyped_storage()
        entry = self._storages.get(untyped._cdata)
        if entry is None:
            elements = untyped.nbytes() // source.itemsize
            base = torch.empty(elements, dtype=source.dtype, device=self.device)
            if self.device.type != "meta" and source.device.type == "meta":
                _fill(base, self.generator)
            elif self.device.type != "meta":
                base.copy_(source.as_strided((elements,), (1,), 0))
            self._storages[untyped._cdata] = entry = (source, base)
        base = entry[1]
        if base.dtype != source.dtype:
            base = base.view(source.dtype)
        # `.data` makes it no view for autograd and autocast, as the original is none.
        return base.as_strided(source.shape, source.stride(), source.storage_offset()).data


def _fill(base: torch.Tensor, generator: torch.Generator) -> None:
    """Fill a tensor whose values nobody knows with small random numbers."""
    if base.is_floating_point():
        base.normal_(0, 0.02, generator=generator)
    else:
        base.zero_()


def copy_model(model: nn.Module, copier: TensorCopier) -> nn.Module:
    """Return a copy of the model on the copier's device.

    Raises:
        TraceError: if a part of the model refuses to be copied, naming the reason.
    """
    for path, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):  # copied in C++, where nothing is replaced
            raise TraceError(
                f"module {path!r} is compiled TorchScript, whose weights cannot be replaced; "
                "profile the Python module that it was made from"
            )
    try:
        with _Moving(copier):
            copied = copy.deepcopy(model)
    except TraceError:
        raise
    except Exception as error:
        raise TraceError(
            f"{type(model).__name__} cannot be copied ({type(error).__name__}: {error}); "
            "give its parts that hold locks, files or generators a __deepcopy__"
        ) from error
    for original, parameter in zip(model.parameters(), copied.parameters(), strict=True):
        parameter.grad = None
        moments = remembered_moments(original)
        if moments is not None and not parameter.is_meta:
            parameter.data.normal_(moments.mean, moments.std, generator=copier.generator)
    return copied


def copy_inputs(inputs: Any, copier: TensorCopier) -> Any:
    """Return the inputs on the copier's device, one copy per tensor, however they are packed.

    Raises:
        TraceError: if an input refuses to be copied, naming the reason.
    """
    try:
        with _Moving(copier):
            return copy.deepcopy(inputs)
    except TraceError:
        raise
    except Exception as error:
        raise TraceError(
            f"the inputs cannot be copied ({type(error).__name__}: {error}); "
            "give what holds locks, files or generators a __deepcopy__"
        ) from error
