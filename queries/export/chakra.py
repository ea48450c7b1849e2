"""An MLCommons Chakra execution trace: length-prefixed protobuf messages, one per operator.

The numbers below are the field numbers of Chakra's ``et_def.proto``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from queries.export.registry import export_format
from queries.load import load_graph

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store import Store

_VERSION = "0.0.4"
_COMP_NODE = 4
_LENGTH_DELIMITED = 2


@export_format(
    "chakra",
    read_by="MLCommons Chakra tools",
    holds="one compute node per operator with FLOPs, bytes and dependencies",
)
def chakra_trace(store: Store, profile_id: int, device: str) -> bytes:
    """Return one rank's trace: every operator a compute node with its roofline duration.

    Data and order dependencies are those of ``load_graph(level="ops")``. ``num_ops`` are FLOPs;
    ``tensor_size`` are bytes read and written, at least 1, since readers skip sizes of 0.

    Raises:
        ProfileMissing: if there is no such profile.
        QuestionError: if the device does not exist.
    """
    graph = load_graph(store, profile_id, "ops", device=device)
    messages = [_text(1, _VERSION)]
    now = 0.0
    for op_id, op in graph.nodes(data=True):
        data: set[int] = set()
        control: set[int] = set()
        for source, _, edge in graph.in_edges(op_id, data=True):
            (control if edge["kind"] == "control" else data).add(source)
        messages.append(
            b"".join(
                [
                    _integer(1, op_id),
                    _text(2, op["operator"]),
                    _integer(3, _COMP_NODE),
                    _integers(4, sorted(control - data)),
                    _integers(5, sorted(data)),
                    _integer(6, int(now)),
                    _integer(7, int(op["time_us"])),
                    _message(10, _text(1, "is_cpu_op") + _integer(27, 0)),
                    _message(10, _text(1, "num_ops") + _integer(9, op["flops"])),
                    _message(10, _text(1, "tensor_size") + _integer(13, max(op["bytes"], 1))),
                    _message(10, _text(1, "phase") + _text(29, op["phase"])),
                ]
            )
        )
        now += op["time_us"]
    return b"".join(_varint(len(message)) + message for message in messages)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _message(field: int, body: bytes) -> bytes:
    return _varint(field << 3 | _LENGTH_DELIMITED) + _varint(len(body)) + body


def _text(field: int, value: str) -> bytes:
    return _message(field, value.encode())


def _integers(field: int, values: Iterable[int]) -> bytes:
    body = b"".join(map(_varint, values))
    return _message(field, body) if body else b""
