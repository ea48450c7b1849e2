"""Interned tensor geometries: each distinct shape, stride, offset and dtype exists once.

The hot path compares and hashes small integers instead of shapes, and the texts that the database
stores are made once per geometry instead of once per tensor.
"""

from __future__ import annotations

import torch

from exporter.formulas.spec import TensorSpec

_Key = tuple[tuple[int, ...], tuple[int, ...], int, torch.dtype, bool]


def span_bytes(shape: tuple[int, ...], stride: tuple[int, ...], offset: int, itemsize: int) -> int:
    """Return the bytes of the smallest storage that holds a tensor of this geometry."""
    last = offset
    for size, step in zip(shape, stride, strict=True):
        if size == 0:
            return 0
        last += (size - 1) * step
    return (last + 1) * itemsize


# What a geometry fills in of a tensor's row.
COLUMNS = ("shape", "stride", "storage_offset", "dtype", "size_bytes")


class Spec:
    """One geometry: the ``TensorSpec`` that formulas see, and the texts that rows hold."""

    __slots__ = (
        "columns",
        "dtype",
        "dtype_name",
        "host",
        "offset",
        "shape",
        "shape_json",
        "size_bytes",
        "span_bytes",
        "spec_id",
        "stride",
        "stride_json",
        "tensor",
    )

    def __init__(self, spec_id: int, key: _Key) -> None:
        shape, stride, self.offset, self.dtype, self.host = key
        self.spec_id = spec_id
        self.shape = tuple(shape)
        self.stride = tuple(stride)
        self.tensor = TensorSpec(self.shape, self.stride, self.offset, self.dtype)
        self.shape_json = str(list(shape))
        self.stride_json = str(list(stride))
        self.dtype_name = str(self.dtype).removeprefix("torch.")
        self.size_bytes = self.tensor.size_bytes
        self.columns = (  # of a tensor's row: ``COLUMNS``
            self.shape_json,
            self.stride_json,
            self.offset,
            self.dtype_name,
            self.size_bytes,
        )
        self.span_bytes = span_bytes(self.shape, self.stride, self.offset, self.dtype.itemsize)


class SpecTable:
    """All geometries seen by this process, bounded: see ``Memo``, which forgets them together."""

    def __init__(self) -> None:
        self._specs: dict[_Key, Spec] = {}
        self._next_id = 0

    def __len__(self) -> int:
        return len(self._specs)

    def clear(self) -> None:
        """Forget all geometries; identifiers are never given twice."""
        self._specs.clear()

    def intern(
        self,
        shape: tuple[int, ...],
        stride: tuple[int, ...],
        offset: int,
        dtype: torch.dtype,
        host: bool,
    ) -> Spec:
        """Return the one ``Spec`` of this geometry."""
        key = (shape, stride, offset, dtype, host)
        spec = self._specs.get(key)
        if spec is None:
            spec = self._specs[key] = Spec(self._next_id, key)
            self._next_id += 1
        return spec
