"""The liveness of a stored profile as rows to show."""

from __future__ import annotations

from queries.liveness import Liveness, LiveStorage
from queries.tables import Table, field_names, table_of


def liveness_rows(result: Liveness, by: str) -> Table:
    """Return what is live at the peak, what outlives its last use, or the bytes of every step.

    Args:
        result: of ``liveness``.
        by: storage, class, module or call: what is live at the peak; outliving; or step.
    """
    summary = {
        "peak_bytes": result.peak_bytes,
        "peak_op_id": result.peak_op_id,
        "bound_peak_bytes": result.bound_peak_bytes,
        "bound_peak_op_id": result.bound_peak_op_id,
    }
    if by == "storage":
        columns = [name for name in field_names(LiveStorage) if name != "outlived_steps"]
        return table_of(result.at_peak, columns, summary)
    if by == "outliving":
        return table_of(result.outliving, field_names(LiveStorage), summary)
    if by == "step":
        steps = zip(result.phases, result.live_bytes, result.bound_bytes, strict=True)
        rows = [[i, *step] for i, step in enumerate(steps)]
        return Table(["op_id", "phase", "live_bytes", "bound_bytes"], rows, summary)
    sums: dict[str, int] = getattr(result, f"peak_by_{by}")
    return Table([by, "size_bytes"], [list(item) for item in sums.items()], summary)
