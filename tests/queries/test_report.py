"""The report in a real browser: it renders without errors, reacts, and trusts no name."""

from __future__ import annotations

import shutil

import pytest
from handmade_profiles import linear_step

from queries.report import report_page
from store import open_store
from store.columns import changed
from store.records import NODE, Module, Node, Tensor

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
pytest.importorskip("plotly", reason="plotly is not installed")
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium or chromedriver is missing"),
    pytest.mark.xdist_group("browser"),
]
EVIL = "<script>stolen=1</script><b>bold</b><img src=x onerror=stolen=1>&amp;[red]"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Write the page of a model whose every name is markup."""
    folder = tmp_path_factory.mktemp("report")
    hand = linear_step()
    hand.modules[1] = changed(Module, hand.modules[1], path=f"fc{EVIL}", class_name=EVIL)
    hand.nodes[1] = changed(Node, hand.nodes[1], name=f"fc{EVIL}", target=f"fc{EVIL}")
    hand.tensors[0] = changed(Tensor, hand.tensors[0], name=f"weight{EVIL}")
    hand.model = f"net{EVIL}"
    with open_store(f"sqlite:///{folder}/profiles.db", create=True) as store:
        text = report_page(store, store.write(hand.profile()))
    path = folder / "page.html"
    path.write_text(text, "utf-8")
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Start a browser that talks to nobody."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    profile = tmp_path_factory.mktemp("chromium")
    for flag in (
        "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--disable-dev-shm-usage", "--window-size=1400,3000", f"--user-data-dir={profile}",
    ):  # fmt: skip
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(service=Service(DRIVER), options=options)
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser, page):
    """Load the page afresh."""
    browser.get(page.as_uri())
    return browser


def column(browser, place, index):
    """Return the texts of one column of a table."""
    rows = browser.find_elements(By.CSS_SELECTOR, f"#{place} tbody tr")
    return [row.find_elements(By.TAG_NAME, "td")[index].text for row in rows]


def test_page_renders_without_errors_or_network(opened):
    """Five charts are drawn, the console is silent, and nothing but the file is asked for."""
    charts = opened.find_elements(By.CSS_SELECTOR, ".chart .main-svg")
    assert {c.find_element(By.XPATH, "ancestor::*[@id][1]").get_attribute("id") for c in charts}
    for name in ("memory", "modules", "roofline", "hot", "path"):
        assert opened.find_elements(By.CSS_SELECTOR, f"#{name} .main-svg"), name
    assert opened.get_log("browser") == []
    requests = [
        e["message"] for e in opened.get_log("performance") if 'requestWillBeSent"' in e["message"]
    ]
    assert not [r for r in requests if '"url":"http' in r]


def test_names_are_text(opened):
    """Names that are markup run nothing and show as they are."""
    assert opened.title == f"net{EVIL} - profile"
    assert opened.find_element(By.ID, "model").text == f"net{EVIL}"
    assert opened.find_elements(By.CSS_SELECTOR, "td b, td script, svg b") == []
    assert f"fc{EVIL}" in column(opened, "path-table", 0)
    assert opened.execute_script("return typeof stolen") == "undefined"
    opened.find_elements(By.CSS_SELECTOR, "#measures button")[1].click()
    labels = opened.execute_script(
        "return [...document.querySelectorAll('#modules text')].map(t => t.textContent)"
    )
    assert any(f"fc{EVIL}" in label for label in labels)


@pytest.mark.parametrize("place", ["operators", "path-table", "peak", "outliving"])
def test_tables_sort_by_every_column(opened, place):
    """A click sorts a column, another turns it around; numbers sort as numbers."""
    for index, head in enumerate(opened.find_elements(By.CSS_SELECTOR, f"#{place} th")):
        head.click()
        assert head.get_attribute("aria-sort") in {"ascending", "descending"}
        first = column(opened, place, index)
        head.click()
        assert sorted(column(opened, place, index)) == sorted(first)
        assert column(opened, place, index)[0] == first[-1]


def test_peak_table_starts_with_the_largest(opened):
    """X of 128 bytes comes first; sorting by size once more puts the smallest first."""
    assert column(opened, "peak", 2)[:2] == ["128 B", "64 B"]
    size = opened.find_elements(By.CSS_SELECTOR, "#peak th")[2]
    size.click()
    assert column(opened, "peak", 2)[0] == "128 B"
    size.click()
    assert column(opened, "peak", 2)[0] == "32 B"


def test_hover_shows_what_is_alive(opened):
    """Over the first step, h is there and the gradient of the weight is not."""
    alive = opened.find_element(By.ID, "alive")
    assert alive.find_element(By.TAG_NAME, "h3").text == "320 B alive at step 4"
    area = opened.find_element(By.CSS_SELECTOR, "#memory .nsewdrag")
    edge = -area.size["width"] // 2 + 3
    ActionChains(opened).move_to_element_with_offset(area, edge, 0).pause(0.3).perform()
    assert alive.find_element(By.TAG_NAME, "h3").text == "224 B alive at step 0"
    sizes = [b.text for b in alive.find_elements(By.CSS_SELECTOR, "li b")]
    assert sizes == ["128 B", "64 B", "32 B"]
    tip = opened.find_elements(By.CSS_SELECTOR, "#memory .hovertext, #memory .axistext")
    assert tip


def test_theme_turns_light_and_dark(opened):
    """The button changes the page's colours and those of the charts."""

    def colours():
        return opened.execute_script(
            "return [getComputedStyle(document.body).backgroundColor,"
            " document.querySelector('#memory .xtick text').style.fill]"
        )

    before = colours()
    opened.find_element(By.ID, "theme").click()
    after = colours()
    assert before[0] != after[0]
    assert before[1] != after[1]
    opened.find_element(By.ID, "theme").click()
    assert colours() == before


def test_measure_changes_the_treemap(opened):
    """By parameters, the root shows the 64 bytes of the weight."""
    buttons = opened.find_elements(By.CSS_SELECTOR, "#measures button")
    next(b for b in buttons if b.text == "Parameters").click()
    shown = opened.execute_script("return document.getElementById('modules').data[0].values")
    assert shown == [64, 64, 0]


def contrasts(browser):
    """Return the contrast (WCAG 2) of every label in the treemap with what is behind it."""
    pairs = browser.execute_script(
        "return [...document.querySelectorAll('#modules .slice')]"
        ".map(s => [s.querySelector('text'), s.querySelector('path')].map("
        "part => part && getComputedStyle(part).fill.match(/\\d+/g).slice(0, 3).map(Number)))"
    )

    def luminance(color):
        parts = [c / 255 for c in color]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    found = []
    for text, behind in pairs:
        if text:
            low, high = sorted((luminance(text), luminance(behind)))
            found.append((high + 0.05) / (low + 0.05))
    return found


@pytest.mark.parametrize("is_single", [True, False])
def test_labels_of_the_treemap_are_readable(browser, tmp_path, is_single):
    """The contrast is at least 4.5 (WCAG 2, AA) in both themes, be the model one module or many."""
    hand = linear_step()
    if is_single:
        hand.modules = []
        hand.module("", "Linear", param_bytes=64)
        hand.nodes = [
            changed(Node, node, module_id=min(node[NODE.module_id], 0)) for node in hand.nodes
        ]
    with open_store(f"sqlite:///{tmp_path}/profiles.db", create=True) as store:
        text = report_page(store, store.write(hand.profile()))
    page = tmp_path / "page.html"
    page.write_text(text, "utf-8")
    browser.get(page.as_uri())
    for _ in range(2):
        assert contrasts(browser)
        assert min(contrasts(browser)) >= 4.5
        browser.find_element(By.ID, "theme").click()
