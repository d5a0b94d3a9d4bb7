"""What was merged, told once for all classes it was merged for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from c2b_ray.audits.c2b.report.page import write_report
from c2b_ray.audits.c2b.report.unused import merges
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


def test_a_merge_is_told_once_with_its_reason_and_classes() -> None:
    (row,) = merges(proposals("bus", "boat", "mug", "fish")).rows
    assert (row.name, row.into, row.why) == ("nighttime", "lighting: night", "one word, in two forms")
    assert (row.similarity, row.classes) == ("0.99", "bus, boat and 2 more")
    (row,) = merges(proposals("bus", similarity=None, kind="attribute", into="lighting", rule="values")).rows
    assert (row.into, row.similarity, row.classes) == ("lighting", "", "bus")


def test_the_page_tells_it_and_older_runs_have_nothing_to_tell(build_run: Callable[..., Run]) -> None:
    run = build_run(images_per_cell=2, pictures=False)
    run.write("proposals", proposals("bus", **{"from": "<i>x"}))
    with open(write_report(run), encoding="utf-8") as page:
        html = page.read()
    assert "What was merged" in html
    assert "&lt;i&gt;x" in html
    assert merges(PROPOSALS.empty_table()).rows == ()
    assert merges(proposals("bus").drop_columns(["merged"])).rows == ()
