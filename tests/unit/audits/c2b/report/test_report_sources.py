"""Whether the sources agree, on the page: counts, and the cells that differ, largest first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from run_recipes import PLANTED
from score_rows import text

from c2b_ray.audits.c2b.report.evidence import sources_article
from c2b_ray.audits.c2b.report.method import method
from c2b_ray.audits.c2b.report.page import write_report
from c2b_ray.storage.run import Run
from c2b_ray.tables import AGREEMENT


def row(value: str, difference: float, agreement: str = "different", **more: Any) -> dict[str, Any]:
    return {
        "classifier": "m", "target_class": "bus", "attribute": "weather", "bias_class": value,
        "n_retrieve": 100, "phi_retrieve": -0.2, "phi_low_retrieve": -0.3, "phi_high_retrieve": -0.1,
        "n_generate": 90, "phi_generate": difference - 0.2, "phi_low_generate": -0.5, "phi_high_generate": 0.5,
        "difference": difference, "difference_low": difference - 0.1, "difference_high": difference + 0.1,
        "agreement": agreement,
    } | more  # fmt: skip


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), AGREEMENT)


def test_counts_and_differences_largest_first() -> None:
    nan = float("nan")
    (article,) = sources_article(
        table(row("fog", 0.2), row("snow", -0.5), row("rain", 0.0, "same"), row("hail", nan, "undetermined")),
        {"m": "the model"},
        0.95,
    )
    line, cells = article.blocks
    assert line.text.startswith(
        "Of 4 cells, φ of retrieved and of generated images is the same in 1, different in 2 and undetermined in 1. W"
    )
    (_, snow, retrieved, generated, difference), (_, fog, *_) = cells.rows
    assert [text(snow.text), text(fog.text)] == ["weather: snow", "weather: fog"]
    assert (retrieved.text, *retrieved.small) == ("−0.20", "−0.30 to −0.10", "100 images")
    assert (generated.text, difference.text, *difference.small) == ("−0.70", "−0.50", "−0.60 to −0.40")
    assert cells.more == ""


def test_twenty_are_listed_and_none_where_all_agree() -> None:
    (article,) = sources_article(table(*[row(f"v{i}", 0.2) for i in range(25)]), {"m": "m"}, 0.95)
    cells = article.blocks[-1]
    assert (len(cells.rows), cells.more) == (20, "And 5 more, in the run’s agreement.parquet.")
    (alike,) = sources_article(table(row("fog", 0.0, "same")), {"m": "m"}, 0.95)
    (line,) = alike.blocks
    assert line.text.endswith("undetermined in 0.")
    assert sources_article(table(), {}, 0.95) == []


def test_the_page_of_two_sources(build_run: Callable[..., Run]) -> None:
    run = build_run(
        classes=("bus", "boat"),
        attributes={"weather": ("clear", "<b>snow")},
        classifiers=(PLANTED,),
        images_per_cell=100,
        pictures=False,
        accuracy={(PLANTED, "bus", "<b>snow"): 0.3},
        generated={(PLANTED, "bus", "<b>snow"): 0.95},
        config={"images": {"source": ["retrieve", "generate"], "index": "i", "generator": "world:renderer"}},
    )
    with open(write_report(run), encoding="utf-8") as page:
        html = page.read()
    assert '<article id="sources">' in html
    assert "is the same in 2, different in 2 and undetermined in 0." in html
    assert "weather: <b>&lt;b&gt;snow</b>" in html
    assert "interval of the difference (Zou &amp; Donner 2008) lies within ±0.2" in html
    assert "<b>Agreement.</b>" in html
    assert "Made for “a photo of a bus" in html
    assert "Labelled “" not in html
    assert "retrieved by caption from an index and made from each caption" in html


def test_every_source_of_images_has_its_words() -> None:
    settings = dict(method({"config": {"images": {"source": "generate"}}}).settings)
    assert settings["Images"] == "made from each caption"
    assert "Images" not in dict(method({"config": {}}).settings)
