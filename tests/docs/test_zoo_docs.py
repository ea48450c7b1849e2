"""The page on zoos says what is true."""

import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from exporter.zoo.errors import UnknownZooError
from exporter.zoo.registry import GROUP, load_zoo

PAGE = (Path(__file__).parents[2] / "docs" / "zoos.md").read_text("utf-8")


@pytest.mark.parametrize(
    "name",
    sorted(
        entry.name
        for entry in set(entry_points(group=GROUP))
        if entry.dist and entry.dist.name == "export-profiles"
    ),
)
def test_every_zoo_has_a_row_with_its_count(name) -> None:
    """The first table of docs/zoos.md has each zoo, and how many models it lists."""
    counts = re.findall(rf"^\| `{name}` \| ([\d,]+):", PAGE, re.MULTILINE)
    assert len(counts) == 1, f"write a row for `{name}` in the first table of docs/zoos.md"
    try:
        zoo = load_zoo(name)
    except UnknownZooError as error:
        pytest.skip(str(error))
    assert len(zoo.names()) == int(counts[0].replace(",", ""))
