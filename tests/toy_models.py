"""Small models, each for one hazard of profiling. Their figures are derived in the tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint


def square(width: int = 4) -> nn.Linear:
    """Return a linear layer without bias that keeps the width."""
    return nn.Linear(width, width, bias=False)


@dataclass
class Pair:
    """Two tensors, one of them optional, and a number."""

    first: Tensor
    second: Tensor | None = None
    number: int = 3


class Packed(nn.Module):
    """Takes and returns tensors in dicts, lists and dataclasses, some of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 3, bias=False)

    def forward(
        self,
        batch: dict[str, Any],
        pair: Pair,
        *,
        extra: Tensor | None = None,
        text: str = "",
    ) -> dict[str, Any]:
        """Return nested outputs; ``extra`` and ``text`` are left out."""
        del extra, text
        y = self.lin(batch["nested"][0])
        doubled = (y + pair.first) * pair.number
        return {"y": y, "again": [y, (y,)], "number": 3, "none": None, "pair": Pair(doubled)}


class Shared(nn.Module):
    """One layer under two names, called through both."""

    def __init__(self) -> None:
        super().__init__()
        self.a = square()
        self.b = self.a

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer applied twice."""
        return self.b(self.a(x))  # type: ignore[no-any-return]


class Unused(nn.Module):
    """A layer that is never called, beside one that is."""

    def __init__(self) -> None:
        super().__init__()
        self.used = square()
        self.idle = square()

    def forward(self, x: Tensor) -> Tensor:
        """Return the used layer's output."""
        return self.used(x)  # type: ignore[no-any-return]


class Hooked(nn.Module):
    """Hooks that change what a layer gets and what it returns."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = square()
        self.lin.register_forward_pre_hook(lambda _module, args: (args[0] + 1,))
        self.lin.register_forward_hook(lambda _module, _args, output: output.repeat(2, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return twice as many rows as came in."""
        output: Tensor = self.lin(x)
        return output


class Cube(torch.autograd.Function):
    """The cube, with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Return x * x * x, and keep x."""
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        """Return 3 * x * x * grad."""
        (x,) = ctx.saved_tensors
        gradient: Tensor = 3 * x * x * grads[0]
        return gradient


class Custom(nn.Module):
    """A layer and a function with its own backward."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = square()

    def forward(self, x: Tensor) -> Tensor:
        """Return the cube of the layer's output."""
        return Cube.apply(self.lin(x))  # type: ignore[no-any-return]


class MadeInside(nn.Module):
    """Makes tensors in forward and reads one from a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.gain = torch.ones(4)

    def forward(self, x: Tensor) -> Tensor:
        """Return the masked sum of the layer's output and the positions."""
        pos = torch.arange(x.shape[1], dtype=torch.float32)
        keep = torch.tril(torch.ones(x.shape[1], x.shape[1]))
        output: Tensor = (self.lin(x) * self.gain + pos) @ keep
        return output


class Expanded(nn.Module):
    """Views that are larger than their storage, and tensors without elements."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = square()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return a view of 100 rows, and a product of nothing."""
        y = self.lin(x)
        return y.expand(100, 4), self.lin(x[:0])


class WritesView(nn.Module):
    """Writes into a view after the whole has been read."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of a product and of the tensor that was written since."""
        y = x * 2
        z = y * 3
        y[:, 0].add_(1)
        return z + y


class Checkpointed(nn.Module):
    """A layer, and a block that is computed again in backward."""

    def __init__(self, *, use_reentrant: bool, again: bool = True) -> None:
        super().__init__()
        self.stem = square()
        self.block = nn.Sequential(square(), nn.Tanh(), square())
        self.use_reentrant = use_reentrant
        self.again = again

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        y = self.stem(x)
        if not self.again:
            return self.block(y)  # type: ignore[no-any-return]
        return checkpoint(self.block, y, use_reentrant=self.use_reentrant)  # type: ignore[no-any-return]


class Raises(nn.Module):
    """Fails inside a submodule."""

    class Broken(nn.Module):
        """Raises."""

        def forward(self, x: Tensor) -> Tensor:
            """Raise an error."""
            raise ValueError(f"no {x.dim()} dimensions, please")

    def __init__(self) -> None:
        super().__init__()
        self.part = self.Broken()

    def forward(self, x: Tensor) -> Tensor:
        """Raise an error."""
        return self.part(x)  # type: ignore[no-any-return]


class Listed(nn.Module):
    """Parameters in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.gains = nn.ParameterList([nn.Parameter(torch.ones(4)) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        """Return the product of the input with each parameter in turn."""
        for gain in self.gains:
            x = x * gain
        return x


class Complex(nn.Module):
    """A complex product."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 3, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        """Return the product of input and weight."""
        return x @ self.weight


class Tokens(nn.Module):
    """Integers in, a projection tied to their embedding out."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(10, 4)
        self.out = nn.Linear(4, 10, bias=False)
        self.out.weight = self.emb.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Return a score for every word at every position."""
        return self.out(self.emb(tokens))  # type: ignore[no-any-return]


def weight_normed() -> nn.Module:
    """Return a layer whose weight is a direction times a length."""
    layer: nn.Module = parametrizations.weight_norm(nn.Linear(4, 3, bias=False))
    return layer


def spectral_normed() -> nn.Module:
    """Return a layer whose weight is divided by its largest singular value."""
    layer: nn.Module = parametrizations.spectral_norm(nn.Linear(4, 3, bias=False))
    return layer


def compiled() -> nn.Module:
    """Return a model with a compiled part."""
    part: Any = torch.compile(square())
    return nn.Sequential(part, nn.ReLU())
