"""What devices refuse and torch's meta kernels let pass: operands of types that do not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from exporter.ledger import Facts

if TYPE_CHECKING:
    from collections.abc import Callable

    from exporter.capture.state import Recording

    Check = Callable[[Recording, tuple[Any, ...]], None]

aten = torch.ops.aten

DTYPE_CHECKS = Facts["Check"](
    __name__, "a check of dtypes", "refuses operands that devices refuse and meta kernels let pass"
)


def refuse(recording: Recording, func: Any, args: tuple[Any, ...]) -> None:
    """Check the types of an operator's operands as the target's kernel would.

    Raises:
        RuntimeError: if the kernel does not take them.
    """
    check = DTYPE_CHECKS.of(func)
    if check is not None:
        check(recording, args)


@DTYPE_CHECKS(
    aten.addbmm.default, aten.addmm.default, aten.addmv.default, aten.addr.default,
    aten.baddbmm.default, aten.bmm.default, aten.dot.default, aten.mm.default, aten.mv.default,
    aten.vdot.default,
)  # fmt: skip
def _refuse_factors(recording: Recording, args: tuple[Any, ...]) -> None:
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    dtypes = list(dict.fromkeys(_name(tensor) for tensor in tensors))
    if len(dtypes) > 1:
        raise RuntimeError(f"operands must have the same dtype, not {' and '.join(dtypes)}")
    first = tensors[0].dtype
    on_gpu = not recording.target_is_host and not recording.target_is_meta
    if on_gpu and not (first.is_floating_point or first.is_complex):
        raise RuntimeError(f"matrix products of {dtypes[0]} do not exist on CUDA")


@DTYPE_CHECKS(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
def _refuse_classes(_: Recording, args: tuple[Any, ...]) -> None:
    if args[1].dtype not in (torch.int64, torch.uint8):
        raise RuntimeError(f"classes must be int64, not {_name(args[1])}")


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
