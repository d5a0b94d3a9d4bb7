"""What a budget was spent on, on the page: looks, what is left, what the rest would take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from score_rows import text

from c2b_ray.audits.c2b.report.evidence import spending_article
from c2b_ray.audits.c2b.report.page import write_report
from c2b_ray.audits.c2b.report.ranking import Group, ranked
from c2b_ray.storage.run import Run
from c2b_ray.tables import SCORES

LOOKS = [{"images": 600, "open": 8, "groups": 8}, {"images": 1_400, "open": 2, "groups": 8}]
BUDGET = {"status": "finished", "budget": {"images": 2_000, "looks": LOOKS}}


def row(value: str, needed: int | None, n: int = 100, **more: Any) -> dict[str, Any]:
    return {
        "classifier": "m", "target_class": "bus", "attribute": "weather", "bias_class": value, "n": n, "correct": 50,
        "errors": 0, "phi": 0.1, "verdict": "undetermined", "paper_verdict": 0, "mistaken": 0, "repeats": 0,
        "images_to_settle": needed,
    } | more  # fmt: skip


def groups(*rows: dict[str, Any]) -> list[Group]:
    return ranked(pa.Table.from_pylist(list(rows), SCORES))


def plain(text: str) -> str:
    return text.replace("\u202f", " ")


def test_looks_and_what_is_left() -> None:
    (article,) = spending_article(BUDGET, [])
    line, table = article.blocks
    assert [(images, text(still_open.text), bar.segments[0].width) for images, still_open, bar in table.rows] == [
        ("600", "8 of 8", "100.0"), ("1,400", "2 of 8", "25.0"),
    ]  # fmt: skip
    assert plain(line.text).startswith(
        "1,400 of the budget’s 2,000 images were drawn, in 2 looks; 600 are left. No open"
    )


@pytest.mark.parametrize(
    ("budget", "status", "end"),
    [(1_400, "finished", "none are left."), (1_401, "running", "1 is left."),
     (1_500, "finished", "They were not drawn: each group is settled, or a decision is unlikely.")],
)  # fmt: skip
def test_why_it_stopped(budget: int, status: str, end: str) -> None:
    looks = [LOOKS[0], LOOKS[1] | {"open": 0}]
    (article,) = spending_article({"status": status, "budget": {"images": budget, "looks": looks}}, [])
    assert article.blocks[0].text.endswith(end)


def test_the_rest_fills_every_cell_of_a_group_up_to_what_its_neediest_asks() -> None:
    (article,) = spending_article(
        BUDGET,
        groups(
            row("snow", 300),
            row("fog", 400, n=150),  # both cells go to 400: 300 + 250 more
            row("snow", 350, classifier="k"),  # on the same images
            row("day", 1_100, attribute="lighting"),
            row("night", None, attribute="lighting"),  # 1,000 + 1,000 more
            row("red", None, attribute="colour"),
            row("small", 900, attribute="size", verdict="none"),
        ),
    )
    assert plain(article.blocks[-1].text).startswith(
        "To settle 2 groups for which a number of images would do, it would take about 2,550 more, 550 of them for the "
        "cheaper half"
    )


def test_the_page_tells_it_and_runs_without_a_budget_have_nothing_to_tell(build_run: Callable[..., Run]) -> None:
    assert spending_article({"config": {}}, []) == []
    assert spending_article({"budget": {"images": 10, "looks": []}}, []) == []
    run = build_run(images_per_cell=3, pictures=False, classifiers=("m",), manifest=BUDGET)
    with open(write_report(run), encoding="utf-8") as page:
        html = page.read()
    assert '<article id="spent">' in html
    assert "Verdicts hold under continuous peeking" in html
    assert "Waudby-Smith &amp; Ramdas 2024" in html
