"""The report in a real browser: what a reader sees on a screen, on a telephone, at night and on paper.

Set C2B_RAY_SCREENSHOTS to a folder to keep the pictures.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_recipes import showcase
from synthetic_run import make_run

from c2b_ray.audits.c2b.report.page import write_report

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
SLOW = 120_000  # milliseconds: browsers start late on a busy machine


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(write_report(make_run(tmp_path_factory.mktemp("browser") / "run", showcase())))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = Path(os.environ.get("C2B_RAY_SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
    place.mkdir(parents=True, exist_ok=True)
    return place


@pytest.fixture
def opened(browser: sync_api.Browser, report: Path, request: pytest.FixtureRequest) -> Iterator[sync_api.Page]:
    """The report in a window of the test's (width, scheme); fails the test for any complaint or request."""
    width, scheme = request.param
    complaints: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.set_default_timeout(SLOW)
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda asked: complaints.append(asked.url) if _is_foreign(asked.url, report) else None)
    page.goto(report.as_uri(), wait_until="load")
    yield page
    page.close()
    assert complaints == []


@pytest.mark.parametrize(
    ("opened", "name"),
    [
        ((1280, "light"), "desktop"),
        ((390, "light"), "mobile"),
        ((1280, "dark"), "dark"),
        ((390, "dark"), "mobile-dark"),
    ],
    indirect=["opened"],
)
def test_report_is_readable(opened: sync_api.Page, name: str, pictures: Path) -> None:
    opened.screenshot(path=pictures / f"{name}.png", full_page=True)
    scroll, client = opened.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert scroll <= client
    # Pictures to explore are loaded as they come into sight.
    at_once = "[...document.images].filter(i => i.loading !== 'lazy')"
    assert opened.evaluate(f"{at_once}.every(i => i.complete && i.naturalWidth > 0)")
    assert opened.evaluate(f"{at_once}.length") == 36 + 3 * 4  # of findings, and of the answer
    opened.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    for plot in opened.locator("svg.forest").all():
        box = plot.bounding_box()
        assert box is not None
        assert box["width"] > 200
        assert box["height"] > 50
    assert opened.locator(".answer .claim").count() == 3
    assert opened.locator(".answer .claim").first.bounding_box()["y"] < 400  # the answer is the headline


@pytest.mark.parametrize("opened", [(1280, "dark")], indirect=True)
def test_dark_is_dark_and_plots_take_the_page_s_colours(opened: sync_api.Page) -> None:
    assert _brightness(opened.evaluate("getComputedStyle(document.body).backgroundColor")) < 60
    label = "getComputedStyle(document.querySelector('svg.forest text:last-of-type')).fill"
    assert _brightness(opened.evaluate(label)) > 120
    opened.emulate_media(media="print")
    assert _brightness(opened.evaluate("getComputedStyle(document.body).backgroundColor")) == 255


@pytest.mark.parametrize("opened", [(1280, "dark")], indirect=True)
def test_report_prints(opened: sync_api.Page, pictures: Path) -> None:
    data = opened.pdf(path=pictures / "print.pdf", prefer_css_page_size=True)
    assert data.startswith(b"%PDF")
    assert 1 <= data.count(b"/Type /Page\n") <= 12


@pytest.mark.parametrize("opened", [(1200, "light")], indirect=True)
def test_a_click_on_a_picture_opens_it_larger_with_its_key(opened: sync_api.Page, pictures: Path) -> None:
    first = opened.locator(".gallery img").first
    small = first.bounding_box()
    first.click()
    larger = opened.locator("dialog.larger img").bounding_box()
    assert small is not None
    assert larger is not None
    assert larger["width"] > 2 * small["width"]
    assert "photos/0.jpg" in opened.locator("dialog.larger p").inner_text()
    opened.screenshot(path=pictures / "larger.png")
    opened.keyboard.press("ArrowRight")
    assert "photos/0.jpg" not in opened.locator("dialog.larger p").inner_text()
    opened.keyboard.press("Escape")
    assert not opened.locator("dialog.larger").is_visible()


@pytest.mark.parametrize("opened", [(1200, "light")], indirect=True)
def test_tables_filter_and_sort_and_sections_fold(opened: sync_api.Page) -> None:
    opened.locator("#open summary").click()
    rows = opened.locator("table.open tbody tr:visible")
    before = rows.count()
    tools = opened.locator("#open .tools").first
    tools.locator("select[data-name=class]").select_option("boat")
    assert 0 < rows.count() < before + 1
    assert set(opened.locator("table.open tbody tr:visible th").all_inner_texts()) == {"boat"}
    tools.locator("select[data-name=class]").select_option("")
    tools.locator("input").fill("rain")
    assert all("rain" in text for text in rows.all_inner_texts())
    tools.locator("input").fill("")
    phi = opened.locator("table.open thead button", has_text="φ")
    phi.click()
    texts = opened.locator("table.open tbody tr:visible td[data-label=φ]").all_inner_texts()
    numbers = [float(text.split()[0].replace("−", "-")) for text in texts]
    assert numbers == sorted(numbers)
    opened.locator("#open .fold").click()
    assert rows.count() == 0
    assert opened.locator("#open h2").is_visible()


@pytest.mark.parametrize("opened", [(1200, "light")], indirect=True)
def test_the_map_tells_clear_open_and_found_apart(opened: sync_api.Page) -> None:
    look = "e => [getComputedStyle(e).backgroundColor, getComputedStyle(e).backgroundImage].join()"
    found = opened.locator("td.cell.against").first.evaluate(look)
    left = opened.locator("td.cell.undetermined").first.evaluate(look)
    assert found != left
    assert "gradient" in left


def _is_foreign(url: str, report: Path) -> bool:
    return url != report.as_uri() and not url.startswith("data:")


def _brightness(colour: str) -> float:
    """The mean channel of an rgb() colour."""
    channels = [float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    return sum(channels) / 3
