"""Sums, comparisons, memory fits and names, on profiles worked out by hand."""

from __future__ import annotations

import pytest
from handmade_profiles import Hand, linear_step

from queries import (
    ProfileNameError,
    QuestionError,
    compare,
    find_profile,
    fits,
    list_devices,
    module_totals,
    operator_totals,
    phase_totals,
)
from store import open_store
from store.errors import ProfileMissing


@pytest.fixture
def store(tmp_path):
    """Open an empty store."""
    with open_store(f"sqlite:///{tmp_path}/profiles.db", create=True) as opened:
        yield opened


def test_module_sums_include_what_is_inside(store):
    """Fc has 64 macs each way and 64 bytes, act 8 FLOPs each way; the model has both."""
    rows = module_totals(store, store.write(linear_step().profile()))
    assert [(r.path, r.depth, r.call_count) for r in rows] == [
        ("", 0, 2),
        ("fc", 1, 1),
        ("act", 1, 1),
    ]
    assert [(r.fwd_flops, r.bwd_flops) for r in rows] == [(136, 136), (128, 128), (8, 8)]
    assert [(r.kept_bytes, r.param_bytes) for r in rows] == [(32, 64), (0, 64), (32, 0)]


def test_depth_cuts_modules_but_not_their_sums(store):
    """At depth 1, a block's sums still hold its grandchildren's work."""
    hand = Hand()
    root = hand.module("", "Net", leaf=False)
    block = hand.module("block", "Block", root, leaf=False)
    inner = hand.module("block.inner", "Sequential", block, leaf=False)
    conv = hand.module("block.inner.0", "Conv2d", inner, param_bytes=8)
    hand.node("conv", module=conv, macs=(7, 14))
    hand.node("add", "call_function", module=block, pointwise=(3, 0))
    profile_id = store.write(hand.profile())
    rows = module_totals(store, profile_id, depth=1)
    assert [(r.path, r.fwd_macs, r.fwd_flops, r.param_bytes) for r in rows] == [
        ("", 7, 17, 8), ("block", 7, 17, 8),
    ]  # fmt: skip
    assert [r.path for r in module_totals(store, profile_id, depth=0)] == [""]
    with pytest.raises(QuestionError, match="-1"):
        module_totals(store, profile_id, depth=-1)


def test_operator_sums_are_ordered_by_flops(store):
    """Both products come first, forward and backward apart."""
    rows = operator_totals(store, store.write(linear_step().profile()))
    assert [(r.operator, r.phase, r.flops) for r in rows[:2]] == [
        ("aten.mm.default", "forward", 128), ("aten.mm.default", "backward", 128),
    ]  # fmt: skip
    assert sum(r.op_count for r in rows) == 5


def test_unknown_operators_are_counted_beside_the_sum(store):
    """A sum of 100 with one unknown operator says so; one of only unknown ones is no plain 0."""
    hand = Hand()
    hand.op("mm", macs=50)
    hand.op("fused", status="unknown")
    rows = operator_totals(store, store.write(hand.profile()))
    assert [(r.operator, r.flops, r.unknown_op_count) for r in rows] == [
        ("aten.mm.default", 100, 0), ("aten.fused.default", 0, 1),
    ]  # fmt: skip
    (forward,) = phase_totals(store, 1)
    assert (forward.flops, forward.unknown_op_count, forward.op_count) == (100, 1, 2)


def test_sums_beyond_2_63_are_exact(store):
    """Each count fits a column, their sum does not: it is added up in Python."""
    hand = Hand()
    for _ in range(4):
        hand.op("mm", macs=2**62 - 1)
    profile_id = store.write(hand.profile())
    assert operator_totals(store, profile_id)[0].macs == 2**64 - 4
    assert phase_totals(store, profile_id)[0].flops == 2**65 - 8


def test_memory_beyond_2_63_is_added_up(store):
    """Two storages, one after the other, fit their columns; the sum of their bytes does not."""
    hand = Hand()
    for step in range(2):
        hand.op("neg")
        hand.storage(2**62 + 1, "optimizer", birth=step, death=step)
    assert fits(store, store.write(hand.profile()), "T4").optimizer_bytes == 2**63 + 2


def test_phases_come_in_the_order_of_a_step(store):
    """Forward reaches 256 bytes, backward 320."""
    rows = phase_totals(store, store.write(linear_step().profile()))
    assert [(r.phase, r.op_count, r.macs, r.peak_bytes) for r in rows] == [
        ("forward", 2, 64, 256), ("backward", 3, 64, 320),
    ]  # fmt: skip


def test_compare_aligns_by_module_and_occurrence(store):
    """A call more in one block moves no other call, whatever the counters in names say."""

    def model(blocks_with_two_adds):
        hand = Hand()
        root = hand.module("", "Net", leaf=False)
        counter = 0
        for name in ("a", "b"):
            block = hand.module(name, "Block", root, leaf=False)
            for _ in range(2 if name in blocks_with_two_adds else 1):
                suffix = f"_{counter}" if counter else ""
                hand.node(f"add{suffix}", "call_function", "add", block, pointwise=(4, 0))
                counter += 1
        return hand

    a = store.write(model("").profile())
    b = store.write(model("a").profile(batch_size=8))
    rows = compare(store, a, b)
    assert [(r.module, r.call, r.found_in) for r in rows] == [
        ("a", "add", "both"), ("a", "add #2", "b"), ("b", "add", "both"),
    ]  # fmt: skip
    assert [r.is_equal for r in rows] == [True, False, True]
    assert [(r.a_fwd_flops, r.b_fwd_flops) for r in rows] == [(4, 4), (0, 4), (4, 4)]


def test_profile_equals_itself(store):
    """Compared with itself, no call differs."""
    profile_id = store.write(linear_step().profile())
    assert all(row.is_equal for row in compare(store, profile_id, profile_id))


def test_step_fits_or_does_not(store):
    """320 bytes at the peak; Adam adds two moments of 64 bytes each."""
    profile_id = store.write(linear_step().profile())
    fit = fits(store, profile_id, "t4", optimizer="adam")
    assert (fit.param_bytes, fit.gradient_bytes, fit.kept_bytes) == (64, 64, 32)
    assert (fit.peak_bytes, fit.added_bytes, fit.needed_bytes) == (320, 128, 448)
    assert (fit.device, fit.memory_bytes, fit.free_bytes) == ("T4", 16 * 10**9, 16 * 10**9 - 448)
    assert fit.is_fitting
    assert (fit.bytes_per_sample, fit.largest_batch_size) == (-1, -1)


def test_step_too_large_does_not_fit(store):
    """A model of 20 GB has -4 GB free on a T4."""
    hand = Hand()
    hand.tensor(hand.storage(20 * 10**9, "parameter"), role="parameter", name="w")
    hand.op("neg", (0,))
    fit = fits(store, store.write(hand.profile()), "T4")
    assert (fit.is_fitting, fit.free_bytes) == (False, -4 * 10**9)


def test_growth_with_the_batch_is_read_off_stored_profiles(store):
    """1,000 bytes plus 100 per sample, measured at 2 and 4: 16 * 10^9 holds 159,999,990."""
    for batch in (2, 4):
        hand = Hand()
        hand.tensor(hand.storage(1000, "parameter"), role="parameter", name="w")
        hand.tensor(hand.storage(100 * batch, "input"), role="input", name="x")
        hand.op("mul", (0, 1))
        profile_id = store.write(hand.profile(batch_size=batch))
    other = Hand(model="other")
    other.tensor(other.storage(5, "parameter"), role="parameter", name="w")
    store.write(other.profile(batch_size=3))
    fit = fits(store, profile_id, "T4")
    assert [(p.batch_size, p.needed_bytes) for p in fit.batches] == [(2, 1200), (4, 1400)]
    assert (fit.bytes_per_sample, fit.largest_batch_size) == (100, 159_999_990)


def test_unknown_optimizer_is_refused(store):
    """The message lists what there is."""
    profile_id = store.write(linear_step().profile())
    with pytest.raises(QuestionError, match="adamw"):
        fits(store, profile_id, "T4", optimizer="lion")


def test_devices_have_peaks_and_sources(store):
    """A dozen accelerators and more, each with float32 and half precision and where it is from."""
    devices = list_devices(store)
    assert {"A100", "H100", "H200", "L4", "T4", "MI300X", "RTX 4090"} <= {d.name for d in devices}
    assert len(devices) >= 12
    for device in devices:
        assert {"float32", "float16", "bfloat16"} <= set(device.peak_flops_per_second)
        assert device.source
        assert device.memory_bytes >= 16 * 10**9
    with pytest.raises(QuestionError, match="int4"):
        devices[0].peak("int4")


def test_names_find_profiles(store):
    """By id, by model, and by what tells its profiles apart."""
    first = store.write(linear_step().profile(batch_size=4))
    second = store.write(linear_step().profile(batch_size=8))
    assert find_profile(store, str(first)) == first
    assert find_profile(store, "toy@b4") == first
    assert find_profile(store, "toy@b8,train") == second
    third = store.write(linear_step().profile(batch_size=8, mode="eval"))
    assert find_profile(store, "toy@b8,eval") == third


def test_ambiguous_name_lists_candidates(store):
    """Two batch sizes: the name alone is refused with both ways to say it."""
    store.write(linear_step().profile(batch_size=4))
    store.write(linear_step().profile(batch_size=8))
    with pytest.raises(ProfileNameError, match=r"ambiguous.*1 = toy@b4.*2 = toy@b8") as caught:
        find_profile(store, "toy")
    assert "\n" not in str(caught.value)


def test_newest_of_one_configuration_wins(store):
    """The same configuration, traced by a later version of torch, hides the older profile."""
    store.write(linear_step().profile(torch_version="2.13.0"))
    newer = store.write(linear_step().profile(torch_version="2.14.1"))
    assert find_profile(store, "toy") == newer


def test_unknown_names_say_what_there_is(store):
    """A misspelt model gets a hint, a missing id and a wrong qualifier get the way out."""
    store.write(linear_step().profile())
    with pytest.raises(ProfileNameError, match="did you mean toy"):
        find_profile(store, "toyy")
    with pytest.raises(ProfileNameError, match="query-profiles list"):
        find_profile(store, "7")
    with pytest.raises(ProfileNameError, match="b4"):
        find_profile(store, "toy@b5")
    with pytest.raises(ProfileMissing):
        module_totals(store, 7)
