"""A call while it runs, and what is known of it when it ends, beside its row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exporter.capture.state import Recording, TensorRecord


@dataclass(slots=True)
class Span:
    """What a call did."""

    node_id: int
    op_begin: int
    op_end: int
    live_begin_bytes: int
    fwd_tmp_bytes: int
    fwd_out_bytes: int
    outputs: list[int]  # storages reachable from its result


class OpenCall:
    """A call that has begun."""

    __slots__ = (
        "given", "kind", "live_begin", "module_id", "name", "op_begin", "storage_begin", "target",
    )  # fmt: skip

    def __init__(self, kind: str, name: str, target: str, module_id: int, rec: Recording) -> None:
        self.kind = kind
        self.name = name
        self.target = target
        self.module_id = module_id
        self.op_begin = rec.op_count
        self.live_begin = rec.live_bytes
        self.storage_begin = len(rec.storages)
        self.given: list[TensorRecord] | None = (
            None  # what came in, where hooks may have changed it
        )
