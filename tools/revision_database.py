"""Make the database of the newest schema revision that ``data/revisions`` keeps.

A database of an older revision is never made again: it is what that revision really wrote.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from store import head_revision, open_store
from store.columns import make_record, make_row
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
from tools.databases import replaced

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")

REVISIONS = Path(__file__).parent.parent / "data" / "revisions"


def table(record: type[T], columns: str, rows: Iterable[tuple[Any, ...]]) -> Rows[T]:
    """Return rows that are written down as a table, under the names of their columns.

    Columns that are not named hold what says that there is nothing, so that those which come later
    ask for no change here.

    Raises:
        TypeError: if a column is not named and has no such value.
    """
    names = columns.split()
    return Rows(record, [make_row(record, **dict(zip(names, row, strict=True))) for row in rows])


def small_profile(**settings: object) -> Profile:
    """Return the profile of ``relu(x @ w.T)`` and one step of its optimizer, worked out by hand.

    x is float32[2, 3] (24 bytes), w float32[4, 3] (48 bytes), the results float32[2, 4] (32 bytes);
    each matrix product has 2 * 3 * 4 = 24 macs. Settings replace fields of the ProfileInfo.
    """
    known: dict[str, object] = {
        "zoo": "user", "model": "net", "package": "nets", "package_version": "1.0",
        "config": '{"width": 4}', "batch_size": 2, "input_spec": '["float32[2, 3]"]',
        "dtype": "float32", "mode": "train", "backward": True, "input_grad": False,
        "target": "cpu", "attention": "auto", "autocast": "", "optimizer": "sgd",
        "capture": "meta", "built_on": "cpu", "assumption": "", "assumption_note": "",
        "torch_version": "2.14.1",
        "exporter_version": "0.1.0", "structural_hash": "5f", "created_at": "2026-01-02T03:04:05Z",
    }  # fmt: skip
    info = make_record(ProfileInfo, **(known | settings))
    totals = make_record(
        Totals, profile_id=-1, zoo=info.zoo, model=info.model, batch_size=info.batch_size,
        dtype=info.dtype, mode=info.mode, target=info.target, capture=info.capture,
        node_count=4, edge_count=3, op_count=7, unknown_op_count=0,
        fwd_macs=24, bwd_macs=24, fwd_pointwise_flops=8, bwd_pointwise_flops=8,
        fwd_flops=56, bwd_flops=56, param_count=12, param_bytes=48, buffer_bytes=0,
        input_bytes=24, kept_bytes=32, forward_end_bytes=104, peak_bytes=168,
        model_allocated_bytes=48, forward_allocated_bytes=104, peak_allocated_bytes=168,
        peak_reserved_bytes=168, workspace_bytes=0, seconds=0.25,
    )  # fmt: skip
    f, b, o = "forward", "backward", "optimizer"
    operators = [
        (0, 1, f, "aten.t.default", -1, "[null]", 0, 0, "zero_cost",
         48, 48, True, False, False, "", 72),
        (1, 1, f, "aten.mm.default", -1, "[null, null]", 24, 0, "formula",
         72, 32, False, False, False, "", 104),
        (2, 2, f, "aten.relu.default", -1, "[null]", 0, 8, "formula",
         32, 32, False, False, False, "", 136),
        (3, 2, b, "aten.threshold_backward.default", 2, "[null, null, 0]", 0, 8, "formula",
         64, 32, False, False, False, "", 168),
        (4, 1, b, "aten.t.default", 1, "[null]", 0, 0, "zero_cost",
         32, 32, True, False, False, "", 104),
        (5, 1, b, "aten.mm.default", 1, "[null, null]", 24, 0, "formula",
         56, 48, False, False, False, "", 152),
        (6, -1, o, "aten.add_.Tensor", -1, "[null, null]", 0, 24, "formula",
         96, 48, False, True, False, "", 120),
    ]  # fmt: skip
    return Profile(
        info,
        totals,
        modules=table(
            Module,
            "module_id path class_name parent_id is_leaf call_count fw_pre_order fw_post_order "
            "param_count param_bytes buffer_bytes",
            [
                (0, "", "Net", -1, False, 1, 0, 1, 0, 0, 0),
                (1, "fc", "Linear", 0, True, 1, 1, 0, 12, 48, 0),
            ],
        ),
        nodes=table(
            Node,
            "node_id name kind target module_id arguments shape dtype stage",
            [
                (0, "x", "placeholder", "x", -1, "[]", "[2, 3]", "float32", 0),
                (1, "fc", "call_module", "fc", 1, '[{"tensor": 1}]', "[2, 4]", "float32", 1),
                (2, "relu", "call_function", "relu", 0, '[{"tensor": 3}]', "[2, 4]", "float32", 2),
                (3, "output", "output", "output", -1, '[{"tensor": 4}]', "[2, 4]", "float32", 3),
            ],
        ),
        edges=table(
            Edge,
            "edge_id src_node_id dst_node_id tensor_id arg_position size_bytes kind",
            [
                (0, 0, 1, 1, 0, 24, "data"),
                (1, 1, 2, 3, 0, 32, "data"),
                (2, 2, 3, 4, 0, 32, "data"),
            ],
        ),
        flop_counts=table(
            FlopCount,
            "node_id fwd_macs fwd_pointwise_flops bwd_macs bwd_pointwise_flops",
            [(1, 24, 0, 24, 0), (2, 0, 8, 0, 8)],
        ),
        mem_stats=table(
            MemStat,
            "node_id fwd_in_bytes fwd_tmp_bytes fwd_out_bytes fwd_transient_bytes kept_bytes "
            "bwd_tmp_bytes bwd_out_bytes grad_bytes param_bytes buffer_bytes",
            [
                (1, 24, 0, 32, 0, 0, 0, 0, 48, 48, 0),
                (2, 0, 0, 32, 0, 32, 0, 32, 0, 0, 0),
            ],
        ),
        ops=table(
            Op,
            "op_id node_id phase operator fwd_op_id arguments macs pointwise_flops flops_status "
            "bytes_read bytes_written is_view is_inplace is_random assumption live_bytes",
            operators,
        ),
        tensors=table(
            Tensor,
            "tensor_id op_id output_index storage_id shape stride storage_offset dtype size_bytes "
            "role name",
            [
                (0, -1, 0, 0, "[4, 3]", "[3, 1]", 0, "float32", 48, "parameter", "fc.weight"),
                (1, -1, 0, 1, "[2, 3]", "[3, 1]", 0, "float32", 24, "input", "x"),
                (2, 0, 0, 0, "[3, 4]", "[1, 3]", 0, "float32", 48, "parameter", ""),
                (3, 1, 0, 2, "[2, 4]", "[4, 1]", 0, "float32", 32, "activation", ""),
                (4, 2, 0, 3, "[2, 4]", "[4, 1]", 0, "float32", 32, "activation", ""),
                (5, -1, 0, 4, "[2, 4]", "[4, 1]", 0, "float32", 32, "gradient", ""),
                (6, 3, 0, 5, "[2, 4]", "[4, 1]", 0, "float32", 32, "gradient", ""),
                (7, 4, 0, 5, "[4, 2]", "[1, 4]", 0, "float32", 32, "gradient", ""),
                (8, 5, 0, 6, "[4, 3]", "[3, 1]", 0, "float32", 48, "gradient", ""),
            ],
        ),
        tensor_uses=table(
            TensorUse,
            "op_id arg_position tensor_id mutates",
            [
                (0, 0, 0, False),
                (1, 0, 1, False),
                (1, 1, 2, False),
                (2, 0, 3, False),
                (3, 0, 5, False),
                (3, 1, 4, False),
                (4, 0, 6, False),
                (5, 0, 7, False),
                (5, 1, 1, False),
                (6, 0, 0, True),
                (6, 1, 8, False),
            ],
        ),
        saved_tensors=table(
            SavedTensor,
            "saved_id tensor_id node_id op_id reason",
            [(0, 1, 1, 1, "input"), (1, 4, 2, 2, "output")],
        ),
        storages=table(
            Storage,
            "storage_id size_bytes storage_class birth_op_id death_op_id is_host block_bytes "
            "address",
            [
                (0, 48, "parameter", -1, 7, False, 48, 0),
                (1, 24, "input", -1, 7, True, 24, -1),
                (2, 32, "temporary", 1, 2, False, 32, 48),
                (3, 32, "activation", 2, 3, False, 32, 80),
                (4, 32, "gradient", 3, 3, False, 32, 112),
                (5, 32, "gradient", 3, 5, False, 32, 144),
                (6, 48, "gradient", 5, 7, False, 48, 48),
            ],
        ),
    )


def _make(path: Path) -> None:
    """Write a database of the newest revision: two profiles of one model."""
    with open_store(f"sqlite:///{path}", create=True) as store:
        store.write(small_profile())
        store.write(small_profile(mode="eval", backward=False))


def write() -> bool:
    """Make the database of the newest revision if it is out of date; return whether it was."""
    return replaced(REVISIONS / f"{head_revision()}.db", _make, page_bytes=1024)
