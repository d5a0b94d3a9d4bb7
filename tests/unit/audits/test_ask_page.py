"""The page of a question: what was found in words, and no text from outside as markup."""

from __future__ import annotations

import re

import pyarrow as pa

from c2b_ray import tables as schemas
from c2b_ray.audits.ask import SentenceAnswer, answer, answers_page
from c2b_ray.steps.duplicates import DISTINCT_COLUMNS, Distinct

EACH_ITS_OWN = Distinct(schemas.IMAGES.empty_table().select(DISTINCT_COLUMNS))
EVIL = '<script>alert("x")</script>'


def tables(labels: list[str | None]) -> tuple[pa.Table, pa.Table]:
    images = [{"image_id": f"i{k}", "key": f"{k}.jpg", "bytes": None, "error": None} for k in range(len(labels))]
    rows = [
        {"prediction_id": f"i{k}", "image_id": f"i{k}", "classifier": "m", "revision": "1", "label": label,
         "label_probability": 0.75, "predicted_class": label, "error": None}
        for k, label in enumerate(labels)
    ]  # fmt: skip
    return pa.Table.from_pylist(images, schemas.IMAGES), pa.Table.from_pylist(rows, schemas.PREDICTIONS)


def answered(labels: list[str | None], others: list[str]) -> SentenceAnswer:
    asked, run = tables(labels)[1], tables([*labels, *others])[1]
    return answer("m", "bus", asked, (set(run["image_id"].to_pylist()), run), 0.95, EACH_ITS_OWN)


def test_what_was_found_is_said_in_words() -> None:
    labels = ["bus"] * 4 + ["boat"] * 16 + [None]
    told = answered(labels, ["bus"] * 90 + ["boat"] * 10)
    *paragraphs, galleries = answers_page("a bus in the snow", "bus", [told], tables(labels), 0.05).sections[0].blocks
    said = [paragraph.text.replace("\u202f", " ") for paragraph in paragraphs]
    # Wilson's limits of 4 of 20: 8.07 % and 41.6 %; 94 of 120 are right in all; 0.2 − 0.9 = −0.7
    assert said[0] == "4 of 20 right: 20 % (8–42 %)"
    assert said[1].startswith("All of the run’s images of a bus: 94 of 120 right: 78 %")
    assert said[2].startswith("Difference to the 100 of them not drawn here: −0.70 (−0.85 to −0.4")
    assert said[2].endswith("p < 0.001.")
    assert said[3:] == ["Most often taken for boat (16).", "1 image could not be answered."]
    assert [(kind.title, len(kind.pictures)) for kind in galleries.galleries] == [
        ("Wrong: 16 of 16", 16),
        ("Right: 4 of 4", 4),
    ]


def test_the_page_runs_nothing_and_escapes_what_it_was_given() -> None:
    labels: list[str | None] = [EVIL, "bus"]
    html = answers_page(f"a bus {EVIL}", "bus", [answered(labels, [])], tables(labels), 0.05).html()
    assert html.count("<script") == html.count("</script") == 1  # the page's own
    assert "&lt;script&gt;" in html
    assert " style=" not in html
    assert "default-src &#39;none&#39;" in html or "default-src 'none'" in html
    assert not re.search(r"\son\w+=", html)


def test_images_that_were_left_out_are_said_once() -> None:
    labels: list[str | None] = ["bus", "boat"]
    told = [answered(labels, []), answered(labels, [])]
    assert answers_page("a bus", "bus", told, tables(labels), 0.05, repeats=3).head[0].text == (
        "2 images of a bus, best first. Left out: 3 near-duplicates of other images of the sentence."
    )


def test_no_image_is_said() -> None:
    line, galleries = answers_page("a bus", "bus", [answered([], [])], tables([]), 0.05).sections[0].blocks
    assert (line.text, galleries.galleries) == ("No image has an answer.", [])
