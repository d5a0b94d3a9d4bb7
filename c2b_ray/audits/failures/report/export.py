"""The hypotheses of a run of `c2b failures` in the formats that other programs read: CSV, JSON, Parquet.

Rows of both stages are included; `stage` tells them apart. Knows the columns of `tables.HYPOTHESES`; knows nothing of
where an export goes.
"""

from __future__ import annotations

from c2b_ray.report.export import about, csv_of, exported, exported_only, json_of, parquet_of
from c2b_ray.storage.run import Run

SETTINGS = ("labels", "rule", "confidence", "hierarchy", "prompt", "targets", "budget", "alpha", "seed")


def csv(run: Run, classifier: str | None = None) -> bytes:
    return csv_of(exported_only(run.read("hypotheses"), classifier))


def parquet(run: Run, classifier: str | None = None) -> bytes:
    return parquet_of(exported_only(run.read("hypotheses"), classifier))


def json(run: Run, classifier: str | None = None) -> bytes:
    """Returns one object: the run's id, its settings, its models, and a row per hypothesis, transfer and label
    drawn."""
    return json_of(
        {
            **about(run, SETTINGS),
            "hypotheses": exported_only(run.read("hypotheses"), classifier).to_pylist(),
            "transfers": exported_only(run.read("transfers"), classifier).to_pylist(),
            "reliability": exported(run.read("reliability")).to_pylist(),
        }
    )
