"""Calls: what a person calls a node of the model's graph.

A torch-function mode sees every torch function and tensor method that is called outside a leaf
module; global forward hooks see modules. Calls do not nest: a leaf module or an outermost function
is one call, whatever runs inside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.overrides import TorchFunctionMode

from exporter.capture.arguments import argument_text, tensors_in
from exporter.capture.call_spans import OpenCall, Span
from exporter.capture.naming import FUNCTIONS, is_leaf, name_function
from exporter.capture.recompute import Recomputation
from exporter.capture.values import factories
from store.columns import check_order
from store.records import NODE, OP, Edge, Node

if TYPE_CHECKING:
    from exporter.capture.state import Recording, TensorRecord


# The columns of the rows that are written down below, in their order.
_PLACE = "exporter/capture/calls.py"
check_order(
    Node,
    ("node_id", "name", "kind", "target", "module_id", "arguments", "shape", "dtype", "stage"),
    _PLACE,
)
_EDGE_COLUMNS = ("src_node_id", "dst_node_id", "tensor_id", "arg_position", "size_bytes", "kind")
check_order(Edge, ("edge_id", *_EDGE_COLUMNS), _PLACE)

_transform_level = torch._C._functorch.maybe_current_level
_mode_count = torch._C._len_torch_function_stack
_mode_at = torch._C._get_function_stack_at
_push_mode = torch._C._push_on_torch_function_stack
_pop_mode = torch._C._pop_torch_function_stack


class CallTracker(TorchFunctionMode):
    """Records calls, their edges, and the modules' order, in forward; follows recomputation."""

    def __init__(self, recording: Recording, model: nn.Module) -> None:
        super().__init__()
        self.recording = recording
        self.module_ids: dict[int, int] = {}
        self.paths: list[str] = []
        self.modules: list[nn.Module] = []
        self.leaves: list[bool] = []
        for path, module in model.named_modules():
            self._add_module(path, module)
        self.call_counts = [0] * len(self.paths)
        self.pre_orders = [-1] * len(self.paths)
        self.post_orders = [-1] * len(self.paths)
        self.nodes: list[list[Any]] = []
        # Without their number: ``_EDGE_COLUMNS``.
        self.edges: list[tuple[int, int, int, int, int, str]] = []
        self.spans: list[Span] = []
        self.executions: dict[int, list[tuple[int, int]]] = {}  # module -> node ranges
        self._entered = self._exited = 0
        self._stack: list[tuple[int, int]] = []  # non-leaf modules: id, first node
        self._open: OpenCall | None = None
        self._depth = 0  # inside a leaf module
        self._hidden = False  # nothing inside a leaf module is a call, so functions go unseen
        self._names: dict[str, int] = {}
        self._handles: list[Any] = []
        self._recomputation: Recomputation | None = None

    # --- lifetime -------------------------------------------------------------------------------

    def attach(self) -> None:
        """Begin to see modules; ``with`` the tracker begins to see functions."""
        self._handles = [
            register_module_forward_pre_hook(self._before),
            register_module_forward_hook(self._after, with_kwargs=True, always_call=True),
        ]

    def detach(self) -> None:
        """Stop seeing modules."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def __exit__(self, *error: object) -> None:
        """Stop seeing functions."""
        if not self._hidden:
            super().__exit__(*error)  # type: ignore[no-untyped-call]

    # --- functions ------------------------------------------------------------------------------

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run one torch function as a call."""
        kwargs = kwargs or {}
        if self._depth:
            return func(*args, **kwargs)
        recording = self.recording
        if recording.phase != "forward":
            return self._run_again(func, args, kwargs)
        special = factories.SPECIAL.get(func)
        if special is not None:
            func, args, kwargs = special(recording, func, args, kwargs)
            if func is factories.identity:
                return args[0]
        if _transform_level() is not None:  # inside vmap, tensors stand for slices of others
            return func(*args, **kwargs)
        named = FUNCTIONS.get(func) or name_function(func)
        name, kind = named
        if not kind:
            return self._access(name, func, args, kwargs)
        outer, previous = self._open, recording.node
        self._open = opened = OpenCall(
            kind, name, name, self._stack[-1][0] if self._stack else 0, recording
        )
        recording.node = -1
        try:
            result = func(*args, **kwargs)
            if recording.node >= 0 or isinstance(result, Tensor):
                if func is Tensor.__deepcopy__:
                    args = args[:1]  # the other one is what has been copied before
                self._close(opened, args, kwargs, result)
        finally:
            self._open, recording.node = outer, previous
        return result

    def _access(self, name: str, func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        """Read or write a tensor's attribute: a call only where it runs an operator."""
        result = func(*args, **kwargs)
        if name == "__set__":
            args[0].__dict__.pop("_ep", None)  # `tensor.data = other` gives it another storage
        return result

    def _run_again(self, func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        """Run a function during backward: part of a recomputation, or of a custom backward."""
        if not torch.is_grad_enabled() or self._recomputation is None:
            return func(*args, **kwargs)
        name = getattr(func, "__name__", type(func).__name__).strip("_")
        module_id = self._stack[-1][0] if self._stack else 0
        self._recomputation.enter(name, module_id)
        try:
            return func(*args, **kwargs)
        finally:
            self._recomputation.leave()

    # --- modules --------------------------------------------------------------------------------

    def _before(self, module: nn.Module, args: Any) -> None:
        if self._depth:
            self._depth += 1
            return
        module_id = self.module_ids.get(id(module), -1)
        if module_id < 0:
            module_id = self._add_module(self._path_of_stranger(module), module)
            self.call_counts.append(0)
            self.pre_orders.append(-1)
            self.post_orders.append(-1)
        recording = self.recording
        forward = recording.phase == "forward"
        if forward:
            self.call_counts[module_id] += 1
            if self.pre_orders[module_id] < 0:
                self.pre_orders[module_id] = self._entered
                self._entered += 1
        if self.leaves[module_id]:
            self._depth = 1
            self._hide()
            if forward:
                path = self.paths[module_id] or type(module).__name__.lower()
                self._open = OpenCall("call_module", path, path, module_id, recording)
                recording.node = -1
                if module._forward_pre_hooks:  # they may put something else in its place
                    self._open.given = [recording.known(tensor) for tensor in tensors_in(args)]
            elif self._recomputation is not None:
                self._recomputation.enter(self.paths[module_id], module_id)
        else:
            if not forward and self._recomputation is not None and torch.is_grad_enabled():
                self._recomputation.enter_module(module_id)
            self._stack.append((module_id, len(self.nodes)))

    def _hide(self) -> None:
        """See no functions until the leaf module ends."""
        modes = _mode_count()
        if modes and _mode_at(modes - 1) is self:
            _pop_mode()
            self._hidden = True

    def _after(self, module: nn.Module, args: Any, *rest: Any) -> None:
        # Called with (kwargs, output), or with one value where forward raised.
        kwargs, output = rest if len(rest) == 2 else ({}, None)
        if self._depth > 1:
            self._depth -= 1
            return
        recording = self.recording
        forward = recording.phase == "forward"
        module_id = self.module_ids[id(module)]
        if forward and self.post_orders[module_id] < 0:
            self.post_orders[module_id] = self._exited
            self._exited += 1
        if self._depth == 1:
            self._depth = 0
            if forward:
                opened, self._open = self._open, None
                if opened is not None:
                    self._close(opened, args, kwargs, output)
                recording.node = -1
            elif self._recomputation is not None:
                self._recomputation.leave()
            if self._hidden:
                self._hidden = False
                _push_mode(self)
        elif self._stack:
            _, first = self._stack.pop()
            if forward:
                self.executions.setdefault(module_id, []).append((first, len(self.nodes)))

    def _add_module(self, path: str, module: nn.Module) -> int:
        module_id = len(self.paths)
        self.module_ids[id(module)] = module_id
        self.paths.append(path)
        self.modules.append(module)  # kept: its identity is its address
        self.leaves.append(is_leaf(module))
        return module_id

    def _path_of_stranger(self, module: nn.Module) -> str:
        """Return a path for a module that the model does not list, made during forward."""
        parent = self.paths[self._stack[-1][0]] if self._stack else ""
        name = f"<{type(module).__name__.lower()}_{len(self.paths)}>"
        return f"{parent}.{name}" if parent else name

    # --- nodes and edges ------------------------------------------------------------------------

    def node_for_op(self, operator: str) -> int:
        """Return the call that the current operator belongs to, begun if it has no node yet."""
        recording = self.recording
        opened = self._open
        if opened is not None:
            node_id = self._add_node(opened.name, opened.kind, opened.target, opened.module_id)
            recording.node = node_id
            return node_id
        # An operator outside every call, run by C++ code or a script: a call of its own.
        name = operator.split(".")[1]
        module_id = self._stack[-1][0] if self._stack else 0
        node_id = self._add_node(name, "call_function", operator, module_id)
        op_id = recording.op_count
        self.spans.append(Span(node_id, op_id, op_id + 1, recording.live_bytes, 0, 0, []))
        return node_id

    def add_input(self, name: str, known: TensorRecord) -> None:
        """Add a node for an input tensor."""
        node_id = self._add_node(name, "placeholder", name, 0)
        node = self.nodes[node_id]
        node[NODE.arguments] = f'[{{"tensor": {known.tensor_id}}}]'
        node[NODE.shape], node[NODE.dtype] = known.spec.shape_json, known.spec.dtype_name
        known.node = node_id

    def add_output(self, result: Any) -> None:
        """Add the node that gathers the model's outputs."""
        node_id = self._add_node("output", "output", "output", 0)
        inputs, self.nodes[node_id][NODE.arguments] = self._operands((result,), {})
        self._link(node_id, inputs, "data")

    def recomputed(self, operator: str) -> tuple[int, int]:
        """Return the call and the forward operator that a recomputed operator repeats."""
        if self._recomputation is None:
            return -1, -1
        return self._recomputation.locate(operator)

    def begin_backward(self) -> None:
        """Prepare to recognise recomputed calls."""
        self._recomputation = Recomputation(self.recording, self.nodes, self.spans, self.executions)

    def _add_node(self, name: str, kind: str, target: str, module_id: int) -> int:
        node_id = len(self.nodes)
        names = self._names
        unique = name
        if name in names:  # "add", "add_1", "add_2", ... skipping names that are paths
            count = names[name]
            while unique in names:
                count += 1
                unique = f"{name}_{count}"
            names[name] = count
        names[unique] = 0
        self.nodes.append([node_id, unique, kind, target, module_id, "[]", "[]", "", 0])
        return node_id

    def _close(self, opened: OpenCall, args: Any, kwargs: Any, result: Any) -> None:
        """Finish a call: its row, its edges, what it leaves alive."""
        recording = self.recording
        node_id = recording.node
        if node_id < 0:
            node_id = self._add_node(opened.name, opened.kind, opened.target, opened.module_id)
        op_end = recording.op_count
        if op_end > opened.op_begin:
            recording.claim_sequence_numbers(op_end - 1)  # of nodes made after the last operator
        edge_kind = "alias"
        for row in recording.ops[opened.op_begin : op_end]:
            if not row[OP.is_view]:
                edge_kind = "data"
                break
        node = self.nodes[node_id]
        inputs, node[NODE.arguments] = self._operands(args, kwargs)
        if opened.given is not None:
            inputs = list({id(known): known for known in (*opened.given, *inputs)}.values())
        self._link(node_id, inputs, edge_kind)
        if recording.written:
            self._order_writes(node_id)
        homes: list[int] = []
        for tensor in (result,) if type(result) is Tensor else tensors_in(result):
            known = recording.known(tensor)
            if not homes:
                node[NODE.shape], node[NODE.dtype] = known.spec.shape_json, known.spec.dtype_name
            known.node = node_id
            homes.append(known.storage.storage_id)
        tmp, out = self._left_alive(opened.storage_begin, homes)
        self.spans.append(
            Span(node_id, opened.op_begin, op_end, opened.live_begin, tmp, out, homes)
        )

    def _left_alive(self, begin: int, homes: list[int]) -> tuple[int, int]:
        """Return the bytes that a call leaves alive: beside its output, and in it."""
        tmp = out = 0
        storages = self.recording.storages
        for i in range(begin, len(storages)):
            storage = storages[i]
            if storage.death < 0 <= storage.birth and not storage.host:
                if i in homes:
                    out += storage.size_bytes
                else:
                    tmp += storage.size_bytes
        return tmp, out

    def _tensor_text(self, tensor: Tensor) -> str:
        return f'{{"tensor": {self.recording.known(tensor).tensor_id}}}'

    def _operands(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[TensorRecord], str]:
        """Return the tensors among a call's arguments, and all arguments as text."""
        recording = self.recording
        inputs: list[TensorRecord] = []
        texts: list[str] = []
        for value in args:
            cls = type(value)
            if cls is Tensor or cls is Parameter:
                known = recording.known(value)
                inputs.append(known)
                texts.append(f'{{"tensor": {known.tensor_id}}}')
            elif cls is int:
                texts.append(str(value))
            else:
                inputs += map(recording.known, tensors_in(value))
                texts.append(argument_text(value, self._tensor_text))
        if kwargs:
            inputs += map(recording.known, tensors_in(kwargs))
            texts.append(argument_text(kwargs, self._tensor_text))
        return inputs, f"[{', '.join(texts)}]"

    def _link(self, node_id: int, inputs: list[TensorRecord], kind: str) -> None:
        """Add the edges of a call's operands, from who returned or last wrote them."""
        for position, known in enumerate(inputs):
            storage = known.storage
            source = max(known.node, storage.last_writer)
            if 0 <= source != node_id:
                size = known.spec.size_bytes
                self.edges.append((source, node_id, known.tensor_id, position, size, kind))
            if storage.readers is None:
                storage.readers = [node_id]
            else:
                storage.readers.append(node_id)

    def _order_writes(self, node_id: int) -> None:
        """A write waits for the calls that read the storage before it."""
        for storage in self.recording.written:
            if node_id in (storage.node, storage.last_writer):  # a set is slower
                continue
            for reader in dict.fromkeys(storage.readers or ()):
                if reader != node_id and storage.first is not None:
                    tensor_id = storage.first.tensor_id
                    self.edges.append((reader, node_id, tensor_id, 0, 0, "control"))
            storage.last_writer = node_id
            storage.readers = [node_id]
        self.recording.written.clear()
