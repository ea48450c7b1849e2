"""Runs of the user's models, and of zoos that other packages bring."""

import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from command import REPOSITORY, export_profiles, only_line

MODELS = Path(__file__).parents[1] / "user_models"

PAGE = (REPOSITORY / "docs" / "user_models.md").read_text("utf-8")
NETS, SCRIPT, ZOO = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
# Two models that fail: one raises, one is no model of a zoo.
FAILING = """

class FailingZoo(TinyZoo):
    def names(self):
        return ("wrong", *super().names(), "broken")

    def build(self, name, settings):
        return name if name == "wrong" else super().build(name, settings)


class NeedyZoo(TinyZoo):
    def __init__(self, name, package):
        self.name, self.package = name, package


needy, greedy = NeedyZoo("needy", "not-there"), NeedyZoo("greedy", "not-there-either")
mistaken = NeedyZoo("mistaken", "tinyzoo")
mistaken.takes = {"depth"}
taciturn = NeedyZoo("taciturn", "tinyzoo")
taciturn.takes = None
number = 12
zoo = FailingZoo()
"""


def rows(path: Path, columns: str) -> list[tuple]:
    """Return some columns of the front view, in the order of the models' names."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(
            f"SELECT {columns} FROM profile_totals ORDER BY model, batch_size"  # noqa: S608
        ).fetchall()


def run_user(path: Path, *arguments: object, folder: Path = MODELS):
    """Return how a run of a user's models ended."""
    return export_profiles("--db", path, "--module-path", folder, *arguments)


def test_model_that_crashes_or_exhausts_memory_costs_itself_only(tmp_path) -> None:
    """Each is reported with its cause, and those after it are stored, unharmed."""
    path = tmp_path / "profiles.db"
    names = ("crashes", "hogs", "other_default", "Net")
    models = [word for name in names for word in ("--model", f"toy_nets:{name}")]
    asked = (*models, "--max-memory", "2G", "--input", "float[4,8]", "--input", "2")
    done = run_user(path, *asked, "--json", "--quiet")
    assert done.returncode == 1
    failed = {item["model"]: item["error"] for item in json.loads(done.stdout)["failed"]}
    assert set(failed) == {"toy_nets:crashes", "toy_nets:hogs"}
    assert "killed by SIGSEGV" in failed["toy_nets:crashes"]
    assert "more than 2,048 MiB of memory (--max-memory)" in failed["toy_nets:hogs"]
    assert "toy_nets.py:" in failed["toy_nets:hogs"]
    assert len(done.stderr.splitlines()) == 2
    # 8 * 2 weights and 2 biases; another model's default type does not spread
    assert rows(path, "zoo, model, batch_size, param_bytes") == [
        ("user", "toy_nets:Net", 4, 4 * 18),
        ("user", "toy_nets:other_default", 4, 8 * 18),
    ]


def test_model_that_hangs_is_given_up(tmp_path) -> None:
    """It is reported with its limit, and so is the next one: each has a worker of its own."""
    models = ("--model", "toy_nets:hangs", "--model", "toy_nets:hangs_too")
    asked = (*models, "--workers", "1", "--timeout", "3", "--input", "float[4,8]")
    done = run_user(tmp_path / "profiles.db", *asked, "--json", "--quiet")
    assert done.returncode == 1
    failed = {item["model"]: item["error"] for item in json.loads(done.stdout)["failed"]}
    assert set(failed) == {"toy_nets:hangs", "toy_nets:hangs_too"}
    assert all("took longer than 3 s (--timeout)" in error for error in failed.values())


def test_user_model_is_skipped_until_its_source_changes(tmp_path) -> None:
    """A profile is there already as long as nothing that was asked, or written, has changed."""
    path = tmp_path / "profiles.db"
    for name in ("toy_nets", "toy_parts"):
        (tmp_path / f"{name}.py").write_text((MODELS / f"{name}.py").read_text())
    asked = ("--model", "toy_nets:Net", "--input", "float32[batch,8]", "--json", "--quiet")

    def run(*more: object) -> tuple[int, int]:
        done = run_user(path, *asked, *more, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        summary = json.loads(done.stdout)
        return len(summary["stored"]), len(summary["skipped"])

    assert run("--batch-size", "3") == (1, 0)
    assert run("--batch-size", "3", "--batch-size", "5") == (1, 1)
    (tmp_path / "toy_parts.py").write_text("WIDTH = 8  # edited\n")
    assert run("--batch-size", "3") == (1, 0)
    # 8 features to 2, for each sample
    assert rows(path, "batch_size, fwd_macs") == [(3, 48), (3, 48), (5, 80)]


def test_inputs_of_a_function_decide_the_batch_size(tmp_path) -> None:
    """Without a batch size the function's own inputs have it, and the profile is found again."""
    path = tmp_path / "profiles.db"
    asked = ("--model", "toy_nets:Net", "--inputs", "toy_nets:six", "--kwarg", "bias=false")
    first, second = run_user(path, *asked), run_user(path, *asked)
    assert (first.returncode, second.returncode) == (0, 0)
    assert first.stderr.startswith("toy_nets:Net  ok")
    assert "1 there already" in only_line(second.stdout)
    assert rows(path, "batch_size, fwd_macs, dtype, zoo") == [(6, 6 * 8 * 2, "float32", "user")]


def test_model_without_inputs_is_shown_without_a_batch_size(tmp_path) -> None:
    """Nobody asked for one, and nothing that it is given has one."""
    path = tmp_path / "profiles.db"
    done = run_user(path, "--model", "toy_nets:Net", "--input", "2", "--input", "scale=1")
    assert done.stderr.startswith("toy_nets:Net  failed")
    sized = run_user(path, "--model", "toy_nets:Net", "--input", "float32[3,8]")
    assert sized.stderr.startswith("toy_nets:Net (batch 3)  ok")


def test_failure_stores_nothing_and_names_the_line(tmp_path) -> None:
    """Inputs that do not fit are told with the user's own line, and nothing is stored."""
    path = tmp_path / "profiles.db"
    models = ("--model", "toy_nets:Net", "--model", "toy_nets:Tokens")
    inputs = ("--input", "float32[2,9]", "--input", "bool[2]")
    done = run_user(path, *models, *inputs, "--quiet")
    assert (done.returncode, done.stdout) == (1, "")
    lines = {line.split(": ")[1]: line for line in done.stderr.splitlines()}
    text = (MODELS / "toy_nets.py").read_text("utf-8").splitlines()
    for name, where in [("Net", "out = self.fc(x)"), ("Tokens", "if not mask.all():")]:
        number = [line.strip() for line in text].index(where) + 1
        assert lines[f"toy_nets:{name}"].endswith(f"user_models/toy_nets.py:{number})")
    assert "give integer inputs a range" in lines["toy_nets:Tokens"]
    assert rows(path, "model") == []


def install(site: Path, code: str) -> dict[str, str]:
    """Install a package that brings a zoo, and return the environment that finds it."""
    metadata = site / "tinyzoo-1.2.dist-info"
    metadata.mkdir(parents=True)
    (site / "tinyzoo.py").write_text(code)
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: tinyzoo\nVersion: 1.2\nProvides-Extra: not-there\n"
    )
    (metadata / "entry_points.txt").write_text(
        "[export_profiles.zoos]\ntiny = tinyzoo:zoo\nabsent = tinyzoo:absent\n"
        "needy = tinyzoo:needy\ngreedy = tinyzoo:greedy\nnumber = tinyzoo:number\n"
        "mistaken = tinyzoo:mistaken\ntaciturn = tinyzoo:taciturn\n"
        "other = tinyzoo:zoo\ntorchvision = tinyzoo:zoo\n"
    )
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": path}


@pytest.fixture
def plugin(tmp_path):
    """Install the package of docs/user_models.md, with two models more that fail."""
    return install(tmp_path / "site", ZOO + FAILING)


def test_package_brings_a_zoo(plugin, tmp_path) -> None:
    """Its models are listed, profiled under its version, skipped, and fail by themselves."""
    path = tmp_path / "profiles.db"
    listed = export_profiles("--zoo", "tiny", "--list", env=plugin)
    assert listed.stdout == "broken\nnarrow\nwide\nwrong\n"
    done = export_profiles("--zoo", "tiny", "--db", path, "--quiet", env=plugin)
    assert done.returncode == 1
    lines = sorted(done.stderr.splitlines())
    assert re.fullmatch(r"failed: broken: KeyError: 'broken' \(tinyzoo.py:\d+\)", lines[0])
    assert "failed: wrong: zoo 'tiny' returns an object of type str, no Built" in lines[1]
    # 4 samples of 8 or 64 features to 2
    expected = [("tiny", "narrow", 4 * 8 * 2), ("tiny", "wide", 4 * 64 * 2)]
    assert rows(path, "zoo, model, fwd_macs") == expected
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT DISTINCT package, package_version FROM models")
        assert found.fetchall() == [("tinyzoo", "1.2")]
    again = export_profiles("--zoo", "tiny", "--model", "w*e", "--db", path, env=plugin)
    assert "1 there already" in only_line(again.stdout)


@pytest.mark.parametrize(
    ("zoo", "says"),
    [
        ("tinny", "did you mean 'tiny'?"),
        ("absent", "cannot be loaded from tinyzoo:absent: AttributeError"),
        ("mistaken", "takes 'depth', which is none of image_size, seq_len, set"),
        ("taciturn", "has takes = None; it is a set of 'image_size', 'seq_len', 'set'"),
        ("number", "tinyzoo:number is no zoo, it lacks name, package, names, build"),
        ("other", "calls itself 'tiny'"),
        ("torchvision", "and tinyzoo; uninstall one of them"),
        ("needy", "not-there, which is not installed: pip install 'tinyzoo[not-there]'"),
        ("greedy", "which is not installed: pip install not-there-either"),
    ],
)
def test_what_is_no_zoo_is_refused(zoo, says, plugin, tmp_path) -> None:
    """An entry point that leads nowhere is named, with the package that has it."""
    path = tmp_path / "profiles.db"
    done = export_profiles("--zoo", zoo, "--db", path, env=plugin)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in only_line(done.stderr)
    assert not path.exists()


@pytest.mark.parametrize(
    ("asked", "option"),
    [(["--set", "depth=9", "--image-size", "5"], "image-size"), (["--set", "depth=9"], "set")],
)
def test_what_a_zoo_does_not_take_is_refused(asked, option, plugin, tmp_path) -> None:
    """A setting that would change nothing is refused before anything is built or stored."""
    path = tmp_path / "profiles.db"
    done = export_profiles("--zoo", "tiny", *asked, "--db", path, env=plugin)
    assert (done.returncode, done.stdout) == (2, "")
    says = f"zoo 'tiny' takes no --{option}; it takes none of these options"
    assert says in only_line(done.stderr)
    assert not path.exists()


def test_documented_examples_work(tmp_path) -> None:
    """The module and the commands of docs/user_models.md do what the page says."""
    (tmp_path / "my_nets.py").write_text(NETS)
    path = tmp_path / "profiles.db"
    for line in re.findall(r"^\$ export-profiles (.*)$", PAGE, re.MULTILINE):
        done = run_user(path, *shlex.split(line), "--quiet", folder=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPOSITORY)])}
    subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, env=env, check=True)
    # 12 words per sample, each 32 to 5, or 64 to 5
    assert rows(path, "zoo, model, batch_size, fwd_macs") == [
        ("user", "Tagger", 2, 2 * 12 * 32 * 5),
        ("user", "my_nets:Tagger", 2, 2 * 12 * 64 * 5),
        ("user", "my_nets:Tagger", 4, 4 * 12 * 32 * 5),
        ("user", "my_nets:Tagger", 8, 8 * 12 * 64 * 5),
    ]
