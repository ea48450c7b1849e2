"""Runs of the command: what is stored, skipped, replaced, and what survives an end by force."""

import json
import os
import re
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest
from command import EXPORT_PROFILES, REPOSITORY, export_profiles, only_line

from store import open_store

# The smallest runs there are: no backward, small images.
SMALL = ("--image-size", "64", "--forward-only", "--workers", "1")
# A model that ends, one that never does, and one that is not reached: whenever a signal comes, it
# comes in the middle.
NEVER_ENDING = (
    "--module-path", str(Path(__file__).parents[1] / "user_models"), "--input", "float[4,8]",
    "--model", "toy_nets:Net", "--model", "toy_nets:hangs", "--model", "toy_nets:other_default",
)  # fmt: skip


def stored(path: Path) -> list[str]:
    """Return the models in a database, each read whole."""
    with open_store(f"sqlite:///{path}", read_only=True) as store:
        totals = store.totals()
        for row in totals:
            profile = store.read(row.profile_id)
            assert len(profile.nodes) == row.node_count > 0
            assert len(profile.ops) == row.op_count > 0
    return sorted(row.model for row in totals)


def processes_of(parent: int) -> list[int]:
    """Return the worker processes of a command, found by what spawns them."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "status").read_text(errors="replace")
            command = (folder / "cmdline").read_text(errors="replace")
        except OSError:  # it has ended meanwhile
            continue
        if f"\nPPid:\t{parent}\n" in status and "spawn_main" in command:
            found.append(int(folder.name))
    return found


def is_running(process: int) -> bool:
    """Return whether a process is there and not a corpse."""
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


def wait_until(condition) -> None:
    """Wait until the condition holds, and fail if it does not within minutes."""
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_run_stores_then_skips_then_replaces(tmp_path) -> None:
    """A run stores what is missing, a second one has nothing to do, and --force does it anew."""
    path = tmp_path / "new" / "profiles.db"
    asked = ("--db", path, *SMALL, "--model", "alexnet", "--model", "squeezenet1_1")

    first = export_profiles(*asked)
    assert first.returncode == 0, first.stderr
    lines = first.stderr.splitlines()
    assert [line.split()[0] for line in lines] == ["alexnet", "squeezenet1_1"]
    assert all(" ok " in line for line in lines)
    table = first.stdout.splitlines()
    assert [line.split()[0] for line in table[1:3]] == ["alexnet", "squeezenet1_1"]
    assert table[3].startswith(f"2 stored in {path}")
    assert stored(path) == ["alexnet", "squeezenet1_1"]

    second = export_profiles(*asked, "--model", "squeezenet1_0", "--exclude", "*1_0")
    assert (second.returncode, second.stderr) == (0, "")
    assert "2 there already" in only_line(second.stdout)

    third = export_profiles(*asked, "--exclude", "alexnet", "--force", "--json", "--quiet")
    assert (third.returncode, third.stderr) == (0, "")
    summary = json.loads(third.stdout)
    page = (REPOSITORY / "docs" / "cli.md").read_text("utf-8")
    assert list(summary) == re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert [row["model"] for row in summary["stored"]] == ["squeezenet1_1"]
    assert stored(path) == ["alexnet", "squeezenet1_1"]
    with open_store(f"sqlite:///{path}", read_only=True) as store:
        numbers = {row.profile_id for row in store.totals()}
    assert summary["stored"][0]["profile_id"] in numbers


def test_sweep_stores_one_profile_per_batch_size(tmp_path) -> None:
    """Every batch size asked for has its profile, and the same one twice is one."""
    path = tmp_path / "profiles.db"
    sizes = ("--batch-size", "1", "--batch-size", "3", "--batch-size", "1")
    done = export_profiles("--db", path, *SMALL, "--model", "squeezenet1_1", *sizes)
    assert done.returncode == 0, done.stderr
    with open_store(f"sqlite:///{path}", read_only=True) as store:
        rows = {row.batch_size: row for row in store.totals()}
    assert set(rows) == {1, 3}
    assert rows[3].fwd_macs == 3 * rows[1].fwd_macs > 0


def test_failed_models_are_reported_and_the_rest_is_stored(tmp_path) -> None:
    """A model that cannot be built is named with its reason, and the others go on."""
    path = tmp_path / "profiles.db"
    models = ("--model", "maxvit_t", "--model", "ssd300_vgg16", "--model", "squeezenet1_1")
    stopped = export_profiles("--db", path, *SMALL, *models, "--fail-fast")
    assert stopped.returncode == 1
    assert stored(path) == []

    done = export_profiles("--db", path, *SMALL, *models, "--json", "--quiet")
    assert done.returncode == 1
    assert stored(path) == ["squeezenet1_1"]
    failed = {item["model"]: item["error"] for item in json.loads(done.stdout)["failed"]}
    assert set(failed) == {"maxvit_t", "ssd300_vgg16"}
    assert "fixed image size" in failed["ssd300_vgg16"]
    assert len(done.stderr.splitlines()) == 2
    assert "ssd300_vgg16" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("number", "status", "says"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "interrupted"),
        (signal.SIGKILL, -9, ""),
    ],
)
def test_end_by_signal_leaves_whole_profiles(number, status, says, tmp_path) -> None:
    """However a run is ended, what was finished is whole, and its workers end with it."""
    path = tmp_path / "profiles.db"
    process = subprocess.Popen(
        [*EXPORT_PROFILES, "--db", str(path), "--workers", "1", *NEVER_ENDING],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        start_new_session=True,
    )
    first = process.stderr.readline()  # the first model is stored
    assert first.startswith("toy_nets:Net")
    workers = processes_of(process.pid)
    assert len(workers) == 1
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        os.kill(process.pid, number)
    _, rest = process.communicate(timeout=300)
    assert process.returncode == status
    assert "Traceback" not in rest
    assert says in rest
    wait_until(lambda: not any(map(is_running, workers)))
    assert stored(path) == ["toy_nets:Net"]


def test_dead_worker_costs_one_model(tmp_path) -> None:
    """A worker that is killed is the failure of its model; another one does the rest."""
    path = tmp_path / "profiles.db"
    process = subprocess.Popen(
        [*EXPORT_PROFILES, "--db", str(path), "--workers", "1", *NEVER_ENDING],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    assert process.stderr.readline().startswith("toy_nets:Net")
    wait_until(lambda: processes_of(process.pid))  # a user's model has a worker to itself
    os.kill(processes_of(process.pid)[0], signal.SIGKILL)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert errors.splitlines()[-1].startswith("failed: toy_nets:hangs: the worker process was")
    assert "SIGKILL" in errors
    assert stored(path) == ["toy_nets:Net", "toy_nets:other_default"]


def limit_files(size: int) -> None:
    """Have no file of this process grow beyond a size, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_full_disk_is_a_failure_of_an_upgrade(tmp_path) -> None:
    """A database that finds no room is no wrong usage, and is told in one line."""
    path = tmp_path / "profiles.db"
    done = export_profiles("db", "upgrade", "--db", path, preexec_fn=lambda: limit_files(8192))
    assert (done.returncode, done.stdout) == (1, "")
    assert str(path) in only_line(done.stderr)


def test_full_disk_leaves_whole_profiles(tmp_path) -> None:
    """When nothing more can be written the run ends with one line, and the database stays whole."""
    path = tmp_path / "profiles.db"
    assert export_profiles("db", "upgrade", "--db", path).returncode == 0
    limit = path.stat().st_size  # of each file; the profile to come takes several times that
    asked = (*SMALL, "--model", "densenet121")
    done = export_profiles("--db", path, *asked, preexec_fn=lambda: limit_files(limit))
    assert done.returncode == 1
    assert str(path) in only_line(done.stderr)
    assert stored(path) == []
