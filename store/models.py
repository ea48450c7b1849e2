"""The tables of models, profiles and devices; importing it makes the whole schema known."""

from __future__ import annotations

from sqlalchemy import ForeignKeyConstraint, UniqueConstraint
from sqlalchemy.orm import Mapped  # noqa: TC002  # read by SQLAlchemy when the class is made

from store import call_models, op_models
from store.base import Base, count, flag, json, number, one_of, real, surrogate, text
from store.records import CAPTURES, MODES, TARGETS

__all__ = ["Base", "Device", "Model", "ProfileRow", "call_models", "op_models"]


class Model(Base):
    """A model as its zoo builds it."""

    __tablename__ = "models"

    model_id: Mapped[int] = surrogate("number of the model")
    identity: Mapped[str] = text("SHA-256 of the columns below")
    zoo: Mapped[str] = text("where the model comes from: torchvision, ..., user")
    name: Mapped[str] = text("name of the model in its zoo")
    package: Mapped[str] = text("distribution that defines the model; '' if unknown")
    package_version: Mapped[str] = text("version of that distribution; '' if unknown")
    config: Mapped[str] = text("JSON object: the configuration asked for")
    param_count: Mapped[int] = count("elements of all parameters, shared ones once")
    param_bytes: Mapped[int] = count("bytes of all parameters")
    buffer_bytes: Mapped[int] = count("bytes of all buffers")

    __table_args__ = (
        UniqueConstraint("identity"),
        json("config"),
        {"comment": "Models as their zoos build them.", "sqlite_autoincrement": True},
    )


class ProfileRow(Base):
    """One model under one configuration, with its totals."""

    __tablename__ = "profiles"

    profile_id: Mapped[int] = surrogate("number of the profile; never given out again")
    model_id: Mapped[int] = number("the model that was profiled")
    identity: Mapped[str] = text("SHA-256 of the settings and schema version: what makes it unique")
    schema_version: Mapped[str] = text("revision of the schema that the profile was written in")
    batch_size: Mapped[int] = count("samples in the input")
    input_spec: Mapped[str] = text('JSON: the inputs, such as ["float32[4, 3, 224, 224]"]')
    dtype: Mapped[str] = text("number format of parameters and inputs, such as float32")
    mode: Mapped[str] = text("train or eval")
    backward: Mapped[int] = number("1 if the backward pass was run")
    input_grad: Mapped[int] = number("1 if gradients of the inputs were asked for")
    target: Mapped[str] = text("device whose kernels the profile describes: cuda, cpu or meta")
    attention: Mapped[str] = text("attention kernel: auto, flash, efficient or math")
    autocast: Mapped[str] = text("number format of autocast; '' without")
    optimizer: Mapped[str] = text("optimizer whose step was run; '' without")
    capture: Mapped[str] = text("meta, or concrete if the model had to be run with real values")
    built_on: Mapped[str] = text("device that the constructor ran on: meta or cpu")
    assumption: Mapped[str] = text("assumption about unknown values that was asked for; '' without")
    torch_version: Mapped[str] = text("version of torch")
    exporter_version: Mapped[str] = text("version of this program")
    structural_hash: Mapped[str] = text("equal for equal operator sequences on equal shapes")
    created_at: Mapped[str] = text("UTC, ISO 8601")
    node_count: Mapped[int] = count("rows in nodes")
    edge_count: Mapped[int] = count("rows in edges")
    op_count: Mapped[int] = count("rows in ops")
    unknown_op_count: Mapped[int] = count("ops without a formula: if not 0, FLOPs are lower bounds")
    fwd_macs: Mapped[int] = count("multiply-adds of contractions in forward")
    bwd_macs: Mapped[int] = count("multiply-adds of contractions in backward")
    fwd_pointwise_flops: Mapped[int] = count("FLOPs of everything else in forward")
    bwd_pointwise_flops: Mapped[int] = count("FLOPs of everything else in backward")
    fwd_flops: Mapped[int] = count("FLOPs of forward: 2 * fwd_macs + fwd_pointwise_flops")
    bwd_flops: Mapped[int] = count("FLOPs of backward: 2 * bwd_macs + bwd_pointwise_flops")
    input_bytes: Mapped[int] = count("bytes of the inputs")
    kept_bytes: Mapped[int] = count("bytes of activations alive when forward ends")
    forward_end_bytes: Mapped[int] = count(
        "bytes alive when forward ends, model and inputs included"
    )
    peak_bytes: Mapped[int] = count("highest number of live bytes, as requested")
    model_allocated_bytes: Mapped[int] = count("bytes that the allocator holds for the model alone")
    forward_allocated_bytes: Mapped[int] = count("allocated bytes when forward ends")
    peak_allocated_bytes: Mapped[int] = count("highest number of allocated bytes")
    peak_reserved_bytes: Mapped[int] = count("highest number of bytes reserved from the device")
    workspace_bytes: Mapped[int] = count("bytes of the matrix library's workspace, in no other sum")
    seconds: Mapped[float] = real("seconds from capture to finished records")

    __table_args__ = (
        ForeignKeyConstraint(["model_id"], ["models.model_id"]),
        UniqueConstraint("identity"),
        one_of("mode", MODES),
        one_of("target", TARGETS),
        one_of("capture", CAPTURES),
        flag("backward"),
        flag("input_grad"),
        json("input_spec"),
        {
            "comment": "Models under one configuration each, with totals.",
            "sqlite_autoincrement": True,
        },
    )


class Device(Base):
    """What a device can do in one number format."""

    __tablename__ = "devices"

    device_id: Mapped[int] = surrogate("number of the row")
    name: Mapped[str] = text("name of the device")
    dtype: Mapped[str] = text("number format that the rate is for, such as bfloat16")
    peak_flops_per_second: Mapped[int] = count("highest FLOP/s in this number format")
    bandwidth_bytes_per_second: Mapped[int] = count("bytes that its memory moves per second")
    memory_bytes: Mapped[int] = count("bytes of its memory")
    launch_overhead_us: Mapped[int] = count("microseconds that starting a kernel adds")
    source: Mapped[str] = text("where the figures come from")

    __table_args__ = (
        UniqueConstraint("name", "dtype"),
        {
            "comment": "Devices for time estimates, a row per number format; add your own.",
            "sqlite_autoincrement": True,
        },
    )
