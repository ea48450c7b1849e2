"""The user's models: what is asked, found, built and fed, and what is said when it fails."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from exporter.settings import Settings, UserModel
from exporter.zoo.errors import BuildError, ZooError
from exporter.zoo.registry import build_model
from exporter.zoo.user.inputs import Input, TensorInput, parse_input
from exporter.zoo.user.request import user_jobs
from exporter.zoo.user.source import SourceFinder, distribution_of
from exporter.zoo.user.zoo import UserZoo

MODELS = Path(__file__).parents[1] / "user_models"
USER_MODEL = UserModel(module_path=(str(MODELS),), user_dtype=True)


@pytest.fixture
def build(monkeypatch):
    """Build a toy model in this process, and forget its modules afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def built(name, *inputs, batch_size=4, **user):
        asked = replace(USER_MODEL, inputs=inputs, **user)
        return build_model(UserZoo(), name, Settings(batch_size=batch_size, user=asked))

    yield built
    for name in ("toy_nets", "toy_parts"):
        sys.modules.pop(name, None)


def line_of(text: str) -> str:
    """Return where the line of the toy models is that holds a text, as an error gives it."""
    lines = (MODELS / "toy_nets.py").read_text("utf-8").splitlines()
    (number,) = [i for i, line in enumerate(lines, 1) if text in line]
    return f"toy_nets.py:{number})"


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("float32[4,3,224,224]", "", TensorInput("float32", (4, 3, 224, 224))),
        ("x=float[batch, 8]", "x", TensorInput("float", ("batch", 8))),
        ("int64[2,7]{0:100}", "", TensorInput("int64", (2, 7), 0, 100)),
        (" ids = int8[3]{-4:-1} ", "ids", TensorInput("int8", (3,), -4, -1)),
        ("bool[]{1:2}", "", TensorInput("bool", (), 1, 2)),
        ("float16[0]", "", TensorInput("float16", (0,))),
        ("causal=true", "causal", True),
        ("2.5", "", 2.5),
        ("cache=null", "cache", None),
        ('mode="a=b"', "mode", "a=b"),
        ("sizes=[1, 2]", "sizes", [1, 2]),
    ],
)
def test_input_is_parsed(text, name, value) -> None:
    """A tensor has type, sizes and range, anything else is JSON, and both may be named."""
    assert parse_input(text) == Input(name, value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("float32", "does not parse; the form is"),
        ("", "does not parse"),
        ("float32[4", "does not parse"),
        ("x=hello", "does not parse"),
        ("float33[4]", "did you mean float32?"),
        ("zzz[4]", "types are float,"),
        ("float32[4,-1]", "size '-1' is neither a number nor 'batch'"),
        ("float32[4 3]", "size '4 3'"),
        ("float32[b,3]", "size 'b'"),
        ("float32[4]{0:1}", "only bool and integers have a range"),
        ("int64[4]{5:5}", "holds no value"),
        ("uint8[4]{0:257}", "within 0:256"),
        ("bool[4]{0:3}", "within 0:2"),
    ],
)
def test_input_that_does_not_parse_is_refused(text, says) -> None:
    """What is wrong with an input is said in one line, with the form it should have."""
    with pytest.raises(ZooError, match=re.escape(says)) as caught:
        parse_input(text)
    assert "\n" not in str(caught.value)


def test_factory_gets_arguments_and_inputs_are_made(build) -> None:
    """Arguments have the type that JSON gives them, and inputs the sizes that are written."""
    built = build("toy_nets:Net", "float32[batch,6]", args=("6",), kwargs=(("bias", "false"),))
    assert built.model.fc.weight.shape == (2, 6)
    assert built.model.fc.bias is None
    assert built.model.fc.weight.is_meta
    assert built.args[0].is_meta
    assert built.input_spec == ("float32[4, 6]",)
    assert (built.package, built.package_version) == ("", "")


def test_range_gives_values_and_no_range_gives_none(build) -> None:
    """Values come from the range, the same each time; without a range the tensor is on meta."""
    asked = ("int64[50,9]{3:5}", "mask=bool[50]{1:2}")
    first, second = (build("toy_nets:Tokens", *asked) for _ in range(2))
    assert set(first.args[0].flatten().tolist()) == {3, 4}
    assert torch.equal(first.args[0], second.args[0])
    assert first.kwargs["mask"].all()
    assert build("toy_nets:Tokens", "int64[2,7]", "mask=bool[2]").args[0].is_meta


def test_type_of_parameters_is_kept_unless_asked(build) -> None:
    """A model stays as its factory made it, or takes the type that is asked for."""
    assert build("toy_nets:Half", "bfloat16[2,8]").dtype == "bfloat16"
    built = build("toy_nets:Half", "float[2,8]", user_dtype=False)
    assert built.model.fc.weight.dtype == built.args[0].dtype == torch.float32


@pytest.mark.parametrize(
    ("function", "user_batch", "args", "kwargs", "batch_size"),
    [
        ("batch_of", False, [], {"x": [3, 8]}, 0),
        ("six", True, [[6, 8], [2]], {}, 6),
        ("with_scale", True, [[5, 8]], {"scale": [2]}, 5),
    ],
)
def test_inputs_come_from_a_function(build, function, user_batch, args, kwargs, batch_size) -> None:
    """A function returns positional inputs, named ones, or both, and may take the batch size."""
    built = build(
        "toy_nets:Net", inputs_from=f"toy_nets:{function}", user_batch=user_batch, batch_size=3
    )
    assert [list(tensor.shape) for tensor in built.args] == args
    assert {name: list(tensor.shape) for name, tensor in built.kwargs.items()} == kwargs
    assert built.batch_size == batch_size


def test_module_that_stands_already_is_taken(build) -> None:
    """Instead of a factory a module may be named."""
    assert build("toy_nets:standing", "float32[2,4]").model.fc.weight.is_meta


@pytest.mark.parametrize(
    ("name", "user", "says", "where"),
    [
        ("Nett", {}, "toy_nets has no 'Nett'; did you mean Net", ""),
        ("Net.small", {}, "toy_nets:Net.small has no 'small'", ""),
        ("number", {}, "it is of type int; a factory is", ""),
        ("raises", {}, "raised ValueError: width must be even", "width must be"),
        ("returns_number", {}, "returns an object of type int, no torch.nn.Module", ""),
        ("exits", {}, "raised SystemExit: usage: toy_nets", "usage: toy_nets"),
        ("hides_download", {}, "reads the network (weights.example)", "check your connection"),
        ("needs_width", {}, "the factory wants 'width'; its arguments are (width, depth=1)", ""),
        ("needs_width", {"kwargs": (("widht", "3"),)}, "has no 'widht', did you mean width?", ""),
        ("Net", {"args": ("1", "true", "3")}, "too many positional arguments", ""),
        ("Net", {"args": ("0.5",)}, "the factory raised TypeError", "bias=bias"),
        ("standing", {"args": ("1",)}, "takes no --arg", ""),
        ("Net", {}, "forward wants 'x'; its inputs are (x, scale=None)", "forward(self, x, scale"),
        (
            "NamedOnly",
            {"inputs": ("float[4,8]",)},
            "forward is given too many positional arguments: 1; its inputs are (*, x, scale=None)",
            "self, *, x",
        ),
        ("NamedOnly", {}, "forward wants 'x'; its inputs are (*, x, scale=None)", "self, *, x"),
        ("NamedOnly", {}, "give each with --input, such as --input 'x=float32[batch", "self, *, x"),
        ("NamedOnly", {"inputs": ("x=float[4,8]", "0")}, "such as --input 'scale=", "self, *, x"),
        ("Net", {"inputs": ("2", "sale=2")}, "forward has no 'sale', did you mean scale?", ""),
        ("Net", {"inputs": ("float32[99999999999,99999999999]",)}, "cannot be made", ""),
        ("Net", {"inputs_from": "toy_nets:nothing"}, "toy_nets:nothing returns None", ""),
        ("Net", {"inputs_from": "toy_nets:raises"}, "raised ValueError", "width must be"),
        ("Net", {"inputs_from": "toy_nets:six", "user_batch": False}, "takes no batch_size", ""),
        ("Net", {"inputs_from": "toy_nets:needs_width"}, "needs_width wants 'width'", ""),
    ],
)  # fmt: skip
def test_failure_is_told_in_one_line(build, name, user, says, where) -> None:
    """What is wrong is named, with the line of the user's code where it is theirs."""
    user = dict(user)
    inputs = user.pop("inputs", ())
    user.setdefault("user_batch", True)
    with pytest.raises(BuildError, match=re.escape(says)) as caught:
        build(f"toy_nets:{name}", *inputs, **user)
    text = str(caught.value)
    assert "\n" not in text
    if where:
        assert text.endswith(line_of(where))


def test_download_is_refused_where_it_is_asked_for(build) -> None:
    """Whether there is a network or not, nothing is read; who can do without goes on."""
    with pytest.raises(BuildError, match=r"it reads the network \(weights.example\)"):
        build("toy_nets:downloads", "float32[2,8]")
    assert build("toy_nets:falls_back", "float32[2,8]").model.fc.weight.shape == (2, 8)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import no_such_thing", "raised ModuleNotFoundError: No module named 'no_such_thing'"),
        ("x = 1\ndef make(:", "raised SyntaxError: invalid syntax"),
        ("import sys\nsys.exit(3)", "raised SystemExit: 3"),
    ],
)
def test_module_that_fails_is_told_with_its_line(build, tmp_path, source, says) -> None:
    """What importing a module raises is told with the line in it."""
    (tmp_path / "toy_bad.py").write_text(source)
    with pytest.raises(BuildError, match=re.escape(f"importing toy_bad {says}")) as caught:
        build("toy_bad:make", module_path=(str(tmp_path),))
    assert str(caught.value).endswith(f"toy_bad.py:{len(source.splitlines())})")


def test_name_that_is_taken_is_refused(build, tmp_path) -> None:
    """A module that would not be the one imported is named, with the one in its way."""
    (tmp_path / "store").mkdir()
    for name in ("__init__", "nets"):
        (tmp_path / "store" / f"{name}.py").write_text("")
    with pytest.raises(BuildError, match=r"the name 'store' is taken by .*; rename .*store"):
        build("store.nets:make", module_path=(str(tmp_path),))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("toy_nest:Net", "there is no module 'toy_nest' in .*; did you mean toy_nets"),
        ("toy_nets.sub:Net", "'toy_nets' is no package"),
        (
            "torch.nm:Linear",
            "there is no module 'nm' in the package 'torch' of .*; did you mean .*nn",
        ),
        ("toy_nets", "is not of the form package.module:name"),
        ("user_models/toy_nets.py:Net", "name its module, toy_nets:Net, and its folder"),
    ],
)
def test_module_that_is_not_there_is_refused(name, says) -> None:
    """Near names are given, and nothing is imported for that."""
    before = set(sys.modules)
    with pytest.raises(ZooError, match=says):
        user_jobs([name], USER_MODEL, [Settings()], batch_asked=False)
    assert "toy_nets" not in set(sys.modules) - before


def test_batch_size_is_that_of_the_inputs() -> None:
    """It is asked for where an input says batch, and else is the first size of the first input."""
    swept = replace(USER_MODEL, inputs=("float32[batch,8]",))
    sizes = [Settings(batch_size=n) for n in (1, 2)]
    jobs = user_jobs(["toy_nets:Net"], swept, sizes, batch_asked=True)
    assert [job.settings.batch_size for job in jobs] == [1, 2]
    fixed = replace(USER_MODEL, inputs=("float32[]", "float32[6,8]"))
    (job,) = user_jobs(["toy_nets:Net"], fixed, [Settings()], batch_asked=False)
    assert job.settings.batch_size == 6
    with pytest.raises(ZooError, match="write batch for a size"):
        user_jobs(["toy_nets:Net"], fixed, sizes, batch_asked=True)


def test_source_is_known_by_its_text(tmp_path) -> None:
    """An edit of a module, or of what it imports, changes the digest; other files do not."""
    package = tmp_path / "toy_pack"
    package.mkdir()
    for name, text in [
        ("__init__", ""),
        ("nets", "import torch\nfrom .parts import layer\nfrom . import other"),
        ("parts", "def layer(): ..."),
        ("other", ""),
        ("unused", ""),
    ]:
        (package / f"{name}.py").write_text(text)

    def digest() -> str:
        return SourceFinder([str(tmp_path)]).digest(["toy_pack.nets"])

    seen = [digest()]
    for name in ("nets", "parts", "other", "__init__"):
        path = package / f"{name}.py"
        path.write_text(f"{path.read_text()}\n# edited")
        seen.append(digest())
    assert len(set(seen)) == 5
    (package / "unused.py").write_text("# edited")
    (tmp_path / "stray.py").write_text("")
    assert digest() == seen[-1]
    assert SourceFinder([]).digest(["torch.nn"]) == ""


def test_installed_module_belongs_to_its_distribution() -> None:
    """A model of an installed package has its name; a file in a folder has none."""
    finder = SourceFinder([str(MODELS)])
    assert distribution_of(finder.find("torchvision.models.resnet")) == "torchvision"
    assert distribution_of(finder.find("toy_nets")) == ""


def test_configuration_tells_what_was_asked() -> None:
    """What is not asked is left out, and a number that JSON lacks stays as it is written."""
    asked = replace(USER_MODEL, args=("NaN", "1e999", "3"), kwargs=(("act", "relu"),), source="abc")
    assert asked.config() == {
        "args": ["NaN", "1e999", 3],
        "kwargs": {"act": "relu"},
        "user": ["dtype"],
        "source": "abc",
    }
    assert Settings(user=UserModel()).config() == "{}"
