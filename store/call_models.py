"""The tables of a profile's modules and calls."""

from __future__ import annotations

from sqlalchemy.orm import Mapped  # noqa: TC002  # read by SQLAlchemy when the class is made

from store.base import (
    Base,
    count,
    deletion_index,
    flag,
    json,
    number,
    of_profile,
    one_of,
    options,
    refers,
    text,
)
from store.records import EDGE_KINDS, NODE_KINDS


class Module(Base):
    """A module of the model."""

    __tablename__ = "modules"

    profile_id: Mapped[int] = number("the profile")
    module_id: Mapped[int] = number("number of the module, in the order of named_modules")
    path: Mapped[str] = text("dotted path from the model; '' is the model itself")
    class_name: Mapped[str] = text("class of the module")
    parent_id: Mapped[int] = number("module that holds it; -1 for the model itself")
    is_leaf: Mapped[int] = number("1 if its calls are recorded as one node each")
    call_count: Mapped[int] = number("how often it was called")
    fw_pre_order: Mapped[int] = number("place of its first entry among all modules; -1: not called")
    fw_post_order: Mapped[int] = number("place of its first exit among all modules; -1: not called")
    param_count: Mapped[int] = count("elements of its own parameters, not its children's")
    param_bytes: Mapped[int] = count("bytes of its own parameters")
    buffer_bytes: Mapped[int] = count("bytes of its own buffers")

    __table_args__ = (
        *of_profile("module_id"),
        flag("is_leaf"),
        options("Modules of the model; a shared one appears once."),
    )


class Node(Base):
    """A call of the forward pass, or an input or the output of the graph."""

    __tablename__ = "nodes"

    profile_id: Mapped[int] = number("the profile")
    node_id: Mapped[int] = number("number of the call, in execution order")
    name: Mapped[str] = text("unique name, such as layer1.0.conv1 or add_1")
    kind: Mapped[str] = text("placeholder, call_module, call_function, call_method or output")
    target: Mapped[str] = text("what is called: module path, function or method name")
    module_id: Mapped[int] = number("the called module, or the one whose forward calls; -1: none")
    arguments: Mapped[str] = text('JSON: arguments, tensors as {"tensor": tensor_id}')
    shape: Mapped[str] = text("JSON list: shape of the first output tensor")
    dtype: Mapped[str] = text("number format of the first output tensor")
    stage: Mapped[int] = number("number of points before it that a single storage crosses")

    __table_args__ = (
        *of_profile("node_id"),
        one_of("kind", NODE_KINDS),
        json("arguments"),
        json("shape"),
        options("Calls of the forward pass, inputs and output of the graph."),
    )


class Edge(Base):
    """A tensor that goes from one call to another."""

    __tablename__ = "edges"

    profile_id: Mapped[int] = number("the profile")
    edge_id: Mapped[int] = number("number of the edge")
    src_node_id: Mapped[int] = number("call that makes the tensor")
    dst_node_id: Mapped[int] = number("call that uses it, always later than the first")
    tensor_id: Mapped[int] = number("the tensor; -1: none")
    arg_position: Mapped[int] = number("place among the tensors of the consumer's arguments")
    size_bytes: Mapped[int] = count("bytes of the tensor")
    kind: Mapped[str] = text("data, alias (only viewed) or control (write after read)")

    __table_args__ = (
        *of_profile("edge_id"),
        refers("src_node_id", "nodes", "node_id"),
        refers("dst_node_id", "nodes", "node_id"),
        one_of("kind", EDGE_KINDS),
        deletion_index("src_node_id"),
        deletion_index("dst_node_id"),
        options("Tensors that go from call to call, and orders that writes impose."),
    )


class FlopCount(Base):
    """Arithmetic of a call."""

    __tablename__ = "flop_counts"

    profile_id: Mapped[int] = number("the profile")
    node_id: Mapped[int] = number("the call")
    fwd_macs: Mapped[int] = count("multiply-adds of contractions in forward")
    fwd_pointwise_flops: Mapped[int] = count("FLOPs of everything else in forward")
    bwd_macs: Mapped[int] = count("multiply-adds of contractions in its backward")
    bwd_pointwise_flops: Mapped[int] = count("FLOPs of everything else in its backward")

    __table_args__ = (
        *of_profile("node_id"),
        refers("node_id", "nodes", "node_id"),
        options("Arithmetic of calls: FLOPs are 2 * macs + pointwise_flops."),
    )


class MemStat(Base):
    """Memory of a call."""

    __tablename__ = "mem_stats"

    profile_id: Mapped[int] = number("the profile")
    node_id: Mapped[int] = number("the call")
    fwd_in_bytes: Mapped[int] = count("bytes that existed before and that it saves for backward")
    fwd_tmp_bytes: Mapped[int] = count("bytes born in it, not in its output, alive when it returns")
    fwd_out_bytes: Mapped[int] = count("bytes born in it and reachable from its output")
    fwd_transient_bytes: Mapped[int] = count("highest live bytes in it above what it leaves alive")
    kept_bytes: Mapped[int] = count("bytes born in it and alive when forward ends")
    bwd_tmp_bytes: Mapped[int] = count("highest live bytes of its backward, less the next two")
    bwd_out_bytes: Mapped[int] = count("bytes of gradients of its inputs that its backward leaves")
    grad_bytes: Mapped[int] = count("bytes of parameter gradients that its backward leaves")
    param_bytes: Mapped[int] = count("bytes of parameters that it is the first to use")
    buffer_bytes: Mapped[int] = count("bytes of buffers that it is the first to use")

    __table_args__ = (
        *of_profile("node_id"),
        refers("node_id", "nodes", "node_id"),
        options("Memory of calls: bytes of storages as they live in the eager run."),
    )
