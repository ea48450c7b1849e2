"""The three sets of operators, and what may be registered."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from operator_recorder import call_cost

from exporter.formulas import Cost, TensorSpec, cost, flops_status, register
from exporter.formulas.registry import FORMULAS, FormulaError, formulas, is_view
from exporter.formulas.zero_cost import ZERO_COST

aten = torch.ops.aten
UNKNOWN = Cost(0, 0, "unknown")


def overloads(namespace):
    """Return every overload of the operators of a namespace."""
    formulas()  # imports what defines operators late
    found = []
    for full_name in torch._C._dispatch_get_all_op_names():
        space, _, name = full_name.partition("::")
        if space == namespace:
            packet, _, overload = name.partition(".")
            found.append(getattr(getattr(getattr(torch.ops, space), packet), overload or "default"))
    return found


def test_sets_are_disjoint():
    """No operator with a formula is on the zero-cost list or a view."""
    assert not set(formulas()) & set(ZERO_COST.stated)
    assert {n.removesuffix("_") for n in formulas()} & set(ZERO_COST.stated) == set()
    views = {f._schema.name for f in overloads("aten") if is_view(f)}
    assert not set(formulas()) & views


def test_zero_cost_list_names_operators():
    """Every entry of the zero-cost list is an operator of this torch, or the stem of one."""
    names = {n.partition(".")[0] for n in torch._C._dispatch_get_all_op_names()}
    formulas()
    names |= {f._schema.name for f in overloads("torchvision")}
    assert {n for n in ZERO_COST.stated if n not in names and n + "_" not in names} == set()


def test_core_and_pointwise_operators_are_classified():
    """Nothing that torch tags as core or pointwise is unknown."""
    tagged = [
        f for f in overloads("aten") if torch.Tag.core in f.tags or torch.Tag.pointwise in f.tags
    ]
    assert len(tagged) > 500
    assert [str(f) for f in tagged if flops_status(f) == "unknown"] == []


def test_variants_share_a_formula():
    """In-place, out and list variants are classified like the operator they are variants of."""
    by_name = {f._schema.name: f for f in overloads("aten") if not is_view(f)}
    for name, func in by_name.items():
        if name.endswith("_") and not name.endswith("__") and name[:-1] in by_name:
            assert flops_status(func) == flops_status(by_name[name[:-1]]), name
    lists = [f for f in overloads("aten") if f._schema.name.startswith("aten::_foreach_")]
    assert {str(f) for f in lists if flops_status(f) == "unknown"} == set()


def test_register_refuses_a_second_formula():
    """An operator has one formula for each kind of count."""
    with pytest.raises(ValueError, match="aten::mm has a formula for macs already"):
        register(aten.mm, counts="macs")(lambda *_: 0)


def test_register_refuses_a_zero_cost_operator():
    """An operator is not on the list and counted too."""
    with pytest.raises(ValueError, match="aten::clone is on the zero-cost list"):
        register(aten.clone, counts="pointwise_flops")(lambda *_: 0)


@pytest.mark.parametrize("target", [torch.mm, "aten::mm", None])
def test_register_refuses_what_is_no_operator(target):
    """Python functions and names are no targets."""
    with pytest.raises(TypeError, match="is no operator: register"):
        register(target, counts="macs")(lambda *_: 0)


def test_operator_of_other_libraries_is_unknown():
    """An operator that nobody described counts nothing and says so."""
    library = torch.library.Library("test_formulas_registry", "DEF")
    library.define("double(Tensor x) -> Tensor")
    library.define("peek(Tensor(a) x) -> Tensor(a)")
    space = torch.ops.test_formulas_registry
    tensor = TensorSpec((2,), (1,), 0, torch.float32)
    assert cost(space.double.default, (tensor,), {}, (tensor,)) == UNKNOWN
    assert cost(space.peek.default, (tensor,), {}, (tensor,)) == Cost(0, 0, "zero_cost")
    library._destroy()


@pytest.mark.parametrize("arguments", [(), (None, None), (1, "x"), ([], ())])
def test_cost_of_odd_input_is_unknown(arguments):
    """A call that a formula cannot read counts nothing instead of failing."""
    for func in (
        aten.mm.default,
        aten.convolution.default,
        aten.relu.default,
        aten.bilinear.default,
    ):
        assert cost(func, arguments, {}, ()) == UNKNOWN
    assert cost(torch.mm, arguments, {}, ()) == UNKNOWN


def test_formula_that_fails_is_named():
    """An error in a formula is no unknown operator: formula and operator are named."""
    library = torch.library.Library("test_formulas_broken", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    func = torch.ops.test_formulas_broken.twice.default

    @register(torch.ops.test_formulas_broken.twice, counts="pointwise_flops")
    def broken(args, _kwargs, _outputs):
        return args[0].nummel

    tensor = TensorSpec((2,), (1,), 0, torch.float32)
    try:
        with pytest.raises(FormulaError, match=r"broken cannot count .*twice.default: Attribute"):
            cost(func, (tensor,), {}, (tensor,))
        assert cost(func, (), {}, (tensor,)) == UNKNOWN  # that is no call of twice
    finally:
        del FORMULAS["pointwise_flops"].stated["test_formulas_broken::twice"]
        library._destroy()


AFTERWARDS = """
import torch
from exporter import profile_model
from exporter.formulas import register

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.matrix_exp(x)

def totals():
    return profile_model(Model(), (torch.zeros(3, 3),), backward=False).totals

assert totals().unknown_op_count == 1
register(torch.ops.aten.linalg_matrix_exp, counts="macs")(lambda *_: 7)
after = totals()
print(after.unknown_op_count, after.fwd_macs)
"""


def test_formula_that_comes_late_counts_from_then_on():
    """What was counted before is not remembered: the next profile has the formula."""
    done = subprocess.run(
        [sys.executable, "-c", AFTERWARDS], capture_output=True, text=True, check=True
    )
    assert done.stdout == "0 7\n"


def test_cost_is_exact_beyond_machine_integers():
    """Counts are Python integers: a product above 2**63 is not rounded."""
    side = 2**22 + 1
    matrix = TensorSpec((side, side), (side, 1), 0, torch.float32)
    assert cost(aten.mm.default, (matrix, matrix), {}, (matrix,)).macs == side**3 > 2**63


def test_views_moves_and_random_numbers_are_zero_cost():
    """What computes nothing is zero cost, which is not unknown."""
    x = torch.zeros(2, 3)
    for func, args in (
        (aten.view.default, (x, [6])),
        (aten.t.default, (x,)),
        (aten.cat.default, ([x, x],)),
        (aten.clone.default, (x,)),
        (aten.bernoulli_.float, (x.clone(), 0.5)),
        (aten.zeros.default, ([2],)),
        (aten.gt.Scalar, (x, 0)),
        (aten.scatter.src, (x, 0, torch.zeros(1, 3, dtype=torch.int64), x)),
    ):
        assert call_cost(func, *args) == Cost(0, 0, "zero_cost"), func
