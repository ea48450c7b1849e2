"""The tables: their keys, and what their rows are. Their columns are those of the records."""

from __future__ import annotations

from sqlalchemy import ForeignKeyConstraint

from store.base import METADATA, entity_table, identifier, rows_table, surrogate, text
from store.columns import columns
from store.records import (
    Device,
    Edge,
    FlopCount,
    MemStat,
    Module,
    Node,
    Op,
    ProfileInfo,
    SavedTensor,
    Storage,
    Tensor,
    TensorUse,
    Totals,
)

__all__ = ["METADATA", "MODELS", "PROFILES"]

_HEAD = {item.stored_name: item for item in (*columns(ProfileInfo), *columns(Totals)[1:])}.values()

MODELS = entity_table(
    "models",
    "Models as their zoos build them.",
    [
        surrogate("model_id", "number of the model"),
        text("identity", "SHA-256 of the columns below"),
    ],
    (item for item in _HEAD if item.declared.of_model),
    "identity",
)
PROFILES = entity_table(
    "profiles",
    "Models under one configuration each, with totals.",
    [
        surrogate("profile_id", columns(Totals)[0].declared.meaning),
        identifier("model_id", "the model that was profiled"),
        text("identity", "SHA-256 of the settings and schema version: what makes it unique"),
        text("schema_version", "revision of the schema that the profile was written in"),
    ],
    (item for item in _HEAD if not item.declared.of_model),
    "identity",
    references=[ForeignKeyConstraint(["model_id"], ["models.model_id"])],
)
rows_table("modules", Module, "Modules of the model; a shared one appears once.", "module_id")
rows_table("nodes", Node, "Calls of the forward pass, inputs and output of the graph.", "node_id")
rows_table(
    "edges", Edge, "Tensors that go from call to call, and orders that writes impose.", "edge_id"
)
rows_table(
    "flop_counts", FlopCount,
    "Arithmetic of calls: FLOPs are 2 * macs + pointwise_flops.", "node_id",
)  # fmt: skip
rows_table(
    "mem_stats", MemStat,
    "Memory of calls: bytes of storages as they live in the eager run.", "node_id",
)  # fmt: skip
rows_table("ops", Op, "Executed aten operators of forward, backward and optimizer.", "op_id")
rows_table(
    "tensors", Tensor, "Tensors that operators returned, or that existed before the first.",
    "tensor_id",
)  # fmt: skip
rows_table(
    "tensor_uses", TensorUse, "Which operator reads or writes which tensor.",
    "op_id", "arg_position",
)  # fmt: skip
rows_table(
    "saved_tensors", SavedTensor, "Tensors that autograd keeps for backward when forward ends.",
    "saved_id",
)  # fmt: skip
rows_table("storages", Storage, "Bytes with one birth and one death.", "storage_id")
entity_table(
    "devices",
    "Devices for time estimates, a row per number format; add your own.",
    [surrogate("device_id", "number of the row")],
    columns(Device),
    "name", "dtype",
)  # fmt: skip
