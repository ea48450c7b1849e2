"""An option is declared once: the command, ``profile_model`` and names follow."""

import inspect
import json
import sqlite3
from contextlib import closing

import click
import pytest
from handmade_profiles import Hand

from exporter import profile_model
from exporter.cli.main import cli
from exporter.cli.options import settings_asked
from exporter.settings import OF_MODEL, Settings
from queries.errors import ProfileNameError
from queries.names import find_profile
from store import open_store
from store.columns import columns, names
from store.settings import RunOptions, RunSettings, options

OF_INPUTS = {"batch_size", "dtype", "mode"}  # that a model and its inputs say


def asked(*arguments: str) -> list[Settings]:
    """Return the settings that a command line asks for."""
    with click.Context(cli) as context:
        cli.parse_args(context, list(arguments))
    return settings_asked(context.params)


def test_command_without_options_asks_for_the_defaults() -> None:
    """Each option of the command has the default of its declaration."""
    assert asked() == [Settings()]


def test_each_option_of_the_command_reaches_its_setting() -> None:
    """Choices, flags, numbers and pairs arrive in the settings; a swept one makes several."""
    line = (
        "--batch-size 2 --batch-size 8 --dtype bfloat16 --eval --input-grad --target cpu "
        "--attention math --autocast float16 --optimizer adam --image-size 64 --seq-len 16 "
        "--set depth=3 --capture drawn --assume keep-all"
    )
    expected = Settings(
        batch_size=2, dtype="bfloat16", mode="eval", input_grad=True, target="cpu",
        attention="math", autocast="float16", optimizer="adam", image_size=64, seq_len=16,
        overrides=(("depth", "3"),), capture="drawn", assume="keep-all",
    )  # fmt: skip
    first, second = asked(*line.split())
    assert first == expected
    assert second.batch_size == 8
    assert asked("--forward-only") == [Settings(backward=False)]
    assert asked("--optimizer", "none") == [Settings()]


def test_configuration_of_a_model_holds_what_is_asked_of_it() -> None:
    """Options of the model's configuration are stored as JSON under their names, others not."""
    settings = Settings(image_size=64, overrides=(("b", "2"), ("a", "x")), target="cpu")
    assert json.loads(settings.config()) == {"image_size": 64, "set": {"a": "x", "b": 2}}
    assert set(OF_MODEL) == {"image_size", "seq_len", "set"}


def test_profile_model_takes_the_options_of_a_run() -> None:
    """Each option that no model says is a keyword of ``profile_model``, with its default."""
    taken = set(RunOptions.__annotations__)
    wanted = set(names(RunSettings)) - OF_INPUTS - {"optimizer"}
    assert taken == wanted, "list the option in RunOptions of store/settings.py"
    parameters = inspect.signature(profile_model).parameters
    for name in taken:
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[name].default == options(RunSettings)[name].default
        assert f"            {name}: " in str(profile_model.__doc__)
    with pytest.raises(TypeError, match="image_size"):
        profile_model(None, image_size=5)  # type: ignore[call-arg, arg-type]


@pytest.mark.parametrize("name", names(RunSettings))
def test_profiles_that_differ_in_one_option_are_told_apart(name, tmp_path) -> None:
    """Two profiles that differ in one option only are both stored, and an error names it."""
    option = options(RunSettings)[name]
    others = [one for one in option.choices if one != option.default]
    other = others[0] if others else 7 if option.least else not option.default
    path = tmp_path / "profiles.db"
    with open_store(f"sqlite:///{path}", create=True) as store:
        for value in (option.default, other):
            store.write(Hand().profile(**{name: value}))
        with pytest.raises(ProfileNameError) as caught:
            find_profile(store, "toy")
        named = next(one.declared.named_as for one in columns(RunSettings) if one.name == name)
        for value in (option.default, other):
            stored_as = int(value) if isinstance(value, bool) else value
            said = named.format(value) if named else f"{name} {stored_as}"
            assert said in str(caught.value)
            if named:
                assert find_profile(store, f"toy@{said}")
    with closing(sqlite3.connect(path)) as connection:
        stored = connection.execute(f"SELECT {name} FROM profiles ORDER BY profile_id")  # noqa: S608
        assert [row[0] for row in stored] == [option.default, other]
