"""What storages on the meta device hold, worked out only when a model asks for it.

A storage's value is given, drawn, or the result of an operator that has not been run. An operator
runs on the host when somebody needs its result, after what it reads; so positions, masks and the
boxes of a detector are computed, and the activations of its backbone never are. A write gives a
storage another value and leaves the one before to whoever still reads it.

Where a contraction, a norm or a pooling of regions is reached, its output is drawn: seeded normal
numbers with the mean and the deviation that the operands' moments give. Nobody knows more about the
output of layers with random weights.
"""

from __future__ import annotations

import math
import weakref
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from exporter.capture.values.limits import WORKED_OUT
from exporter.errors import UnknownValueError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from exporter.capture.specs import Spec

Tensor = torch.Tensor
CPU = torch.device("cpu")

# How sure a value is: true, by a stated assumption, not at all.
KNOWN, STATED, UNKNOWN = range(3)


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


def given_moments(values: Tensor) -> Moments:
    """Return mean and deviation of numbers that are there."""
    if not values.numel() or not values.is_floating_point():
        return UNIT
    numbers = values.detach().double()
    return Moments(float(numbers.mean()), float(numbers.std(correction=0)))


class StorageValue:
    """What one storage holds between two writes."""

    __slots__ = (
        "__weakref__", "_moments", "call", "certainty", "dtype", "elements", "flat", "seed",
    )  # fmt: skip

    def __init__(
        self,
        elements: int,
        dtype: torch.dtype,
        *,
        certainty: int = KNOWN,
        moments: Moments | None = None,
    ) -> None:
        self.elements = elements
        self.dtype = dtype
        self.certainty = certainty
        self._moments = moments  # None: those of the elements
        self.flat: Tensor | None = None  # all elements in a row, once worked out
        self.call: LazyCall | None = None  # what works it out; None: drawn
        self.seed = 0

    @classmethod
    def given(
        cls, tensor: Tensor, spec: Spec, values: Tensor, before: StorageValue | None = None
    ) -> StorageValue:
        """Return the value of the storage of a tensor whose values are given.

        Args:
            tensor: on the meta device.
            spec: its geometry.
            values: what it holds; nobody writes to them.
            before: what the rest of its storage holds, where that is known.
        """
        elements = tensor.untyped_storage().nbytes() // tensor.itemsize
        value = cls(elements, tensor.dtype)
        if before is None or before.dtype is not value.dtype:
            # Put in a row when somebody asks: most of what is given, nobody asks for.
            LazyCall(torch.Tensor.detach, (values,), {}, []).gives(0, spec, value)
            return value
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            value.flat = _in_a_row(values.detach(), spec, elements, before.worked_out())
        return value

    @property
    def moments(self) -> Moments:
        """Mean and deviation of its numbers."""
        if self._moments is None:
            self._moments = given_moments(self.worked_out())
        return self._moments

    def worked_out(self) -> Tensor:
        """Return all elements in a row. They are not the caller's to write.

        Raises:
            UnknownValueError: if that takes too much memory, or an operator has no CPU kernel.
        """
        pending = [self]
        while self.flat is None:
            value = pending[-1]
            if value.flat is not None:
                pending.pop()
            elif value.elements > WORKED_OUT:
                raise UnknownValueError(
                    f"a meta tensor of {value.elements} elements is too large to work out its "
                    f"values (the most is {WORKED_OUT})"
                )
            elif value.call is None:
                value.flat = _drawn(value)
            else:
                waiting = [r.value for r in value.call.reads if r.value.flat is None]
                if waiting:
                    pending += waiting
                else:
                    value.call.run()
        return self.flat


def _drawn(value: StorageValue) -> Tensor:
    """Return seeded numbers that follow the moments of a value: the same in every process."""
    flat = torch.zeros(value.elements, dtype=value.dtype)
    if value.dtype.is_floating_point or value.dtype.is_complex:
        generator = torch.Generator().manual_seed(value.seed)
        moments = value.moments
        flat.normal_(0.0, 1.0, generator=generator).mul_(moments.std).add_(moments.mean)
    return flat


class StorageView:
    """A tensor among an operator's arguments: a geometry on what its storage held then."""

    __slots__ = ("is_conj", "is_neg", "spec", "value", "writes")

    def __init__(self, value: StorageValue, spec: Spec, tensor: Tensor, *, writes: bool) -> None:
        self.value = value
        self.spec = spec
        self.is_conj = tensor.is_conj()
        self.is_neg = tensor.is_neg()
        self.writes = writes

    def of(self, flat: Tensor) -> Tensor:
        """Return the view of a row of elements."""
        spec = self.spec
        if flat.dtype is not spec.dtype:
            size = spec.dtype.itemsize
            octets = flat.view(torch.uint8)
            flat = octets[: octets.numel() // size * size].view(spec.dtype)
        view = flat.as_strided(spec.shape, spec.stride, spec.offset)
        if self.is_conj:
            view = torch._conj(view)
        return torch._neg_view(view) if self.is_neg else view

    def worked_out(self) -> Tensor:
        """Return the tensor's values. They are not the caller's to write.

        Raises:
            UnknownValueError: as ``StorageValue.worked_out``.
        """
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            return self.of(self.value.worked_out())


class LazyCall:
    """An operator that has not been run yet, with what it reads and what it will give."""

    __slots__ = ("args", "func", "kwargs", "outputs", "reads", "seed", "written")

    def __init__(
        self,
        func: Any,
        args: Any,
        kwargs: dict[str, Any],
        reads: list[StorageView],
        seed: int | None = None,
    ) -> None:
        self.func = func
        self.args = args
        self.kwargs = kwargs
        self.reads = reads
        self.seed = seed  # None: the operator is not random
        # (position among the flat outputs, geometry, value)
        self.outputs: list[tuple[int, Spec, weakref.ref[StorageValue]]] = []
        self.written: list[tuple[StorageValue, weakref.ref[StorageValue]]] = []  # before, after

    def gives(self, index: int, spec: Spec, value: StorageValue) -> None:
        """Note that an output of the call is, in a geometry, the value of a new storage."""
        value.call = self
        self.outputs.append((index, spec, weakref.ref(value)))

    def writes(self, before: StorageValue, after: StorageValue) -> None:
        """Note that the call writes to a storage, and what that holds afterwards."""
        after.call = self
        self.written.append((before, weakref.ref(after)))

    def run(self) -> dict[int, Tensor]:
        """Run the operator on the host and keep its results; everything that it reads is there.

        Returns:
            All elements of what it has written, by the identity of the value before.
        """
        result, writable = self.result()
        flat_results = result if isinstance(result, (list, tuple)) else [result]
        for index, spec, reference in self.outputs:
            value = reference()
            if value is not None and value.call is self:
                value.flat = _in_a_row(flat_results[index], spec, value.elements)
                value.call = None
        for before, reference in self.written:
            after = reference()
            if after is not None and after.call is self:
                after.flat = writable[id(before)]
                after.call = None
        return writable

    def result(self) -> tuple[Any, dict[int, Tensor]]:
        """Return what the operator returns on the host, and what it has written.

        Raises:
            UnknownValueError: if it has no CPU kernel, or what it reads cannot be worked out.
        """
        writable: dict[int, Tensor] = {}
        for read in self.reads:
            if read.writes and id(read.value) not in writable:
                writable[id(read.value)] = read.value.worked_out().clone()

        def real(read: StorageView) -> Tensor:
            flat = writable.get(id(read.value))
            return read.of(read.value.worked_out() if flat is None else flat)

        args = mapped(StorageView, real, self.args)
        kwargs = on_host(mapped(StorageView, real, self.kwargs))
        try:
            with torch.no_grad(), _seeded(self.seed):
                result = self.func(*args, **kwargs)
        except NotImplementedError as error:
            raise UnknownValueError(f"{self.func} has no CPU kernel to work out values") from error
        return result, writable


def on_host(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the named arguments of an operator with the host as device."""
    return {**kwargs, "device": CPU} if kwargs.get("device") is not None else kwargs


def mapped(kind: type[Any], change: Callable[[Any], Any], structure: Any) -> Any:
    """Return arguments with every member of a kind changed."""
    if isinstance(structure, kind):
        return change(structure)
    if isinstance(structure, (list, tuple)):
        return type(structure)([mapped(kind, change, member) for member in structure])
    if isinstance(structure, dict):
        return {name: mapped(kind, change, member) for name, member in structure.items()}
    return structure


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


def _in_a_row(tensor: Tensor, spec: Spec, elements: int, rest: Tensor | None = None) -> Tensor:
    """Return the elements of a tensor as they lie in its storage on the device.

    Args:
        tensor: of any strides.
        spec: its geometry on the device.
        elements: of the storage.
        rest: what the storage holds elsewhere.
    """
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    is_whole = spec.offset == 0 and tensor.numel() == elements
    if is_whole and tensor.stride() == spec.stride:
        return tensor.as_strided((elements,), (1,))
    flat = torch.zeros(elements, dtype=tensor.dtype) if rest is None else rest.clone()
    flat.as_strided(spec.shape, spec.stride, spec.offset).copy_(tensor)
    return flat
