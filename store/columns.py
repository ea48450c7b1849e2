"""What a column is: declared with the field of a record, and read by everything else.

Standard library only. Tables, documentation, writing, reading and positions follow from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")

_KEY = "column"
OPTION = "option"
_KINDS = {"int": int, "bool": bool, "str": str, "float": float}


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a field says of its column."""

    meaning: str
    choices: tuple[str, ...] = ()  # the only texts that it holds
    is_json: bool = False
    is_wide: bool = False  # may pass 2**31
    refers: str = ""  # the column of another row of the same profile, as "nodes.node_id"
    absent: Any = None  # what says that there is nothing, in rows written before the column
    of_model: bool = False  # in the table of models, not in that of profiles
    stored_as: str = ""  # its name in the table, where that is another
    is_outcome: bool = False  # known only once the model has been traced
    is_version: bool = False  # of profiles that differ in such columns only, the newest is meant
    named_as: str = ""  # how its value stands in the name of a profile, as "b{}"


@dataclass(frozen=True, slots=True)
class Option:
    """What a field says of the option that it is on the command line."""

    default: Any
    help: str
    choices: tuple[str, ...] = ()
    least: int | None = None  # below it there is only the default, which says that nothing is asked
    flags: str = ""  # "--on" for the opposite of the default, "--one/--other" for two choices
    metavar: str = ""
    none_as: str = ""  # how the choice "" is written; "": by leaving the option out
    default_as: str = ""  # what the default means, where its value does not say it
    is_swept: bool = False  # given several times, a profile is made for each value
    of_model: str = ""  # its name in ``models.config``, if it is of the model's configuration


@dataclass(frozen=True, slots=True)
class Column:
    """A column: the name and type of a field, and what it declares."""

    name: str
    kind: type[Any]  # int, bool, str or float
    declared: Declaration

    @property
    def stored_name(self) -> str:
        """The name in the table."""
        return self.declared.stored_as or self.name


def column(
    meaning: str,
    *,
    choices: tuple[str, ...] = (),
    is_json: bool = False,
    refers: str = "",
    absent: Any = None,
    of_model: bool = False,
    stored_as: str = "",
    is_outcome: bool = False,
    is_version: bool = False,
    named_as: str = "",
    compare: bool = True,
) -> Any:
    """Declare a column: text, a flag, a real number, or an integer below 2**31."""
    declared = Declaration(
        meaning,
        choices,
        is_json,
        refers=refers,
        absent=absent,
        of_model=of_model,
        stored_as=stored_as,
        is_outcome=is_outcome,
        is_version=is_version,
        named_as=named_as,
    )
    return field(metadata={_KEY: declared}, compare=compare)


def count(meaning: str, *, absent: Any = None, of_model: bool = False) -> Any:
    """Declare a column of counts or bytes: integers below 2**63."""
    declared = Declaration(meaning, is_wide=True, absent=absent, of_model=of_model)
    return field(metadata={_KEY: declared})


def option(
    stored: str = "",
    *,
    default: Any,
    help: str,  # noqa: A002 - as click calls it
    choices: tuple[str, ...] = (),
    is_checked: bool = False,
    is_wide: bool = False,
    named_as: str = "",
    least: int | None = None,
    flags: str = "",
    metavar: str = "",
    none_as: str = "",
    default_as: str = "",
    is_swept: bool = False,
    of_model: str = "",
) -> Any:
    """Declare an option of a profile, and its column.

    Args:
        stored: what its column means; "" for an option that is no column.
        default: its value where nothing is asked.
        help: what the command says of it.
        choices: the only texts that may be asked.
        is_checked: whether the database refuses other texts as well.
        is_wide: see :class:`Declaration`; so is ``named_as``.
        named_as: see :class:`Declaration`.
        least: see :class:`Option`, as for all that follow.
        flags: "", "--on" or "--one/--other".
        metavar: what stands for its value in the help.
        none_as: how the choice "" is written.
        default_as: what the default means.
        is_swept: whether several values may be asked.
        of_model: its name in the model's configuration.
    """
    asked = Option(
        default, help, choices, least, flags, metavar, none_as, default_as, is_swept, of_model
    )
    metadata: dict[str, Any] = {OPTION: asked}
    if stored:
        metadata[_KEY] = Declaration(
            stored,
            choices if is_checked else (),
            is_wide=is_wide,
            absent=default,
            named_as=named_as,
        )
    return field(default=default, metadata=metadata)


def same_as(record: type[Any], name: str) -> Any:
    """Declare the column that another record declares already."""
    return field(metadata={_KEY: next(c.declared for c in columns(record) if c.name == name)})


_COLUMNS: dict[type[Any], tuple[Column, ...]] = {}


@overload
def record(cls: type[T]) -> type[T]: ...
@overload
def record(*, kw_only: bool) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(column, count, option, same_as))
def record(
    cls: type[T] | None = None, *, kw_only: bool = False
) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a class a record: a frozen dataclass whose every field declares its column."""
    return _recorded(cls) if cls is not None else lambda made: _recorded(made, kw_only=kw_only)


def _recorded(cls: type[T], *, kw_only: bool = False) -> type[T]:
    made = dataclass(frozen=True, slots=True, kw_only=kw_only)(cls)
    for item in fields(made):  # type: ignore[arg-type]  # it is a dataclass now
        if _KEY not in item.metadata:
            raise TypeError(
                f"{cls.__name__}.{item.name} says nothing of its column; write "
                f'{item.name}: {item.type} = column("what it means")'
            )
        if item.type not in _KINDS:
            raise TypeError(f"{cls.__name__}.{item.name} is {item.type}, none of {list(_KINDS)}")
    _COLUMNS[made] = tuple(
        Column(item.name, _KINDS[str(item.type)], item.metadata[_KEY])
        for item in fields(made)  # type: ignore[arg-type]
    )
    return made


def columns(record: type[Any]) -> tuple[Column, ...]:
    """Return the columns of a record, in the order of its fields."""
    return _COLUMNS[record]


def names(record: type[Any]) -> tuple[str, ...]:
    """Return the names of a record's fields, in their order."""
    return tuple(item.name for item in _COLUMNS[record])


class Positions:
    """Where the values of a record are in its rows: ``row[OP.live_bytes]``.

    Raises:
        AttributeError: for a name that is no column of the record.
    """

    def __init__(self, record: type[Any]) -> None:
        self.__record = record
        vars(self).update({name: i for i, name in enumerate(names(record))})

    def __getattr__(self, name: str) -> int:
        raise AttributeError(
            f"{self.__record.__name__} has no column {name!r}; it has {names(self.__record)}"
        )


def make_row(record: type[Any], **values: Any) -> tuple[Any, ...]:
    """Return a row of a record; columns that are not named hold what says that there is nothing.

    Raises:
        TypeError: if a column without such a value is missing, or a name is no column.
    """
    absent = {item.name: item.declared.absent for item in columns(record)}
    missing = [name for name, value in absent.items() if value is None and name not in values]
    known = absent | values
    if missing or len(known) != len(absent):
        _refuse(record, missing, values)
    return tuple(known.values())


def make_record(record: type[T], **values: Any) -> T:
    """Return a record; columns that are not named hold what says that there is nothing.

    Raises:
        TypeError: if a column without such a value is missing, or a name is no column.
    """
    row = make_row(record, **values)
    return record(**dict(zip(names(record), row, strict=True)))


def rows_by_column(record: type[Any], **values: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return rows of a record, given every column as a whole.

    Raises:
        TypeError: if a column is missing, or a name is no column.
        ValueError: if the columns are not of one length.
    """
    if values.keys() != set(names(record)):
        _refuse(record, [name for name in names(record) if name not in values], values)
    return list(zip(*(values[name] for name in names(record)), strict=True))


def changed(record: type[Any], row: tuple[Any, ...], **values: Any) -> tuple[Any, ...]:
    """Return a row with other values in the named columns.

    Raises:
        TypeError: if a name is no column.
    """
    known = dict(zip(names(record), row, strict=True)) | values
    if len(known) != len(row):
        _refuse(record, [], values)
    return tuple(known.values())


def check_order(record: type[Any], built: tuple[str, ...], place: str) -> None:
    """Check that a place which builds rows as tuples builds all columns, in their order.

    Raises:
        TypeError: with the columns and the place.
    """
    if built != names(record):
        missing = [name for name in names(record) if name not in built]
        unknown = [name for name in built if name not in names(record)]
        what = f"lack {missing}" if missing else f"have {unknown}, which it has not"
        if not missing and not unknown:
            what = f"are in the order {built} and not {names(record)}"
        raise TypeError(
            f"the rows of {record.__name__} that {place} builds {what}; "
            "change the tuple there and the names beside it"
        )


def _refuse(record: type[Any], missing: list[str], values: dict[str, Any]) -> None:
    unknown = [name for name in values if name not in names(record)]
    what = f"no column {unknown[0]!r}" if unknown else f"columns that were not given: {missing}"
    raise TypeError(
        f"a row of {record.__name__} has {what}; its columns are declared in store/records.py, "
        "with absent= where rows without one are to be had"
    )
