"""The written file: whole, safe to open, small, and sensible when there is nothing to say."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from base64 import b64decode
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from audit_configs import audit_config
from PIL import Image

from c2b_ray.audits.c2b.report.detail import forest_plot
from c2b_ray.audits.c2b.report.page import write_report
from c2b_ray.audits.c2b.report.ranking import ranked
from c2b_ray.audits.c2b.run import C2BRun as Run
from c2b_ray.audits.c2b.run import open_c2b_run
from c2b_ray.report.page import policy
from c2b_ray.report.pictures import read_pictures, thumbnail, thumbnails
from c2b_ray.storage import files
from c2b_ray.storage.run import load_run

EVIL = '<script>alert("x")</script>'


def html_of(run: Run) -> str:
    return Path(write_report(run)).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(showcase_run: Run) -> str:
    return html_of(showcase_run)


def test_the_page_asks_for_nothing_and_runs_its_own_script_alone(page: str) -> None:
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)
    data = re.search(r'<script type="application/json" id="explore-data">(.*?)</script>', page, re.DOTALL)
    assert script
    assert data
    assert not set("<>&") & set(data[1])
    page = page.replace(script[0], "").replace(data[0], "")
    for asks in ("fetch(", "XMLHttpRequest", "import", "http:", "https:", "innerHTML", "eval", ".style"):
        assert asks not in script[1]
    # The namespace of SVG is a name, not an address that is fetched.
    links = re.findall(r'(?:src|href|url)\s*[=(]\s*["\']?([^"\'\s)>]+)', page)
    assert all(link.startswith(("data:image/jpeg;base64,", "#")) for link in links)
    assert "<script" not in page
    assert " style=" not in page
    assert not re.search(r"\son\w+=", page)


def test_the_policy_allows_this_style_sheet_and_script_alone(page: str) -> None:
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)
    allowed = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert style
    assert script
    assert allowed
    assert allowed[1].replace("&#39;", "'") == policy(style[1], script[1])
    assert "default-src 'none'" in policy("", "")
    assert "unsafe" not in policy("", "")
    assert page.count("<script") == 2  # the script, and data that no browser runs
    assert page.count('<script type="application/json"') == 1
    assert page.count("<style>") == 1


def test_places_do_not_leave_the_machine(page: str, showcase_run: Run) -> None:
    for hidden in ("file:", "/srv", "/home", "/tmp", showcase_run.path):
        assert hidden not in page


def test_every_section_is_there(page: str) -> None:
    order = (
        "All findings",
        "In detail",
        "Explore",
        "What stays undetermined",
        "What is ruled out",
        "How the run was made",
    )
    places = [page.index(f"<h2>{heading}</h2>") for heading in order]
    assert places == sorted(places)
    assert page.index('aria-label="The answer"') < places[0]
    assert page.index("<h3>What could not be used</h3>") > places[-1]
    assert page.count('class="forest"') == 3
    assert "Most often taken for" in page
    assert "≠" in page


def test_the_same_run_gives_the_same_page(page: str, showcase_run: Run) -> None:
    assert html_of(showcase_run) == page


def test_text_from_outside_is_escaped(build_run: Callable[..., Run]) -> None:
    classes = (EVIL, "bus $x$ 東京", "b&b's")
    run = build_run(
        classes=classes,
        attributes={EVIL: ("<b>1</b>", "@0@ $\\alpha", "</style>"), "#010101": ("日本", "xlink:href")},
        classifiers=("m<i>",),
        images_per_cell=60,
        accuracy={("m<i>", EVIL, "<b>1</b>"): 0.3, ("m<i>", classes[1], "日本"): 0.3},
        config={"task": EVIL},
    )
    html = html_of(run)
    assert html.count("<script") == html.count("</script") == 2  # the page's own, and its data
    html = html.replace("<script>", "", 1).replace('<script type="application/json"', "", 1)
    for raw in ("<script", "<b>1", "<i>m", "m<i>", "b&b"):
        assert raw not in html
    assert html.count("</style>") == 1
    assert "&lt;script&gt;" in html
    assert "@0@ $\\alpha" in html
    for plot in re.findall(r"<svg class=\"forest\".*?</svg>", html):
        ET.fromstring(plot)


def test_a_secret_of_the_environment_is_taken_out(
    build_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", "hunter2-hunter2")
    run = build_run(config={"language_model": "openai:http://h/v1#hunter2-hunter2"}, rejected=2)
    assert "hunter2" not in html_of(run)


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ({"images_per_cell": 0}, "No image has a prediction"),
        ({"all_errors": True}, "No image has a prediction"),
        ({"images_per_cell": 300}, "No difference of more than 10 points was found"),
        ({"classifiers": ()}, "Nothing was scored"),
        ({"pictures": False, "accuracy": {("world:resnet-control", "bus", "small"): 0.1}}, "cannot be shown"),
    ],
)
def test_nothing_to_say_is_said(build_run: Callable[..., Run], recipe: dict[str, Any], said: str) -> None:
    assert said in html_of(build_run(**recipe))


def test_a_run_that_has_only_begun(tmp_path: Path) -> None:
    with open_c2b_run(tmp_path / "run", "id", audit_config().model_dump(mode="json")) as run:
        html = html_of(run)
    assert "not finished (status: running)" in html
    assert "Nothing was scored" in html


def test_labelled_images_are_not_called_retrieved(build_run: Callable[..., Run]) -> None:
    html = html_of(
        build_run(retrieved=False, images_per_cell=60, accuracy={("world:resnet-control", "bus", "small"): 0.1})
    )
    assert "Labelled “a photo of a bus, size: small”" in html
    assert "Retrieved" not in html


def test_many_groups_are_shown_in_part(build_run: Callable[..., Run]) -> None:
    attributes = {f"a{i}": (f"low{i}", f"high{i}") for i in range(12)}
    classes = ("bus", "boat", "umbrella")
    accuracy = {("m", c, f"low{i}"): 0.2 for c in classes for i in range(12)}
    run = build_run(attributes=attributes, classes=classes, classifiers=("m",), images_per_cell=30, accuracy=accuracy)
    html = html_of(run)
    assert html.count('class="forest"') == 24
    assert "Further findings" in html
    assert html.count(">detail</a>") == 36 + 3
    assert 'class="file">photos/' in html
    assert len(html) < 8_000_000
    for link in re.findall(r'href="#([^"]+)"', html):
        assert f'id="{link}"' in html


def test_only_the_pictures_asked_for_are_read(showcase_run: Run) -> None:
    some = showcase_run.images["image_id"].to_pylist()[6:9]
    found = read_pictures(load_run(showcase_run.path), [*some, "absent"])
    assert sorted(found) == sorted(some)


def test_a_plot_is_deterministic_and_tells_verdicts_by_shape(showcase_run: Run) -> None:
    group = next(group for group in ranked(showcase_run.scores) if group.attribute == "lighting" and group.lead)
    plot = forest_plot(group, 0.1, "salt")
    assert plot == forest_plot(group, 0.1, "salt")
    root = ET.fromstring(plot)
    assert "night −0.28" in root.attrib["aria-label"]
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert [text for text in texts if text in ("night", "sunset", "day")] == ["night", "sunset", "day"]
    for variable in ("mark-against", "mark-for", "mark-undetermined", "band"):
        assert f"var(--{variable})" in plot


def test_thumbnails_are_small_and_skip_what_cannot_be_decoded() -> None:
    buffer = BytesIO()
    Image.new("RGB", (900, 300), "red").save(buffer, "PNG")
    uri = thumbnail(buffer.getvalue())
    assert uri.startswith("data:image/jpeg;base64,")
    with Image.open(BytesIO(b64decode(uri.split(",")[1]))) as image:
        assert image.size == (384, 128)
    assert list(thumbnails({"good": buffer.getvalue(), "bad": b"not an image"})) == ["good"]
    first, second = thumbnails({"a": buffer.getvalue(), "b": buffer.getvalue()}, most=1).values()
    assert len(second) < len(first)  # many pictures do not make a page that nobody can open


def test_a_failed_write_leaves_the_old_report(showcase_run: Run, monkeypatch: pytest.MonkeyPatch, page: str) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", refuse)
    with pytest.raises(Exception, match="disk is full"):
        write_report(showcase_run)
    assert Path(showcase_run.report).read_text(encoding="utf-8") == page
