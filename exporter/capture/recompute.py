"""Recognising recomputed calls: which call of the forward pass a repeated one repeats."""

from __future__ import annotations

import functools
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import torch

from store.records import NODE, OP

if TYPE_CHECKING:
    from exporter.capture.call_spans import Span
    from exporter.capture.state import Recording


class Recomputation:
    """Matches what activation checkpointing runs during backward to the forward pass.

    Within one recomputation calls come in the order of the forward pass. Where it starts is known
    from the autograd node that asked for it: that node's call lies in the repeated region.
    """

    def __init__(
        self,
        recording: Recording,
        nodes: list[list[Any]],
        spans: list[Span],
        executions: dict[int, list[tuple[int, int]]],
    ) -> None:
        self._recording = recording
        self._executions = executions
        self._forward = nodes, spans
        self._cursor = -1  # first node that the next call may repeat; -1: a new session
        self._session = -1  # number of the last operator of the session
        self._node = -1
        self._op = -1

    @functools.cached_property  # most models recompute nothing
    def _spans(self) -> dict[int, Span]:
        return {span.node_id: span for span in self._forward[1]}

    @functools.cached_property
    def _calls(self) -> dict[tuple[str, int], list[int]]:
        """The calls of the forward pass, by target and module."""
        calls: dict[tuple[str, int], list[int]] = {}
        for node in self._forward[0]:
            call = node[NODE.target], node[NODE.module_id]
            calls.setdefault(call, []).append(node[NODE.node_id])
        return calls

    def enter_module(self, module_id: int) -> None:
        """Begin a module that is made of others."""
        if self._fresh():
            anchor = self._anchor()
            for first, end in self._executions.get(module_id, ()):
                if first <= anchor < end:
                    self._cursor = first

    def enter(self, target: str, module_id: int) -> None:
        """Begin a call."""
        fresh = self._fresh()
        calls = self._calls.get((target, module_id), [])
        if fresh and self._cursor < 0:
            anchor = self._anchor()
            earlier = [node for node in calls if node <= anchor]
            self._node = earlier[-1] if earlier else (calls[0] if calls else -1)
        else:
            i = bisect_left(calls, self._cursor)
            self._node = calls[i] if i < len(calls) else (calls[-1] if calls else -1)
        if self._node >= 0:
            self._cursor = self._node + 1
            span = self._spans.get(self._node)
            self._op = span.op_begin if span is not None else -1

    def leave(self) -> None:
        """End a call."""
        self._session = self._recording.op_count
        self._node = self._op = -1

    def locate(self, operator: str) -> tuple[int, int]:
        """Return the call and the forward operator that the current operator repeats."""
        self._session = self._recording.op_count + 1
        ops = self._recording.ops
        if self._node < 0:
            return -1, -1
        span = self._spans.get(self._node)
        if span is None:
            return self._node, -1
        for op in range(max(self._op, span.op_begin), span.op_end):
            if ops[op][3] == operator:
                self._op = op + 1
                return self._node, op
        return self._node, span.op_begin

    def _fresh(self) -> bool:
        """Return whether other work ran since the last recomputed operator."""
        if self._session != self._recording.op_count:
            self._cursor = -1
            self._session = self._recording.op_count
            return True
        return self._cursor < 0

    def _anchor(self) -> int:
        """Return the call whose derivative asked for this recomputation."""
        node: Any = torch._C._current_autograd_node()  # None outside backward
        if node is None:
            return len(self._recording.ops)
        op = self._recording.sequence_ops.get(node._sequence_nr(), -1)
        return int(self._recording.ops[op][OP.node_id]) if op >= 0 else len(self._recording.ops)
