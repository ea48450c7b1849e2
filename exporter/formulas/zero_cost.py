"""The operators that compute nothing.

Admission rule: an operator is on this list if it never makes a number by arithmetic.
It may move or repeat elements, change their type or the way a tensor looks at them, make or resize
a tensor, fill it with a constant, a sequence or random numbers, compare numbers or combine truth
values and bits, put numbers in order, look numbers up, or answer a question about a tensor.
Choosing between numbers element by element (``where``, ``relu``, ``clamp``, ``maximum``, pooling)
is arithmetic by the published convention and not here; overwriting marked elements is a move.
Operators whose schema says that they return a view are zero cost by that rule and need no entry.
An entry covers the in-place variant of its name, marked by a trailing underscore.
"""

from __future__ import annotations

from exporter.ledger import Facts, aten_operators

_ATEN = {
    "moves": """
        _chunk_cat _copy_from _copy_from_and_resize _cudnn_rnn_flatten_weight _foreach_clone
        _foreach_copy _foreach_zero _jagged_to_padded_dense_forward _lazy_clone _mkldnn_reshape
        _mkldnn_transpose _nested_from_padded _nested_from_padded_and_nested_example
        _nested_from_padded_tensor _nested_select_backward _nested_tensor_from_mask
        _nested_tensor_from_tensor_list _pack_padded_sequence _pad_circular _pad_enum
        _pad_packed_sequence _padded_dense_to_jagged_forward _pin_memory _reshape_copy
        _reshape_from_tensor _spdiags _stack _to_cpu _unsafe_index _unsafe_masked_index _unsafe_view
        _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
        as_strided_scatter block_diag cartesian_prod cat channel_shuffle clone column_stack
        combinations concat concatenate constant_pad_nd copy copy_sparse_to_sparse diag diag_embed
        diagflat diagonal_backward diagonal_scatter dstack fft_fftshift fft_ifftshift fill_diagonal_
        flatten_dense_tensors flip fliplr flipud gather hstack im2col index index_copy index_fill
        index_select lift lift_fresh_copy lu_unpack masked_fill masked_scatter masked_select
        max_unpool2d max_unpool3d native_channel_shuffle nested_to_padded_tensor nonzero_numpy
        one_hot pad pad_sequence pin_memory pixel_shuffle pixel_unshuffle reflection_pad1d
        reflection_pad2d reflection_pad3d repeat repeat_interleave replication_pad1d
        replication_pad2d replication_pad3d roll rot90 row_stack scatter select_backward
        select_scatter slice_backward slice_scatter stack take take_along_dim tile to_padded_tensor
        trace_backward tril triu unflatten_dense_tensors unsafe_chunk unsafe_split
        unsafe_split_with_sizes upsample_nearest1d upsample_nearest2d upsample_nearest3d vstack
    """,
    "copies of views": """
        _conj_copy _fw_primal_copy _indices_copy _make_dual_copy _neg_view_copy
        _nested_get_values_copy _nested_view_from_buffer_copy _nested_view_from_jagged_copy
        _reshape_alias_copy _sparse_broadcast_to_copy _values_copy alias_copy as_strided_copy
        ccol_indices_copy col_indices_copy crow_indices_copy detach_copy diagonal_copy expand_copy
        indices_copy narrow_copy permute_copy row_indices_copy select_copy slice_copy split_copy
        split_with_sizes_copy squeeze_copy t_copy transpose_copy unbind_copy unfold_copy
        unsqueeze_copy values_copy view_as_complex_copy view_as_real_copy view_copy
    """,
    "changes of type, layout or shape": """
        _autocast_to_full_precision _autocast_to_reduced_precision _cast_Byte _cast_Char
        _cast_Double _cast_Float _cast_Half _cast_Int _cast_Long _cast_Short _coalesced
        _convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo
        _convert_weight_to_int4pack _convert_weight_to_int4pack_for_cpu _cslt_compress
        _dyn_quant_pack_4bit_weight _make_per_channel_quantized_tensor
        _make_per_tensor_quantized_tensor _resize_output _saturate_weight_to_fp16 _to_copy _to_dense
        _to_sparse _to_sparse_bsc _to_sparse_bsr _to_sparse_csc _to_sparse_csr
        _to_sparse_semi_structured _wrapped_linear_prepack as_strided_ atleast_1d atleast_2d
        atleast_3d broadcast_tensors chalf complex detach_ fbgemm_pack_gemm_matrix_fp16
        fbgemm_pack_quantized_matrix int_repr meshgrid mkldnn_reorder_conv2d_weight
        mkldnn_reorder_conv3d_weight requires_grad_ resize resize_as resize_as_sparse set set_data
        shallow_copy_data_ sparse_mask sparse_resize sparse_resize_and_clear squeeze_ swapaxes_
        swapdims_ t_ to_dense to_dense_backward to_mkldnn to_mkldnn_backward to_sparse to_sparse_bsc
        to_sparse_bsr to_sparse_csc to_sparse_csr transpose_ type_as unsqueeze_
    """,
    "new tensors": """
        _cudnn_init_dropout_state _dim_arange _efficientzerotensor _empty_affine_quantized
        _empty_per_channel_affine_quantized _new_zeros_with_same_feature_meta
        _sparse_bsc_tensor_unsafe _sparse_bsr_tensor_unsafe _sparse_compressed_tensor_unsafe
        _sparse_compressed_tensor_with_dims _sparse_coo_tensor_unsafe _sparse_coo_tensor_with_dims
        _sparse_coo_tensor_with_dims_and_tensors _sparse_csc_tensor_unsafe _sparse_csr_tensor_unsafe
        arange bartlett_window blackman_window empty empty_like empty_permuted empty_quantized
        empty_strided eye fft_fftfreq fft_rfftfreq fill from_file full full_like hamming_window
        hann_window kaiser_window linspace logspace new_empty new_empty_strided new_full new_ones
        new_zeros ones ones_like range scalar_tensor sparse_bsc_tensor sparse_bsr_tensor
        sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor tril_indices
        triu_indices zero zeros zeros_like
    """,
    "random numbers": """
        _fill_mem_eff_dropout_mask_ _philox_key_fold_in _philox_key_split _philox_normal
        _philox_uniform _sample_dirichlet _sobol_engine_draw _sobol_engine_ff_
        _sobol_engine_initialize_state_ _sobol_engine_scramble_ _standard_gamma bernoulli binomial
        cauchy exponential geometric log_normal multinomial normal normal_functional poisson rand
        rand_like randint randint_like randn randn_like random randperm uniform
    """,
    "comparisons": """
        _has_same_storage_numel _is_all_true _is_any_true all allclose any eq equal ge greater
        greater_equal gt isclose isfinite isin isinf isnan isneginf isposinf isreal le less
        less_equal lt ne not_equal signbit
    """,
    "truth values and bits": """
        __and__ __iand__ __ilshift__ __ior__ __irshift__ __ixor__ __lshift__ __or__ __rshift__
        __xor__ bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift
        bitwise_xor logical_and logical_not logical_or logical_xor
    """,
    "order and look-up": """
        _coalesce _unique _unique2 argsort argwhere bucketize coalesce kthvalue median mode msort
        nanmedian nonzero nonzero_static searchsorted sort topk unique_consecutive unique_dim
        unique_dim_consecutive
    """,
    "questions": """
        _assert_async _assert_scalar _assert_tensor_metadata _cufft_get_plan_cache_max_size
        _cufft_get_plan_cache_size _debug_has_internal_overlap _dimI _dimV _functional_assert_async
        _functional_assert_scalar _functional_sym_constrain_range
        _functional_sym_constrain_range_for_size _fused_sdp_choice _has_compatible_shallow_copy_type
        _is_zerotensor _linalg_check_errors _local_scalar_dense
        _nested_compute_contiguous_strides_offsets _nested_get_jagged_dummy _nested_get_lengths
        _nested_get_max_seqlen _nested_get_min_seqlen _nested_get_offsets _nested_get_ragged_idx
        _nested_tensor_size _nested_tensor_storage_offsets _nested_tensor_strides _nnpack_available
        _nnz _shape_as_tensor _use_cudnn_ctc_loss _use_cudnn_rnn_flatten_weight _use_miopen_ctc_loss
        _validate_compressed_sparse_indices _validate_sparse_bsc_tensor_args
        _validate_sparse_bsr_tensor_args _validate_sparse_compressed_tensor_args
        _validate_sparse_coo_tensor_args _validate_sparse_csc_tensor_args
        _validate_sparse_csr_tensor_args _version can_cast cudnn_is_acceptable dense_dim dim
        get_device is_coalesced is_complex is_conj is_contiguous is_distributed is_floating_point
        is_inference is_leaf is_neg is_nonzero is_pinned is_same_size is_set_to is_signed
        is_vulkan_available item numel output_nr promote_types q_per_channel_axis
        q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point qscheme result_type
        retains_grad size sparse_dim storage_offset stride sym_constrain_range
        sym_constrain_range_for_size sym_is_contiguous sym_numel sym_size sym_storage_offset
        sym_stride
    """,
    "bookkeeping": """
        _add_batch_dim _backward _cufft_clear_plan_cache _cufft_set_plan_cache_max_size
        _make_dep_token _print _propagate_xla_data _remove_batch_dim data get_gradients
        record_stream retain_grad
    """,
}

_OTHERS = """
    prims::_make_token prims::_sink_tokens prims::as_strided prims::as_strided_scatter
    prims::broadcast_in_dim prims::cat prims::clone prims::collapse prims::convert_element_type
    prims::copy_strided prims::copy_to prims::device_put prims::empty prims::empty_permuted
    prims::empty_strided prims::iota prims::item prims::maximum_value prims::minimum_value
    prims::normal prims::reshape prims::resize prims::rev prims::scalar_tensor prims::shift_left
    prims::shift_right_arithmetic profiler::_record_function_enter
    profiler::_record_function_enter_new profiler::_record_function_exit torchvision::_cuda_version
"""

ZERO_COST = Facts[str](
    __name__,
    "a place on the zero-cost list",
    "says that an operator makes no number by arithmetic",
    covers_variants=True,
)
for _kind, _names in _ATEN.items():
    ZERO_COST.state(_kind, *aten_operators(_names))
ZERO_COST.state("outside aten", *_OTHERS.split())


def groups() -> dict[str, list[str]]:
    """Return the list by kind, each sorted, for the documentation."""
    named: dict[str, list[str]] = {}
    for name, kind in ZERO_COST.stated.items():
        named.setdefault(kind, []).append(name)
    return {kind: sorted(names) for kind, names in named.items()}
