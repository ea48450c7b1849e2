"""Models are built on the meta device, with the values that their constructors read."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from exporter.capture.values.initial_values import RememberMoments, remembered_moments
from exporter.zoo.building import build_on_meta, built_on, input_spec


class DropRates(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        rates = [rate.item() for rate in torch.linspace(0, 0.3, 4)]
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Dropout(r)) for r in rates)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.output = nn.Linear(4, 10, bias=False)
        self.output.weight = self.embedding.weight


class TiedByValue(Tied):
    def __init__(self) -> None:
        super().__init__()
        if self.embedding.weight.sum() > 1e9:  # a value that only a real parameter has
            raise AssertionError


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = torch.ones(4)
        self.scales = {"sizes": [torch.tensor([1.0, 2.0])]}
        self.register_buffer("whole", torch.arange(6.0))
        self.register_buffer("part", self.whole[2:4])


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3, 4))
        table = torch.cat([torch.ones(1, 4), self.weight.detach()])
        self.register_buffer("table", table)


def test_building_reads_values_on_meta() -> None:
    """A constructor that turns a tensor into numbers works on meta and reads the true numbers."""
    model = build_on_meta(DropRates)
    assert built_on(model) == "meta"
    # four linear layers of 4 * 4 weights and 4 biases
    assert sum(p.numel() for p in model.parameters()) == 80
    assert model.layers[3][1].p == pytest.approx(0.3)
    assert all(p.is_meta for p in model.parameters())


@pytest.mark.parametrize(("factory", "where"), [(Tied, "meta"), (TiedByValue, "cpu")])
def test_building_keeps_tied_parameters_tied(factory, where) -> None:
    """A parameter shared by two modules is one object of 10 * 4 * 4 bytes wherever it was built."""
    model = build_on_meta(factory)
    assert built_on(model) == where
    assert model.output.weight is model.embedding.weight
    assert isinstance(model.output.weight, nn.Parameter)
    assert model.output.weight.requires_grad
    assert [p.untyped_storage().nbytes() for p in model.parameters()] == [160]
    assert model.output.weight.is_meta


def test_building_moves_plain_attributes() -> None:
    """Tensors in attributes and containers are on meta, and views still share their storage."""
    model = build_on_meta(Plain)
    tensors = [model.gain, model.scales["sizes"][0], model.whole, model.part]
    assert all(t.is_meta for t in tensors)
    assert model.part.untyped_storage()._cdata == model.whole.untyped_storage()._cdata
    assert (model.part.storage_offset(), tuple(model.part.shape)) == (2, (2,))


def test_building_mixes_real_and_meta_tensors() -> None:
    """A small real table may be joined with a meta parameter."""
    model = build_on_meta(Mixed)
    assert built_on(model) == "meta"
    assert tuple(model.table.shape) == (4, 4)
    assert model.table.is_meta


def test_building_needs_no_memory() -> None:
    """A layer of 2 TiB is built: 2**20 * 2**20 elements of 2 bytes."""
    model = build_on_meta(lambda: nn.Linear(1 << 20, 1 << 20, bias=False, dtype=torch.bfloat16))
    assert built_on(model) == "meta"
    assert model.weight.untyped_storage().nbytes() == 2**41


def test_building_leaves_random_state() -> None:
    """The caller draws the same random numbers with and without a build in between."""
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    build_on_meta(TiedByValue)
    assert torch.equal(torch.rand(3), expected)


def test_building_raises_the_constructors_own_error() -> None:
    """A constructor that refuses its arguments is heard."""
    with pytest.raises(ValueError, match="in_channels must be divisible by groups"):
        build_on_meta(lambda: nn.Conv2d(3, 4, 1, groups=2))


def test_input_spec_names_nested_tensors() -> None:
    """Every tensor of nested inputs is listed with dtype and shape."""
    args = ([torch.empty(3, 2, device="meta")], {"labels": torch.ones(1, dtype=torch.int64)})
    assert input_spec(args, {"flag": True}) == ("float32[3, 2]", "int64[1]")


class _Initialised(nn.Module):
    def __init__(self, initialise: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(6))
        initialise(self.weight)


@pytest.mark.parametrize(
    "initialise",
    [
        lambda weight: weight.normal_(),  # a leaf that requires a gradient
        lambda weight: weight.fill_(1.0),
        nn.init.kaiming_uniform_,  # needs two dimensions
    ],
)
def test_initialisers_that_torch_refuses_are_refused(
    initialise: Callable[[torch.Tensor], object],
) -> None:
    """Where nothing is filled, what would be wrong for a real tensor is still wrong."""
    with pytest.raises((RuntimeError, ValueError)) as real:
        _Initialised(initialise)
    with pytest.raises(type(real.value)):
        build_on_meta(lambda: _Initialised(initialise), fallback=False)


@pytest.mark.parametrize(
    ("initialise", "mean", "std"),
    [
        (lambda weight: nn.init.normal_(weight, 1.0, 2.0), 1.0, 2.0),
        (lambda weight: nn.init.uniform_(weight, -1.0, 1.0), 0.0, 1 / 3**0.5),
        (lambda weight: nn.init.constant_(weight, 3.0), 3.0, 0.0),
    ],
)
def test_moments_of_initialisers_are_remembered_where_they_are_asked_for(
    initialise: Callable[[torch.Tensor], torch.Tensor], mean: float, std: float
) -> None:
    """A mode around construction sees what is drawn, though nothing is."""
    with RememberMoments():
        model = build_on_meta(lambda: _Initialised(initialise))
    moments = remembered_moments(model.weight)
    assert built_on(model) == "meta"
    assert moments is not None
    assert (moments.mean, moments.std) == pytest.approx((mean, std))
