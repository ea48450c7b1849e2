"""Code that branches on values runs on meta where the values are known."""

import copy
import pickle
import sys

import pytest
import torch
from torch import nn

from exporter import profile_model
from exporter.errors import TraceError


class Guarded(nn.Module):
    """Clamps what overflows, as detection transformers do in training."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4, bias=False)

    def forward(self, x):
        hidden = self.lin(x)
        if torch.isinf(hidden).any() or not torch.isfinite(hidden).all():
            hidden = hidden.clamp(-1, 1)
        return hidden


class Branching(nn.Module):
    """Branches on what only the data tells."""

    def forward(self, x):
        return x * 2 if (x > 0).all() else x


class Filled(nn.Module):
    """Fills a table number by number, and reads it back."""

    def forward(self, x):
        sizes = torch.empty((2, 2), dtype=torch.long, device=x.device)
        for level, (height, width) in enumerate([(2, 3), (1, 2)]):
            sizes[level, 0] = height
            sizes[level, 1] = width
        first, second = (sizes[:, 0] * sizes[:, 1]).tolist()  # 6 and 2
        return x[:, :first].sum() + x[:, first : first + second].sum()


class Listed(nn.Module):
    """Makes tables of Python lists, of numbers and of tensors."""

    def forward(self, x):
        length = torch.tensor([3, 5], device=x.device).max()
        widths = torch.tensor([length, length + 1], device=x.device)  # 5 and 6
        return x[:, : int(widths.sum())]


class Masked(nn.Module):
    """Writes where a mask of known values says."""

    def forward(self, x):
        hidden = x * 1
        mask = torch.tensor([True, False, True, True, False], device=x.device)
        hidden[mask] = hidden[0] * 0
        return hidden


class Complex(nn.Module):
    """Looks at complex numbers as pairs of real ones, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4, bias=False)

    def forward(self, x):
        for _ in range(2):
            spectrum = torch.fft.fft(self.lin(x), dim=-1)
            x = torch.view_as_real(spectrum).sum(-1)
        return x


class Mapped(nn.Module):
    """Makes a mask from a function of one position, as transformers does."""

    def forward(self, x):
        steps = torch.arange(x.shape[1], device=x.device)
        causal = torch.vmap(torch.vmap(lambda q, k: k <= q, (None, 0)), (0, None))(steps, steps)
        return x @ causal.to(x.dtype)


class Copied(nn.Module):
    """Copies tensors that share one memory of what has been copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4, bias=False)

    def forward(self, x):
        with torch.no_grad():
            hidden = self.lin(x)
        first, second = copy.deepcopy([hidden, hidden + 1])
        return self.lin(x) + first * second


class Pickled(nn.Module):
    """Sends a determined table and an activation through a file."""

    def forward(self, x):
        table = torch.arange(1 << 13, device=x.device)  # large: worked out when asked for
        table.add_(1)
        for tensor in (table, x * 1):
            read = pickle.loads(pickle.dumps(tensor))  # noqa: S301  # our own
            x = x + read.sum()
        return x[:, : int(table[2])]


class Stepped(nn.Module):
    """Goes on from one value to the next, often, and decides by the last one."""

    def __init__(self, elements, steps, *, in_place) -> None:
        super().__init__()
        self.elements, self.steps, self.in_place = elements, steps, in_place

    def forward(self, x):
        table = torch.zeros(self.elements, dtype=torch.long, device=x.device)
        for _ in range(self.steps):
            table = table.add_(1) if self.in_place else table + 1
        return x[:, : int(table[-1])]


def profile(model, *shape, **options):
    """Return the profile of a run on meta, where values are nowhere but where they are known."""
    options = {"capture": "meta"} | options
    result = profile_model(model, (torch.empty(shape, device="meta"),), **options)
    totals = result.totals
    assert totals.forward_end_bytes == (
        totals.kept_bytes + totals.input_bytes + totals.param_bytes + totals.buffer_bytes
    )
    return result


def operators(result):
    """Return the forward operators by their short names."""
    return [op.operator.split(".")[1] for op in result.ops if op.phase == "forward"]


def test_guards_against_overflow_take_the_healthy_branch() -> None:
    """Nothing is clamped, and each operator that was told so names the assumption."""
    result = profile(Guarded(), 2, 4)
    assert "clamp" not in operators(result)
    assumed = {op.operator.split(".")[1] for op in result.ops if op.assumption == "finite"}
    # isfinite is x == x and |x| != inf
    assert assumed == {"isinf", "eq", "ne"}


def test_data_that_decide_are_not_made_up() -> None:
    """A branch that only the data decide is refused, with the operator."""
    with pytest.raises(TraceError, match="_local_scalar_dense"):
        profile(Branching(), 2, 4)


def test_tables_filled_one_by_one_are_known() -> None:
    """The first slice has 2 * 3 columns, the second 1 * 2."""
    result = profile(Filled(), 2, 9)
    shapes = [tensor.shape for tensor in result.tensors]
    assert "[2, 6]" in shapes
    assert "[2, 2]" in shapes


def test_tables_of_lists_and_of_tensors_are_known() -> None:
    """max(3, 5) = 5, and 5 + 6 = 11 columns remain."""
    result = profile(Listed(), 2, 20, backward=False)
    assert result.nodes[-2].shape == "[2, 11]"


def test_indices_of_a_mask_live_in_its_operator() -> None:
    """Three of five rows are written: their numbers are 3 * 8 bytes, born with the write."""
    result = profile(Masked(), 5, 4)
    write = next(op.op_id for op in result.ops if "index_put" in op.operator)
    born = [s for s in result.storages if s.birth_op_id == write]
    assert [s.size_bytes for s in born] == [24]
    assert all(s.storage_class != "buffer" for s in result.storages if not s.is_host)


def test_views_in_another_type_are_seen_again() -> None:
    """Both rounds have a real view of complex numbers, of 2 * 4 * 2 elements, and a backward."""
    result = profile(Complex(), 2, 4)
    views = [op.op_id for op in result.ops if op.operator.startswith("aten.view_as_real.")]
    made = [t for t in result.tensors if t.op_id in views and t.role == "activation"]
    assert [(t.shape, t.dtype) for t in made] == [("[2, 4, 2]", "float32")] * 2
    assert result.totals.bwd_macs > 0


def test_vectorized_maps_run() -> None:
    """The mask of 4 by 4 positions is made inside vmap, and multiplies."""
    result = profile(Mapped(), 2, 4)
    assert result.totals.fwd_macs == 2 * 4 * 4


def test_deep_copies_depend_on_their_source_alone() -> None:
    """Each copy has one producer: the tensor that it copies."""
    result = profile(Copied(), 2, 4)
    names = {node.node_id: node.name for node in result.nodes}
    sources = {
        name: [names[e.src_node_id] for e in result.edges if e.dst_node_id == node_id]
        for node_id, name in names.items()
    }
    assert sources["deepcopy"] == ["lin"]
    assert sources["deepcopy_1"] == ["add"]


def test_tensors_can_be_pickled_while_they_are_recorded() -> None:
    """The file holds the tensor and nothing of the recording; the table goes on: 2 + 1 columns."""
    result = profile(Pickled(), 2, 9, backward=False)
    assert result.nodes[-2].shape == "[2, 3]"


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("elements", [1, 8, 1 << 13], ids=["number", "small", "large"])
def test_values_follow_each_other_however_often(elements, in_place) -> None:
    """After more steps than Python calls may nest, the last of them says how many there were."""
    steps = sys.getrecursionlimit() + 100
    result = profile(Stepped(elements, steps, in_place=in_place), 1, 2 * steps, backward=False)
    assert result.nodes[-2].shape == f"[1, {steps}]"
