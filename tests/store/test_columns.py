"""Columns are declared once, and rows are read and written by the names of their columns."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

from store import records
from store.columns import (
    Positions,
    changed,
    check_order,
    column,
    columns,
    make_row,
    names,
    record,
    rows_by_column,
)
from store.records import OP, FlopCount, Op, Profile, SavedTensor, TensorUse

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for folder in ("exporter", "store", "queries", "tools", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
POSITIONS = {name: one for name, one in vars(records).items() if isinstance(one, Positions)}
# Attributes that hold rows of records, and names that one row of them goes by.
TABLES = {"ops", "tensors", "uses", "nodes", "edges", "storages", "tuples"}
ROWS = {"row", "use", "edge", "node", "op", "written"}
ROWS_ARE_RECORDS = ("exporter/capture", "exporter/records", "store/write.py", "store/read.py")


@record
class Sample:
    """A record of these tests."""

    sample_id: int = column("number of the sample")
    name: str = column("its name", absent="")
    is_small: bool = column("1 if it is small", absent=False)


def test_declaration_is_read_from_the_field() -> None:
    """Name, kind and meaning of a column are those of the field, in the order of fields."""
    assert names(Sample) == ("sample_id", "name", "is_small")
    assert [one.kind for one in columns(Sample)] == [int, str, bool]
    assert columns(Sample)[1].declared.meaning == "its name"


def test_position_is_that_of_the_field() -> None:
    """A row is read by name, and a name that is no column fails with those that are."""
    at = Positions(Sample)
    assert (7, "x", True)[at.name] == "x"
    with pytest.raises(AttributeError, match=r"Sample has no column 'nane'.*'sample_id', 'name'"):
        _ = at.nane


def test_every_table_has_its_positions() -> None:
    """Each record of a table has one object of positions, under its name in capitals."""
    assert len(POSITIONS) == len(Profile.TABLES)
    counts = {name: i for i, name in enumerate(names(FlopCount))}
    assert make_row(FlopCount, **counts)[records.FLOP_COUNT.bwd_macs] == counts["bwd_macs"]
    assert (OP.op_id, OP.live_bytes) == (0, names(Op).index("live_bytes"))


def test_field_without_a_declaration_is_refused() -> None:
    """A field that says nothing of its column fails with what to write."""
    with pytest.raises(TypeError, match=r"Bare.size says nothing of its column; write size: int ="):

        @record
        class Bare:
            """A record with a bare field."""

            size: int


def test_column_that_is_not_given_is_absent_or_named() -> None:
    """A column with a value for nothing may be left out; any other is named with the way out."""
    assert make_row(Sample, sample_id=3, is_small=True) == (3, "", True)
    with pytest.raises(TypeError, match=r"Sample has columns .* \['sample_id'\].*absent="):
        make_row(Sample, name="x")
    with pytest.raises(TypeError, match="Sample has no column 'size'"):
        make_row(Sample, sample_id=3, size=1)


def test_rows_are_built_from_whole_columns() -> None:
    """Columns come in any order; one that is missing, or shorter than another, is refused."""
    built = rows_by_column(Sample, name="ab", is_small=[True, False], sample_id=range(2))
    assert built == [(0, "a", True), (1, "b", False)]
    with pytest.raises(
        TypeError, match=r"not given: \['is_small', 'name'\]|\['name', 'is_small'\]"
    ):
        rows_by_column(Sample, sample_id=range(2))
    with pytest.raises(ValueError, match="shorter"):
        rows_by_column(Sample, name="a", is_small=[True, False], sample_id=range(2))


def test_changed_row_keeps_every_other_column() -> None:
    """Only what is named changes, wherever it stands in the row."""
    assert changed(Sample, (3, "x", True), name="y") == (3, "y", True)
    with pytest.raises(TypeError, match="no column 'size'"):
        changed(Sample, (3, "x", True), size=1)


def test_place_that_lacks_a_column_is_named() -> None:
    """What builds tuples says which columns; one too few, too many or displaced names the place."""
    check_order(Sample, ("sample_id", "name", "is_small"), "here.py")
    for built, said in (
        (("sample_id", "is_small"), r"here.py builds lack \['name'\]"),
        (("sample_id", "name", "is_small", "x"), r"here.py builds have \['x'\]"),
        (("name", "sample_id", "is_small"), "here.py builds are in the order"),
    ):
        with pytest.raises(TypeError, match=said):
            check_order(Sample, built, "here.py")


def test_recorded_rows_are_in_the_order_of_their_columns() -> None:
    """A tiny model's operators, uses, tensors and calls, read by name, are what it does."""
    torch = importlib.import_module("torch")
    profile_model = importlib.import_module("exporter").profile_model
    model = torch.nn.Linear(3, 4, bias=False)
    profile = profile_model(model, (torch.zeros(2, 3),), target="cpu")
    mm = next(op for op in profile.ops if op.operator == "aten.mm.default")
    assert (mm.phase, mm.macs, mm.flops_status) == ("forward", 2 * 3 * 4, "formula")
    assert (mm.bytes_read, mm.bytes_written) == (4 * (6 + 12), 4 * 8)
    assert (mm.is_view, mm.is_inplace, mm.is_random, mm.assumption) == (False, False, False, "")
    assert mm.live_bytes == 4 * (6 + 12 + 8)
    given = next(one for one in profile.tensors if one.role == "input")
    assert (given.op_id, given.shape, given.stride, given.storage_offset) == (
        -1,
        "[2, 3]",
        "[3, 1]",
        0,
    )
    assert (given.dtype, given.size_bytes, given.name) == ("float32", 24, "input")
    assert TensorUse(mm.op_id, 0, given.tensor_id, mutates=False) in profile.tensor_uses
    call = next(node for node in profile.nodes if node.kind == "call_module")
    assert (call.name, call.shape, call.dtype) == ("linear", "[2, 4]", "float32")
    edge = next(edge for edge in profile.edges if edge.dst_node_id == call.node_id)
    assert (edge.tensor_id, edge.size_bytes, edge.kind) == (given.tensor_id, 24, "data")
    assert SavedTensor(0, given.tensor_id, call.node_id, mm.op_id, "input") in profile.saved_tensors


def _named(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else ""


def _is_number(node: ast.expr) -> bool:
    """Return whether a subscript counts columns: an integer, or a slice between integers."""
    if isinstance(node, ast.Slice):
        return any(part is not None and _is_number(part) for part in (node.lower, node.upper))
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def _numbered(source: str, *, by_name: bool) -> list[int]:
    """Return the lines that read a record's row by numbers, or take it apart by its length.

    Args:
        source: of a module.
        by_name: whether a variable that is called like a row is one.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Subscript) and _is_number(node.slice):
            of = node.value
            if by_name and isinstance(of, ast.Name) and of.id in ROWS:
                found.append(node.lineno)
            if isinstance(of, ast.Subscript) and _named(of.value) in TABLES:
                found.append(node.lineno)
        is_loop = isinstance(node, (ast.For, ast.comprehension)) and _named(node.iter) in TABLES
        if is_loop and isinstance(node.target, ast.Tuple):
            found.append(node.target.lineno)
    return found


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("row[15]", 1),
        ("[use[2] for use in uses]", 1),
        ("node[:8]", 1),
        ("(*row[:14], 1, *row[15:])", 2),
        ("row[-1]", 1),
        ("recording.ops[op_id][1]", 1),
        ("for op_id, _, tensor_id, _ in recording.uses: pass", 1),
        ("[a for a, b in rows.tuples]", 1),
        ("row[OP.live_bytes]", 0),
        ("recording.ops[begin:end]", 0),
        ("for use in recording.uses: pass", 0),
        ("shape[0]", 0),
    ],
)
def test_numbers_of_columns_are_seen(source: str, count: int) -> None:
    """What the next test looks for is found where it is, and nowhere else."""
    assert len(_numbered(source, by_name=True)) == count


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_rows_are_read_by_name(path: Path) -> None:
    """No module counts the columns of a record's row: the next column would move them."""
    name = str(path.relative_to(ROOT))
    lines = _numbered(path.read_text("utf-8"), by_name=name.startswith(ROWS_ARE_RECORDS))
    assert not lines, f"{name}, lines {lines}: write row[OP.live_bytes], with OP of store.records"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_positions_are_asked_for_columns_that_exist(path: Path) -> None:
    """Every ``OP.name`` in the code names a column."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            at = POSITIONS.get(node.value.id)
            assert at is None or isinstance(getattr(at, node.attr), int)
