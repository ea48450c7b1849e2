"""The columns of the views: what each means and of which type it is.

Migrations make the views; here they are described, and tests hold both together.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Double, Integer, MetaData, Table, Text

from store.base import type_of
from store.columns import columns, names
from store.models import METADATA
from store.records import Totals

_METADATA = MetaData()  # not that of the tables: a view is nothing that could be created from it


def _view(name: str, meaning: str, *columns: Column[Any]) -> Table:
    return Table(name, _METADATA, *columns, comment=meaning)


def _of(table: str, *names: str) -> list[Column[Any]]:
    """Return columns that mean what those of a table mean; ``"id=op_id"`` has a name of its own."""
    source = METADATA.tables[table]
    pairs = [(name.partition("=")[0], name.rpartition("=")[2]) for name in names]
    return [Column(new, source.c[old].type, comment=source.c[old].comment) for new, old in pairs]


def _number(name: str, meaning: str) -> Column[Any]:
    return Column(name, Integer, comment=meaning)


def _count(name: str, meaning: str) -> Column[Any]:
    return Column(name, BigInteger, comment=meaning)


def _real(name: str, meaning: str) -> Column[Any]:
    return Column(name, Double, comment=meaning)


def _text(name: str, meaning: str) -> Column[Any]:
    return Column(name, Text, comment=meaning)


def _of_totals(name: str) -> Column[Any]:
    """Return the column of a field of the totals, which profiles and models hold between them."""
    item = next(item for item in columns(Totals) if item.name == name)
    return Column(name, type_of(item), comment=item.declared.meaning)


PROFILE_TOTALS = _view(
    "profile_totals",
    "One row per profile: the front door, whose column names are fixed.",
    *map(_of_totals, names(Totals)),
)

# In the order in which they are listed.
VIEWS = (
    PROFILE_TOTALS,
    _view(
        "model_totals",
        "One row per model, from its newest profile, per sample.",
        *_of("models", "zoo", "model=name"),
        _count("profile_count", "profiles of the model"),
        _number("newest_profile_id", "its newest profile, which the row describes"),
        *_of("profiles", "batch_size"),
        *_of("models", "param_count", "param_bytes", "buffer_bytes"),
        _count("fwd_macs_per_sample", "fwd_macs / batch_size, rounded down"),
        _count("fwd_flops_per_sample", "fwd_flops / batch_size, rounded down"),
        _count("bwd_flops_per_sample", "bwd_flops / batch_size, rounded down"),
        _count("kept_bytes_per_sample", "kept_bytes / batch_size, rounded down"),
        _count("peak_bytes", "highest number of live bytes, of the whole batch"),
    ),
    _view(
        "operator_totals",
        "Sums per operator and phase; unknown_op_count tells a sum from a lower bound.",
        *_of("ops", "profile_id", "operator", "phase"),
        _count("op_count", "how often it was executed"),
        _count("unknown_op_count", "how often without a formula"),
        *_of("ops", "macs", "pointwise_flops"),
        _count("flops", "2 * macs + pointwise_flops"),
        *_of("ops", "bytes_read", "bytes_written"),
    ),
    _view(
        "module_totals",
        "Sums per module, those inside it included; the path '' is the whole model.",
        *_of("modules", "profile_id", "module_id", "path", "class_name"),
        _count("call_count", "calls of forward in it and in the modules inside it"),
        *_of("flop_counts", "fwd_macs", "bwd_macs"),
        _count("fwd_flops", "FLOPs in forward"),
        _count("bwd_flops", "FLOPs in backward"),
        *_of("mem_stats", "kept_bytes", "grad_bytes"),
        _count("param_bytes", "bytes of parameters of it and of the modules inside it"),
        _count("buffer_bytes", "bytes of buffers of it and of the modules inside it"),
    ),
    _view(
        "module_calls",
        "What a module does itself, without the modules inside it.",
        *_of("modules", "profile_id", "module_id", "path", "class_name"),
        _count("call_count", "calls of its own: of a leaf, or what its forward calls"),
        *_of("flop_counts", "fwd_macs", "bwd_macs"),
        _count("fwd_flops", "FLOPs in forward"),
        _count("bwd_flops", "FLOPs in backward"),
        *_of("mem_stats", "kept_bytes", "grad_bytes"),
        *_of("modules", "param_bytes", "buffer_bytes"),
    ),
    _view(
        "memory_timeline",
        "Live bytes after every operator.",
        *_of("ops", "profile_id", "op_id", "phase", "operator"),
        _text("call", "name of the call it belongs to; '' if none"),
        *_of("ops", "live_bytes"),
    ),
    _view(
        "op_times",
        "The roofline time of every operator on every device; name a device, or there are all.",
        *_of("ops", "profile_id", "op_id", "phase", "operator", "node_id"),
        *_of("devices", "device=name"),
        _count("flops", "2 * macs + pointwise_flops"),
        _count("size_bytes", "bytes read and written; 0 for views"),
        _real("compute_us", "microseconds of its FLOPs at the device's peak"),
        _real("memory_us", "microseconds of its bytes at the device's bandwidth"),
        _real("time_us", "the larger of both plus the launch overhead; 0 if it does nothing"),
        _text("bound", "what takes longest: compute, memory or launch; nothing if it does nothing"),
    ),
    _view(
        "activation_per_parameter",
        "Kept activation bytes per parameter byte.",
        *map(_of_totals, ("profile_id", "zoo", "model", "batch_size", "dtype", "mode", "target")),
        *map(_of_totals, ("kept_bytes", "param_bytes")),
        _real("kept_bytes_per_param_byte", "kept_bytes / param_bytes; 0 without parameters"),
    ),
    _view(
        "v_minimalloc",
        "Buffers with lifetimes, for memory planners: all device storages born in the step.",
        *_of("storages", "profile_id", "id=storage_id"),
        _number("lower", "first step it is alive at"),
        _count("upper", "first step it is no longer alive at"),
        _count("size", "bytes of the allocator's block"),
    ),
    _view(
        "v_mem_event",
        "Every allocation and free on the device, in the order of seq.",
        *_of("storages", "profile_id"),
        _number("seq", "twice the step, one more for a free: it comes after the step"),
        _text("kind", "alloc or free"),
        *_of("storages", "storage_id"),
        _number("op_id", "the step; -1: before the first operator"),
        *_of("storages", "address", "block_bytes", "size_bytes", "storage_class"),
    ),
    _view(
        "v_chakra_node",
        "Operators with their FLOPs and bytes.",
        *_of("ops", "profile_id", "id=op_id", "name=operator", "phase", "node_id"),
        _count("num_ops", "FLOPs: 2 * macs + pointwise_flops"),
        _count("tensor_size", "bytes read and written"),
    ),
    _view(
        "v_rotor_chain",
        "The stages of the chain between points that a single storage crosses.",
        *_of("nodes", "profile_id", "stage"),
        _number("first_node_id", "its first call"),
        _number("last_node_id", "its last call"),
        _count("fwd_flops", "FLOPs of its calls in forward"),
        _count("bwd_flops", "FLOPs of its calls in backward"),
        _count("saved_bytes", "fwd_tmp_bytes + fwd_out_bytes of its calls"),
        _count("kept_bytes", "kept_bytes of its calls"),
        _count("fwd_transient_bytes", "the largest fwd_transient_bytes of its calls"),
        _count("bwd_tmp_bytes", "the largest bwd_tmp_bytes of its calls"),
    ),
    _view(
        "v_dfgraph",
        "The costs of calls, for checkpointing solvers.",
        *_of("nodes", "profile_id", "node_id", "name"),
        _count("fwd_cost_cpu", "FLOPs in forward"),
        _count("bwd_cost_cpu", "FLOPs in backward"),
        _count("fwd_cost_ram", "fwd_out_bytes + fwd_tmp_bytes"),
        _count("bwd_cost_ram", "bwd_out_bytes"),
        *_of("mem_stats", "param_bytes"),
    ),
)
