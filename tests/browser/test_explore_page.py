"""A report explored in a real browser: matrix, filters, pictures, map and lasso, by mouse and by keyboard, offline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from run_recipes import Recipe, showcase
from synthetic_run import make_run

from c2b_ray.audits.c2b.report.page import write_report

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
SLOW = 120_000  # milliseconds: browsers start late on a busy machine
LARGEST = 5_000_000  # bytes


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(write_report(make_run(tmp_path_factory.mktemp("explore") / "run", showcase())))


@pytest.fixture
def page(browser: sync_api.Browser, report: Path, tmp_path: Path) -> Iterator[sync_api.Page]:
    complaints: list[str] = []
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(SLOW)
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(report.as_uri(), wait_until="load")
    yield page
    context.close()
    assert complaints == []


def test_a_click_in_the_matrix_shows_the_images_behind_it(page: sync_api.Page) -> None:
    cell = page.locator(".confusion .w1 button, .confusion .w2 button, .confusion .w3 button").first
    told = cell.get_attribute("aria-label") or ""  # "bus answered boat: 130 images"
    cell.click()
    assert cell.get_attribute("aria-pressed") == "true"
    truth, answer = told.split(":")[0].split(" answered ")
    tiles = page.locator(".tiles button")
    assert tiles.count() > 0
    assert all(tile.endswith(f"{truth} answered {answer}") for tile in _labels(tiles))
    cell.click()
    assert page.locator("#explorer .count").first.inner_text() == "600 of 600 images"


def test_a_click_on_other_answers_shows_those_without_a_column_of_their_own(
    browser: sync_api.Browser, tmp_path: Path
) -> None:
    classes = tuple(f"class {i}" for i in range(30))  # of which a matrix has 24
    accuracy = {("m", name, value): 0.5 for name in classes for value in ("small", "large")}
    recipe = Recipe(
        classes, {"size": ("small", "large")}, ("m",), images_per_cell=58, accuracy=accuracy, pictures=False
    )
    page = browser.new_page()
    page.set_default_timeout(SLOW)
    page.goto(Path(write_report(make_run(tmp_path / "run", recipe))).as_uri(), wait_until="load")
    cell = page.locator(".confusion button[aria-label*='answered other answers']").first
    cell.click()
    assert cell.get_attribute("aria-pressed") == "true"
    answered = {label.split(" answered ")[1] for label in _labels(page.locator(".tiles button"))}
    named = set(page.locator(".confusion thead th").evaluate_all("all => all.map(one => one.title)"))
    assert answered
    assert not answered & named
    page.close()


def test_filters_by_class_attribute_outcome_and_confidence(page: sync_api.Page) -> None:
    find = page.locator("#explorer select[aria-label=Class]")
    find.select_option(label="boat")
    page.locator("#explorer select[aria-label=Attribute]").select_option(label="lighting: night")
    page.locator("#explorer select[aria-label='Right or wrong']").select_option("wrong")
    page.locator("#explorer input[aria-label='Least confidence']").fill("0.7")
    tiles = page.locator(".tiles button")
    assert tiles.count() > 0
    assert all(": boat answered " in label and not label.endswith("boat") for label in _labels(tiles))
    tiles.first.click()
    shown = page.locator("dialog.look dl").inner_text()
    assert "lighting: night" in shown
    assert float(shown.split("confidence ")[1][:4]) >= 0.7


def test_an_image_opens_with_all_that_is_known_and_the_keyboard_goes_on(page: sync_api.Page) -> None:
    page.locator(".tiles button").first.focus()
    page.keyboard.press("Enter")
    dialog = page.locator("dialog.look")
    first = dialog.locator("dl").inner_text()
    for term in ("image", "class", "world:resnet-planted-3", "world:resnet-control", "cells"):
        assert term in first
    page.keyboard.press("ArrowRight")
    assert dialog.locator("dl").inner_text() != first
    dialog.get_by_text("Add to the selection").press("Enter")
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    assert page.evaluate("document.activeElement.closest('.tiles') !== null")
    assert page.locator(".selection textarea").input_value().startswith("photos/")


def test_a_line_around_images_of_the_map_selects_them_to_copy_or_save(page: sync_api.Page, tmp_path: Path) -> None:
    box = page.locator("canvas.map").bounding_box()
    assert box is not None
    page.locator("canvas.map").scroll_into_view_if_needed()
    box = page.locator("canvas.map").bounding_box()
    x, y, width, height = (box[name] for name in ("x", "y", "width", "height"))
    page.mouse.move(x + 2, y + 2)
    page.mouse.down()
    for to in ((width - 2, 2), (width - 2, height - 2), (2, height - 2), (2, 2)):
        page.mouse.move(x + to[0], y + to[1], steps=5)
    page.mouse.up()
    keys = page.locator(".selection textarea").input_value().split("\n")
    assert len(keys) == 600  # all of them
    with page.expect_download() as download:
        page.get_by_text("Save as a file").click()
    download.value.save_as(tmp_path / "images.txt")
    assert (tmp_path / "images.txt").read_text().split() == keys
    page.get_by_text("Select none").click()
    assert not page.locator(".selection textarea").is_visible()
    # Without a mouse, the filters choose.
    page.locator("#explorer select[aria-label=Class]").select_option(label="bus")
    page.get_by_role("button", name="Select what the filters leave").press("Enter")
    told = page.locator(".selection .count").inner_text()
    assert 0 < int(told.split()[0]) < 600


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "light"), (390, "dark")])
def test_no_rule_of_accessibility_is_broken(page: sync_api.Page, width: int, scheme: str) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    violations = axe.Axe().run(page).response["violations"]
    assert not violations, [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in violations]
    sizes = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert sizes[0] <= sizes[1]


def test_links_open_what_is_folded_and_paper_shows_it(page: sync_api.Page) -> None:
    for one in page.locator("details.group").all():
        one.evaluate("e => e.open = false")
    page.locator(".answer a.more").first.click()
    assert page.locator("details.group[open]").count() == 1
    page.emulate_media(media="print")
    page.pdf(path=None)
    assert page.locator("details.group[open]").count() == 1  # as it was before


def test_a_page_of_many_classifiers_or_classes_stays_small(browser: sync_api.Browser, tmp_path: Path) -> None:
    recipes = {
        "classifiers": Recipe(
            classifiers=tuple(f"classifier-{i}" for i in range(20)),
            images_per_cell=30,
            accuracy={(f"classifier-{i}", "bus", "fog"): 0.2 for i in range(20)},
        ),
        "classes": Recipe(
            classes=tuple(f"class {i}" for i in range(1_000)),
            attributes={"size": ("small", "large")},
            classifiers=("m",),
            images_per_cell=2,
        ),
    }
    for name, recipe in recipes.items():
        path = Path(write_report(make_run(tmp_path / name, recipe)))
        assert path.stat().st_size <= LARGEST
        page = browser.new_page()
        page.set_default_timeout(SLOW)
        page.goto(path.as_uri(), wait_until="load")
        assert page.locator(".tiles button").count() > 0
        page.close()


def _labels(tiles: sync_api.Locator) -> list[str]:
    return tiles.evaluate_all("all => all.map(one => one.ariaLabel)")
