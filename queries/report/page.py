"""The page around the data."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from typing import TYPE_CHECKING

from queries.errors import QuestionError
from queries.report.data import page_data

if TYPE_CHECKING:
    from store import Store


def report_page(store: Store, profile_id: int, device: str = "A100") -> str:
    """Return one profile as an HTML page that holds all it needs, the plotting library included.

    Args:
        store: an open store.
        profile_id: a stored profile.
        device: a row of ``devices``, for the roofline and the times.

    Raises:
        ProfileMissing: if there is no such profile.
        QuestionError: if the device does not exist, or plotly is not installed.
    """
    try:
        # an extra, slow to load, and without types
        from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]  # noqa: PLC0415
    except ModuleNotFoundError:
        raise QuestionError(
            "a report needs plotly: pip install 'export-profiles[report]'"
        ) from None
    data = page_data(store, profile_id, device)
    # in a script element only "</" and "<!" could end or change it: escaped, names are mere text
    as_json = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    parts = {
        "{{title}}": html.escape(f"{data['totals']['model']} - profile"),
        "{{style}}": _part("page.css"),
        "{{plotly}}": get_plotlyjs(),
        "{{script}}": _part("page.js"),
        "{{data}}": as_json,
    }
    page = _part("page.html")
    for slot, part in parts.items():
        before, _, after = page.partition(slot)
        page = before + part + after
    return page


def _part(name: str) -> str:
    return files("queries.report").joinpath(name).read_text("utf-8")
