"""From what a person calls a profile to its id."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from queries.errors import ProfileNameError
from store.columns import columns
from store.records import ProfileInfo

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store import Store
    from store.records import Totals

__all__ = ["find_profile"]

# what tells two profiles of one model apart, the first ones also by qualifiers after "@"
_QUALIFIERS = {
    item.name: item.declared.named_as for item in columns(ProfileInfo) if item.declared.named_as
}
_OTHERS = tuple(
    item.name
    for item in columns(ProfileInfo)
    if item.name not in {"model", *_QUALIFIERS}
    and not (item.declared.is_outcome or item.declared.is_version)
)
_TELLING = (*_QUALIFIERS, *_OTHERS)
_ID = "profile_id"
_LISTED = 12
_MOST_DIGITS = 18  # all numbers of so many are below 2^63


def find_profile(store: Store, name: str) -> int:
    """Return the id of the profile that a name means.

    A name is an id (``17``), a model (``resnet50``), or a model with qualifiers after ``@``,
    separated by commas: ``resnet50@b4``, ``resnet50@b8,eval``, ``resnet50@bfloat16,cpu``.
    A model that is called just so comes first, be its name a number or with an ``@`` in it.
    Of profiles of one configuration the newest wins.

    Raises:
        ProfileNameError: if the name means no profile, or several configurations; the message
            lists the candidates.
    """
    model, qualifiers = name, ""
    rows = _profiles(store, model)
    if not rows and name.isascii() and name.isdigit():
        return _numbered(store, name)
    if not rows and "@" in name:
        model, _, qualifiers = name.rpartition("@")
        rows = _profiles(store, model)
    if not rows:
        raise ProfileNameError(f"no profile of a model {model!r}{_like(store, model)}")
    asked = [part.strip() for part in qualifiers.split(",") if part.strip()]
    fitting = [row for row in rows if {*_qualifiers(row).values()}.issuperset(asked)]
    newest = _newest(fitting)
    if len(newest) == 1:
        return int(newest[0][_ID])
    candidates = newest or _newest(rows)
    names = _long_names(model, candidates)
    more = "; ..." if len(candidates) > _LISTED else ""
    listed = "; ".join(_described(candidates, names)[:_LISTED]) + more
    if not newest:
        raise ProfileNameError(f"no profile {name!r}; of {model} there are: {listed}")
    way_out = "an id or a longer name" if len(set(names)) > 1 else "an id"
    raise ProfileNameError(f"{name!r} is ambiguous, use {way_out}: {listed}")


def _qualifiers(row: dict[str, Any]) -> dict[str, str]:
    """Return what stands after "@" in the name of a profile, by what it says."""
    return {name: form.format(row[name]) for name, form in _QUALIFIERS.items()}


def _newest(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the profile of each configuration that was stored last."""
    return list({tuple(row[name] for name in _TELLING): row for row in rows}.values())


def _long_names(model: str, rows: list[dict[str, Any]]) -> list[str]:
    """Return the longest name of each profile; a zoo is part of it where there are several."""
    left_out = {"zoo"} if len({row["zoo"] for row in rows}) == 1 else set()
    return [
        f"{model}@"
        + ",".join(text for name, text in _qualifiers(row).items() if name not in left_out)
        for row in rows
    ]


def _described(rows: list[dict[str, Any]], names: list[str]) -> list[str]:
    """Return id and name of each profile, and what tells it from others of the same name."""
    described = []
    for row, name in zip(rows, names, strict=True):
        same = [other for other, its in zip(rows, names, strict=True) if its == name]
        told = [
            f"{column} {row[column]}"
            for column in _OTHERS
            if len({other[column] for other in same}) > 1
        ]
        described.append(f"{row[_ID]} = {name}" + (f" ({', '.join(told)})" if told else ""))
    return described


def telling_configs(store: Store, profiles: Iterable[Totals]) -> dict[int, str]:
    """Return the configuration of each profile as JSON if names alone do not tell them apart.

    Without two profiles of one name that differ by it, nothing is returned.
    """
    sql = "SELECT profile_id, config FROM profiles p JOIN models m ON m.model_id = p.model_id"
    configs: dict[int, str] = dict(store.query(sql)[1])
    of_name: defaultdict[tuple[Any, ...], set[str]] = defaultdict(set)
    for one in profiles:
        name = (one.model, *(getattr(one, qualifier) for qualifier in _QUALIFIERS))
        of_name[name].add(configs[one.profile_id])
    return configs if any(len(told) > 1 for told in of_name.values()) else {}


def _profiles(store: Store, model: str) -> list[dict[str, Any]]:
    """Return the ids of a model's profiles with what tells them apart, the oldest first."""
    names, rows = store.query(
        f"SELECT {_ID}, {', '.join(_TELLING)} FROM profiles p"  # noqa: S608 - our own columns
        " JOIN models m ON m.model_id = p.model_id WHERE m.name = :model ORDER BY profile_id",
        {"model": model},
    )
    return [dict(zip(names, row, strict=True)) for row in rows]


def _numbered(store: Store, digits: str) -> int:
    """Return an id that is written in digits; the database's own numbers end at 2^63."""
    if len(digits.lstrip("0")) <= _MOST_DIGITS:
        number = int(digits.lstrip("0") or "0")
        if store.query("SELECT 1 FROM profiles WHERE profile_id = :id", {"id": number})[1]:
            return number
    shown = digits if len(digits) <= 2 * _MOST_DIGITS else f"{digits[:_MOST_DIGITS]}..."
    raise ProfileNameError(f"no profile {shown}; `query-profiles list` shows what there is")


def profile_facts(store: Store, profile_id: int) -> dict[str, Any]:
    """Return the totals of a stored profile, then what it was made under, by name."""
    facts: dict[str, Any] = {}
    for sql in (
        "SELECT * FROM profile_totals WHERE profile_id = :id",
        "SELECT * FROM models JOIN profiles USING (model_id) WHERE profile_id = :id",
    ):
        names, rows = store.query(sql, {"id": profile_id})
        stored = dict(zip(names, rows[0], strict=True))
        kept = stored if not facts else [f.name for f in fields(ProfileInfo) if f.name in stored]
        for name in kept:
            facts.setdefault(name, stored[name])
    return facts


def _like(store: Store, model: str) -> str:
    """Return a hint at stored models with similar names."""
    from difflib import get_close_matches  # noqa: PLC0415 - needed only when a name is wrong

    models = [name for (name,) in store.query("SELECT DISTINCT name FROM models", {})[1]]
    close = get_close_matches(model, models, n=3)
    if close:
        return f"; did you mean {', '.join(close)}?"
    return "; `query-profiles list` shows what there is"
