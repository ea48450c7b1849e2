"""CUDA's caching allocator, simulated: which block serves a request, and what is reserved for it.

The rules are those of PyTorch's ``CUDACachingAllocator`` with default options, one stream and
enough memory on the device; the constants are those of ``c10/core/AllocatorConfig.h``.

- A request is rounded up to a multiple of 512 bytes; no bytes get no block.
- Requests up to 1 MiB are served from segments of 2 MiB (the small pool). Others come from the
  large pool: segments of 20 MiB for requests below 10 MiB, else of the request rounded up to 2 MiB.
- The smallest free block of the pool that is large enough serves, at the lowest address if several
  are that small. Only when none fits, a new segment is reserved.
- What remains is split off if it is at least 512 bytes (small pool) or more than 1 MiB (large
  pool); otherwise it stays inside the block and counts as allocated.
- A freed block merges with free neighbours of its segment. Segments are never given back.

Matrix libraries take a workspace from the same allocator; it belongs to no tensor and is listed
apart (:func:`workspace_bytes`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MIN_BLOCK_BYTES = 512
SMALL_REQUEST_BYTES = 1 << 20
SMALL_SEGMENT_BYTES = 2 << 20
MIN_LARGE_REQUEST_BYTES = 10 << 20
LARGE_SEGMENT_BYTES = 20 << 20
SEGMENT_ROUNDING_BYTES = 2 << 20

# A free block's place in the order of its pool is one integer, size before address.
_ADDRESS_BITS = 52
_ADDRESS_MASK = (1 << _ADDRESS_BITS) - 1


class Block:
    """Part of a segment, in use or free, linked to its neighbours."""

    __slots__ = ("address", "following", "in_use", "is_small", "preceding", "requested", "size")

    def __init__(self, address: int, size: int, *, is_small: bool) -> None:
        self.address = address
        self.size = size
        self.requested = 0
        self.in_use = False
        self.is_small = is_small
        self.preceding: Block | None = None
        self.following: Block | None = None


@dataclass(frozen=True, slots=True)
class PlacedBlock:
    """A block as it lies in its segment; ``requested_bytes`` is 0 while it is free."""

    address: int
    size_bytes: int
    requested_bytes: int
    in_use: bool


@dataclass(frozen=True, slots=True)
class Segment:
    """Memory reserved in one piece; its blocks tile it in the order of their addresses."""

    address: int
    size_bytes: int
    is_small: bool
    blocks: tuple[PlacedBlock, ...]


@dataclass(frozen=True, slots=True)
class PoolTotals:
    """Bytes asked for, bytes of the blocks that serve them, and bytes of all segments."""

    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True)
class Event:
    """Something that the allocator did, and its sums afterwards.

    ``action``: "segment" (memory reserved), "malloc" or "free" (of a block).
    """

    action: str
    address: int
    size_bytes: int
    totals: PoolTotals


class CachingAllocator:
    """The allocator of one device and one stream, empty at first.

    With ``keep_events`` it keeps what it does in ``events``, in order: the sums over time.
    Addresses are synthetic: segments follow each other from 0 in the order of their reservation,
    so every segment starts at a multiple of 2 MiB and the highest address is ``reserved_bytes``.
    """

    def __init__(self, *, keep_events: bool = False) -> None:
        self.events: list[Event] = []
        self._keep_events = keep_events
        self.requested_bytes = 0
        self.allocated_bytes = 0
        self.reserved_bytes = 0
        self.peak_requested_bytes = 0
        self.peak_allocated_bytes = 0
        self._first_blocks: list[Block] = []  # of each segment
        self._free_keys: tuple[list[int], list[int]] = ([], [])  # sorted, of large and small pool
        self._free_blocks: dict[int, Block] = {}  # by address

    def malloc(self, size_bytes: int) -> Block | None:
        """Return the block that serves a request, ``None`` for no bytes.

        Raises:
            ValueError: if the size is negative.
        """
        if size_bytes <= 0:
            if size_bytes:
                raise ValueError(f"cannot allocate {size_bytes} bytes")
            return None
        size = (size_bytes + MIN_BLOCK_BYTES - 1) & -MIN_BLOCK_BYTES  # a power of two
        is_small = size <= SMALL_REQUEST_BYTES
        keys = self._free_keys[is_small]
        position = bisect_left(keys, size << _ADDRESS_BITS)
        if position < len(keys):
            block = self._free_blocks.pop(keys.pop(position) & _ADDRESS_MASK)
        else:
            block = self._reserve(size, is_small=is_small)
        rest = block.size - size
        if rest >= MIN_BLOCK_BYTES if is_small else rest > SMALL_REQUEST_BYTES:
            tail = Block(block.address + size, rest, is_small=is_small)
            tail.preceding, tail.following = block, block.following
            if tail.following is not None:
                tail.following.preceding = tail
            block.following = tail
            block.size = size
            insort(keys, tail.size << _ADDRESS_BITS | tail.address)
            self._free_blocks[tail.address] = tail
        block.in_use = True
        block.requested = size_bytes
        self.requested_bytes += size_bytes
        self.allocated_bytes += block.size
        if self.requested_bytes > self.peak_requested_bytes:  # noqa: PLR1730  # max() is a call
            self.peak_requested_bytes = self.requested_bytes
        if self.allocated_bytes > self.peak_allocated_bytes:  # noqa: PLR1730
            self.peak_allocated_bytes = self.allocated_bytes
        if self._keep_events:
            self.events.append(Event("malloc", block.address, block.size, self.totals()))
        return block

    def free(self, block: Block | None) -> None:
        """Take a block back and merge it with its free neighbours; ``None`` is no block.

        Raises:
            ValueError: if the block is not in use.
        """
        if block is None:
            return
        if not block.in_use:
            raise ValueError(f"the block at address {block.address} is not in use")
        self.requested_bytes -= block.requested
        self.allocated_bytes -= block.size
        if self._keep_events:
            self.events.append(Event("free", block.address, block.size, self.totals()))
        block.in_use = False
        block.requested = 0
        keys, free = self._free_keys[block.is_small], self._free_blocks
        merged = block
        before, after = block.preceding, block.following
        if before is not None and not before.in_use:
            del keys[bisect_left(keys, before.size << _ADDRESS_BITS | before.address)]
            before.size += block.size
            before.following = after
            merged = before
        if after is not None:
            after.preceding = merged
            if not after.in_use:
                del keys[bisect_left(keys, after.size << _ADDRESS_BITS | after.address)]
                del free[after.address]
                merged.size += after.size
                merged.following = after.following
                if merged.following is not None:
                    merged.following.preceding = merged
        insort(keys, merged.size << _ADDRESS_BITS | merged.address)
        free[merged.address] = merged

    def totals(self) -> PoolTotals:
        """The sums as they are now."""
        return PoolTotals(self.requested_bytes, self.allocated_bytes, self.reserved_bytes)

    def peaks(self) -> PoolTotals:
        """The highest sums so far, each for itself; what is reserved only grows."""
        return PoolTotals(self.peak_requested_bytes, self.peak_allocated_bytes, self.reserved_bytes)

    def segments(self) -> tuple[Segment, ...]:
        """Return all segments with the blocks that tile them, in the order of their addresses."""
        return tuple(self._segment(first) for first in self._first_blocks)

    @staticmethod
    def _segment(first: Block) -> Segment:
        blocks = []
        block: Block | None = first
        while block is not None:
            blocks.append(PlacedBlock(block.address, block.size, block.requested, block.in_use))
            block = block.following
        size = sum(placed.size_bytes for placed in blocks)
        return Segment(first.address, size, first.is_small, tuple(blocks))

    def _reserve(self, size: int, *, is_small: bool) -> Block:
        if is_small:
            segment_bytes = SMALL_SEGMENT_BYTES
        elif size < MIN_LARGE_REQUEST_BYTES:
            segment_bytes = LARGE_SEGMENT_BYTES
        else:
            segment_bytes = -(-size // SEGMENT_ROUNDING_BYTES) * SEGMENT_ROUNDING_BYTES
        block = Block(self.reserved_bytes, segment_bytes, is_small=is_small)
        self.reserved_bytes += segment_bytes
        self._first_blocks.append(block)
        if self._keep_events:
            self.events.append(Event("segment", block.address, block.size, self.totals()))
        return block


@dataclass(frozen=True, slots=True)
class Replay:
    """Where each storage was placed, and the allocator's sums at three moments.

    ``block_bytes`` and ``addresses`` follow the order of the storages; an empty storage has no
    block: 0 bytes at address -1. ``model`` is what is held for the model alone; ``peaks`` holds
    the highest sums of the whole run.
    """

    block_bytes: tuple[int, ...]
    addresses: tuple[int, ...]
    model: PoolTotals
    forward_end: PoolTotals
    peaks: PoolTotals


def replay(
    storages: Iterable[tuple[int, int, int]], forward_end_step: int, *, model_count: int = 0
) -> Replay:
    """Return where the allocator places storages, and what it holds for them.

    A step's births come before its deaths: a storage is alive at step ``i`` when
    ``birth <= i <= death``. Births of one step happen in the order of the storages.

    Args:
        storages: size in bytes, birth step (-1: before the first) and death step of each.
        forward_end_step: the last step of the forward pass; sums are taken when what it was the
            last to need has been freed.
        model_count: how many of the storages, the first ones, are the model's.

    Raises:
        ValueError: if a size is negative, or a storage dies before it is born.
    """
    rows = list(storages)
    allocator = CachingAllocator()
    malloc, free = allocator.malloc, allocator.free
    blocks: list[Block | None] = [None] * len(rows)
    block_bytes = [0] * len(rows)
    addresses = [-1] * len(rows)
    born, died = [birth for _, birth, _ in rows], [death for _, _, death in rows]
    for index, (size, birth, death) in enumerate(rows):
        if death < birth:
            raise ValueError(f"storage {index} of {size} bytes dies at {death}, born at {birth}")
    births = sorted(range(len(rows)), key=born.__getitem__)
    deaths = sorted(range(len(rows)), key=died.__getitem__)
    freed = 0

    def free_up_to(step: int) -> None:
        nonlocal freed
        while freed < len(deaths) and died[deaths[freed]] <= step:
            free(blocks[deaths[freed]])
            freed += 1

    def place(indices: Sequence[int]) -> None:
        step = -2  # of the births before
        for index in indices:
            if born[index] > step:
                step = born[index]
                free_up_to(step - 1)
            block = malloc(rows[index][0])
            if block is not None:
                blocks[index] = block
                block_bytes[index] = block.size
                addresses[index] = block.address

    forward_count = bisect_right(births, forward_end_step, key=born.__getitem__)
    place(births[:model_count])
    model = allocator.totals()
    place(births[model_count:forward_count])
    free_up_to(forward_end_step)
    forward_end = allocator.totals()
    place(births[forward_count:])
    return Replay(tuple(block_bytes), tuple(addresses), model, forward_end, allocator.peaks())


# cuBLAS's documented default before Hopper: two chunks of 4 MiB and eight of 16 KiB.
DEFAULT_WORKSPACE = ":4096:2:16:8"


def workspace_bytes(config: str = DEFAULT_WORKSPACE) -> int:
    """Return the bytes of cuBLAS's workspace, which PyTorch takes from the same allocator.

    It is taken at the first matrix product and kept, one per handle and stream. PyTorch's
    ``getChosenWorkspaceSize`` (``ATen/cuda/CublasHandlePool.cpp``) reads it from
    ``CUBLAS_WORKSPACE_CONFIG``; unset, it is ``:4096:2:16:8`` (8,519,680 bytes), and
    ``:4096:8`` (32 MiB) on Hopper (compute capability 9.0).

    Args:
        config: pairs of chunk size in KiB and number of chunks, as in ``CUBLAS_WORKSPACE_CONFIG``.

    Raises:
        ValueError: if the text is not made of such pairs.
    """
    sizes = config.removeprefix(":").split(":")
    if not config.startswith(":") or len(sizes) % 2 or not all(s.isdecimal() for s in sizes):
        raise ValueError(
            f"workspace configuration {config!r} is no list of pairs such as {DEFAULT_WORKSPACE!r}"
        )
    return sum(int(s) * 1024 * int(n) for s, n in zip(sizes[::2], sizes[1::2], strict=True))
