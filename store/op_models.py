"""The tables of a profile's operators, tensors and storages."""

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
from store.records import FLOPS_STATUSES, PHASES, SAVED_REASONS, STORAGE_CLASSES, TENSOR_ROLES


class Op(Base):
    """An executed aten operator."""

    __tablename__ = "ops"

    profile_id: Mapped[int] = number("the profile")
    op_id: Mapped[int] = number("number of the operator, in execution order: the step")
    node_id: Mapped[int] = number("call it belongs to; -1: output gradients and optimizer")
    phase: Mapped[str] = text("forward, backward, recompute or optimizer")
    operator: Mapped[str] = text("name and overload, such as aten.convolution.default")
    fwd_op_id: Mapped[int] = number("forward operator that it differentiates or repeats; -1: none")
    arguments: Mapped[str] = text("JSON: arguments in the order of the schema, tensors as null")
    macs: Mapped[int] = count("multiply-adds of contractions")
    pointwise_flops: Mapped[int] = count("FLOPs of everything else")
    flops_status: Mapped[str] = text("formula, zero_cost or unknown (both counts are then 0)")
    bytes_read: Mapped[int] = count("bytes of its tensor arguments")
    bytes_written: Mapped[int] = count("bytes of its results")
    is_view: Mapped[int] = number("1 if its result shares an argument's storage")
    is_inplace: Mapped[int] = number("1 if it writes into an argument")
    is_random: Mapped[int] = number("1 if it draws random numbers")
    assumption: Mapped[str] = text("assumption about unknown values that it used; '' without")
    live_bytes: Mapped[int] = count("bytes alive on the device when it returned, as requested")

    __table_args__ = (
        *of_profile("op_id"),
        one_of("phase", PHASES),
        one_of("flops_status", FLOPS_STATUSES),
        flag("is_view"),
        flag("is_inplace"),
        flag("is_random"),
        json("arguments"),
        options("Executed aten operators of forward, backward and optimizer."),
    )


class Storage(Base):
    """Bytes with one birth and one death."""

    __tablename__ = "storages"

    profile_id: Mapped[int] = number("the profile")
    storage_id: Mapped[int] = number("number of the storage, in the order of births")
    size_bytes: Mapped[int] = count("bytes, as requested")
    storage_class: Mapped[str] = text(
        "parameter, buffer, input, activation, temporary, gradient or optimizer"
    )
    birth_op_id: Mapped[int] = number("first step it is alive at; -1: before the first operator")
    death_op_id: Mapped[int] = number("last step it is alive at; op_count: it outlives the run")
    is_host: Mapped[int] = number("1 if in host memory: in no sum of device memory")
    block_bytes: Mapped[int] = count("bytes of the allocator's block; size_bytes unless for cuda")
    address: Mapped[int] = count("planned address of the block; -1 for host or empty storages")

    __table_args__ = (
        *of_profile("storage_id"),
        one_of("storage_class", STORAGE_CLASSES),
        flag("is_host"),
        options("Bytes with one birth and one death."),
    )


class Tensor(Base):
    """A view of a storage."""

    __tablename__ = "tensors"

    profile_id: Mapped[int] = number("the profile")
    tensor_id: Mapped[int] = number("number of the tensor, in the order of appearance")
    op_id: Mapped[int] = number("operator that returned it; -1: it existed before")
    output_index: Mapped[int] = number("place among the operator's results")
    storage_id: Mapped[int] = number("the storage that it views")
    shape: Mapped[str] = text("JSON list: elements per dimension")
    stride: Mapped[str] = text("JSON list: elements between neighbours per dimension")
    storage_offset: Mapped[int] = count("elements before its first in the storage")
    dtype: Mapped[str] = text("number format, such as float32")
    size_bytes: Mapped[int] = count("bytes of its elements")
    role: Mapped[str] = text(
        "parameter, buffer, input, constant, activation, gradient or optimizer"
    )
    name: Mapped[str] = text("name of a parameter, buffer or input; else ''")

    __table_args__ = (
        *of_profile("tensor_id"),
        refers("storage_id", "storages", "storage_id"),
        one_of("role", TENSOR_ROLES),
        json("shape"),
        json("stride"),
        deletion_index("storage_id"),
        options("Tensors that operators returned, or that existed before the first."),
    )


class TensorUse(Base):
    """An operator reads or writes a tensor."""

    __tablename__ = "tensor_uses"

    profile_id: Mapped[int] = number("the profile")
    op_id: Mapped[int] = number("operator that uses the tensor")
    arg_position: Mapped[int] = number("place among the leaves of the operator's arguments")
    tensor_id: Mapped[int] = number("the tensor")
    mutates: Mapped[int] = number("1 if the operator writes into it")

    __table_args__ = (
        *of_profile("op_id", "arg_position"),
        refers("op_id", "ops", "op_id"),
        refers("tensor_id", "tensors", "tensor_id"),
        flag("mutates"),
        deletion_index("tensor_id"),
        options("Which operator reads or writes which tensor."),
    )


class SavedTensor(Base):
    """A tensor that autograd keeps for backward."""

    __tablename__ = "saved_tensors"

    profile_id: Mapped[int] = number("the profile")
    saved_id: Mapped[int] = number("number of the row")
    tensor_id: Mapped[int] = number("the tensor")
    node_id: Mapped[int] = number("forward call that saved it")
    op_id: Mapped[int] = number("forward operator that saved it")
    reason: Mapped[str] = text("what it is to the call: input, intermediate or output")

    __table_args__ = (
        *of_profile("saved_id"),
        refers("tensor_id", "tensors", "tensor_id"),
        refers("node_id", "nodes", "node_id"),
        refers("op_id", "ops", "op_id"),
        one_of("reason", SAVED_REASONS),
        deletion_index("tensor_id"),
        deletion_index("node_id"),
        deletion_index("op_id"),
        options("Tensors that autograd keeps for backward when forward ends."),
    )
