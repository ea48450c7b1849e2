"""Profiles of torchvision's models, and what every profile must satisfy."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING

from exporter.profiling import profile_built
from exporter.zoo.registry import build_model, load_zoo

if TYPE_CHECKING:
    from exporter.settings import Settings
    from store.records import Profile

ZOO = load_zoo("torchvision")
DETECTORS = tuple(n for n in ZOO.names() if "rcnn" in n or n.startswith(("fcos", "retina", "ssd")))
MODELS = tuple(n for n in ZOO.names() if n not in DETECTORS)


@lru_cache(maxsize=2)
def profile_of(name: str, settings: Settings) -> Profile:
    """Return the profile of a zoo model."""
    return profile_built(build_model(ZOO, name, settings), settings)


def live_bytes_by_op(profile: Profile) -> list[int]:
    """Return the device bytes alive at every step, from births and deaths alone."""
    count = profile.totals.op_count
    changes = [0] * (count + 2)
    for storage in profile.storages:
        if not storage.is_host:
            changes[max(storage.birth_op_id, 0)] += storage.size_bytes
            changes[storage.death_op_id + 1] -= storage.size_bytes
    live, found = 0, []
    for change in changes[:count]:
        live += change
        found.append(live)
    return found


def check_profile(profile: Profile) -> None:
    """Assert the invariants that hold for every profile of one complete step."""
    totals = profile.totals
    forward_ops = [op for op in profile.ops if op.phase == "forward"]
    for rows, key in (
        (profile.modules, "module_id"), (profile.nodes, "node_id"), (profile.edges, "edge_id"),
        (profile.flop_counts, "node_id"), (profile.mem_stats, "node_id"), (profile.ops, "op_id"),
        (profile.tensors, "tensor_id"), (profile.saved_tensors, "saved_id"),
        (profile.storages, "storage_id"),
    ):  # fmt: skip
        assert rows.column(key) == list(range(len(rows)))
    assert (totals.node_count, totals.edge_count, totals.op_count) == (
        len(profile.nodes), len(profile.edges), len(profile.ops),
    )  # fmt: skip
    # Memory: the events replayed give every step's level, the peak and the end of forward.
    live = live_bytes_by_op(profile)
    assert live == profile.ops.column("live_bytes")
    assert max(live) == totals.peak_bytes
    end = len(forward_ops) - 1
    at_end = sum(
        s.size_bytes
        for s in profile.storages
        if not s.is_host and s.birth_op_id <= end < s.death_op_id
    )
    assert at_end == totals.forward_end_bytes
    assert at_end == (
        totals.kept_bytes + totals.input_bytes + totals.param_bytes + totals.buffer_bytes
    )
    assert totals.kept_bytes == sum(profile.mem_stats.column("kept_bytes"))
    # Calls: every operator but the seeds of backward belongs to one; edges follow execution.
    orphans = {op.operator for op in profile.ops if op.node_id < 0 and op.phase != "optimizer"}
    assert orphans <= {"aten.ones_like.default"}
    assert all(e.src_node_id < e.dst_node_id for e in profile.edges)
    assert len(set(profile.nodes.column("name"))) == len(profile.nodes)
    phases = profile.ops.column("phase")
    assert phases[: len(forward_ops)] == ["forward"] * len(forward_ops)
    # FLOPs: calls, operators and totals agree.
    assert totals.unknown_op_count == profile.ops.column("flops_status").count("unknown") == 0
    for name, phase in (("fwd", "forward"), ("bwd", "backward")):
        for kind in ("macs", "pointwise_flops"):
            by_op = sum(getattr(op, kind) for op in profile.ops if op.phase == phase)
            assert by_op == getattr(totals, f"{name}_{kind}")
            assert by_op == sum(profile.flop_counts.column(f"{name}_{kind}"))
    _check_traffic(profile)
    # Parameters: modules, storages and totals agree.
    assert sum(profile.modules.column("param_count")) == totals.param_count
    assert sum(profile.modules.column("param_bytes")) == totals.param_bytes
    assert sum(profile.modules.column("buffer_bytes")) == totals.buffer_bytes
    # Geometry: every tensor lies inside its storage.
    sizes = profile.storages.column("size_bytes")
    for tensor in profile.tensors:
        shape, stride = json.loads(tensor.shape), json.loads(tensor.stride)
        if tensor.size_bytes:
            elements = 1
            for size in shape:
                elements *= size
            itemsize = tensor.size_bytes // elements
            last = tensor.storage_offset + sum(
                (n - 1) * step for n, step in zip(shape, stride, strict=True)
            )
            assert (last + 1) * itemsize <= sizes[tensor.storage_id]
    check_addresses(profile)


def _check_traffic(profile: Profile) -> None:
    """Assert that operators read each operand once and write what they make and what they change.

    Views move nothing.
    """
    size_of = profile.tensors.column("size_bytes")
    births = profile.storages.column("birth_op_id")
    read: list[dict[int, int]] = [{} for _ in profile.ops]
    written = [0] * len(profile.ops)
    for use in profile.tensor_uses:
        read[use.op_id][use.tensor_id] = size_of[use.tensor_id]
        written[use.op_id] += size_of[use.tensor_id] * use.mutates
    returned = set()  # a number that autograd saves is found later, at its operator's place
    for tensor in profile.tensors:
        place = tensor.op_id, tensor.output_index
        if births[tensor.storage_id] == tensor.op_id >= 0 and place not in returned:
            written[tensor.op_id] += tensor.size_bytes
        returned.add(place)
    for op in profile.ops:
        expected = (0, 0) if op.is_view else (sum(read[op.op_id].values()), written[op.op_id])
        assert (op.bytes_read, op.bytes_written) == expected, op


def check_addresses(profile: Profile) -> None:
    """Assert that blocks hold their storages and never overlap while both live."""
    events = []
    for s in profile.storages:
        if s.address >= 0:
            assert s.block_bytes >= s.size_bytes
            assert s.address + s.block_bytes <= profile.totals.peak_reserved_bytes or (
                profile.totals.target != "cuda"
            )
            events.append((s.birth_op_id, 1, s.address, s.address + s.block_bytes))
            events.append((s.death_op_id, 2, s.address, s.address + s.block_bytes))
    events.sort()
    starts: dict[int, int] = {}
    import bisect  # noqa: PLC0415  # only here

    order: list[int] = []
    for _, kind, start, end in events:
        i = bisect.bisect_left(order, start)
        if kind == 1:
            assert i == 0 or starts[order[i - 1]] <= start
            assert i == len(order) or end <= order[i]
            order.insert(i, start)
            starts[start] = end
        else:
            assert order.pop(i) == start
            del starts[start]
