"""Scaled dot product attention as CUDA and CPU devices run it.

The choice follows torch 2.14's ``select_sdp_backend`` (``native/transformers/cuda/sdp_utils.cpp``)
for a device of compute capability 8.0 (A100): flash, then memory-efficient, then math. Devices of
capability 9.x and 10.x prefer cuDNN's kernel for half precision; it keeps tensors of the same
sizes as flash attention, so the same figures hold there. ``torch.nn.attention.sdpa_kernel`` and
the flags in ``torch.backends.cuda`` are respected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from exporter.targets.kernel import Kernel, composite

if TYPE_CHECKING:
    from collections.abc import Callable

aten = torch.ops.aten

HALF_DTYPES = (torch.float16, torch.bfloat16)
FLASH_HEAD_DIM_MULTIPLE = 8
FLASH_MAX_HEAD_DIM = 256
CUDNN_MAX_HEAD_DIM = 128
EFFICIENT_MASK_ALIGNMENT = 8
_BACKENDS: dict[int, SDPBackend] = {
    backend.value: backend
    for backend in (
        SDPBackend.MATH,
        SDPBackend.FLASH_ATTENTION,
        SDPBackend.EFFICIENT_ATTENTION,
        SDPBackend.CUDNN_ATTENTION,
    )
}
TENSOR_CORE_BITS = 128  # alignment that the memory-efficient kernel's matrix products need


@dataclass(frozen=True, slots=True)
class Attention:
    """The arguments of one call."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    dropout_p: float
    is_causal: bool
    scale: float | None
    enable_gqa: bool

    @property
    def needs_grad(self) -> bool:
        """Whether backward will want the log-sum-exp."""
        return torch.is_grad_enabled() and (
            self.query.requires_grad or self.key.requires_grad or self.value.requires_grad
        )

    def compute(self) -> Tensor:
        """Return the output of torch's own composite kernel: the unfused products."""
        output: Tensor = composite(
            aten.scaled_dot_product_attention.default,
            self.query,
            self.key,
            self.value,
            self.mask,
            self.dropout_p,
            self.is_causal,
            scale=self.scale,
            enable_gqa=self.enable_gqa,
        )
        return output

    def with_batch(self) -> Attention:
        """Return the call with a batch of one, which torch adds to three dimensions of inputs."""
        query, key, value = (t.unsqueeze(0) for t in (self.query, self.key, self.value))
        mask = self.mask
        if mask is not None:
            mask = (mask.unsqueeze(0) if mask.dim() == 2 else mask).unsqueeze(0)
        return replace(self, query=query, key=key, value=value, mask=mask)


def _is_dense_4d(call: Attention) -> bool:
    tensors = (call.query, call.key, call.value)
    return all(not t.is_nested and t.dim() == 4 for t in tensors)


def _heads_match(call: Attention, *, same_key_value: bool) -> bool:
    query, key, value = call.query, call.key, call.value
    if not query.shape[0] == key.shape[0] == value.shape[0]:
        return False
    heads, key_heads, value_heads = query.shape[1], key.shape[1], value.shape[1]
    if call.enable_gqa:
        if same_key_value and key_heads != value_heads:
            return False
        return heads % key_heads == 0 and heads % value_heads == 0
    return heads == key_heads == value_heads or (heads > 0 and key_heads == value_heads == 1)


def _last_strides_are_1(call: Attention, *, ignore_singleton: bool) -> bool:
    strides = (call.query.stride(-1), call.key.stride(-1), call.value.stride(-1))
    inputs_fit = all(s == 1 for s in strides) or (ignore_singleton and call.query.shape[-1] == 1)
    return inputs_fit and (call.mask is None or call.mask.stride(-1) == 1)


def _is_not_empty(call: Attention) -> bool:
    return call.query.shape[-2] != 0 and call.key.shape[-2] != 0


def can_use_flash(call: Attention) -> bool:
    """Whether FlashAttention takes the call: half precision, one head size, no mask."""
    sizes = {t.shape[-1] for t in (call.query, call.key, call.value)}
    return (
        torch._C._get_flash_sdp_enabled()
        and _is_dense_4d(call)
        and call.mask is None
        and len(sizes) == 1
        and max(sizes) <= FLASH_MAX_HEAD_DIM
        and not (call.is_causal and call.query.shape[-2] != call.key.shape[-2])
        and call.query.dtype in HALF_DTYPES
        and _heads_match(call, same_key_value=True)
        and _is_not_empty(call)
        and _last_strides_are_1(call, ignore_singleton=True)
    )


def can_use_efficient(call: Attention) -> bool:
    """Whether the memory-efficient kernel takes the call: aligned heads, any mask."""
    if not (torch._C._get_mem_efficient_sdp_enabled() and _is_dense_4d(call)):
        return False
    query, key, value = call.query, call.key, call.value
    alignment = max(4, TENSOR_CORE_BITS // (16 if query.dtype in HALF_DTYPES else 32))
    aligned_bytes = alignment * query.element_size()
    return (
        query.shape[-1] == key.shape[-1]
        and query.shape[-1] > 0
        and query.shape[-1] % alignment == 0
        and value.shape[-1] > 0
        and value.shape[-1] % alignment == 0
        and all(
            t.numel() == 0 or t.storage_offset() * t.element_size() % aligned_bytes == 0
            for t in (query, key, value)
        )
        and _is_not_empty(call)
        and _last_strides_are_1(call, ignore_singleton=False)
        and _heads_match(call, same_key_value=True)
        and query.dtype in (*HALF_DTYPES, torch.float32)
    )


def _mask_fits(call: Attention) -> bool:
    mask = call.mask
    if mask is None:
        return True
    if mask.requires_grad or mask.dim() not in (2, 4):
        return False
    full = (*call.query.shape[:3], call.key.shape[2])
    return all(m in (1, n) for m, n in zip(mask.shape, full[-mask.dim() :], strict=True))


def can_use_cpu_flash(call: Attention) -> bool:
    """Whether the CPU's fused kernel takes the call (``sdp_utils_cpp.cpp``): no dropout."""
    sizes = {t.shape[-1] for t in (call.query, call.key, call.value)}
    strides = {t.stride(-1) for t in (call.query, call.key, call.value)}
    return (
        torch._C._get_flash_sdp_enabled()
        and call.dropout_p == 0
        and _is_dense_4d(call)
        and _heads_match(call, same_key_value=True)
        and _mask_fits(call)
        and len(sizes) == 1
        and _is_not_empty(call)
        and strides == {1}
        and call.query.dtype in (*HALF_DTYPES, torch.float32, torch.float64)
    )


def can_use_cudnn(call: Attention) -> bool:
    """Whether cuDNN's kernel takes the call; on capability 8.0 only when it is asked for."""
    return (
        torch._C._get_cudnn_sdp_enabled()
        and _is_dense_4d(call)
        and call.query.dtype in HALF_DTYPES
        and _mask_fits(call)
        and (call.dropout_p * 16).is_integer()
        and _is_not_empty(call)
        and _last_strides_are_1(call, ignore_singleton=True)
        and _heads_match(call, same_key_value=False)
        and all(
            t.shape[-1] <= CUDNN_MAX_HEAD_DIM and t.shape[-1] % 8 == 0
            for t in (call.query, call.value)
        )
        and call.key.shape[2] != 1
        and not (call.dropout_p and call.query.shape[2] == 1)
    )


def _select(call: Attention, choice: str) -> SDPBackend:
    """Return the backend that runs the call.

    Raises:
        RuntimeError: if every backend that could is switched off, as torch does.
    """
    order: list[SDPBackend | None]
    if choice == "auto":
        order = [_BACKENDS.get(n) for n in torch._C._get_sdp_priority_order()]
    else:
        forced: list[SDPBackend] = {
            "flash": [SDPBackend.FLASH_ATTENTION],
            "efficient": [SDPBackend.EFFICIENT_ATTENTION],
            "math": [],
        }[choice]
        order = [*forced, SDPBackend.MATH]
    usable: dict[SDPBackend, Callable[[Attention], bool]] = {
        SDPBackend.FLASH_ATTENTION: can_use_flash,
        SDPBackend.EFFICIENT_ATTENTION: can_use_efficient,
        SDPBackend.CUDNN_ATTENTION: can_use_cudnn,
        SDPBackend.MATH: lambda _: torch._C._get_math_sdp_enabled(),
    }
    for backend in order:
        if backend is not None and usable[backend](call):
            return backend
    raise RuntimeError("No available kernel. Aborting execution.")


def _pad_head(tensor: Tensor) -> Tensor:
    missing = -tensor.shape[-1] % FLASH_HEAD_DIM_MULTIPLE
    return torch.nn.functional.pad(tensor, (0, missing)) if missing else tensor


def _flash(call: Attention) -> Tensor:
    head_dim = call.query.shape[-1]
    scale = call.scale if call.scale is not None else 1 / math.sqrt(head_dim)
    output: Tensor = aten._scaled_dot_product_flash_attention(
        _pad_head(call.query),
        _pad_head(call.key),
        _pad_head(call.value),
        call.dropout_p,
        call.is_causal,
        False,
        scale=scale,
    )[0]
    return output[..., :head_dim] if head_dim % FLASH_HEAD_DIM_MULTIPLE else output


def _additive(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Return a boolean mask as what is added to the scores."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    excluded = torch.scalar_tensor(-math.inf, dtype=dtype, device=mask.device)
    return torch.where(mask, 0.0, excluded)


def _aligned_bias(call: Attention) -> Tensor | None:
    """Return the mask as the memory-efficient kernel reads it: aligned rows, expanded to 4-d."""
    mask = _additive(call.mask, call.query.dtype)
    if mask is None:
        return None
    aligned = all(s % EFFICIENT_MASK_ALIGNMENT == 0 for s in mask.stride()[:-1])
    if not (aligned and mask.stride(-1) == 1):
        length = mask.shape[-1]
        missing = EFFICIENT_MASK_ALIGNMENT - length % EFFICIENT_MASK_ALIGNMENT
        mask = torch.nn.functional.pad(mask, (0, missing))[..., :length]
    return mask.expand(*call.query.shape[:3], call.key.shape[2])


def _efficient(call: Attention) -> Tensor:
    output: Tensor = aten._scaled_dot_product_efficient_attention(
        call.query,
        call.key,
        call.value,
        _aligned_bias(call),
        call.needs_grad,
        call.dropout_p,
        call.is_causal,
        scale=call.scale,
    )[0]
    return output


def _cudnn(call: Attention) -> Tensor:
    output: Tensor = aten._scaled_dot_product_cudnn_attention(
        call.query,
        call.key,
        call.value,
        _additive(call.mask, call.query.dtype),
        call.needs_grad,
        call.dropout_p,
        call.is_causal,
        False,
        scale=call.scale,
    )[0]
    return output


def _run_on_cuda(call: Attention, choice: str) -> Tensor:
    match _select(call, choice):
        case SDPBackend.FLASH_ATTENTION:
            return _flash(call)
        case SDPBackend.EFFICIENT_ATTENTION:
            return _efficient(call)
        case SDPBackend.CUDNN_ATTENTION:
            return _cudnn(call)
    return call.compute()


def _run_on_cpu(call: Attention) -> Tensor:
    if not can_use_cpu_flash(call):
        return call.compute()
    output: Tensor = aten._scaled_dot_product_flash_attention_for_cpu(
        call.query,
        call.key,
        call.value,
        call.dropout_p,
        call.is_causal,
        attn_mask=_additive(call.mask, call.query.dtype),
        scale=call.scale,
    )[0]
    return output


def _rule(run: Callable[[Attention], Tensor]) -> Kernel:
    def scaled_dot_product_attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        call = Attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        tensors = (query, key, value)
        if len({t.dtype for t in tensors}) > 1 or min(t.dim() for t in tensors) < 2:
            return call.compute()  # torch's own words for what is wrong
        if all(t.dim() == 3 and not t.is_nested for t in tensors):
            return run(call.with_batch()).squeeze(0)
        return run(call)

    return Kernel("scaled_dot_product_attention", "AutogradMeta", scaled_dot_product_attention)


CPU_ATTENTION = _rule(_run_on_cpu)


def cuda_attention(choice: str) -> Kernel:
    """Return the rule for ``scaled_dot_product_attention`` on CUDA.

    Args:
        choice: ``RunSettings.attention``; a named kernel runs where it can, and math elsewhere.
    """
    return _rule(lambda call: _run_on_cuda(call, choice))
