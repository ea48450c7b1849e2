"""The allocator's simulation against hand arithmetic and a literal reference."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.targets.allocator import (
    CachingAllocator,
    Event,
    PoolTotals,
    replay,
    workspace_bytes,
)

M = 1 << 20


@dataclass
class Chunk:
    size: int
    free: bool = True
    asked: int = 0


@dataclass
class ReferencePool:
    """The published rules read aloud: every list is searched from the start."""

    segments: list[tuple[bool, list[Chunk]]] = field(default_factory=list)

    def malloc(self, asked):
        size = (asked + 511) // 512 * 512
        small = size <= M
        candidates = [
            (chunk.size, number, place)
            for number, (is_small, chunks) in enumerate(self.segments)
            for place, chunk in enumerate(chunks)
            if is_small == small and chunk.free and chunk.size >= size
        ]
        if candidates:
            _, number, place = min(candidates)
        else:
            if small:
                reserved = 2 * M
            elif size < 10 * M:
                reserved = 20 * M
            else:
                reserved = (size + 2 * M - 1) // (2 * M) * (2 * M)
            self.segments.append((small, [Chunk(reserved)]))
            number, place = len(self.segments) - 1, 0
        chunks = self.segments[number][1]
        chunk = chunks[place]
        left = chunk.size - size
        if (small and left >= 512) or (not small and left > M):
            chunk.size = size
            chunks.insert(place + 1, Chunk(left))
        chunk.free, chunk.asked = False, asked
        return chunk

    def free(self, chunk):
        chunk.free, chunk.asked = True, 0
        for _, chunks in self.segments:
            place = 0
            while place + 1 < len(chunks):
                if chunks[place].free and chunks[place + 1].free:
                    chunks[place].size += chunks.pop(place + 1).size
                else:
                    place += 1

    def layout(self):
        return [
            (small, [(c.size, not c.free, c.asked) for c in chunks])
            for small, chunks in self.segments
        ]


def layout(allocator):
    """Return the allocator's segments in the form of the reference's layout."""
    return [
        (s.is_small, [(b.size_bytes, b.in_use, b.requested_bytes) for b in s.blocks])
        for s in allocator.segments()
    ]


def totals(allocator):
    """Return requested, allocated and reserved bytes."""
    t = allocator.totals()
    return t.requested_bytes, t.allocated_bytes, t.reserved_bytes


def test_requests_round_up_to_512_and_nothing_gets_no_block():
    """Sizes 0, 1, 511, 512 and 513 take 0, 512, 512, 512 and 1024 bytes of one small segment."""
    pool = CachingAllocator()
    blocks = [pool.malloc(n) for n in (0, 1, 511, 512, 513)]
    assert blocks[0] is None
    assert [b.size for b in blocks[1:]] == [512, 512, 512, 1024]
    assert totals(pool) == (1537, 2560, 2 * M)


@pytest.mark.parametrize(
    ("size", "allocated", "reserved"),
    [
        (39 * M // 2, 20 * M, 20 * M),  # half a MiB would remain
        (19 * M, 20 * M, 20 * M),  # exactly 1 MiB would remain
        (19 * M - 512, 19 * M - 512, 20 * M),  # 1 MiB + 512: split off
        (M, M, 2 * M),  # the largest small request
        (M + 1, M + 512, 20 * M),  # the smallest large one
        (10 * M - 512, 10 * M - 512, 20 * M),
        (10 * M, 10 * M, 10 * M),
        (11 * M, 12 * M, 12 * M),  # 1 MiB left over
        (10 * M + 1, 10 * M + 512, 12 * M),
    ],
)
def test_single_request_is_placed_as_published(size, allocated, reserved):
    """One request in an empty pool reserves and keeps what the split rule says."""
    pool = CachingAllocator()
    pool.malloc(size)
    assert totals(pool) == (size, allocated, reserved)


def test_fragmented_pool_takes_the_best_fit_and_merges_neighbours():
    """Holes of 6 and 8 MiB serve no 9 MiB; 5.5 MiB goes into the 6 MiB hole, unsplit."""
    pool = CachingAllocator()
    a, b, c = (pool.malloc(6 * M) for _ in range(3))
    assert totals(pool) == (18 * M, 18 * M, 20 * M)
    pool.free(a)
    pool.free(c)
    assert totals(pool) == (6 * M, 6 * M, 20 * M)
    pool.malloc(9 * M)
    assert totals(pool) == (15 * M, 15 * M, 40 * M)
    again = pool.malloc(11 * M // 2)
    assert (again.address, again.size) == (0, 6 * M)
    assert totals(pool) == (20 * M + M // 2, 21 * M, 40 * M)
    pool.free(b)
    assert pool.reserved_bytes == 40 * M


def test_equal_holes_are_filled_at_the_lowest_address_first():
    """Of three free blocks of equal size the one at the lowest address serves."""
    pool = CachingAllocator()
    blocks = [pool.malloc(512) for _ in range(6)]
    for block in (blocks[4], blocks[0], blocks[2]):
        pool.free(block)
    assert [pool.malloc(512).address for _ in range(3)] == [0, 1024, 2048]


def test_block_freed_twice_is_refused():
    """A second free of one block names its address."""
    pool = CachingAllocator()
    block = pool.malloc(1)
    pool.free(block)
    with pytest.raises(ValueError, match="address 0 is not in use"):
        pool.free(block)


def test_negative_request_is_refused():
    """A negative size names itself."""
    with pytest.raises(ValueError, match="-1 bytes"):
        CachingAllocator().malloc(-1)


SIZES = st.one_of(
    st.integers(1, 4096),
    st.integers(1, 2 * M),
    st.integers(M, 40 * M),
    st.sampled_from([512, M, M + 1, 10 * M - 512, 10 * M - 511, 10 * M, 19 * M, 20 * M]),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.booleans(), SIZES, st.integers(0, 2**20)), max_size=60))
def test_any_sequence_agrees_with_the_literal_reference(events):
    """After every event the layout is the reference's, tiles its segments, and adds up."""
    pool, reference, live = CachingAllocator(), ReferencePool(), []
    for is_free, size, pick in events:
        if is_free and live:
            block, chunk = live.pop(pick % len(live))
            pool.free(block)
            reference.free(chunk)
        else:
            live.append((pool.malloc(size), reference.malloc(size)))
        assert layout(pool) == reference.layout()
        segments = pool.segments()
        end = 0
        for segment in segments:
            assert segment.address == end
            assert segment.address % (2 * M) == 0
            for before, after in zip(segment.blocks, segment.blocks[1:], strict=False):
                assert before.in_use or after.in_use
            for block in segment.blocks:
                assert block.address == end
                end += block.size_bytes
        placed = [b for s in segments for b in s.blocks if b.in_use]
        assert totals(pool) == (
            sum(b.requested_bytes for b in placed),
            sum(b.size_bytes for b in placed),
            end,
        )
    for block, _ in live:
        pool.free(block)
    assert totals(pool)[:2] == (0, 0)
    assert all(len(s.blocks) == 1 for s in pool.segments())


def test_replay_frees_after_a_step_and_before_the_next_births():
    """A storage that dies at step 0 leaves its block to one born at step 1, not to one at 0."""
    result = replay(
        [(512, -1, 9), (0, -1, 9), (600, 0, 0), (700, 0, 9), (800, 1, 1)],
        forward_end_step=1,
        model_count=2,
    )
    assert result.block_bytes == (512, 0, 1024, 1024, 1024)
    assert result.addresses == (0, -1, 512, 1536, 512)
    assert result.model == PoolTotals(512, 512, 2 * M)
    assert result.forward_end == PoolTotals(1212, 1536, 2 * M)
    assert result.peaks == PoolTotals(512 + 700 + 800, 2560, 2 * M)


def test_replay_places_births_of_one_step_in_the_order_given():
    """Storages listed late but born early are placed first; ties keep their order."""
    result = replay([(512, 1, 2), (512, 0, 2), (512, 0, 2)], forward_end_step=0)
    assert result.addresses == (1024, 0, 512)
    assert result.model == PoolTotals(0, 0, 0)
    assert result.forward_end == PoolTotals(1024, 1024, 2 * M)


def test_replay_refuses_a_death_before_the_birth():
    """The storage at fault is named."""
    with pytest.raises(ValueError, match="storage 1 of 8 bytes"):
        replay([(8, 0, 0), (8, 3, 2)], forward_end_step=0)


@pytest.mark.parametrize(
    ("config", "expected"), [(":4096:2:16:8", 8519680), (":4096:8", 32 * M), (":16:8", 131072)]
)
def test_workspace_bytes_sums_chunks(config, expected):
    """Chunks of so many KiB, so many times."""
    assert workspace_bytes(config) == expected
    assert workspace_bytes() == 8519680


@pytest.mark.parametrize("config", ["", ":", "4096:2", ":4096", ":a:b", ":4096:2:"])
def test_workspace_bytes_refuses_what_is_no_list_of_pairs(config):
    """The text at fault is named."""
    with pytest.raises(ValueError, match="workspace configuration"):
        workspace_bytes(config)


def test_events_tell_what_was_reserved_served_and_freed() -> None:
    """Every action stands in order with the sums after it, by hand."""
    allocator = CachingAllocator(keep_events=True)
    block = allocator.malloc(513)
    allocator.free(block)
    allocator.malloc(3 * M)
    assert allocator.events == [
        Event("segment", 0, 2 * M, PoolTotals(0, 0, 2 * M)),
        Event("malloc", 0, 1024, PoolTotals(513, 1024, 2 * M)),
        Event("free", 0, 1024, PoolTotals(0, 0, 2 * M)),
        Event("segment", 2 * M, 20 * M, PoolTotals(0, 0, 22 * M)),
        Event("malloc", 2 * M, 3 * M, PoolTotals(3 * M, 3 * M, 22 * M)),
    ]
    assert CachingAllocator().events == []
