"""What was merged, told once for all classes it was merged for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from c2b_ray.audits.c2b.report.page import write_report
from c2b_ray.audits.c2b.report.unused import merged_article
from c2b_ray.storage.run import Run
from c2b_ray.tables import PROPOSALS


def proposals(*classes: str, **merge: Any) -> pa.Table:
    told = [{"kind": "value", "from": "nighttime", "into": "night", "similarity": 0.991, "rule": "spelling"} | merge]
    rows = [
        {"proposal_id": name, "target_class": name, "attribute": "lighting", "bias_classes": ["day", "night"],
         "source": "language_model", "merged_from": ["lighting"], "merged": told}
        for name in classes
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, PROPOSALS)


def rows(of: pa.Table) -> list[tuple[str, ...]]:
    (article,) = merged_article(of)
    return list(article.blocks[-1].rows)


def test_a_merge_is_told_once_with_its_reason_and_classes() -> None:
    (row,) = rows(proposals("bus", "boat", "mug", "fish"))
    assert row == ("nighttime", "lighting: night", "one word, in two forms", "0.99", "bus, boat and 2 more")
    (row,) = rows(proposals("bus", similarity=None, kind="attribute", into="lighting", rule="values"))
    assert row == ("nighttime", "lighting", "much the same values", "", "bus")


def test_the_page_tells_it_and_older_runs_have_nothing_to_tell(build_run: Callable[..., Run]) -> None:
    run = build_run(images_per_cell=2, pictures=False)
    run.write("proposals", proposals("bus", **{"from": "<i>x"}))
    with open(write_report(run), encoding="utf-8") as page:
        html = page.read()
    assert "What was merged" in html
    assert "&lt;i&gt;x" in html
    assert merged_article(PROPOSALS.empty_table()) == []
    assert merged_article(proposals("bus").drop_columns(["merged"])) == []
