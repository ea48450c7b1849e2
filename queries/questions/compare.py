"""Two profiles side by side, call by call."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from queries.cli_options import format_option, opened, the_profile
from queries.fetch import profile_exists, rows_of
from queries.tables import field_names, table_of, write_table
from store.command import database_option

if TYPE_CHECKING:
    from store import Store

__all__ = ["ComparedCall", "compare"]


@dataclass(frozen=True, slots=True)
class ComparedCall:
    """One call of either profile, or the same call of both; 0 and "" on the side that lacks it."""

    module: str  # path of the called module, or of the module that makes the call
    call: str  # kind and target within it; "#2" for the second such call
    found_in: str  # "both", "a", "b"
    a_shape: str
    b_shape: str
    a_fwd_flops: int
    b_fwd_flops: int
    a_bwd_flops: int
    b_bwd_flops: int
    a_kept_bytes: int
    b_kept_bytes: int
    a_param_bytes: int
    b_param_bytes: int

    @property
    def is_equal(self) -> bool:
        """Whether both sides have the call with the same shape, work and memory."""
        pairs = zip(_side(self, "a"), _side(self, "b"), strict=True)
        return self.found_in == "both" and all(a == b for a, b in pairs)


_MEASURES = ("shape", "fwd_flops", "bwd_flops", "kept_bytes", "param_bytes")


def _side(call: ComparedCall, side: str) -> list[object]:
    return [getattr(call, f"{side}_{name}") for name in _MEASURES]


_CALLS = """
SELECT COALESCE(m.path, ''), n.kind, n.target, n.shape,
       f.fwd_macs, f.fwd_pointwise_flops, f.bwd_macs, f.bwd_pointwise_flops,
       s.kept_bytes, s.param_bytes
FROM nodes n
JOIN flop_counts f ON f.profile_id = n.profile_id AND f.node_id = n.node_id
JOIN mem_stats s ON s.profile_id = n.profile_id AND s.node_id = n.node_id
LEFT JOIN modules m ON m.profile_id = n.profile_id AND m.module_id = n.module_id
WHERE n.profile_id = :profile_id AND n.kind NOT IN ('placeholder', 'output') ORDER BY n.node_id
"""

_Key = tuple[str, str]
_Values = tuple[str, int, int, int, int]


def compare(store: Store, a: int, b: int) -> list[ComparedCall]:
    """Return the calls of two profiles in one list, in the order of the first, then the second.

    Calls are the same when they are the same call of the same module path: the n-th call of a
    module, or the n-th call of a function within a module. Names that count through the whole
    graph, such as ``add_7``, play no part, so a block more or less moves nothing else.

    Raises:
        ProfileMissing: if there is no such profile.
    """
    profile_exists(store, a)
    profile_exists(store, b)
    left, right = _calls(store, a), _calls(store, b)
    absent: _Values = ("", 0, 0, 0, 0)
    rows = []
    for key in _merged(list(left), list(right)):
        found_in = "both" if key in left and key in right else "a" if key in left else "b"
        a_side, b_side = left.get(key, absent), right.get(key, absent)
        pairs: Any = (value for pair in zip(a_side, b_side, strict=True) for value in pair)
        rows.append(ComparedCall(*key, found_in, *pairs))
    return rows


def _calls(store: Store, profile_id: int) -> dict[_Key, _Values]:
    seen: Counter[_Key] = Counter()
    calls: dict[_Key, _Values] = {}
    for path, kind, target, shape, fwd, fwd_pw, bwd, bwd_pw, kept, param in rows_of(
        store, _CALLS, profile_id
    ):
        what = "module" if kind == "call_module" else target
        seen[path, what] += 1
        nth = seen[path, what]
        # added up here: what is past 2^63-1 is no integer any more in SQL
        values = (shape, 2 * fwd + fwd_pw, 2 * bwd + bwd_pw, kept, param)
        calls[path, what if nth == 1 else f"{what} #{nth}"] = values
    return calls


def _merged(left: list[_Key], right: list[_Key]) -> list[_Key]:
    """Return both lists as one: what only the second has stands after its predecessor there."""
    known = set(left)
    after: dict[_Key | None, list[_Key]] = {}
    last: _Key | None = None
    for key in right:
        if key in known:
            last = key
        else:
            after.setdefault(last, []).append(key)
    merged = list(after.get(None, ()))
    for key in left:
        merged.append(key)
        merged.extend(after.get(key, ()))
    return merged


@click.command("compare", short_help="Show two profiles side by side, call by call.")
@click.argument("a")
@click.argument("b")
@click.option("--changed", is_flag=True, help="Only calls that differ.")
@database_option
@format_option
def command(a: str, b: str, changed: bool, url: str, output_format: str) -> None:
    """Show two profiles side by side, call by call.

    \b
    Example:
      query-profiles compare resnet18 resnet34 --changed
    """
    with opened(url) as store:
        calls = compare(store, the_profile(store, a), the_profile(store, b))
    shown = [call for call in calls if not (changed and call.is_equal)]
    summary = {
        f"{side}_{name}": sum(getattr(call, f"{side}_{name}") for call in calls)
        for name in ("fwd_flops", "bwd_flops", "kept_bytes", "param_bytes")
        for side in "ab"
    }
    write_table(table_of(shown, field_names(ComparedCall), summary), output_format)
