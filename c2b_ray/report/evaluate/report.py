"""The report of a run of `c2b evaluate`, one self-contained HTML file, and its results as one JSON file beside it."""

from __future__ import annotations

import json

from c2b_ray.report.evaluate.page import evaluate_page
from c2b_ray.report.evaluate.results import LONG, results_of
from c2b_ray.store.files import write_bytes
from c2b_ray.store.run import Run

RESULTS = "results.json"


def write_report(run: Run) -> str:
    """Writes results.json and `report.html` of a run, each whole or not at all; the report's path. StorageError where
    the file system refuses."""
    results = results_of(run)
    write_bytes(run.location(RESULTS), json.dumps(results, indent=1, ensure_ascii=False).encode() + b"\n")
    page = evaluate_page(results, {name: run.read(name) for name in LONG if name != "recall" or run.has(name)})
    write_bytes(run.report, page.encode())
    return run.report
