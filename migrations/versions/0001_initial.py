"""The first schema: models, profiles, calls, operators, tensors and storages.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

PROFILE_TOTALS = """
CREATE VIEW profile_totals AS
SELECT p.profile_id, m.zoo, m.name AS model, p.batch_size, p.dtype, p.mode, p.target, p.capture,
       p.node_count, p.edge_count, p.op_count, p.unknown_op_count,
       p.fwd_macs, p.bwd_macs, p.fwd_pointwise_flops, p.bwd_pointwise_flops,
       p.fwd_flops, p.bwd_flops, m.param_count, m.param_bytes, m.buffer_bytes,
       p.input_bytes, p.kept_bytes, p.forward_end_bytes, p.peak_bytes,
       p.model_allocated_bytes, p.forward_allocated_bytes,
       p.peak_allocated_bytes, p.peak_reserved_bytes, p.workspace_bytes, p.seconds
FROM profiles AS p
JOIN models AS m ON m.model_id = p.model_id
"""

# In the order of creation: a view may read those before it.
VIEWS = {"profile_totals": PROFILE_TOTALS}


def upgrade() -> None:
    """Create all tables, parents first, then the views."""
    # On SQLite the tables created last are the first that a deletion cascades to: in this order
    # every row finds the tables that refer to it empty.
    _create_models_and_profiles()
    _create_calls()
    _create_ops()
    for sql in VIEWS.values():
        op.execute(sql)


def downgrade() -> None:
    """Refuse: there is nothing before the first schema."""
    raise NotImplementedError("the first schema has no predecessor; delete the database instead")


def number(name: str, comment: str) -> sa.Column[int]:
    """Return a column of identifiers, positions or flags."""
    return sa.Column(name, sa.Integer, nullable=False, autoincrement=False, comment=comment)


def count(name: str, comment: str) -> sa.Column[int]:
    """Return a column of counts or bytes."""
    return sa.Column(name, sa.BigInteger, nullable=False, comment=comment)


def text(name: str, comment: str) -> sa.Column[str]:
    """Return a column of text."""
    return sa.Column(name, sa.Text, nullable=False, comment=comment)


def real(name: str, comment: str) -> sa.Column[float]:
    """Return a column of double-precision numbers."""
    return sa.Column(name, sa.Double, nullable=False, comment=comment)


def surrogate(name: str, comment: str) -> sa.Column[int]:
    """Return a primary key that the database counts up."""
    return sa.Column(name, sa.Integer, primary_key=True, autoincrement=True, comment=comment)


def one_of(column: str, words: str) -> sa.CheckConstraint:
    """Return the check that a column holds one of some words."""
    rule = " OR ".join(f"{column} = '{word}'" for word in words.split())
    return sa.CheckConstraint(rule, name=column)


def flag(column: str) -> sa.CheckConstraint:
    """Return the check that a column holds 0 or 1."""
    return sa.CheckConstraint(f"{column} BETWEEN 0 AND 1", name=column)


def json(column: str) -> sa.CheckConstraint:
    """Return the check that a column holds JSON, made on SQLite only."""
    check = sa.CheckConstraint(f"json_valid({column})", name=f"{column}_json")
    check.ddl_if(dialect="sqlite")
    return check


def of_profile(*key: str) -> tuple[sa.PrimaryKeyConstraint, sa.ForeignKeyConstraint]:
    """Return the primary key of a table of a profile's rows, and its reference to the profile."""
    return (
        sa.PrimaryKeyConstraint("profile_id", *key),
        sa.ForeignKeyConstraint(["profile_id"], ["profiles.profile_id"], ondelete="CASCADE"),
    )


def refers(column: str, table: str, key: str) -> sa.ForeignKeyConstraint:
    """Return the reference of a column to another row of the same profile."""
    return sa.ForeignKeyConstraint(
        ["profile_id", column], [f"{table}.profile_id", f"{table}.{key}"]
    )


def options(comment: str) -> dict[str, Any]:
    """Return the options of a table of a profile's rows."""
    return {"sqlite_with_rowid": False, "comment": comment}


def _create_models_and_profiles() -> None:
    op.create_table(
        "models",
        surrogate("model_id", "number of the model"),
        text("identity", "SHA-256 of the columns below"),
        text("zoo", "where the model comes from: torchvision, ..., user"),
        text("name", "name of the model in its zoo"),
        text("package", "distribution that defines the model; '' if unknown"),
        text("package_version", "version of that distribution; '' if unknown"),
        text("config", "JSON object: the configuration asked for"),
        count("param_count", "elements of all parameters, shared ones once"),
        count("param_bytes", "bytes of all parameters"),
        count("buffer_bytes", "bytes of all buffers"),
        sa.UniqueConstraint("identity"),
        json("config"),
        comment="Models as their zoos build them.",
        sqlite_autoincrement=True,
    )
    op.create_table(
        "profiles",
        surrogate("profile_id", "number of the profile; never given out again"),
        number("model_id", "the model that was profiled"),
        text("identity", "SHA-256 of the settings and schema version: what makes it unique"),
        text("schema_version", "revision of the schema that the profile was written in"),
        count("batch_size", "samples in the input"),
        text("input_spec", 'JSON: the inputs, such as ["float32[4, 3, 224, 224]"]'),
        text("dtype", "number format of parameters and inputs, such as float32"),
        text("mode", "train or eval"),
        number("backward", "1 if the backward pass was run"),
        number("input_grad", "1 if gradients of the inputs were asked for"),
        text("target", "device whose kernels the profile describes: cuda, cpu or meta"),
        text("attention", "attention kernel: auto, flash, efficient or math"),
        text("autocast", "number format of autocast; '' without"),
        text("optimizer", "optimizer whose step was run; '' without"),
        text("capture", "meta, or concrete if the model had to be run with real values"),
        text("built_on", "device that the constructor ran on: meta or cpu"),
        text("assumption", "assumption about unknown values that was asked for; '' without"),
        text("torch_version", "version of torch"),
        text("exporter_version", "version of this program"),
        text("structural_hash", "equal for equal operator sequences on equal shapes"),
        text("created_at", "UTC, ISO 8601"),
        count("node_count", "rows in nodes"),
        count("edge_count", "rows in edges"),
        count("op_count", "rows in ops"),
        count("unknown_op_count", "ops without a formula: if not 0, FLOPs are lower bounds"),
        count("fwd_macs", "multiply-adds of contractions in forward"),
        count("bwd_macs", "multiply-adds of contractions in backward"),
        count("fwd_pointwise_flops", "FLOPs of everything else in forward"),
        count("bwd_pointwise_flops", "FLOPs of everything else in backward"),
        count("fwd_flops", "FLOPs of forward: 2 * fwd_macs + fwd_pointwise_flops"),
        count("bwd_flops", "FLOPs of backward: 2 * bwd_macs + bwd_pointwise_flops"),
        count("input_bytes", "bytes of the inputs"),
        count("kept_bytes", "bytes of activations alive when forward ends"),
        count("forward_end_bytes", "bytes alive when forward ends, model and inputs included"),
        count("peak_bytes", "highest number of live bytes, as requested"),
        count("model_allocated_bytes", "bytes that the allocator holds for the model alone"),
        count("forward_allocated_bytes", "allocated bytes when forward ends"),
        count("peak_allocated_bytes", "highest number of allocated bytes"),
        count("peak_reserved_bytes", "highest number of bytes reserved from the device"),
        count("workspace_bytes", "bytes of the matrix library's workspace, in no other sum"),
        real("seconds", "seconds from capture to finished records"),
        sa.ForeignKeyConstraint(["model_id"], ["models.model_id"]),
        sa.UniqueConstraint("identity"),
        one_of("mode", "train eval"),
        one_of("target", "cuda cpu meta"),
        one_of("capture", "meta concrete"),
        flag("backward"),
        flag("input_grad"),
        json("input_spec"),
        comment="Models under one configuration each, with totals.",
        sqlite_autoincrement=True,
    )
    op.create_table(
        "devices",
        surrogate("device_id", "number of the row"),
        text("name", "name of the device"),
        text("dtype", "number format that the rate is for, such as bfloat16"),
        count("peak_flops_per_second", "highest FLOP/s in this number format"),
        count("bandwidth_bytes_per_second", "bytes that its memory moves per second"),
        count("memory_bytes", "bytes of its memory"),
        count("launch_overhead_us", "microseconds that starting a kernel adds"),
        text("source", "where the figures come from"),
        sa.UniqueConstraint("name", "dtype"),
        comment="Devices for time estimates, a row per number format; add your own.",
        sqlite_autoincrement=True,
    )


def _create_calls() -> None:
    op.create_table(
        "modules",
        number("profile_id", "the profile"),
        number("module_id", "number of the module, in the order of named_modules"),
        text("path", "dotted path from the model; '' is the model itself"),
        text("class_name", "class of the module"),
        number("parent_id", "module that holds it; -1 for the model itself"),
        number("is_leaf", "1 if its calls are recorded as one node each"),
        number("call_count", "how often it was called"),
        number("fw_pre_order", "place of its first entry among all modules; -1: not called"),
        number("fw_post_order", "place of its first exit among all modules; -1: not called"),
        count("param_count", "elements of its own parameters, not its children's"),
        count("param_bytes", "bytes of its own parameters"),
        count("buffer_bytes", "bytes of its own buffers"),
        *of_profile("module_id"),
        flag("is_leaf"),
        **options("Modules of the model; a shared one appears once."),
    )
    op.create_table(
        "nodes",
        number("profile_id", "the profile"),
        number("node_id", "number of the call, in execution order"),
        text("name", "unique name, such as layer1.0.conv1 or add_1"),
        text("kind", "placeholder, call_module, call_function, call_method or output"),
        text("target", "what is called: module path, function or method name"),
        number("module_id", "the called module, or the one whose forward calls; -1: none"),
        text("arguments", 'JSON: arguments, tensors as {"tensor": tensor_id}'),
        text("shape", "JSON list: shape of the first output tensor"),
        text("dtype", "number format of the first output tensor"),
        number("stage", "number of points before it that a single storage crosses"),
        *of_profile("node_id"),
        one_of("kind", "placeholder call_module call_function call_method output"),
        json("arguments"),
        json("shape"),
        **options("Calls of the forward pass, inputs and output of the graph."),
    )
    op.create_table(
        "edges",
        number("profile_id", "the profile"),
        number("edge_id", "number of the edge"),
        number("src_node_id", "call that makes the tensor"),
        number("dst_node_id", "call that uses it, always later than the first"),
        number("tensor_id", "the tensor; -1: none"),
        number("arg_position", "place among the tensors of the consumer's arguments"),
        count("size_bytes", "bytes of the tensor"),
        text("kind", "data, alias (only viewed) or control (write after read)"),
        *of_profile("edge_id"),
        refers("src_node_id", "nodes", "node_id"),
        refers("dst_node_id", "nodes", "node_id"),
        one_of("kind", "data alias control"),
        **options("Tensors that go from call to call, and orders that writes impose."),
    )
    op.create_table(
        "flop_counts",
        number("profile_id", "the profile"),
        number("node_id", "the call"),
        count("fwd_macs", "multiply-adds of contractions in forward"),
        count("fwd_pointwise_flops", "FLOPs of everything else in forward"),
        count("bwd_macs", "multiply-adds of contractions in its backward"),
        count("bwd_pointwise_flops", "FLOPs of everything else in its backward"),
        *of_profile("node_id"),
        refers("node_id", "nodes", "node_id"),
        **options("Arithmetic of calls: FLOPs are 2 * macs + pointwise_flops."),
    )
    op.create_table(
        "mem_stats",
        number("profile_id", "the profile"),
        number("node_id", "the call"),
        count("fwd_in_bytes", "bytes that existed before and that it saves for backward"),
        count("fwd_tmp_bytes", "bytes born in it, not in its output, alive when it returns"),
        count("fwd_out_bytes", "bytes born in it and reachable from its output"),
        count("fwd_transient_bytes", "highest live bytes in it above what it leaves alive"),
        count("kept_bytes", "bytes born in it and alive when forward ends"),
        count("bwd_tmp_bytes", "highest live bytes of its backward, less the next two"),
        count("bwd_out_bytes", "bytes of gradients of its inputs that its backward leaves"),
        count("grad_bytes", "bytes of parameter gradients that its backward leaves"),
        count("param_bytes", "bytes of parameters that it is the first to use"),
        count("buffer_bytes", "bytes of buffers that it is the first to use"),
        *of_profile("node_id"),
        refers("node_id", "nodes", "node_id"),
        **options("Memory of calls: bytes of storages as they live in the eager run."),
    )


def _create_ops() -> None:
    op.create_table(
        "ops",
        number("profile_id", "the profile"),
        number("op_id", "number of the operator, in execution order: the step"),
        number("node_id", "call it belongs to; -1: output gradients and optimizer"),
        text("phase", "forward, backward, recompute or optimizer"),
        text("operator", "name and overload, such as aten.convolution.default"),
        number("fwd_op_id", "forward operator that it differentiates or repeats; -1: none"),
        text("arguments", "JSON: arguments in the order of the schema, tensors as null"),
        count("macs", "multiply-adds of contractions"),
        count("pointwise_flops", "FLOPs of everything else"),
        text("flops_status", "formula, zero_cost or unknown (both counts are then 0)"),
        count("bytes_read", "bytes of its tensor arguments"),
        count("bytes_written", "bytes of its results"),
        number("is_view", "1 if its result shares an argument's storage"),
        number("is_inplace", "1 if it writes into an argument"),
        number("is_random", "1 if it draws random numbers"),
        text("assumption", "assumption about unknown values that it used; '' without"),
        count("live_bytes", "bytes alive on the device when it returned, as requested"),
        *of_profile("op_id"),
        one_of("phase", "forward backward recompute optimizer"),
        one_of("flops_status", "formula zero_cost unknown"),
        flag("is_view"),
        flag("is_inplace"),
        flag("is_random"),
        json("arguments"),
        **options("Executed aten operators of forward, backward and optimizer."),
    )
    op.create_table(
        "storages",
        number("profile_id", "the profile"),
        number("storage_id", "number of the storage, in the order of births"),
        count("size_bytes", "bytes, as requested"),
        text(
            "storage_class",
            "parameter, buffer, input, activation, temporary, gradient or optimizer",
        ),
        number("birth_op_id", "first step it is alive at; -1: before the first operator"),
        number("death_op_id", "last step it is alive at; op_count: it outlives the run"),
        number("is_host", "1 if in host memory: in no sum of device memory"),
        count("block_bytes", "bytes of the allocator's block; size_bytes unless for cuda"),
        count("address", "planned address of the block; -1 for host or empty storages"),
        *of_profile("storage_id"),
        one_of("storage_class", "parameter buffer input activation temporary gradient optimizer"),
        flag("is_host"),
        **options("Bytes with one birth and one death."),
    )
    op.create_table(
        "tensors",
        number("profile_id", "the profile"),
        number("tensor_id", "number of the tensor, in the order of appearance"),
        number("op_id", "operator that returned it; -1: it existed before"),
        number("output_index", "place among the operator's results"),
        number("storage_id", "the storage that it views"),
        text("shape", "JSON list: elements per dimension"),
        text("stride", "JSON list: elements between neighbours per dimension"),
        count("storage_offset", "elements before its first in the storage"),
        text("dtype", "number format, such as float32"),
        count("size_bytes", "bytes of its elements"),
        text("role", "parameter, buffer, input, constant, activation, gradient or optimizer"),
        text("name", "name of a parameter, buffer or input; else ''"),
        *of_profile("tensor_id"),
        refers("storage_id", "storages", "storage_id"),
        one_of("role", "parameter buffer input constant activation gradient optimizer"),
        json("shape"),
        json("stride"),
        **options("Tensors that operators returned, or that existed before the first."),
    )
    op.create_table(
        "tensor_uses",
        number("profile_id", "the profile"),
        number("op_id", "operator that uses the tensor"),
        number("arg_position", "place among the leaves of the operator's arguments"),
        number("tensor_id", "the tensor"),
        number("mutates", "1 if the operator writes into it"),
        *of_profile("op_id", "arg_position"),
        refers("op_id", "ops", "op_id"),
        refers("tensor_id", "tensors", "tensor_id"),
        flag("mutates"),
        **options("Which operator reads or writes which tensor."),
    )
    op.create_table(
        "saved_tensors",
        number("profile_id", "the profile"),
        number("saved_id", "number of the row"),
        number("tensor_id", "the tensor"),
        number("node_id", "forward call that saved it"),
        number("op_id", "forward operator that saved it"),
        text("reason", "what it is to the call: input, intermediate or output"),
        *of_profile("saved_id"),
        refers("tensor_id", "tensors", "tensor_id"),
        refers("node_id", "nodes", "node_id"),
        refers("op_id", "ops", "op_id"),
        one_of("reason", "input intermediate output"),
        **options("Tensors that autograd keeps for backward when forward ends."),
    )
    if op.get_bind().dialect.name == "postgresql":
        for table, column in (
            ("tensors", "storage_id"),
            ("tensor_uses", "tensor_id"),
            ("saved_tensors", "tensor_id"),
            ("saved_tensors", "op_id"),
        ):
            op.create_index(op.f(f"ix_{table}_profile_id_{column}"), table, ["profile_id", column])
