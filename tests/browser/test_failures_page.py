"""The report of failures in a real browser: it fits a telephone, complains of nothing, and filters and sorts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from failures_recipes import showcase
from synthetic_failures import make_run as make_failures_run

from c2b_ray.audits.failures.report.page import write_report

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
SLOW = 120_000  # milliseconds


@pytest.fixture(scope="module")
def page(browser: sync_api.Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[sync_api.Page]:
    """The page; the module's tests fail for any complaint of the browser, such as of what its policy forbids."""
    report = Path(write_report(make_failures_run(tmp_path_factory.mktemp("browser") / "run", showcase())))
    complaints: list[str] = []
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.set_default_timeout(SLOW)
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(report.as_uri(), wait_until="load")
    yield page
    page.close()
    assert complaints == []


@pytest.mark.parametrize("width", [1200, 390])
def test_it_fits_the_window_and_all_pictures_are_there(page: sync_api.Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert page.evaluate("document.images.length > 20")
    assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
    assert page.evaluate("[...document.querySelectorAll('svg.forest')].every(s => s.clientWidth > 200)")


def test_findings_filter_by_target_and_numbers_sort_by_times(page: sync_api.Page) -> None:
    page.set_viewport_size({"width": 1200, "height": 900})
    shown = page.locator("ol.findings > li:visible")
    every = shown.count()
    target = page.locator("#found select[data-name=target]")
    target.select_option("bee")
    assert 0 < shown.count() < every
    assert all(" for a bee " in text for text in shown.all_inner_texts())
    target.select_option("")
    page.locator("#numbers thead button", has_text="Times").click()
    times = page.locator("#numbers tbody td[data-label=times]").evaluate_all("c => c.map(e => Number(e.dataset.value))")
    assert times == sorted(times)
    assert times[-1] > 1e299  # what never fails at its baseline comes last, not first
