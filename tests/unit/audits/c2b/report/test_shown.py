"""What images show on the page: who looked, shares, doubts, φ before its correction; nothing where nobody looked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from run_recipes import PLANTED
from score_rows import text

from c2b_ray.audits.c2b.report.detail import value_rows
from c2b_ray.audits.c2b.report.evidence import shown_article
from c2b_ray.audits.c2b.report.page import write_report
from c2b_ray.audits.c2b.report.ranking import ranked
from c2b_ray.audits.c2b.report.undetermined import undetermined_section
from c2b_ray.report.blocks import Article
from c2b_ray.storage.run import Run
from c2b_ray.tables import CALIBRATION, SCORES, VERIFICATIONS

MODELS = {"verifier": {"spec": "hf-vlm:/srv/models/look", "revision": "1"}}
SEEN = pa.Table.from_pylist([{"image_id": "a", "error": None}, {"image_id": "b", "error": "/srv/x/b.jpg: torn"}])


def row(value: str, share: float | None, doubt: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "classifier": "m", "target_class": "bus", "attribute": "weather", "bias_class": value, "n": 60, "correct": 30,
        "errors": 0, "accuracy": 0.5, "phi": -0.3, "phi_low": -0.4, "phi_high": -0.2, "phi_observed": -0.2,
        "verdict": "undetermined", "paper_verdict": -1, "repeats": 2, "shown": share, "shown_low": 0.5,
        "shown_high": 0.9, "class_shown": 0.95, "doubt": doubt, "mistaken": 0,
    } | more  # fmt: skip


def scores(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), SCORES)


def known(*rows: tuple[str, str, str, float, str]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(CALIBRATION.names, row, strict=True)) for row in rows], CALIBRATION)


def told(table: pa.Table, calibration: pa.Table | None = None) -> Article:
    names = {"m": "m", "k": "k"}
    known = CALIBRATION.empty_table() if calibration is None else calibration
    (article,) = shown_article(SEEN, known, table, MODELS, names)
    return article


def attributes(of: Article) -> list[list[Any]]:
    return list(of.blocks[1].rows)


def plain(text: str) -> str:
    return text.replace("\u202f", " ").replace("\u00a0", " ")


def test_who_looked_without_places_and_what_could_not_be_said() -> None:
    assert (
        told(scores(row("snow", 0.8)))
        .blocks[0]
        .text.startswith("hf-vlm:look looked at 2 images and said what each shows. Of 1 it could not say: b.jpg: torn.")
    )


def test_median_and_lowest_share_of_each_attribute() -> None:
    table = scores(row("snow", 0.8), row("rain", 0.6), row("fog", 0.9), row("day", None, attribute="lighting"))
    calibration = known(
        ("weather", "snow", "snow", 60.0, "table"),
        ("weather", "snow", "rain", 20.0, "table"),
        ("weather", "rain", "rain", 20.0, "table"),
    )
    whole, weather, lighting = attributes(told(table, calibration))
    assert [plain(one) for one in whole[:3]] == ["the class itself", "taken at its word, not checked", "95 %"]
    # 60 + 20 of 100 answers name what is shown
    _, calibrated, middle, lowest, repeats = weather
    assert (plain(calibrated), plain(middle), repeats) == ("on 100 labelled images, 80 % right", "80 %", "6")
    assert [plain(one) for one in (lowest.text, *lowest.small)] == ["60 %", "50–90 %", "bus, rain"]
    assert lighting[1:3] == ["by its own certainty, not checked", "—"]
    assert "not checked on labelled images" not in told(table, calibration).blocks[0].text
    assert "not checked on labelled images" in told(table).blocks[0].text


def test_repeats_count_once_for_all_classifiers() -> None:
    table = scores(row("snow", 0.8), row("snow", 0.8, classifier="k"))
    assert attributes(told(table))[1][-1] == "2"


def test_doubts_are_told_once_a_cell_and_name_whom_they_concern_where_not_all() -> None:
    table = scores(
        row("snow", 0.2, "only 20%"),
        row("snow", 0.2, "only 21%", classifier="k"),
        row("fog", 0.5, "only 49%"),
        row("fog", 0.5, classifier="k"),
    )
    (_, snow, of_all), (_, fog, of_one) = told(table).blocks[-1].rows
    assert (text(snow.text), of_all.text, of_all.small) == ("weather: snow", "only 20%", [])
    assert (text(fog.text), text(of_one.small[0])) == ("weather: fog", "for m")
    *_, line, many = told(scores(*[row(f"v{i}", 0.2, "only 20%") for i in range(23)])).blocks
    assert (len(many.rows), many.more) == (20, "And 3 more, in the run’s scores.parquet.")
    assert line.text.startswith("23 cells are in doubt")


def test_a_doubted_cell_has_no_number_of_images_that_would_do() -> None:
    table = scores(row("snow", 0.2, "only 20%"), row("fog", 0.9, images_to_settle=400), row("rain", 0.9))
    (left,) = undetermined_section(ranked(table), {"m": "m"}, 0.05, verified=True).blocks
    (settle,) = [row.cells[-2] for row in left.blocks[-1].rows if text(row.cells[1].text) == "weather: snow"]
    assert (settle.text, settle.link) == ("in doubt", "#shown")
    assert "1 of them is in doubt for what the images show. No number of images would settle 1 of them" in left.summary


def test_the_observed_phi_is_told_where_the_correction_moved_it() -> None:
    (group,) = ranked(scores(row("snow", 0.8), row("fog", 0.8, phi_observed=-0.295), row("rain", 0.8, phi=None)))
    of_phi = {r.cells[0].text: [text(line) for line in r.cells[3].small[1:]] for r in value_rows(group)}
    assert of_phi == {"snow": ["observed −0.20"], "fog": [], "rain": []}


def test_the_page_tells_it_where_images_were_verified_alone(build_run: Callable[..., Run]) -> None:
    plan: dict[str, Any] = {
        "classes": ("bus", "<i>boat"),
        "attributes": {"weather": ("clear", "snow", "fog")},
        "classifiers": (PLANTED,),
        "images_per_cell": 60,
        "pictures": False,
        "accuracy": {(PLANTED, "bus", "snow"): 0.3},
    }
    run = build_run(**plan, shown={("bus", "snow"): 0.7, ("<i>boat", "fog"): 0.1}, calibrated=("weather",))
    with open(write_report(run), encoding="utf-8") as page:
        html = page.read()
    assert '<article id="shown">' in html
    assert "world:clip looked at 360 images" in html
    assert '<small><span class="observed">observed −0.' in html
    assert '<a href="#shown">in doubt</a>' in html
    assert "Rogan &amp; Gladen" in html
    assert "of the images show &#39;fog&#39;" in html
    assert "<i>boat" not in html


def test_nothing_is_said_where_nobody_looked(build_run: Callable[..., Run]) -> None:
    nothing = VERIFICATIONS.empty_table(), CALIBRATION.empty_table()
    assert shown_article(*nothing, scores(row("snow", 0.8)), {}, {}) == []
    with open(write_report(build_run(images_per_cell=3, pictures=False)), encoding="utf-8") as page:
        html = page.read()
    for absent in ('id="shown"', 'href="#shown"', "observed −", "Rogan", 'id="sources"', 'id="spent"', "e-BH"):
        assert absent not in html
