"""Profiles written down by hand, operator by operator, for queries whose answers are known."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from store.records import (
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
    ops: list[list[Any]] = field(default_factory=list)
    tensors: list[tuple[Any, ...]] = field(default_factory=list)
    uses: list[tuple[Any, ...]] = field(default_factory=list)
    saved: list[tuple[Any, ...]] = field(default_factory=list)
    storages: list[list[Any]] = field(default_factory=list)
    _results: dict[int, int] = field(default_factory=dict)

    def module(self, path: str, class_name: str, parent: int = -1, *, leaf: bool = True,
               param_bytes: int = 0, buffer_bytes: int = 0) -> int:  # fmt: skip
        """Add a module and return its id."""
        i = len(self.modules)
        count = param_bytes // ITEM_BYTES
        self.modules.append(
            (i, path, class_name, parent, leaf, 1, i, i, count, param_bytes, buffer_bytes)
        )
        return i

    def node(self, name: str, kind: str = "call_module", target: str = "", module: int = -1,
             *, macs: tuple[int, int] = (0, 0), pointwise: tuple[int, int] = (0, 0),
             kept: int = 0, grad: int = 0, param: int = 0, buffer: int = 0,
             shape: tuple[int, ...] = ()) -> int:  # fmt: skip
        """Add a call with its counts and return its id."""
        i = len(self.nodes)
        self.nodes.append(
            (i, name, kind, target or name, module, "[]", json.dumps(list(shape)), "float32", 0)
        )
        self.flop_counts.append((i, macs[0], pointwise[0], macs[1], pointwise[1]))
        self.mem_stats.append((i, 0, 0, kept, 0, kept, 0, 0, grad, param, buffer))
        return i

    def edge(self, src: int, dst: int, tensor: int = 0, size: int = 4, *, kind: str = "data",
             arg: int = 0) -> None:  # fmt: skip
        """Add an edge between two calls."""
        self.edges.append((len(self.edges), src, dst, tensor, arg, size, kind))

    def storage(self, size: int, kind: str = "activation", birth: int = -1, death: int = 10**6,
                *, host: bool = False) -> int:  # fmt: skip
        """Add a storage and return its id; a death past the last step means that it stayed."""
        i = len(self.storages)
        self.storages.append([i, size, kind, birth, death, host, size, -1 if host else i * 2**20])
        return i

    def tensor(self, storage: int, op: int = -1, *, role: str = "activation", name: str = "",
               index: int = 0) -> int:  # fmt: skip
        """Add a tensor over a whole storage and return its id."""
        i = len(self.tensors)
        size = self.storages[storage][1]
        shape = json.dumps([size // ITEM_BYTES])
        self.tensors.append((i, op, index, storage, shape, "[1]", 0, "float32", size, role, name))
        return i

    def op(self, operator: str, reads: tuple[int, ...] = (), writes: tuple[int, ...] = (), *,
           node: int = -1, phase: str = "forward", macs: int = 0, pointwise: int = 0,
           size: tuple[int, int] = (0, 0), view: bool = False, status: str = "formula",
           forward: int = -1) -> int:  # fmt: skip
        """Add an operator that reads tensors, then writes others in place; return its id."""
        i = len(self.ops)
        self.ops.append([i, node, phase, f"aten.{operator}.default", forward, "[]", macs, pointwise,
                         status, *size, view, bool(writes), False, "", 0])  # fmt: skip
        for arg, tensor in enumerate(writes + reads):
            self.uses.append((i, arg, tensor, tensor in writes))
        return i

    def made(self, op: int, size: int, *, kind: str = "activation", death: int = 10**6) -> int:
        """Add a storage that an operator returns, and return the tensor over it."""
        index = self._results.get(op, 0)
        self._results[op] = index + 1
        return self.tensor(self.storage(size, kind, op, death), op, index=index)

    def view(self, op: int, of: int) -> int:
        """Add a tensor that an operator returns over the storage of another."""
        return self.tensor(self.tensors[of][3], op)

    def profile(self, **info: Any) -> Profile:
        """Return the rows as a profile, with the totals that follow from them."""
        steps = len(self.ops)
        for row in self.storages:
            row[4] = min(row[4], steps)
        device = [s for s in self.storages if not s[5]]
        for i, op in enumerate(self.ops):
            op[-1] = sum(s[1] for s in device if s[3] <= i <= s[4])
        before = sum(s[1] for s in device if s[3] == -1)
        peak = max((op[-1] for op in self.ops), default=before)
        sums = [sum(row[i] for row in self.flop_counts) for i in range(1, 5)]
        held = {
            kind: sum(s[1] for s in device if s[2] == kind and s[3] == -1)
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
        totals = Totals(
            profile_id=-1, zoo=values["zoo"], model=values["model"],
            batch_size=values["batch_size"], dtype=values["dtype"], mode=values["mode"],
            target=values["target"], capture=values["capture"], node_count=len(self.nodes),
            edge_count=len(self.edges), op_count=steps,
            unknown_op_count=sum(op[8] == "unknown" for op in self.ops),
            fwd_macs=sums[0], bwd_macs=sums[2], fwd_pointwise_flops=sums[1],
            bwd_pointwise_flops=sums[3], fwd_flops=2 * sums[0] + sums[1],
            bwd_flops=2 * sums[2] + sums[3], param_count=held["parameter"] // ITEM_BYTES,
            param_bytes=held["parameter"], buffer_bytes=held["buffer"],
            input_bytes=held["input"], kept_bytes=sum(row[5] for row in self.mem_stats),
            forward_end_bytes=0, peak_bytes=peak, model_allocated_bytes=held["parameter"],
            forward_allocated_bytes=0, peak_allocated_bytes=peak, peak_reserved_bytes=peak,
            workspace_bytes=0, seconds=0.0,
        )  # fmt: skip
        return Profile(
            info=ProfileInfo(**values),
            totals=totals,
            modules=Rows(Module, self.modules),
            nodes=Rows(Node, self.nodes),
            edges=Rows(Edge, self.edges),
            flop_counts=Rows(FlopCount, self.flop_counts),
            mem_stats=Rows(MemStat, self.mem_stats),
            ops=Rows(Op, [tuple(op) for op in self.ops]),
            tensors=Rows(Tensor, self.tensors),
            tensor_uses=Rows(TensorUse, self.uses),
            saved_tensors=Rows(SavedTensor, self.saved),
            storages=Rows(Storage, [tuple(s) for s in self.storages]),
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
    hand.saved += [(0, x, fc_node, 0, "input"), (1, y, act_node, 1, "output")]
    hand.edge(x_node, fc_node, x, 128)
    hand.edge(fc_node, act_node, h, 32)
    hand.edge(act_node, out_node, y, 32)
    return hand
