"""The page on zoos says what is true."""

import re
from pathlib import Path

import pytest

from exporter.zoo.registry import load_zoo

PAGE = (Path(__file__).parents[2] / "docs" / "zoos.md").read_text("utf-8")


@pytest.mark.parametrize("name", ["torchvision", "timm", "transformers", "reference"])
def test_counts_are_those_of_the_zoos(name) -> None:
    """The page states how many models each zoo lists."""
    package = {"reference": "transformers"}.get(name, name)
    pytest.importorskip(package, reason=f"the extra {package} is not installed")
    (count,) = re.findall(rf"^\| `{name}` \| ([\d,]+):", PAGE, re.MULTILINE)
    assert len(load_zoo(name).names()) == int(count.replace(",", ""))
