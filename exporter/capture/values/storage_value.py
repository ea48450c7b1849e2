"""What storages on the meta device would hold, worked out only when a model asks for it.

Every storage has contents: given, drawn, or the result of an operator that has not been run. An
operator runs on the host when somebody needs its result, after what it reads; so the anchors and
boxes of a detector are computed, and the activations of its backbone never are.

Where a contraction, a norm or a pooling of regions is reached, its output is drawn: seeded normal
numbers with the mean and the deviation that the operands' moments give. Nobody knows more about the
output of layers with random weights.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map_only

from exporter.errors import UnknownValueError

if TYPE_CHECKING:
    import weakref
    from collections.abc import Iterator

    from exporter.capture.specs import Spec

Tensor = torch.Tensor
CPU = torch.device("cpu")

KNOWN, STATED, UNKNOWN = range(3)  # how sure contents are: true, by a stated assumption, not at all

_MOST_ELEMENTS = 1 << 27  # of one storage that is worked out: 512 MiB of single precision


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and standard deviation of numbers that are drawn, or would be."""

    mean: float = 0.0
    std: float = 1.0

    @property
    def rms(self) -> float:
        """Root mean square."""
        return math.hypot(self.mean, self.std)


UNIT = Moments()


class StorageValue:
    """What one storage holds between two writes."""

    __slots__ = ("__weakref__", "call", "certainty", "dtype", "elements", "flat", "moments", "seed")

    def __init__(
        self, elements: int, dtype: torch.dtype, *, certainty: int, moments: Moments = UNIT
    ) -> None:
        self.elements = elements
        self.dtype = dtype
        self.certainty = certainty
        self.moments = moments
        self.flat: Tensor | None = None  # all elements in a row, once worked out
        self.call: LazyCall | None = None  # what works it out; None: drawn
        self.seed = 0

    def worked_out(self) -> Tensor:
        """Return all elements in a row.

        Raises:
            UnknownValueError: if that takes too much memory, or an operator has no CPU kernel.
        """
        pending = [self]
        while self.flat is None:
            contents = pending[-1]
            if contents.flat is not None:
                pending.pop()
            elif contents.elements > _MOST_ELEMENTS:
                raise UnknownValueError(
                    f"a meta tensor of {contents.elements} elements is too large to work out its "
                    f"values (the most is {_MOST_ELEMENTS})"
                )
            elif contents.call is None:
                contents.flat = _drawn(contents)
            else:
                waiting = [r.contents for r in contents.call.reads if r.contents.flat is None]
                if waiting:
                    pending += waiting
                else:
                    contents.call.run()
        return self.flat


def _drawn(contents: StorageValue) -> Tensor:
    """Return seeded numbers that follow the moments of the contents: the same in every process."""
    flat = torch.zeros(contents.elements, dtype=contents.dtype)
    if contents.dtype.is_floating_point or contents.dtype.is_complex:
        generator = torch.Generator().manual_seed(contents.seed)
        moments = contents.moments
        flat.normal_(0.0, 1.0, generator=generator).mul_(moments.std).add_(moments.mean)
    return flat


class StorageView:
    """A view of contents among an operator's arguments."""

    __slots__ = ("contents", "spec", "writes")

    def __init__(self, contents: StorageValue, spec: Spec, writes: bool) -> None:
        self.contents = contents
        self.spec = spec
        self.writes = writes

    def of(self, flat: Tensor) -> Tensor:
        """Return the view of a row of elements."""
        spec = self.spec
        if flat.dtype is not spec.dtype:
            flat = flat.view(spec.dtype)
        return flat.as_strided(spec.shape, spec.stride, spec.offset)


class LazyCall:
    """An operator that has not been run yet, with what it reads and what it will give."""

    __slots__ = ("args", "func", "kwargs", "outputs", "reads", "seed", "written")

    def __init__(
        self,
        func: Any,
        args: Any,
        kwargs: dict[str, Any],
        reads: list[StorageView],
        seed: int | None,
    ) -> None:
        self.func = func
        self.args = args
        self.kwargs = kwargs
        self.reads = reads
        self.seed = seed  # None: the operator is not random
        # (position among the flat outputs, geometry, contents)
        self.outputs: list[tuple[int, Spec, weakref.ref[StorageValue]]] = []
        self.written: list[tuple[StorageValue, weakref.ref[StorageValue]]] = []  # before, after

    def run(self) -> None:
        """Run the operator on the host and keep its results; everything that it reads is there."""
        writable: dict[int, Tensor] = {}
        for read in self.reads:
            if read.writes and id(read.contents) not in writable:
                writable[id(read.contents)] = read.contents.worked_out().clone()

        def real(read: StorageView) -> Tensor:
            flat = writable.get(id(read.contents))
            return read.of(read.contents.worked_out() if flat is None else flat)

        args, kwargs = tree_map_only(StorageView, real, (self.args, self.kwargs))
        if kwargs.get("device") is not None:
            kwargs["device"] = CPU
        try:
            with torch.no_grad(), _seeded(self.seed):
                result = self.func(*args, **kwargs)
        except NotImplementedError as error:
            raise UnknownValueError(f"{self.func} has no CPU kernel to work out values") from error
        flat_results = result if isinstance(result, (list, tuple)) else [result]
        for index, spec, reference in self.outputs:
            contents = reference()
            if contents is not None and contents.call is self:
                contents.flat = _in_a_row(flat_results[index], spec, contents.elements)
                contents.call = None
        for before, reference in self.written:
            after = reference()
            if after is not None and after.call is self:
                after.flat = writable[id(before)]
                after.call = None


@contextmanager
def _seeded(seed: int | None) -> Iterator[None]:
    """Return a context in which the global generator starts from a seed; it is then put back."""
    if seed is None:
        yield
        return
    # Not ``torch.manual_seed``, which formats a traceback for CUDA.
    generator = torch.default_generator
    state = generator.get_state()
    try:
        generator.manual_seed(seed)
        yield
    finally:
        generator.set_state(state)


def _in_a_row(tensor: Tensor, spec: Spec, elements: int) -> Tensor:
    """Return the elements of a tensor as they lie in its storage on the device."""
    if spec.offset == 0 and tensor.numel() == elements and tensor.stride() == spec.stride:
        return tensor.as_strided((elements,), (1,))
    flat = torch.zeros(elements, dtype=tensor.dtype)
    flat.as_strided(spec.shape, spec.stride, spec.offset).copy_(tensor)
    return flat
