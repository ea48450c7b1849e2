"""Runs of the user's own models, and of zoos that other packages bring."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from command import export_profiles, only_line

MODELS = Path(__file__).parent / "own_models"

ZOO = """
from importlib.metadata import version


class TinyZoo:
    name = "tiny"
    package = "tinyzoo"

    def names(self):
        return ("linear", "broken", "wrong")

    def build(self, name, settings):
        import torch
        from exporter.zoo.base import Built

        if name == "broken":
            raise KeyError("no such part")
        with torch.device("meta"):
            model = torch.nn.Linear(3, 2)
            args = (torch.empty(settings.batch_size, 3),)
        if name == "wrong":
            return model
        return Built(
            model=model,
            args=args,
            kwargs={},
            built_on="meta",
            zoo=self.name,
            name=name,
            package=self.package,
            package_version=version(self.package),
            config=settings.config(),
            input_spec=(f"float32[{settings.batch_size}, 3]",),
        )


zoo = TinyZoo()
"""


def rows(path: Path, columns: str) -> list[tuple]:
    """Return some columns of the front view, in the order of the models' names."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(
            f"SELECT {columns} FROM profile_totals ORDER BY model, batch_size"  # noqa: S608
        ).fetchall()


def own(path: Path, *arguments: object, folder: Path = MODELS):
    """Return how a run of models of one's own ended."""
    return export_profiles("--db", path, "--module-path", folder, *arguments)


def test_model_that_crashes_hangs_or_exhausts_memory_costs_itself_only(tmp_path) -> None:
    """Each is reported with its cause, and those after it are stored, unharmed."""
    path = tmp_path / "profiles.db"
    names = ("crashes", "hangs", "hogs", "other_default", "Net")
    models = [word for name in names for word in ("--model", f"toy_nets:{name}")]
    limits = ("--timeout", "20", "--max-memory", "2G")
    done = own(path, *models, *limits, "--input", "float[4,8]", "--input", "2", "--json", "--quiet")
    assert done.returncode == 1
    summary = json.loads(done.stdout)
    failed = {item["model"]: item["error"] for item in summary["failed"]}
    assert set(failed) == {"toy_nets:crashes", "toy_nets:hangs", "toy_nets:hogs"}
    assert "killed by SIGSEGV" in failed["toy_nets:crashes"]
    assert "took longer than 20 s (--timeout)" in failed["toy_nets:hangs"]
    assert "more than 2,048 MiB of memory (--max-memory)" in failed["toy_nets:hogs"]
    assert "toy_nets.py:" in failed["toy_nets:hogs"]
    assert len(done.stderr.splitlines()) == 3
    # 8 * 2 weights and 2 biases; another model's default type does not spread
    assert rows(path, "zoo, model, batch_size, param_bytes") == [
        ("user", "toy_nets:Net", 4, 4 * 18),
        ("user", "toy_nets:other_default", 4, 8 * 18),
    ]


def test_own_model_is_skipped_until_its_source_changes(tmp_path) -> None:
    """A profile is there already as long as nothing that was asked, or written, has changed."""
    path = tmp_path / "profiles.db"
    for name in ("toy_nets", "toy_parts"):
        (tmp_path / f"{name}.py").write_text((MODELS / f"{name}.py").read_text())
    asked = ("--model", "toy_nets:Net", "--input", "float32[batch,8]", "--json", "--quiet")

    def run(*more: object) -> tuple[int, int]:
        done = own(path, *asked, *more, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        summary = json.loads(done.stdout)
        return len(summary["stored"]), len(summary["skipped"])

    assert run("--batch-size", "3") == (1, 0)
    assert run("--batch-size", "3", "--batch-size", "5") == (1, 1)
    (tmp_path / "toy_parts.py").write_text("WIDTH = 8  # edited\n")
    assert run("--batch-size", "3") == (1, 0)
    assert run("--batch-size", "3", "--dtype", "float32") == (1, 0)  # no longer as it was made
    assert run("--batch-size", "3", "--dtype", "float32") == (0, 1)
    # 3 samples of 8 features saved by the layer
    assert {row[1:] for row in rows(path, "model, batch_size, fwd_macs")} == {(3, 48), (5, 80)}


def test_inputs_of_a_function_decide_the_batch_size(tmp_path) -> None:
    """Without a batch size the function's own inputs have it, and the profile is found again."""
    path = tmp_path / "profiles.db"
    asked = ("--model", "toy_nets:Net", "--inputs", "toy_nets:six", "--kwarg", "bias=false")
    first, second = own(path, *asked), own(path, *asked)
    assert (first.returncode, second.returncode) == (0, 0)
    assert first.stderr.startswith("toy_nets:Net  ok")
    assert "1 there already" in only_line(second.stdout)
    assert rows(path, "batch_size, fwd_macs, dtype, zoo") == [(6, 6 * 8 * 2, "float32", "user")]


def test_failure_stores_nothing_and_names_the_line(tmp_path) -> None:
    """Inputs that do not fit are told with the user's own line, and nothing is stored."""
    path = tmp_path / "profiles.db"
    models = ("--model", "toy_nets:Net", "--model", "toy_nets:Tokens")
    inputs = ("--input", "float32[2,9]", "--input", "bool[2]")
    done = own(path, *models, *inputs, "--quiet")
    assert (done.returncode, done.stdout) == (1, "")
    lines = {line.split(": ")[1]: line for line in done.stderr.splitlines()}
    text = (MODELS / "toy_nets.py").read_text("utf-8").splitlines()
    for name, where in [("Net", "out = self.fc(x)"), ("Tokens", "if not mask.all():")]:
        number = [line.strip() for line in text].index(where) + 1
        assert lines[f"toy_nets:{name}"].endswith(f"own_models/toy_nets.py:{number})")
    assert "give integer inputs a range" in lines["toy_nets:Tokens"]
    assert rows(path, "model") == []


@pytest.fixture
def plugin(tmp_path):
    """Install a package that brings a zoo, and return how commands find it."""
    site = tmp_path / "site"
    metadata = site / "tinyzoo-1.2.dist-info"
    metadata.mkdir(parents=True)
    (site / "tinyzoo.py").write_text(ZOO)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: tinyzoo\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text(
        "[export_profiles.zoos]\ntiny = tinyzoo:zoo\nabsent = tinyzoo:absent\n"
        "number = tinyzoo:version\nother = tinyzoo:zoo\ntorchvision = tinyzoo:zoo\n"
    )
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": path}


def test_package_brings_a_zoo(plugin, tmp_path) -> None:
    """Its models are listed, profiled under its version, skipped, and fail by themselves."""
    path = tmp_path / "profiles.db"
    listed = export_profiles("--zoo", "tiny", "--list", env=plugin)
    assert listed.stdout == "broken\nlinear\nwrong\n"
    done = export_profiles("--zoo", "tiny", "--db", path, "--quiet", env=plugin)
    assert done.returncode == 1
    assert sorted(line.split(": ", 2)[1] for line in done.stderr.splitlines()) == [
        "broken",
        "wrong",
    ]
    assert "KeyError: 'no such part' (tinyzoo.py:17)" in done.stderr
    assert "returns an object of type Linear, no Built" in done.stderr
    # 4 samples of 3 features to 2
    assert rows(path, "zoo, model, fwd_macs") == [("tiny", "linear", 4 * 3 * 2)]
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT package, package_version FROM models").fetchall()
    assert found == [("tinyzoo", "1.2")]
    again = export_profiles("--zoo", "tiny", "--model", "linear", "--db", path, env=plugin)
    assert "1 there already" in only_line(again.stdout)


@pytest.mark.parametrize(
    ("zoo", "says"),
    [
        ("tinny", "did you mean 'tiny'?"),
        ("absent", "cannot be loaded from tinyzoo:absent: AttributeError"),
        ("number", "tinyzoo:version is no zoo, it lacks name, package, names, build"),
        ("other", "calls itself 'tiny'"),
        ("torchvision", "and tinyzoo; uninstall one of them"),
    ],
)
def test_what_is_no_zoo_is_refused(zoo, says, plugin, tmp_path) -> None:
    """An entry point that leads nowhere is named, with the package that has it."""
    path = tmp_path / "profiles.db"
    done = export_profiles("--zoo", zoo, "--db", path, env=plugin)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in only_line(done.stderr)
    assert not path.exists()
