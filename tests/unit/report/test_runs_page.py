"""The index page of runs: links to reports, the history of a classifier, and no name that acts."""

from __future__ import annotations

import re
from dataclasses import replace

from c2b_ray.report.run_list import index_page
from c2b_ray.storage.run import ListedRun

FIRST = ListedRun(
    "runs/first", "first", "c2b", "finished", "2026-11-01T08:00:00+00:00", {"new": "onnx:/home/ann/net.onnx"},
    "bus, weather fog: 52% right (φ −0.37). 4 findings", {"new": 4}, report=True,
)  # fmt: skip
SECOND = replace(
    FIRST,
    path="runs/second",
    name="second",
    date="2026-11-08T08:00:00+00:00",
    findings={"new": 1},
    headline="1 finding",
)
OTHER = replace(SECOND, path="runs/other", name="other", kind="failures", findings={"new": 7})


def test_a_run_leads_to_its_report_from_where_the_page_lies() -> None:
    assert 'href="runs/first/report.html"' in index_page([FIRST], "runs", "index.html")
    assert 'href="../../runs/first/report.html"' in index_page([FIRST], "runs", "site/pages/index.html")
    assert "href=" not in index_page([replace(FIRST, report=False)], "runs", "index.html")
    assert "href=" not in index_page([FIRST], "runs", "s3://pages/index.html")


def test_the_history_of_a_classifier_is_of_one_kind_and_by_date() -> None:
    page = index_page([OTHER, SECOND, FIRST], "runs", "index.html")
    history = page[page.index("History of each classifier") :]
    rows = re.findall(
        r'<th scope="row">([\d-]+)</th>.*?"findings">(\d+)</td>.*?"change">(.*?)</td>', history, re.DOTALL
    )
    assert rows == [("2026-11-01", "4", ""), ("2026-11-08", "1", "−3")]
    assert history.count("<h3>") == 1  # one search for failures is no history
    assert "History of each classifier" not in index_page([OTHER, FIRST], "runs", "index.html")


def test_thousands_of_runs_stay_a_page_that_opens() -> None:
    many = [replace(FIRST, path=f"runs/{i}", name=str(i), date=f"20{i:06d}") for i in range(6000)]
    page = index_page(many, "runs", "index.html")
    assert len(page) < 5e6
    assert "And 1,000 older runs" in page
    assert "And 5,950 earlier ones" in page


def test_paths_of_the_machine_and_markup_stay_out() -> None:
    odd = replace(
        FIRST, path='runs/javascript:alert(1)"<b>', name='javascript:alert(1)"<b>',
        headline="<script>alert(1)</script>",
        problem="/home/ann/runs/odd/scores.parquet is damaged", classifiers={"<i>": "onnx:/home/ann/<i>.onnx"},
    )  # fmt: skip
    page = index_page([odd], "/home/ann/runs", "/srv/index.html")
    assert "/home/ann" not in page
    assert "<script>alert" not in page
    assert "<b>" not in page
    assert 'href="../' in page
    assert "javascript:alert" not in re.findall(r'href="([^"]*)"', page)[0]


def test_without_runs_the_page_says_how_to_make_one() -> None:
    assert "There is no run here" in index_page([], "runs", "index.html")


def test_unreadable_runs_are_counted() -> None:
    page = index_page([FIRST, ListedRun("runs/x", "x", problem="x/run.json is not JSON")], "runs", "index.html")
    assert "2 runs, 1 unreadable" in page
    assert "is not JSON" in page
