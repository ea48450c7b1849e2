"""Autocast for meta tensors: what ``torch.autocast`` does for the tensors of a target device.

Torch's own kernels at the keys ``AutocastCUDA`` and ``AutocastCPU`` pass meta tensors by. Here the
keys carry kernels that cast them by the same lists (``ATen/autocast_mode.h`` and, for the CPU,
``autocast_mode.cpp`` of torch 2.14), and tensors of the target are made to reach the keys. The
keys stay switched off until autocast is on, so without it nothing is slower.

As in torch, the cast of a single-precision leaf that requires grad is made once and shared by all
its uses. Torch drops these copies when the outermost region is left; here that is when
:func:`end_autocast` is called or the rules are left.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from exporter.ledger import aten_overload
from exporter.targets.kernel import Function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

aten = torch.ops.aten

Adapted = tuple[Function, Any, Any]  # what to call, its arguments, its named arguments

_KEYS = {"cuda": "AutocastCUDA", "cpu": "AutocastCPU"}

_LOWER_PRECISION = {
    "cuda": (
        "_convolution.deprecated _convolution cudnn_convolution cudnn_convolution_transpose"
        " conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input"
        " conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv"
        " linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot"
        " _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell"
        " _scaled_dot_product_flash_attention scaled_dot_product_attention"
    ),
    "cpu": (
        "conv1d conv1d.padding conv2d conv2d.padding conv3d conv3d.padding bmm mm linalg_vecdot"
        " baddbmm addmm _addmm_activation addbmm linear _convolution.deprecated matmul conv_tbc"
        " mkldnn_rnn_layer conv_transpose1d conv_transpose2d.input conv_transpose3d.input prelu"
        " scaled_dot_product_attention _native_multi_head_attention"
    ),
}
_PROMOTE = {
    "cuda": (
        "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add"
    ),
    "cpu": "stack cat index_copy",
}
_SINGLE_BY_DTYPE = {
    "cuda": (
        "prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm"
        " linalg_matrix_norm linalg_matrix_norm.str_ord sum sum.dim_IntList"
    ),
    "cpu": "",
}
_regions: list[str] = []  # the device whose autocast the rules switched on, if any
_casts: dict[int, tuple[Tensor, Tensor]] = {}  # by id of the leaf, which is kept with its copy


def end_autocast() -> None:
    """End the forward pass's autocast region: switch it off and drop its cast copies.

    To be called when the forward pass ends and its backward begins, as leaving
    ``with torch.autocast(...)`` does; without autocast it does nothing.
    """
    for device in _regions:
        torch.set_autocast_enabled(device, False)
    _casts.clear()


def _of_target(tensor: Tensor, device: str) -> bool:
    on_device = tensor.is_meta or tensor.device.type == device
    return on_device and tensor.is_floating_point() and tensor.dtype is not torch.float64


def _cast(tensor: Tensor, dtype: torch.dtype, device: str) -> Tensor:
    if tensor.dtype is dtype or not _of_target(tensor, device):
        return tensor
    shared = (
        dtype is torch.get_autocast_dtype(device)
        and tensor.dtype is torch.float32
        and tensor.requires_grad
        and tensor.is_leaf
        and not tensor._is_view()
        and torch.is_autocast_cache_enabled()
        and not torch.is_inference_mode_enabled()
    )
    if not shared:
        return tensor.to(dtype)
    if id(tensor) not in _casts:
        _casts[id(tensor)] = (tensor, tensor.to(dtype))
    return _casts[id(tensor)][1]


def _cast_all(args: Any, dtype: torch.dtype, device: str) -> Any:
    # From the last to the first: the order in which torch's C++ evaluates the casts of a call.
    leaves, structure = tree_flatten(args)
    cast = [_cast(t, dtype, device) if isinstance(t, Tensor) else t for t in reversed(leaves)]
    return tree_unflatten(cast[::-1], structure)


def _widest(args: Any, device: str) -> torch.dtype:
    tensors = [t for t in tree_leaves(args) if isinstance(t, Tensor) and _of_target(t, device)]
    if any(t.dtype is torch.float32 for t in tensors):
        return torch.float32
    return torch.get_autocast_dtype(device)


def _casting(operator: torch._ops.OpOverload, device: str, policy: str) -> Function:
    """Return a kernel that casts its arguments and calls the operator below autocast."""
    below = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _KEYS[device]))
    adapt = _ADAPTATIONS[policy]

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(below):
            target, args, kwargs = adapt(operator, device, args, kwargs)
            return target(*args, **kwargs)

    return kernel


def _lower(operator: Function, device: str, args: Any, kwargs: Any) -> Adapted:
    return operator, *_cast_all((args, kwargs), torch.get_autocast_dtype(device), device)


def _single(operator: Function, device: str, args: Any, kwargs: Any) -> Adapted:
    return operator, *_cast_all((args, kwargs), torch.float32, device)


def _promote(operator: Function, device: str, args: Any, kwargs: Any) -> Adapted:
    widest = _widest((args, kwargs), device)
    return operator, *_cast_all((args, kwargs), widest, device)


def _single_by_dtype(
    operator: torch._ops.OpOverload, device: str, args: Any, kwargs: Any
) -> Adapted:
    """Ask the operator for single precision by its own argument, unless the caller asked."""
    schema = operator._schema.arguments
    position = next(i for i, argument in enumerate(schema) if argument.name == "dtype")
    given = args[position] if len(args) > position else kwargs.get("dtype")
    if given is None and _of_target(args[0], device):
        given = torch.float32
    if schema[position].kwarg_only:
        return operator, args, {**kwargs, "dtype": given}
    return operator, (*args[:position], given), {}


def _norm(operator: torch._ops.OpOverload, device: str, args: Any, kwargs: Any) -> Adapted:
    if not _of_target(args[0], device):
        return operator, args, kwargs
    if operator._overloadname == "Scalar":
        norm, degree = args[0], args[1] if len(args) > 1 else 2
        return aten.norm.ScalarOpt_dtype, (norm, degree), {"dtype": torch.float32}
    keepdim = args[3] if len(args) > 3 else False
    return aten.norm.ScalarOpt_dim_dtype, (*args[:3], keepdim), {"dtype": torch.float32}


def _recurrent(operator: Function, device: str, args: Any, kwargs: Any) -> Adapted:
    """Cast the weights into a flat buffer of this call's own, never shared between calls."""
    dtype = torch.get_autocast_dtype(device)
    value, weights, stride, _, *rest = args
    weights = [w.to(dtype) for w in weights]
    value, *rest = _cast_all((value, *rest), dtype, device)
    return operator, (value, weights, stride, weights[0].detach(), *rest), kwargs


_ADAPTATIONS: dict[str, Callable[..., Adapted]] = {
    "lower": _lower,
    "single": _single,
    "promote": _promote,
    "dtype": _single_by_dtype,
    "norm": _norm,
    "rnn": _recurrent,
}


def _policies(device: str) -> dict[str, str]:
    """Return the policy of each operator that autocast knows on a device."""
    listed = {
        "lower": _LOWER_PRECISION[device],
        "promote": _PROMOTE[device],
        "dtype": _SINGLE_BY_DTYPE[device],
        "norm": "norm.Scalar norm.ScalarOpt_dim" if device == "cuda" else "",
        "rnn": "_cudnn_rnn",
        "refused": "binary_cross_entropy" if device == "cuda" else "",  # torch's kernel says why
    }
    policies = {name: policy for policy, names in listed.items() for name in names.split()}
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    names = (
        n.removeprefix("aten::")
        for n in torch._C._dispatch_get_all_op_names()
        if n.startswith("aten::")
    )
    known = [n for n in names if has_kernel(f"aten::{n}", _KEYS[device])]
    # What has a kernel at the key and is on no other list is cast to single precision.
    return {n: policies.get(n, "single") for n in known if policies.get(n) != "refused"}


@functools.cache
def _kernels(device: str) -> tuple[tuple[str, Function], ...]:
    return tuple(
        (name, _casting(aten_overload(name), device, policy))
        for name, policy in _policies(device).items()
    )


@contextlib.contextmanager
def autocast_rules(library: Any, device: str, dtype: torch.dtype | None) -> Iterator[None]:
    """Return a context in which autocast of a device reaches meta tensors.

    Args:
        library: torch's registrar for aten kernels; they end with it.
        device: ``cuda`` or ``cpu``.
        dtype: switches autocast on from the start; ``None`` leaves it to the model.
    """
    for name, function in _kernels(device):
        library.impl(name, _KEYS[device], function, False)
    key = getattr(torch._C.DispatchKey, _KEYS[device])
    before = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    try:
        with torch._C._IncludeDispatchKeyGuard(key):
            if dtype is not None:
                torch.set_autocast_enabled(device, True)
                torch.set_autocast_dtype(device, dtype)
                _regions.append(device)
            yield
    finally:
        _regions.clear()
        _casts.clear()
        torch.set_autocast_enabled(device, before[0])
        torch.set_autocast_dtype(device, before[1])
