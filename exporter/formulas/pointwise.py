"""Element-wise arithmetic: one per element, however much a kernel does for it.

Two rules, which differ only where operands are broadcast or have no dimension.
The published table counts the elements of the first operand, and none for a tensor without
dimensions; it names the operators of the first family, which are counted so.
Everything else counts the elements of its result. The element type does not matter.
"""

from __future__ import annotations

import torch

from exporter.formulas.contraction import outer_product_macs
from exporter.formulas.operands import (
    Args,
    Kwargs,
    Outputs,
    argument,
    first_operand_elements,
    first_output,
    first_tensor,
    output_elements,
    tensors,
)
from exporter.formulas.registry import register

aten = torch.ops.aten


@register(
    aten.add, aten.div, aten.divide, aten.true_divide, aten.neg,
    aten.negative, aten.pow, aten.rsub, aten.where, aten.sum, aten.mean,
    aten.relu, aten.hardswish, aten.hardswish_backward, aten.hardtanh, aten.hardtanh_backward,
    aten.hardsigmoid, aten.hardsigmoid_backward, aten.gelu, aten.gelu_backward, aten.silu,
    aten.silu_backward, aten.sigmoid, aten.special_expit, aten.sigmoid_backward, aten.tanh,
    aten.tanh_backward, aten.threshold_backward, aten._softmax, aten._softmax_backward_data,
    aten.softmax, aten.special_softmax,
    counts="pointwise_flops",
)  # fmt: skip
def published_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the first operand, 0 if it has no dimension, or is a plain number.

    Source: the published table's convention.
    """
    if args and all(isinstance(operand, (int, float, complex)) for operand in args):
        return 0
    first = first_tensor(args, kwargs)
    return first.numel if first.shape else 0


@register(aten.mul, aten.multiply, counts="pointwise_flops")
def product_flops(args: Args, kwargs: Kwargs, outputs: Outputs) -> int:
    """Elements of the first operand, 0 if it has no dimension; 0 for an outer product.

    Source: the published table's convention; an outer product counts as a contraction.
    """
    if outer_product_macs(args, kwargs, outputs):
        return 0
    return published_flops(args, kwargs, outputs)


_UNARY = (
    aten.abs, aten.absolute, aten.acos, aten.arccos, aten.acosh, aten.arccosh, aten.angle,
    aten.asin, aten.arcsin, aten.asinh, aten.arcsinh, aten.atan, aten.arctan, aten.atanh,
    aten.arctanh, aten.ceil, aten.conj_physical, aten._conj_physical, aten.cos, aten.cosh,
    aten.deg2rad, aten.digamma, aten.erf, aten.erfc, aten.erfinv, aten.exp, aten.exp2, aten.expm1,
    aten.fix, aten.floor, aten.frac, aten.frexp, aten.i0, aten.lgamma, aten.log, aten.log10,
    aten.log1p, aten.log2, aten.logit, aten.logit_backward, aten.mvlgamma, aten.nan_to_num,
    aten.polygamma, aten.rad2deg, aten.reciprocal, aten.round, aten.rsqrt, aten.sgn, aten.sign,
    aten.sin, aten.sinc, aten.sinh, aten.sqrt, aten.square, aten.tan, aten.trunc,
    aten.special_airy_ai, aten.special_bessel_j0, aten.special_bessel_j1, aten.special_bessel_y0,
    aten.special_bessel_y1, aten.special_digamma, aten.special_entr, aten.special_erf,
    aten.special_erfc, aten.special_erfcx, aten.special_erfinv, aten.special_exp2,
    aten.special_expm1, aten.special_gammaln, aten.special_i0, aten.special_i0e, aten.special_i1,
    aten.special_i1e, aten.special_log1p, aten.special_log_ndtr, aten.special_logit,
    aten.special_modified_bessel_i0, aten.special_modified_bessel_i1,
    aten.special_modified_bessel_k0, aten.special_modified_bessel_k1, aten.special_multigammaln,
    aten.special_ndtr, aten.special_ndtri, aten.special_polygamma, aten.special_psi,
    aten.special_round, aten.special_scaled_modified_bessel_k0,
    aten.special_scaled_modified_bessel_k1, aten.special_sinc, aten.special_spherical_bessel_j0,
)  # fmt: skip

_BINARY = (
    aten.sub, aten.subtract, aten.atan2, aten.arctan2, aten.copysign, aten.float_power,
    aten.floor_divide, aten.fmax, aten.fmin, aten.fmod, aten.gcd, aten.heaviside, aten.hypot,
    aten.igamma, aten.igammac, aten._standard_gamma_grad, aten._dirichlet_grad, aten.kron, aten.lcm,
    aten.ldexp, aten.logaddexp, aten.logaddexp2, aten.maximum,
    aten.minimum, aten.nextafter, aten.polar, aten.remainder, aten.xlogy, aten.special_xlogy,
    aten.special_xlog1py, aten.special_zeta, aten.special_gammainc, aten.special_gammaincc,
    aten.special_chebyshev_polynomial_t, aten.special_chebyshev_polynomial_u,
    aten.special_chebyshev_polynomial_v, aten.special_chebyshev_polynomial_w,
    aten.special_hermite_polynomial_h, aten.special_hermite_polynomial_he,
    aten.special_laguerre_polynomial_l, aten.special_legendre_polynomial_p,
    aten.special_shifted_chebyshev_polynomial_t, aten.special_shifted_chebyshev_polynomial_u,
    aten.special_shifted_chebyshev_polynomial_v, aten.special_shifted_chebyshev_polynomial_w,
)  # fmt: skip

_TERNARY = (
    aten.addcdiv, aten.addcmul, aten.lerp, aten.clamp, aten.clamp_max, aten.clamp_min, aten.clip,
)  # fmt: skip

_ACTIVATIONS = (
    aten.celu, aten.elu, aten.elu_backward, aten.hardshrink, aten.hardshrink_backward,
    aten.leaky_relu, aten.leaky_relu_backward, aten.log_sigmoid, aten.log_sigmoid_forward,
    aten.log_sigmoid_backward, aten.mish, aten.mish_backward, aten.prelu, aten._prelu_kernel,
    aten.relu6, aten.rrelu, aten.rrelu_with_noise, aten.rrelu_with_noise_functional,
    aten.rrelu_with_noise_backward, aten.selu, aten.softplus, aten.softplus_backward,
    aten.softshrink, aten.softshrink_backward, aten.threshold, aten._log_softmax,
    aten._log_softmax_backward_data, aten.log_softmax, aten.special_log_softmax,
    aten._safe_softmax, aten._masked_softmax, aten._masked_softmax_backward,
    aten.infinitely_differentiable_gelu_backward, aten._add_relu,
)  # fmt: skip

_DROPOUT = (
    aten.native_dropout_backward, aten._fused_dropout, aten._masked_scale,
)  # fmt: skip

_QUANTIZATION = (
    aten.quantize_per_tensor, aten.quantize_per_channel, aten.quantize_per_tensor_dynamic,
    aten.dequantize, aten.fake_quantize_per_tensor_affine,
    aten.fake_quantize_per_tensor_affine_cachemask, aten.fake_quantize_per_channel_affine,
    aten.fake_quantize_per_channel_affine_cachemask,
    aten.fake_quantize_per_tensor_affine_cachemask_backward,
    aten.fake_quantize_per_channel_affine_cachemask_backward,
    aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams,
    aten._fake_quantize_learnable_per_tensor_affine,
    aten._fake_quantize_learnable_per_channel_affine,
    aten._fake_quantize_learnable_per_tensor_affine_backward,
    aten._fake_quantize_learnable_per_channel_affine_backward,
    aten._fused_moving_avg_obs_fq_helper, aten._fused_moving_avg_obs_fq_helper_functional,
    aten.fused_moving_avg_obs_fake_quant,
)  # fmt: skip


@register(*_UNARY, *_BINARY, *_TERNARY, *_ACTIVATIONS, *_DROPOUT, *_QUANTIZATION,
          counts="pointwise_flops")  # fmt: skip
def elementwise_flops(args: Args, kwargs: Kwargs, outputs: Outputs) -> int:
    """Elements of the result, after broadcasting."""
    return output_elements(args, kwargs, outputs)


@register(
    aten.native_dropout, aten.dropout, aten.alpha_dropout, aten.feature_dropout,
    aten.feature_alpha_dropout, counts="pointwise_flops",
)  # fmt: skip
def dropout_flops(args: Args, kwargs: Kwargs, outputs: Outputs) -> int:
    """2 x elements of the result in training (the mask scaled, then multiplied), 0 in evaluation.

    The same for the fused kernel and for the operators that it stands for.
    """
    train = argument(args, kwargs, 2, "train")
    return 0 if train is False else 2 * output_elements(args, kwargs, outputs)


@register(aten._prelu_kernel_backward, counts="pointwise_flops")
def prelu_backward_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """2 x elements of the output's gradient: for the input and for the weight."""
    return 2 * first_tensor(args, kwargs).numel


@register(aten.glu, counts="pointwise_flops")
def glu_flops(args: Args, kwargs: Kwargs, outputs: Outputs) -> int:
    """2 x elements of the result: the sigmoid of one half, times the other."""
    return 2 * output_elements(args, kwargs, outputs)


@register(aten.glu_backward, aten.glu_jvp, aten.glu_backward_jvp, counts="pointwise_flops")
def glu_backward_flops(args: Args, kwargs: Kwargs, outputs: Outputs) -> int:
    """2 x elements of the result: each half's gradient is a product of two factors."""
    return 2 * output_elements(args, kwargs, outputs)


@register(aten.cross, aten.linalg_cross, counts="pointwise_flops")
def cross_flops(args: Args, kwargs: Kwargs, outputs: Outputs) -> int:
    """3 x elements of the result: two products and their difference."""
    return 3 * output_elements(args, kwargs, outputs)


@register(aten._transform_bias_rescale_qkv, counts="pointwise_flops")
def bias_rescale_flops(args: Args, _kwargs: Kwargs, outputs: Outputs) -> int:
    """Elements of query, key and value for the bias, and of the query for the scale."""
    return int(args[0].numel + first_output(args, {}, outputs).numel)


@register(aten._compute_linear_combination, counts="macs")
def linear_combination_macs(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of the input x rows of coefficients."""
    return int(args[0].numel * args[1].shape[0])


@register(aten._amp_foreach_non_finite_check_and_unscale, counts="pointwise_flops")
def unscale_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """Elements of all gradients in the list."""
    return sum(t.numel for t in tensors(args[0]))


@register(aten._amp_update_scale, counts="pointwise_flops")
def update_scale_flops(args: Args, kwargs: Kwargs, outputs: Outputs) -> int:
    """One: the scale grows or shrinks."""
    return first_operand_elements(args, kwargs, outputs)
