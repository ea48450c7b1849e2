"""The ledger of facts about operators: one mechanism for every kind."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from exporter import ledger
from exporter.ledger import KINDS, Facts, aten_overload

aten = torch.ops.aten


@pytest.fixture
def facts():
    """Open a kind of fact, and close it again."""
    kind = Facts[int](__name__, "a fact of this test", "is tried")
    yield kind
    del KINDS[kind.kind]


def test_overload_goes_before_its_operator(facts):
    """A fact of an operator holds for each overload that has none of its own."""
    facts.state(1, aten.add)
    facts.state(2, aten.add.Scalar)
    assert (facts.of(aten.add.Tensor), facts.of(aten.add.Scalar), facts.of(aten.mm.default)) == (
        1, 2, None,
    )  # fmt: skip
    assert aten.add.Tensor in facts
    assert aten.mm.default not in facts
    assert facts.of(aten.add_.Tensor) is None


def test_variants_are_covered_where_the_kind_says_so():
    """The in-place variant and the operator of prims follow the one of aten."""
    kind = Facts[int](__name__, "a fact with variants", "is tried", covers_variants=True)
    try:
        kind.state(1, aten.add)
        assert kind.of(aten.add_.Tensor) == kind.of(torch.ops.prims.add.default) == 1
    finally:
        del KINDS[kind.kind]


def test_second_fact_is_refused_with_the_place_of_the_first(facts):
    """One operator has one fact of a kind."""
    facts.state(1, aten.mm)
    with pytest.raises(ValueError, match=r"aten::mm has a fact of this test already, in test_led"):
        facts.state(2, aten.mm)


def test_operator_that_torch_lacks_is_refused_with_near_names(facts):
    """A typing mistake is no fact about nothing."""
    with pytest.raises(ValueError, match=r"aten::softplux is no operator of torch .*softplus"):
        facts.state(1, "aten::softplux")
    with pytest.raises(ValueError, match="no operator"):
        aten_overload("add.Tenser")
    with pytest.raises(TypeError, match="is no operator"):
        facts.state(1, torch.mm)


def test_version_grows_when_an_answer_changes(facts):
    """Whoever keeps what followed from an answer learns that it no longer holds."""
    before = ledger.version()
    facts.state(1, aten.mm)  # nobody has asked
    assert ledger.version() == before
    assert facts.of(aten.bmm.default) is None
    facts.state(2, aten.bmm)
    assert ledger.version() > before
    assert facts.of(aten.bmm.default) == 2


def test_late_library_is_loaded_when_its_operator_is_asked_for(facts):
    """Facts about torchvision may be stated before it is imported."""
    facts.state(1, "torchvision::roi_pool")
    ledger.load_late()
    assert facts.of(torch.ops.torchvision.roi_pool.default) == 1


def test_operator_of_a_library_that_was_loaded_later_is_found(facts):
    """Operators may be defined after the names of all operators were looked at."""
    with pytest.raises(ValueError, match="is no operator"):
        facts.state(1, "test_ledger_later::twice")
    library = torch.library.Library("test_ledger_later", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    facts.state(1, "test_ledger_later::twice")
    assert facts.of(torch.ops.test_ledger_later.twice.default) == 1
    library._destroy()


def test_formulas_of_a_late_library_may_come_first():
    """Whoever imports torchvision's formulas before anything else can still trace."""
    code = "import exporter.formulas.vision, exporter.capture.operators"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
