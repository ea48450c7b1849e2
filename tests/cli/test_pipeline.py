"""What a run skips, how workers and signals are handled, and what is shown."""

import io
import os
import signal
from dataclasses import replace
from importlib.metadata import version

import pytest
from handmade_profiles import linear_step
from rich.console import Console

from exporter.cli.progress import RunProgress, failure_lines, figure, totals_table
from exporter.pipeline.jobs import Job, Outcome
from exporter.pipeline.pipeline import Interruption, split_stored
from exporter.pipeline.worker import Worker
from exporter.settings import Settings, UserModel
from store import open_store
from store.records import Profile
from store.settings import options
from tools.revision_database import small_profile

ASKED = Settings(batch_size=2, image_size=64)
JOB = Job("torchvision", "alexnet", ASKED, "torchvision")


def profile_of(job: Job, **other: str) -> Profile:
    """Return a small profile that has the job's identity, except for what is given."""
    asked = job.settings
    profile = linear_step().profile()
    names = {"zoo": job.zoo, "model": job.model, "batch_size": asked.batch_size}
    info = replace(
        profile.info,
        **names,
        package="torchvision",
        package_version=version("torchvision"),
        config=asked.config(),
        torch_version=version("torch"),
        exporter_version=version("export-profiles"),
        assumption="",
    )
    settings = {
        name: getattr(asked, name)
        for name in ("dtype", "mode", "backward", "input_grad", "target", "attention", "autocast")
    }
    info = replace(info, optimizer=asked.optimizer, **settings)
    info = replace(info, **other)
    names["batch_size"] = info.batch_size
    same = {name: getattr(info, name) for name in ("dtype", "mode", "target", "capture")}
    return replace(profile, info=info, totals=replace(profile.totals, **names, **same))


def failure(model: str, error: str, batch_size: int = 4) -> Outcome:
    """Return the failure of a model."""
    return Outcome(
        replace(JOB, model=model, settings=Settings(batch_size=batch_size)), None, error, 0.5
    )


@pytest.mark.parametrize("build", ["", "+cpu"])
def test_stored_profile_is_skipped(build, tmp_path) -> None:
    """A profile of the same identity counts as stored, whatever the build of torch."""
    with open_store(f"sqlite:///{tmp_path / 'profiles.db'}", create=True) as store:
        store.write(profile_of(JOB, torch_version=version("torch") + build))
        assert split_stored([JOB], store) == ([], [JOB])


def other_values():
    """Yield another value for each option that is stored, by its name."""
    for name, option in options(Settings).items():
        value = getattr(ASKED, name)
        if name in ("capture", "assume"):  # a stored profile may answer several, see below
            continue
        if option.choices:
            yield {name: next(choice for choice in option.choices if choice != value)}
        elif isinstance(value, tuple):
            yield {name: (("depth", "9"),)}
        else:
            yield {name: not value if isinstance(value, bool) else value + 1}


@pytest.mark.parametrize("other", list(other_values()), ids=lambda other: next(iter(other)))
def test_other_settings_are_missing(other, tmp_path) -> None:
    """A job that differs in one setting only is not taken for stored."""
    job = replace(JOB, settings=replace(ASKED, **other))
    with open_store(f"sqlite:///{tmp_path / 'profiles.db'}", create=True) as store:
        store.write(profile_of(JOB))
        assert split_stored([job], store) == ([job], [])


def user_job(**other: object) -> Job:
    """Return a job for a user's model."""
    return Job("user", "nets:make", replace(ASKED, image_size=0, user=UserModel(**other)), "")


@pytest.mark.parametrize(
    ("left", "stored", "there"),
    [
        ({}, {}, True),
        ({}, {"batch_size": 3}, False),
        ({}, {"dtype": "bfloat16"}, False),
        ({"user_batch": True}, {"batch_size": 3}, True),
        ({"user_dtype": True}, {"dtype": "bfloat16"}, True),
        ({"user_dtype": True}, {"batch_size": 3}, False),
        ({"user_dtype": True}, {"config": "{}"}, False),  # as it was made, or as it was asked
        ({"source": "0123"}, {"config": '{"source": "4567"}'}, False),
    ],
)
def test_user_model_is_found_by_what_was_asked(left, stored, there, tmp_path) -> None:
    """What the user's code decides is not known before, so any value of it counts as stored."""
    job = user_job(**left)
    with open_store(f"sqlite:///{tmp_path / 'profiles.db'}", create=True) as store:
        store.write(profile_of(job, package="", package_version="", **stored))
        assert split_stored([job], store) == (([], [job]) if there else ([job], []))


@pytest.mark.parametrize(
    ("asked", "capture", "assumption", "there"),
    [
        ({}, "drawn", "drawn-values", True),
        ({}, "drawn", "keep-all", False),
        ({"assume": "keep-all"}, "drawn", "keep-all", True),
        ({"assume": "keep-all"}, "meta", "", True),  # it needed none
        ({"assume": "keep-all"}, "drawn", "drawn-values", False),
        ({"capture": "real"}, "real", "seeded-values", True),
        ({"capture": "real"}, "real", "", True),
        ({"capture": "real"}, "meta", "", False),
        ({"capture": "drawn"}, "drawn", "drawn-values", True),
        ({"capture": "drawn"}, "meta", "", True),  # it needed no values
        ({"capture": "drawn"}, "real", "seeded-values", False),
        ({"capture": "drawn", "assume": "keep-all"}, "drawn", "keep-all", True),
        ({"capture": "meta"}, "drawn", "drawn-values", False),
        ({}, "real", "seeded-values", False),
    ],
)
def test_profile_with_an_assumption_is_found(asked, capture, assumption, there, tmp_path) -> None:
    """A profile answers a job that would make the same assumption."""
    job = replace(JOB, settings=replace(ASKED, **asked))
    with open_store(f"sqlite:///{tmp_path / 'profiles.db'}", create=True) as store:
        store.write(profile_of(job, capture=capture, assumption=assumption))
        assert split_stored([job], store) == (([], [job]) if there else ([job], []))


@pytest.mark.parametrize("name", ["package_version", "torch_version", "exporter_version"])
def test_other_versions_are_missing(name, tmp_path) -> None:
    """A profile of another version is not taken for the one asked for."""
    with open_store(f"sqlite:///{tmp_path / 'profiles.db'}", create=True) as store:
        store.write(profile_of(JOB, **{name: "0.0.1"}))
        assert split_stored([JOB], store) == ([JOB], [])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"batch_size": 0}, "batch size 0"),
        ({"image_size": -1}, "image size -1"),
        ({"dtype": "int8"}, "dtype 'int8' is none of 'float32'"),
        ({"backward": False, "optimizer": "sgd"}, "needs a backward pass"),
    ],
)
def test_settings_refuse_what_is_no_choice(wrong, says) -> None:
    """A value that is none of its choices is named."""
    with pytest.raises(ValueError, match=says):
        Settings(**wrong)


def next_outcome(worker: Worker) -> Outcome:
    """Return the outcome of the worker's job, whenever it comes."""
    while (build := worker.receive()) is None:
        pass
    return build()


def test_worker_that_dies_gives_a_failure() -> None:
    """A worker killed at its job yields that job's failure, with the signal's name."""
    worker = Worker()
    try:
        worker.send(JOB)
        os.kill(worker._process.pid, signal.SIGKILL)
        outcome = next_outcome(worker)
        assert (outcome.job, outcome.profile) == (JOB, None)
        assert "SIGKILL" in outcome.error
        assert not worker.alive
    finally:
        worker.stop()


def test_worker_reports_errors_in_one_line() -> None:
    """What cannot be built is reported by a worker that stays at work."""
    worker = Worker()
    try:
        for model in ("ssd300_vgg16", "no_such_model"):
            worker.send(replace(JOB, model=model))
            outcome = next_outcome(worker)
            assert outcome.profile is None
            assert model in outcome.error
            assert "\n" not in outcome.error
            assert worker.alive
    finally:
        worker.stop()


def test_interruption_notes_the_first_signal_only() -> None:
    """The first interrupt is noted and nothing else happens; the second acts as usual."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
    try:
        with Interruption() as interruption:
            assert interruption.signal == 0
            signal.raise_signal(signal.SIGINT)
            assert interruption.signal == signal.SIGINT
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_failures_that_share_a_reason_share_a_line() -> None:
    """Models that failed for the same reason are listed together, others by themselves."""
    lines = failure_lines(
        [
            failure("fcos", "fcos: nonzero needs values"),
            failure("vgg11", "KeyError: 'vgg11'"),
            failure("ssd", "ssd: nonzero needs values"),
        ]
    )
    assert lines == ["nonzero needs values (fcos, ssd)", "vgg11: KeyError: 'vgg11'"]


def test_failures_of_a_sweep_name_the_batch_size() -> None:
    """When batch sizes differ, a failure says which one it is."""
    lines = failure_lines([failure("ssd", "too large", 8), failure("ssd", "too small", 1)])
    assert lines == ["ssd (batch 8): too large", "ssd (batch 1): too small"]


def test_progress_is_one_plain_line_per_model_in_a_pipe() -> None:
    """Without a terminal each model is a line with its place in the run, and no control codes."""
    output = io.StringIO()
    profile = profile_of(JOB)
    profile = replace(profile, totals=replace(profile.totals, seconds=0.25))
    with RunProgress(Console(file=output), 2) as progress:
        progress.finished(failure("fcos", "why"))
        progress.finished(Outcome(JOB, profile, "", 1.25))
    assert output.getvalue().splitlines() == [
        "fcos (batch 4)  failed  0.50 s  1/2",
        "alexnet (batch 2)  ok  0.25 s  2/2",  # as the profile, and so the table, has it
    ]


@pytest.mark.parametrize(
    ("value", "step", "expected"),
    [
        (0, 1000, "0 x"),
        (999, 1000, "999 x"),
        (1000, 1000, "1.00 kx"),
        (3200, 1000, "3.20 kx"),
        (9_996, 1000, "10.0 kx"),
        (99_960, 1000, "100 kx"),
        (999_499, 1000, "999 kx"),
        (999_500, 1000, "1.00 Mx"),
        (12_345_678_901, 1000, "12346 Mx"),
        (1023, 1024, "1023 x"),
        (1536, 1024, "1.50 kx"),
        (1024**2 - 1, 1024, "1.00 Mx"),
    ],
)
def test_figures_have_the_unit_of_their_size(value, step, expected) -> None:
    """Three significant digits, whole in the smallest unit, and never a thousand of a unit."""
    assert figure(value, ("x", "kx", "Mx"), step) == expected


def test_table_shows_small_models() -> None:
    """The figures of a handful of operations are no zeros."""
    output = io.StringIO()
    Console(file=output, width=120).print(totals_table([small_profile().totals]))
    row = " ".join(output.getvalue().splitlines()[1].split())
    assert row == "net 2 4 7 56 FLOP 56 FLOP 48 B 32 B 0.25 s"  # worked out at small_profile


def test_progress_is_live_on_a_terminal() -> None:
    """On a terminal finished models stay above a bar that shows how many are left."""
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=100)
    with RunProgress(console, 2) as progress:
        progress.finished(failure("fcos", "why"))
    assert "fcos (batch 4)  failed" in output.getvalue()
    assert "1/2" in output.getvalue()
