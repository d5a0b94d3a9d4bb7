"""The endpoint's pages in a real browser: accessible in light, dark and on a telephone, and usable by keyboard alone.

Set C2B_RAY_SCREENSHOTS to a folder to keep the pictures.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from endpoint_app import CONFIG, Endpoint, started
from failures_recipes import Recipe as FailuresRecipe
from live_endpoint import served
from run_recipes import CONTROL, PLANTED, Recipe
from synthetic_dataset import write_dataset
from synthetic_failures import make_run as make_failures
from synthetic_run import make_run

from c2b_ray.endpoint.ledger import jobs, running, tables
from c2b_ray.endpoint.ledger.tables import NewJob

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
SLOW = 30_000  # milliseconds
RECIPE = Recipe(
    classes=("bus", "boat"), attributes={"weather": ("clear", "snow"), "size": ("small", "large")},
    accuracy={(PLANTED, "bus", "snow"): 0.3}, images_per_cell=30,
)  # fmt: skip
SLICE = f"classifier={PLANTED}&target_class=bus&attribute=weather&bias_class=snow"
PAGES = {
    "sign-in": "/ui/signin", "audits": "/ui/", "nothing-like-it": "/ui/?name=zzz", "submit": "/ui/submit",
    "submit-failures": "/ui/submit?kind=failures", "submit-dataset": "/ui/submit?kind=dataset",
    "finished": "/ui/audits/{first}", "running": "/ui/audits/{running}", "failed": "/ui/audits/{failed}",
    "table": "/ui/audits/{first}/tables/scores?sort=phi", "slices": "/ui/audits/{first}/slices",
    "slice": "/ui/audits/{first}/slice?" + SLICE, "compare": "/ui/compare",
    "compared": "/ui/compare?a={first}&b={second}&classifier_a=" + PLANTED + "&classifier_b=" + PLANTED,
    "dataset": "/ui/audits/{dataset}", "gallery": "/ui/audits/{dataset}/gallery",
    "captions": "/ui/audits/{failures}/captions", "caption": "/ui/audits/{failures}/caption?number={number}",
    "classifiers": "/ui/classifiers", "weights": "/ui/classifiers/history?hash=weights-1",
    "history": "/ui/classifiers/history?name=" + PLANTED, "uploads": "/ui/uploads",
    "usage": "/ui/usage", "keys": "/ui/keys", "audit-log": "/ui/audit-log", "missing": "/ui/audits/job_none",
}  # fmt: skip


@dataclass
class Site:
    endpoint: Endpoint
    url: str
    ids: dict[str, str]

    def finish(self, job_id: str) -> None:
        """What a runner does at the end."""
        path = self.endpoint.run_path(job_id)
        run = make_run(path, RECIPE)
        run.kind.write_report(run)
        running.finish(self.endpoint.db, job_id, self.fence(job_id), str(path), "weights-1")

    def fence(self, job_id: str) -> int:
        job = jobs.get(self.endpoint.db, None, job_id)
        assert job is not None
        return job.fence if job.state == "running" else self.endpoint.claim(job_id).fence

    def submit(self, name: str) -> str:
        config = {**CONFIG, "classifier": [PLANTED, CONTROL]}
        new = NewJob("c2b", config, config, name=name)
        return jobs.submit(self.endpoint.db, self.endpoint.tenants["a"], None, new, self.endpoint.config.quotas)[0].id


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    endpoint = started(tmp_path_factory.mktemp("site"))
    with served(endpoint.app) as url:
        site = Site(endpoint, url, {})
        for name in ("first", "second"):
            site.ids[name] = site.submit(f"resnet, {name} night")
            site.finish(site.ids[name])
        site.ids["dataset"] = endpoint.finish("dataset").id
        write_dataset(endpoint.run_path(site.ids["dataset"]))
        site.ids["failures"] = endpoint.finish("failures").id
        made = make_failures(endpoint.run_path(site.ids["failures"]), FailuresRecipe())
        site.ids["number"] = str(made.hypotheses["verdict"].to_pylist().index("failure"))
        site.ids["failed"] = site.submit("resnet without weights")
        why = tables.Failure("The classifier's weights are gone", "upload:1f… is no longer there", "classifier")
        running.fail(endpoint.db, site.ids["failed"], site.fence(site.ids["failed"]), why)
        site.ids["running"] = site.submit("resnet, tonight")
        now = tables.Progress("classify images", 3000, 12000, 50.0, 180.0, {PLANTED: 3000}, {PLANTED: 61.5})
        running.progress(endpoint.db, site.ids["running"], site.fence(site.ids["running"]), now)
        yield site
    endpoint.db.close()


@pytest.fixture
def page(browser: sync_api.Browser, site: Site) -> Iterator[sync_api.Page]:
    """A new visitor; its test fails for any complaint of the browser, such as of what a policy forbids."""
    complaints: list[str] = []
    context = browser.new_context(viewport={"width": 1200, "height": 900}, base_url=site.url)
    page = context.new_page()
    page.set_default_timeout(SLOW)
    page.on("console", lambda message: complaints.append(f"{page.url} {message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(f"{page.url} {error}"))
    yield page
    context.close()
    assert [text for text in complaints if "status of 404" not in text and " verbose: " not in text] == []


def test_every_page_passes_axe_fits_a_telephone_and_has_one_heading(page: sync_api.Page, site: Site) -> None:
    axe_of = axe.Axe()
    wrong = []
    for name, path in PAGES.items():
        if name == "audits":
            page.fill("#key", site.endpoint.keys["admin"])
            page.click("main button")
        page.goto(path.format(**site.ids), wait_until="load")
        assert page.locator("h1").count() == 1, name
        for look, width, scheme in (("light", 1200, "light"), ("telephone", 390, "light"), ("dark", 1200, "dark")):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            _pictured(page, f"{name}-{look}")
            violations = axe_of.run(page).response["violations"]
            wrong += [f"{name} {look}: {_told(one)}" for one in violations]
            sizes = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
            if sizes[0] > sizes[1]:
                wrong.append(f"{name} {look}: {sizes[0]} px wide of {sizes[1]}")
        page.set_viewport_size({"width": 1200, "height": 900})
        page.emulate_media(color_scheme="light")
    assert not wrong, "\n".join(wrong)


def test_an_audit_is_submitted_watched_and_read_by_keyboard_alone(page: sync_api.Page, site: Site) -> None:
    page.goto("/ui/", wait_until="load")
    _type(page, "Key", site.endpoint.keys["a"])
    _press(page, "Sign in")
    page.wait_for_url("**/ui/")
    _press(page, "New audit")
    page.wait_for_url("**/ui/submit")
    _type(page, "Name", "by keyboard")
    _type(page, "Task", "Classify pictures of everyday objects outdoors.")
    _type(page, "Classes", "bus, boat")
    _type(page, "Classifier", "nosuch:model")
    _type(page, "Attributes", "weather: clear, snow")
    page.locator("[name=classifier][aria-invalid=true]").wait_for()
    assert "nosuch" in page.locator("[id='classifier-error']").inner_text()
    _type(page, "Classifier", PLANTED)
    page.locator("[name=classifier]:not([aria-invalid])").wait_for()
    page.locator("#check.good").wait_for()
    _press(page, "Submit")
    page.wait_for_url(re.compile(r"/ui/audits/job_"))
    job_id = page.url.rpartition("/")[2]
    assert page.locator("#state").inner_text() == "waits"
    fence = site.fence(job_id)
    running.progress(site.endpoint.db, job_id, fence, tables.Progress("classify images", 40, 160, 20.0, 6.0))
    page.locator("#counts", has_text="40 of 160").wait_for()
    assert page.locator("#stage").inner_text() == "classify images"
    assert "6" in page.locator("#left").inner_text()
    site.finish(job_id)
    page.locator(".state.finished").wait_for()
    _press(page, "Report")
    page.wait_for_url("**/report")
    assert page.locator("h1").count() == 1
    assert page.evaluate("() => { try { return document.cookie } catch (error) { return 'sealed' } }") == "sealed"


def test_without_its_script_an_audit_is_submitted_and_watched_as_well(browser: sync_api.Browser, site: Site) -> None:
    context = browser.new_context(java_script_enabled=False, base_url=site.url)
    page = context.new_page()
    page.set_default_timeout(SLOW)
    page.goto("/ui/submit")
    page.fill("#key", site.endpoint.keys["a"])
    page.click("main button")
    page.fill("[name=task]", "Classify.")
    page.fill("[name=classifier]", "nosuch:model")
    page.click("text=Submit")
    assert page.locator("[id='classes-error'], [id='classifier-error']").filter(has_text=re.compile(r"\w")).count() == 1
    assert page.locator("[name=task]").input_value() == "Classify."
    page.fill("[name=classes]", "bus, boat")
    page.fill("[name=classifier]", PLANTED)
    page.fill("[name=attributes]", "weather: clear, snow")
    page.click("main form button")
    page.wait_for_url(re.compile(r"/ui/audits/job_"))
    page.click("text=Refresh")
    page.click("text=Cancel this audit")
    assert page.locator(".state.cancelled").count() == 1
    context.close()


def _press(page: sync_api.Page, name: str) -> None:
    """By Tab to the link or button of this name, and Enter."""
    _reach(page, name)
    page.keyboard.press("Enter")


def _type(page: sync_api.Page, label: str, text: str) -> None:
    _reach(page, label)
    page.keyboard.press("Control+A")
    page.keyboard.type(text)


NAME = """() => { const e = document.activeElement;
  return e.labels?.[0]?.innerText ?? e.getAttribute("aria-label") ?? e.innerText }"""
OUTLINE = "() => getComputedStyle(document.activeElement).outlineStyle"


def _reach(page: sync_api.Page, name: str) -> None:
    """Where Tab goes, the outline shows it."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            continue
        assert page.evaluate(OUTLINE) != "none", page.evaluate(NAME)
        if page.evaluate(NAME).strip() == name:
            return
    raise AssertionError(f"Tab reaches no {name!r} on {page.url}")


def _told(violation: dict[str, Any]) -> str:
    where = [f"{node['target'][0]} {node['failureSummary']}" for node in violation["nodes"][:3]]
    return f"{violation['id']} ({violation['help']}): {where}"


def _pictured(page: sync_api.Page, name: str) -> None:
    if folder := os.environ.get("C2B_RAY_SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)
