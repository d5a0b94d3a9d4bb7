"""The hypotheses of a run of `c2b failures` in the formats that other programs read: CSV, JSON, Parquet.

Rows of both stages are included; `stage` tells them apart.
"""

from __future__ import annotations

import pyarrow as pa

from c2b_ray.audits.failures.report.page import read_facts
from c2b_ray.audits.failures.run import FailuresRun
from c2b_ray.audits.kit.models import one_of
from c2b_ray.errors import Argument, RunError
from c2b_ray.report.export import about, csv_of, exported, exported_only, json_of, parquet_of

SETTINGS = ("labels", "rule", "confidence", "hierarchy", "prompt", "targets", "budget", "alpha", "seed")


def csv(run: FailuresRun, classifier: str | None = None) -> bytes:
    return csv_of(_hypotheses(run, classifier))


def parquet(run: FailuresRun, classifier: str | None = None) -> bytes:
    return parquet_of(_hypotheses(run, classifier))


def json(run: FailuresRun, classifier: str | None = None) -> bytes:
    """Returns one object: the run's id, its settings, its models, and a row per hypothesis, transfer and label
    drawn."""
    return json_of(
        {
            **about(run, SETTINGS),
            "hypotheses": _hypotheses(run, classifier).to_pylist(),
            "transfers": exported_only(run.transfers, _chosen(run, classifier)).to_pylist(),
            "reliability": exported(run.reliability).to_pylist(),
        }
    )


def _hypotheses(run: FailuresRun, classifier: str | None) -> pa.Table:
    """Returns the hypotheses of a classifier, or of all (None). Raises RunError for a run without any."""
    if not run.has("hypotheses"):
        raise RunError(f"{run.path}: the run has no hypotheses yet; run its c2b failures to the end", run=run.path)
    return exported_only(run.hypotheses, _chosen(run, classifier))


def _chosen(run: FailuresRun, classifier: str | None) -> str | None:
    return (
        None if classifier is None else one_of(list(read_facts(run).names), classifier, Argument.CLASSIFIER, run.path)
    )
