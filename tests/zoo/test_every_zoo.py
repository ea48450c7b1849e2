"""What every zoo that comes with the program does, found as the program finds it."""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest
from zoo_samples import SMALLEST

from exporter.profiling import profile_built
from exporter.settings import OF_MODEL, Settings
from exporter.zoo.errors import UnknownZooError, ZooError
from exporter.zoo.registry import GROUP, build_model, load_zoo, refuse_untaken, takes

NAMES = sorted(
    entry.name
    for entry in set(entry_points(group=GROUP))
    if entry.dist and entry.dist.name == "export-profiles"
)
ASKED = {"image_size": 64, "seq_len": 8, "overrides": (("depth", "9"),)}


@pytest.fixture(params=NAMES)
def zoo(request):
    """Return each zoo, if what it needs is installed."""
    try:
        return load_zoo(request.param)
    except UnknownZooError as error:
        pytest.skip(str(error))


def test_names_do_not_import_torch(zoo) -> None:
    """A zoo lists its models, in order and each once, without torch and without its package."""
    code = (
        "import sys\n"
        "from exporter.zoo.registry import load_zoo\n"
        f"names = load_zoo({zoo.name!r}).names()\n"
        "print(list(names) == sorted(set(names)) and len(names) > 0)\n"
        f"print([m for m in ('torch', {zoo.package!r}) if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["True", "[]"]


def test_small_sample_is_profiled(zoo) -> None:
    """A model is built on meta in the asked type, mode and batch size, and runs."""
    name = SMALLEST.get(zoo.name, zoo.names()[0])
    settings = Settings(batch_size=3, dtype="bfloat16", mode="eval", backward=False)
    built = build_model(zoo, name, settings)
    assert not built.model.training
    profile = profile_built(built, settings)
    info = profile.info
    assert (info.zoo, info.model, info.package) == (zoo.name, name, zoo.package)
    assert (info.batch_size, info.dtype, info.mode, info.config) == (3, "bfloat16", "eval", "{}")
    assert "[3, " in info.input_spec
    assert {t.dtype for t in profile.tensors if t.role == "parameter"} == {"bfloat16"}
    assert profile.totals.fwd_macs > 0


def test_what_is_not_declared_is_refused(zoo) -> None:
    """An option that a zoo does not take is refused in one line, before anything is built."""
    assert set(takes(zoo)) <= set(OF_MODEL)
    for name, field in OF_MODEL.items():
        settings = Settings(**{field: ASKED[field]})
        if name in takes(zoo):
            refuse_untaken(zoo, settings)
            continue
        option = f"--{name.replace('_', '-')}"
        with pytest.raises(
            ZooError, match=f"^zoo '{zoo.name}' takes no {option}; it takes (--|none)"
        ):
            build_model(zoo, "any", settings)
