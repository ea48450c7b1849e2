"""Live bytes of hand-made steps, why storages live on, and how few bytes would do."""

from __future__ import annotations

import pytest
from handmade_profiles import Hand, linear_step

from queries import liveness
from store import open_store
from store.errors import ProfileMissing


@pytest.fixture
def store(tmp_path):
    """Open an empty store."""
    with open_store(f"sqlite:///{tmp_path}/profiles.db", create=True) as opened:
        yield opened


def live(store, hand, **info):
    """Return the liveness of a hand-made profile."""
    return liveness(store, store.write(hand.profile(**info)))


def by_size(storages):
    """Return names or sizes of storages, for reading."""
    return [(s.name or s.storage_class, s.size_bytes) for s in storages]


def test_live_bytes_of_a_step(store):
    """W 64 and x 128 throughout; h 32 until step 2; y from 1; gradients 32, 32 and 64."""
    result = live(store, linear_step())
    assert result.live_bytes == (
        64 + 128 + 32,  # h
        64 + 128 + 32 + 32,  # h, y
        64 + 128 + 32 + 32 + 32,  # h, y, gradient of y
        64 + 128 + 32 + 32 + 32,  # y, both gradients
        64 + 128 + 32 + 32 + 64,  # y, gradient of h, gradient of w
    )
    assert (result.peak_bytes, result.peak_op_id) == (320, 4)
    assert result.phases == ("forward",) * 2 + ("backward",) * 3


def test_peak_is_that_of_the_profile(store):
    """The peak equals the profile's own, and every step equals the operator's."""
    profile = linear_step().profile()
    result = liveness(store, store.write(profile))
    assert result.peak_bytes == profile.totals.peak_bytes
    assert list(result.live_bytes) == profile.ops.column("live_bytes")


def test_outlived_steps_end_with_the_step(store):
    """Of five steps, w is last used at step 0 and stays: it is alive at 1 to 4, four steps more.

    X is used at the last step and h at step 1, one before it is freed.
    """
    steps = {s.name or s.storage_id: s.outlived_steps for s in live(store, linear_step()).storages}
    assert (steps["fc.weight"], steps["x"], steps[2]) == (4, 0, 1)


def test_what_is_live_at_the_peak(store):
    """Largest first, then oldest, with maker and the call that is waited for."""
    result = live(store, linear_step())
    assert by_size(result.at_peak) == [
        ("x", 128), ("fc.weight", 64), ("gradient", 64), ("activation", 32), ("gradient", 32),
    ]  # fmt: skip
    y = result.at_peak[3]
    assert (y.made_by, y.module, y.waits_for, y.waits_phase) == ("act", "act", "act", "backward")
    assert result.peak_by_class == {
        "input": 128, "gradient": 96, "parameter": 64, "activation": 32,
    }  # fmt: skip
    assert result.peak_by_module == {"fc": 128, "": 128, "act": 64}
    assert result.peak_by_call == {"": 192, "act": 64, "fc": 64}
    assert sum(result.peak_by_module.values()) == result.peak_bytes


def test_bound_frees_after_the_last_use(store):
    """The product h is last read by relu at step 1, so the bound lacks it at step 2."""
    result = live(store, linear_step())
    assert result.bound_bytes == (224, 256, 256, 288, 320)
    assert result.bound_peak_bytes == 320
    h = next(s for s in result.storages if s.storage_class == "temporary")
    assert (h.reason, h.last_use_op_id, h.death_op_id, h.outlived_steps) == ("name", 1, 2, 1)


def test_bound_is_never_above_what_is_live(store):
    """A storage that a name holds on to makes the peak, and the bound does without it."""
    hand = Hand()
    a = hand.tensor(hand.storage(4, "input"), role="input", name="a")
    hand.op("exp", (a,))
    big = hand.made(0, 1000, death=2)
    hand.op("sum", (big,))
    hand.made(1, 4)
    hand.op("exp", (a,))
    hand.made(2, 500)
    result = live(store, hand)
    assert result.live_bytes == (1004, 1008, 1508)
    assert result.bound_bytes == (1004, 1008, 504)  # nothing reads the sum either
    assert (result.bound_peak_bytes, result.bound_peak_op_id) == (1008, 1)


def reasons_hand():
    """Return a step with one storage for every reason to live on."""
    hand = Hand()
    node = hand.node("f", "call_function")
    out = hand.node("output", "output")
    w = hand.tensor(hand.storage(4, "parameter"), role="parameter", name="w")
    hand.op("exp", (w,), node=node)
    saved = hand.made(0, 8, death=3)
    hand.op("exp", (saved,), node=node)
    result = hand.made(1, 16)
    hand.op("exp", (saved,), node=node)
    hand.made(2, 32)  # nothing holds it that we know of
    hand.op("neg", (w,), phase="backward")
    hand.made(3, 64, kind="gradient")
    hand.op("neg", (w,), phase="backward")
    hand.save(saved, node, 0, "intermediate")
    hand.edge(node, out, result, 16)
    return hand


def test_reasons_to_outlive_the_last_use(store):
    """Output, caller, saved and cycle are told apart; what dies at its last use has no reason."""
    result = live(store, reasons_hand())
    assert [(s.size_bytes, s.reason) for s in result.storages] == [
        (4, ""), (8, "saved"), (16, "output"), (32, "cycle"), (64, "caller"),
    ]  # fmt: skip
    # largest bytes times steps first, then oldest: 32 * 2, 64 * 1, 16 * 3, 8 * 1
    assert [s.size_bytes for s in result.outliving] == [32, 64, 16, 8]


def test_output_and_gradients_stay_in_the_bound(store):
    """What the caller holds cannot be freed; what is lost in a cycle can."""
    result = live(store, reasons_hand())
    assert result.live_bytes == (12, 28, 60, 124, 116)
    assert result.bound_bytes == (12, 28, 60, 84, 84)


def test_view_keeps_its_storage_in_use(store):
    """Reading a view is a use of the storage below it."""
    hand = Hand()
    hand.op("zeros")
    base = hand.made(0, 16, death=2)
    hand.op("view", (base,), view=True)
    view = hand.view(1, base)
    hand.op("exp", (view,))
    hand.made(2, 16)
    result = live(store, hand)
    assert (result.storages[0].last_use_op_id, result.storages[0].reason) == (2, "")


def test_host_memory_is_left_out(store):
    """A storage in host memory is in no sum and in no list."""
    hand = Hand()
    hand.tensor(hand.storage(10**6, "input", host=True), role="input", name="labels")
    x = hand.tensor(hand.storage(8, "input"), role="input", name="x")
    hand.op("exp", (x,))
    hand.made(0, 8)
    result = live(store, hand)
    assert (result.peak_bytes, [s.name for s in result.storages]) == (16, ["x", ""])


def test_profile_without_steps_has_a_peak(store):
    """A model that runs nothing still holds its parameters."""
    hand = Hand()
    hand.tensor(hand.storage(48, "parameter"), role="parameter", name="w")
    result = live(store, hand)
    assert (result.peak_bytes, result.peak_op_id, result.live_bytes) == (48, -1, ())
    assert [s.name for s in result.at_peak] == ["w"]


def test_large_sizes_stay_exact(store):
    """Sums beyond 2^53 keep their last byte."""
    hand = Hand()
    hand.storage(2**53, "parameter")
    hand.tensor(0, role="parameter", name="w")
    hand.op("exp", (0,))
    hand.made(0, 1)
    assert live(store, hand).peak_bytes == 2**53 + 1


def test_missing_profile_is_an_error(store):
    """A number that no profile has is named."""
    with pytest.raises(ProfileMissing, match="99"):
        liveness(store, 99)
