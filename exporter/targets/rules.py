"""The same torch calls run different kernels on different devices; rules make meta follow one."""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import TYPE_CHECKING, Any

import torch

from exporter.ledger import aten_overload
from exporter.targets.autocast import autocast_rules
from exporter.targets.common import common_kernels
from exporter.targets.cpu import CPU_KERNELS
from exporter.targets.cuda import cuda_kernels
from exporter.targets.kernel import Kernel
from store.settings import check_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.settings import RunSettings

_active = threading.Lock()


def _register(library: Any, kernel: Kernel) -> None:
    # torch.library.Library would refuse meta kernels for operators that meta takes apart and
    # devices do not.
    library.impl(kernel.operator, kernel.key, kernel.function, kernel.with_keyset)


def _restore(target: str, attention: str) -> None:
    """Make torch's own meta kernels in Python the ones that its fake tensors find again.

    These look kernels up in a table that keeps the last one registered, gone or not.
    """
    library = torch._C._dispatch_library("IMPL", "aten", "")
    for kernel in _replaced(target, attention):
        _register(library, kernel)
    library.reset()


@functools.cache
def _replaced(target: str, attention: str) -> tuple[Kernel, ...]:
    """Return torch's own meta kernels in Python that the rules take the place of."""
    found = []
    for kernel in _kernels(target, attention):
        own = aten_overload(kernel.operator).py_kernels.get(torch._C.DispatchKey.Meta)
        if kernel.key == "Meta" and own is not None:
            found.append(Kernel(kernel.operator, kernel.key, own))
    return tuple(found)


@functools.cache  # some hold on to the kernel that they replace
def _kernels(target: str, attention: str) -> tuple[Kernel, ...]:
    """Return the kernels of a target.

    Raises:
        ValueError: if two of them are for one operator, or torch has no such operator.
    """
    kernels = common_kernels()
    if target == "cuda":
        kernels = (*kernels, *cuda_kernels(attention))
    elif target == "cpu":
        kernels = (*kernels, *CPU_KERNELS)
    seen: dict[tuple[Any, str], Kernel] = {}
    for kernel in kernels:
        first = seen.setdefault((aten_overload(kernel.operator), kernel.key), kernel)
        if first is not kernel:
            raise ValueError(
                f"{kernel.operator} has two kernels at {kernel.key} for {target}: "
                f"{first.function.__qualname__} and {kernel.function.__qualname__}"
            )
    return kernels


@contextlib.contextmanager
def device_rules(settings: RunSettings) -> Iterator[None]:
    """Return a context in which meta tensors run what a device would run.

    The rules are kernels in torch's dispatcher, so they also reach calls inside leaf modules and
    C++ code. They hold for meta tensors of all threads, and are gone when the context is left.

    Args:
        settings: of these, ``target`` says which device; ``meta`` only does what every device does.
            ``attention`` is for the target ``cuda``. ``autocast`` runs the forward pass as in
            ``torch.autocast(target, autocast)``, until
            :func:`exporter.targets.autocast.end_autocast` is called. A region that the model
            enters itself works as well, for the target ``cuda`` only where torch sees a GPU:
            without one, torch refuses to switch it on.

    Raises:
        ValueError: if one of them is none of its choices, or meta is to run under autocast.
        RuntimeError: if rules are already in force.
    """
    check_options(settings)
    target, attention = settings.target, settings.attention
    autocast = getattr(torch, settings.autocast) if settings.autocast else None
    if autocast is not None and target == "meta":
        raise ValueError(f"no autocast to {autocast} for the target 'meta'; choose cuda or cpu")
    if not _active.acquire(blocking=False):
        raise RuntimeError("device rules are already in force; leave them before entering others")
    try:
        library = torch._C._dispatch_library("IMPL", "aten", "")
        kernels = _kernels(target, attention)
        try:
            for kernel in kernels:
                _register(library, kernel)
            reachable = target == "cpu" or (target == "cuda" and torch.cuda.is_available())
            if autocast is not None or reachable:
                with autocast_rules(library, target, autocast):
                    yield
            else:
                yield
        finally:
            library.reset()
            _restore(target, attention)
    finally:
        _active.release()
