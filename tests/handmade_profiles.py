"""Profiles written down by hand, operator by operator, for queries whose answers are known."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from store.columns import changed, make_record, make_row
from store.records import (
    STORAGE,
    TENSOR,
    Edge,
    FlopCount,
    MemStat,
    Module,
    Node,
    Op,
    Profile,
    ProfileInfo,
    Rows,
    SavedTensor,
    Storage,
    Tensor,
    TensorUse,
    Totals,
)

ITEM_BYTES = 4  # float32 throughout


@dataclass
class Hand:
    """Collects rows; ids are handed out in the order of the calls, as in an execution."""

    model: str = "toy"
    batch_size: int = 4
    modules: list[tuple[Any, ...]] = field(default_factory=list)
    nodes: list[tuple[Any, ...]] = field(default_factory=list)
    edges: list[tuple[Any, ...]] = field(default_factory=list)
    flop_counts: list[tuple[Any, ...]] = field(default_factory=list)
    mem_stats: list[tuple[Any, ...]] = field(default_factory=list)
    ops: list[tuple[Any, ...]] = field(default_factory=list)
    tensors: list[tuple[Any, ...]] = field(default_factory=list)
    uses: list[tuple[Any, ...]] = field(default_factory=list)
    saved: list[tuple[Any, ...]] = field(default_factory=list)
    storages: list[tuple[Any, ...]] = field(default_factory=list)
    _results: dict[int, int] = field(default_factory=dict)

    def module(self, path: str, class_name: str, parent: int = -1, *, leaf: bool = True,
               param_bytes: int = 0, buffer_bytes: int = 0) -> int:  # fmt: skip
        """Add a module and return its id."""
        i = len(self.modules)
        count = param_bytes // ITEM_BYTES
        self.modules.append(make_row(
            Module, module_id=i, path=path, class_name=class_name, parent_id=parent, is_leaf=leaf,
            call_count=1, fw_pre_order=i, fw_post_order=i, param_count=count,
            param_bytes=param_bytes, buffer_bytes=buffer_bytes,
        ))  # fmt: skip
        return i

    def node(self, name: str, kind: str = "call_module", target: str = "", module: int = -1,
             *, macs: tuple[int, int] = (0, 0), pointwise: tuple[int, int] = (0, 0),
             kept: int = 0, grad: int = 0, param: int = 0, buffer: int = 0,
             shape: tuple[int, ...] = ()) -> int:  # fmt: skip
        """Add a call with its counts and return its id."""
        i = len(self.nodes)
        self.nodes.append(make_row(
            Node, node_id=i, name=name, kind=kind, target=target or name, module_id=module,
            arguments="[]", shape=json.dumps(list(shape)), dtype="float32", stage=0,
        ))  # fmt: skip
        self.flop_counts.append(make_row(
            FlopCount, node_id=i, fwd_macs=macs[0], fwd_pointwise_flops=pointwise[0],
            bwd_macs=macs[1], bwd_pointwise_flops=pointwise[1],
        ))  # fmt: skip
        self.mem_stats.append(make_row(
            MemStat, node_id=i, fwd_in_bytes=0, fwd_tmp_bytes=0, fwd_out_bytes=kept,
            fwd_transient_bytes=0, kept_bytes=kept, bwd_tmp_bytes=0, bwd_out_bytes=0,
            grad_bytes=grad, param_bytes=param, buffer_bytes=buffer,
        ))  # fmt: skip
        return i

    def edge(self, src: int, dst: int, tensor: int = 0, size: int = 4, *, kind: str = "data",
             arg: int = 0) -> None:  # fmt: skip
        """Add an edge between two calls."""
        self.edges.append(make_row(
            Edge, edge_id=len(self.edges), src_node_id=src, dst_node_id=dst, tensor_id=tensor,
            arg_position=arg, size_bytes=size, kind=kind,
        ))  # fmt: skip

    def storage(self, size: int, kind: str = "activation", birth: int = -1, death: int = 10**6,
                *, host: bool = False) -> int:  # fmt: skip
        """Add a storage and return its id; a death past the last step means that it stayed."""
        i = len(self.storages)
        self.storages.append(make_row(
            Storage, storage_id=i, size_bytes=size, storage_class=kind, birth_op_id=birth,
            death_op_id=death, is_host=host, block_bytes=size,
            address=-1 if host else i * 2**20,
        ))  # fmt: skip
        return i

    def tensor(self, storage: int, op: int = -1, *, role: str = "activation", name: str = "",
               index: int = 0) -> int:  # fmt: skip
        """Add a tensor over a whole storage and return its id."""
        i = len(self.tensors)
        size = self.storages[storage][STORAGE.size_bytes]
        shape = json.dumps([size // ITEM_BYTES])
        self.tensors.append(make_row(
            Tensor, tensor_id=i, op_id=op, output_index=index, storage_id=storage, shape=shape,
            stride="[1]", storage_offset=0, dtype="float32", size_bytes=size, role=role, name=name,
        ))  # fmt: skip
        return i

    def op(self, operator: str, reads: tuple[int, ...] = (), writes: tuple[int, ...] = (), *,
           node: int = -1, phase: str = "forward", macs: int = 0, pointwise: int = 0,
           size: tuple[int, int] = (0, 0), view: bool = False, status: str = "formula",
           forward: int = -1) -> int:  # fmt: skip
        """Add an operator that reads tensors, then writes others in place; return its id."""
        i = len(self.ops)
        self.ops.append(make_row(
            Op, op_id=i, node_id=node, phase=phase, operator=f"aten.{operator}.default",
            fwd_op_id=forward, arguments="[]", macs=macs, pointwise_flops=pointwise,
            flops_status=status, bytes_read=size[0], bytes_written=size[1], is_view=view,
            is_inplace=bool(writes), is_random=False, assumption="", live_bytes=0,
        ))  # fmt: skip
        for arg, tensor in enumerate(writes + reads):
            mutates = tensor in writes
            self.uses.append(
                make_row(TensorUse, op_id=i, arg_position=arg, tensor_id=tensor, mutates=mutates)
            )
        return i

    def made(self, op: int, size: int, *, kind: str = "activation", death: int = 10**6) -> int:
        """Add a storage that an operator returns, and return the tensor over it."""
        index = self._results.get(op, 0)
        self._results[op] = index + 1
        return self.tensor(self.storage(size, kind, op, death), op, index=index)

    def view(self, op: int, of: int) -> int:
        """Add a tensor that an operator returns over the storage of another."""
        return self.tensor(self.tensors[of][TENSOR.storage_id], op)

    def save(self, tensor: int, node: int, op: int, reason: str) -> None:
        """Add a tensor that a call's operator saves for backward."""
        self.saved.append(make_row(
            SavedTensor, saved_id=len(self.saved), tensor_id=tensor, node_id=node, op_id=op,
            reason=reason,
        ))  # fmt: skip

    def profile(self, **info: Any) -> Profile:
        """Return the rows as a profile, with the totals that follow from them."""
        steps = len(self.ops)
        storages = Rows(Storage, [
            changed(Storage, row, death_op_id=min(row[STORAGE.death_op_id], steps))
            for row in self.storages
        ])  # fmt: skip
        device = [s for s in storages if not s.is_host]
        ops = Rows(Op, [
            changed(Op, row, live_bytes=sum(
                s.size_bytes for s in device if s.birth_op_id <= i <= s.death_op_id
            ))
            for i, row in enumerate(self.ops)
        ])  # fmt: skip
        start = [s for s in device if s.birth_op_id == -1]
        peak = max(ops.column("live_bytes"), default=sum(s.size_bytes for s in start))
        counts = Rows(FlopCount, self.flop_counts)
        sums = {
            name: sum(counts.column(name))
            for name in ("fwd_macs", "bwd_macs", "fwd_pointwise_flops", "bwd_pointwise_flops")
        }
        held = {
            kind: sum(s.size_bytes for s in start if s.storage_class == kind)
            for kind in ("parameter", "buffer", "input")
        }
        values: dict[str, Any] = {
            "zoo": "user", "model": self.model, "package": "", "package_version": "",
            "config": "{}", "batch_size": self.batch_size, "input_spec": "[]",
            "dtype": "float32", "mode": "train", "backward": True, "input_grad": False,
            "target": "cuda", "attention": "auto", "autocast": "", "optimizer": "",
            "capture": "meta", "built_on": "meta", "assumption": "", "assumption_note": "",
            "torch_version": "2.14.1",
            "exporter_version": "0", "structural_hash": "", "created_at": "2026-01-01T00:00:00",
            **info,
        }  # fmt: skip
        totals = make_record(
            Totals, profile_id=-1, zoo=values["zoo"], model=values["model"],
            batch_size=values["batch_size"], dtype=values["dtype"], mode=values["mode"],
            target=values["target"], capture=values["capture"], node_count=len(self.nodes),
            edge_count=len(self.edges), op_count=steps,
            unknown_op_count=ops.column("flops_status").count("unknown"),
            **sums, fwd_flops=2 * sums["fwd_macs"] + sums["fwd_pointwise_flops"],
            bwd_flops=2 * sums["bwd_macs"] + sums["bwd_pointwise_flops"],
            param_count=held["parameter"] // ITEM_BYTES,
            param_bytes=held["parameter"], buffer_bytes=held["buffer"],
            input_bytes=held["input"],
            kept_bytes=sum(Rows(MemStat, self.mem_stats).column("kept_bytes")),
            forward_end_bytes=0, peak_bytes=peak, model_allocated_bytes=held["parameter"],
            forward_allocated_bytes=0, peak_allocated_bytes=peak, peak_reserved_bytes=peak,
            workspace_bytes=0, seconds=0.0,
        )  # fmt: skip
        return Profile(
            info=make_record(ProfileInfo, **values),
            totals=totals,
            modules=Rows(Module, self.modules),
            nodes=Rows(Node, self.nodes),
            edges=Rows(Edge, self.edges),
            flop_counts=counts,
            mem_stats=Rows(MemStat, self.mem_stats),
            ops=ops,
            tensors=Rows(Tensor, self.tensors),
            tensor_uses=Rows(TensorUse, self.uses),
            saved_tensors=Rows(SavedTensor, self.saved),
            storages=storages,
        )


def linear_step() -> Hand:
    """Return one step of ``y = relu(x @ w)`` with ``x`` 4x8, ``w`` 8x2, and its backward.

    Bytes: x 128, w 64, h = x @ w 32, y 32, gradient of y 32, of h 32, of w 64.
    ReLU saves its output y, the product saves x (and w, but x needs no gradient).
    """
    hand = Hand()
    root = hand.module("", "Net", leaf=False)
    fc = hand.module("fc", "Linear", root, param_bytes=64)
    act = hand.module("act", "ReLU", root)
    x_node = hand.node("x", "placeholder")
    fc_node = hand.node("fc", module=fc, macs=(64, 64), kept=0, grad=64, param=64, shape=(4, 2))
    act_node = hand.node("act", module=act, pointwise=(8, 8), kept=32, shape=(4, 2))
    out_node = hand.node("output", "output")
    w = hand.tensor(hand.storage(64, "parameter"), role="parameter", name="fc.weight")
    x = hand.tensor(hand.storage(128, "input"), role="input", name="x")
    hand.op("mm", (x, w), node=fc_node, macs=64, size=(192, 32))
    h = hand.made(0, 32, kind="temporary", death=2)  # the name h goes when forward returns
    hand.op("relu", (h,), node=act_node, pointwise=8, size=(32, 32))
    y = hand.made(1, 32)
    hand.op("ones_like", (y,), phase="backward", size=(0, 32), status="zero_cost")
    gy = hand.made(2, 32, kind="gradient", death=3)
    hand.op("threshold_backward", (gy, y), node=act_node, phase="backward", pointwise=8,
            size=(64, 32), forward=1)  # fmt: skip
    gh = hand.made(3, 32, kind="gradient", death=4)
    hand.op("mm", (x, gh), node=fc_node, phase="backward", macs=64, size=(160, 64), forward=0)
    hand.made(4, 64, kind="gradient")
    hand.save(x, fc_node, 0, "input")
    hand.save(y, act_node, 1, "output")
    hand.edge(x_node, fc_node, x, 128)
    hand.edge(fc_node, act_node, h, 32)
    hand.edge(act_node, out_node, y, 32)
    return hand


def many_storages(count: int = 50_000) -> list[tuple[Any, ...]]:
    """Return rows of as many storages, enough to be interrupted while they are written."""
    first = make_row(
        Storage, storage_id=0, size_bytes=2**40, storage_class="activation", birth_op_id=0,
        death_op_id=0, is_host=False, block_bytes=0, address=0,
    )  # fmt: skip
    return [changed(Storage, first, storage_id=i) for i in range(count)]
