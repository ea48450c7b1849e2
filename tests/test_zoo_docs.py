"""The page on zoos says what is true: its example of a zoo works, and its counts are the zoos'."""

import re
from pathlib import Path

import pytest

from exporter.profiling import profile_built
from exporter.settings import Settings
from exporter.zoo.registry import load_zoo

PAGE = (Path(__file__).parents[1] / "docs" / "zoos.md").read_text("utf-8")


def test_example_of_a_zoo_can_be_profiled() -> None:
    """The page's own zoo builds a model of 64 * 64 weights and 64 biases, which is profiled."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    namespace: dict = {}
    exec(code.replace('"our-package"', '"torch"'), namespace)  # noqa: S102 - our own page
    zoo, settings = namespace["zoo"], Settings(batch_size=2)
    assert zoo.names() == ("large", "small")
    totals = profile_built(zoo.build("small", settings), settings).totals
    assert totals.param_count == 64 * 64 + 64
    assert totals.fwd_macs == 2 * 64 * 64


@pytest.mark.parametrize("name", ["torchvision", "timm", "transformers", "reference"])
def test_counts_are_those_of_the_zoos(name) -> None:
    """The page states how many models each zoo lists."""
    package = {"reference": "transformers"}.get(name, name)
    pytest.importorskip(package, reason=f"the extra {package} is not installed")
    (count,) = re.findall(rf"^\| `{name}` \| ([\d,]+):", PAGE, re.MULTILINE)
    assert len(load_zoo(name).names()) == int(count.replace(",", ""))
