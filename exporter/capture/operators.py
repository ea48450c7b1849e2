"""What is fixed about an operator: read once from its schema."""

from __future__ import annotations

import torch

from exporter.capture.memo import LIST, NOTHING, SINGLE, TUPLE

# Kernels that write running statistics without saying so in their schema: argument positions.
_HIDDEN_WRITES = {
    "aten::native_batch_norm": (3, 4),
    "aten::cudnn_batch_norm": (3, 4),
    "aten::miopen_batch_norm": (3, 4),
}

# Operators that change a tensor's geometry or storage: their result is not a function of geometry.
_RESHAPING = frozenset(
    {
        "aten::resize_",
        "aten::resize_as_",
        "aten::resize_output_",
        "aten::_resize_output_",
        "aten::set_",
        "aten::t_",
        "aten::transpose_",
        "aten::squeeze_",
        "aten::unsqueeze_",
        "aten::swapaxes_",
        "aten::swapdims_",
        "aten::as_strided_",
        "aten::detach_",
        "aten::set_data",
        "aten::_cudnn_rnn_flatten_weight",
    }
)


_SELECTING = frozenset(
    {
        "aten::index",
        "aten::index_put",
        "aten::index_put_",
        "aten::_index_put_impl_",
        "aten::_unsafe_index",
        "aten::_unsafe_index_put",
    }
)

# Operators that say nowhere in their tags that the size of their result depends on values.
_SIZED_BY_VALUES = frozenset({"torchvision::nms", "torchvision::qnms"})

# Views that say of themselves that their values are to be conjugated or negated.
_LAZY = frozenset({"aten::_conj", "aten::_neg_view"})

# Values that follow from an operand's geometry alone, and guards against values out of range.
_GEOMETRY_ONLY = frozenset(
    f"aten::{name}"
    for name in (
        "zeros_like",
        "ones_like",
        "full_like",
        "new_zeros",
        "new_ones",
        "new_full",
        "isinf",
        "isnan",
        "eq",
        "ne",
        "empty",
        "new_empty",
        "empty_like",
    )
)


def _container_of(returns: list[torch._C.Argument]) -> int:
    """Return what a schema packs its results in."""
    if not returns:
        return NOTHING
    if len(returns) > 1:
        return TUPLE
    kind = str(returns[0].type)
    return LIST if "[]" in kind or "List" in kind else SINGLE


class OpInfo:
    """Schema facts of one operator overload, in the form that the hot path wants."""

    __slots__ = (
        "container",
        "func",
        "geometry_only",
        "is_copy",
        "is_inplace",
        "is_random",
        "memo",
        "name",
        "needs_values",
        "selects",
        "valued",
        "writes",
        "written_names",
    )

    def __init__(self, func: torch._ops.OpOverload) -> None:
        schema = func._schema
        self.func = func
        self.name = str(func)
        qualified = schema.name
        self.is_random = torch.Tag.nondeterministic_seeded in func.tags
        writes = {
            i
            for i, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        }
        self.written_names = frozenset(
            schema.arguments[i].name for i in writes if schema.arguments[i].kwarg_only
        )
        self.is_inplace = bool(writes)
        self.writes = frozenset(writes | set(_HIDDEN_WRITES.get(qualified, ())))
        tags = func.tags
        dynamic = torch.Tag.dynamic_output_shape in tags or torch.Tag.data_dependent_output in tags
        dynamic = dynamic or qualified in _SIZED_BY_VALUES
        self.selects = qualified in _SELECTING  # its size depends on values if an index is a mask
        self.needs_values = dynamic and not self.selects
        self.container = _container_of(schema.returns)
        self.is_copy = qualified == "aten::_to_copy"
        self.memo = (
            qualified not in _RESHAPING | _LAZY
            and not self.needs_values
            and func.namespace in {"aten", "prims", "torchvision"}
        )
        # Values follow deterministic operators; an uninitialised tensor has none.
        self.valued = not self.is_random and "empty" not in qualified and func.namespace == "aten"
        self.geometry_only = qualified in _GEOMETRY_ONLY


# By the identity of the overload, which its OpInfo keeps alive: hashing an overload is slow.
INFOS: dict[int, OpInfo] = {}


def op_info(func: torch._ops.OpOverload) -> OpInfo:
    """Return the facts of an operator, made at its first use in this process."""
    info = INFOS.get(id(func))
    if info is None:
        info = INFOS[id(func)] = OpInfo(func)
    return info
