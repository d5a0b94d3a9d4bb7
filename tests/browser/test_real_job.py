"""A person with a browser and `c2b endpoint`: a small audit is submitted, runs in a process of its own, and is read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from endpoint_command import started

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
SLOW, RUNS = 60_000, 240_000  # milliseconds
FIELDS = {
    "name": "from a browser", "task": "Classify pictures of everyday objects outdoors.", "classes": "bus, boat",
    "classifier": "world:resnet-planted-0", "attributes": "weather: clear, snow", "images_per_caption": "6",
}  # fmt: skip


def test_an_audit_is_submitted_runs_and_is_read(browser: sync_api.Browser, tmp_path: Path) -> None:
    with started(tmp_path, "") as (process, url):
        assert process.stdout is not None
        key = process.stdout.readline().split()[-1]
        page = browser.new_page(base_url=url)
        page.set_default_timeout(SLOW)
        page.goto("/")
        page.fill("#key", key)
        page.click("main button")
        page.goto("/ui/submit")
        for name, value in FIELDS.items():
            page.fill(f"[name={name}]", value)
        page.select_option("[name='images.source']", "generate")
        page.fill("[name='images.generator']", "world:renderer")
        page.locator("#check.good").wait_for()
        page.get_by_role("button", name="Submit").click()
        page.wait_for_url(re.compile(r"/ui/audits/job_"))
        watched = page.url
        page.locator(".state.finished").wait_for(timeout=RUNS)  # by the stream of events: nobody reloads
        page.goto(watched)
        images = page.locator("dl.facts div", has_text="Images").locator("dd").inner_text()
        assert int(images) == 2 * 2 * 5 * 6  # classes, values, captions of each, images of each
        page.click("text=Slices and their images")
        page.click("tbody th a")
        pictures = page.locator(".gallery img")
        assert pictures.count() == 24  # of 30: a page of them
        assert pictures.first.evaluate("image => image.decode().then(() => image.naturalWidth)") == 64
        page.goto(f"{watched}/report")
        assert "Classify pictures of everyday objects outdoors" in page.locator("body").inner_text()
        page.close()
