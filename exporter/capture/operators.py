"""What is fixed about an operator: read once from its schema and the ledger."""

from __future__ import annotations

import torch

from exporter.capture.memo import LIST, NOTHING, SINGLE, TUPLE
from exporter.ledger import Facts, aten_operators, version

HIDDEN_WRITES = Facts[tuple[int, ...]](
    __name__,
    "positions that it writes to in secret",
    "says which arguments a schema is silent about writing",
)
HIDDEN_WRITES.state(
    (3, 4), *aten_operators("native_batch_norm cudnn_batch_norm miopen_batch_norm")
)  # running statistics

RESHAPES = Facts[bool](
    __name__,
    "a place among what reshapes",
    "says that it changes a tensor's geometry or storage, so that its result is not remembered",
)
RESHAPES.state(
    True,
    *aten_operators(
        "resize_ resize_as_ _resize_output_ set_ t_ transpose_ squeeze_ unsqueeze_"
        " swapaxes_ swapdims_ as_strided_ detach_ set_data _cudnn_rnn_flatten_weight"
    ),
)

SELECTS = Facts[bool](
    __name__,
    "a place among what selects",
    "says that its size depends on values where an index is a mask",
)
SELECTS.state(
    True,
    *aten_operators("index index_put index_put_ _index_put_impl_ _unsafe_index _unsafe_index_put"),
)

SIZED_BY_VALUES = Facts[bool](
    __name__, "a place among what values size", "says what no tag says: its size depends on values"
)
SIZED_BY_VALUES.state(True, "torchvision::nms", "torchvision::qnms")

LAZY_VIEWS = Facts[bool](
    __name__,
    "a place among lazy views",
    "says that its result is conjugated or negated when it is read",
)
LAZY_VIEWS.state(True, *aten_operators("_conj _neg_view"))

GEOMETRY_ONLY = Facts[bool](
    __name__,
    "a place among what geometry decides",
    "says that its values follow from an operand's geometry, or guard against numbers out of range",
)
GEOMETRY_ONLY.state(
    True,
    *aten_operators(
        "zeros_like ones_like full_like new_zeros new_ones new_full isinf isnan eq ne empty"
        " new_empty empty_like"
    ),
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
        self.writes = frozenset(writes | set(HIDDEN_WRITES.of(func) or ()))
        tags = func.tags
        dynamic = torch.Tag.dynamic_output_shape in tags or torch.Tag.data_dependent_output in tags
        dynamic = dynamic or func in SIZED_BY_VALUES
        self.selects = func in SELECTS
        self.needs_values = dynamic and not self.selects
        self.container = _container_of(schema.returns)
        self.is_copy = qualified == "aten::_to_copy"
        self.memo = (
            func not in RESHAPES
            and func not in LAZY_VIEWS
            and not self.needs_values
            and func.namespace in {"aten", "prims", "torchvision"}
        )
        # Values follow deterministic operators; an uninitialised tensor has none.
        self.valued = not self.is_random and "empty" not in qualified and func.namespace == "aten"
        self.geometry_only = func in GEOMETRY_ONLY


# By the identity of the overload, which its OpInfo keeps alive: hashing an overload is slow.
INFOS: dict[int, OpInfo] = {}
_LEDGER = [version()]  # the version that they were read from


def read_again() -> None:
    """Forget the facts of all operators if the ledger has changed; between recordings only."""
    if _LEDGER[0] != version():
        _LEDGER[0] = version()
        INFOS.clear()


def op_info(func: torch._ops.OpOverload) -> OpInfo:
    """Return the facts of an operator, made at its first use in this process."""
    info = INFOS.get(id(func))
    if info is None:
        info = INFOS[id(func)] = OpInfo(func)
    return info
