"""The outcomes of a run of `c2b evaluate` in the formats that other programs read: CSV, JSON, Parquet.

CSV and Parquet hold a row for each bias of either side under every rule and threshold; JSON has the short tables too.
"""

from __future__ import annotations

import pyarrow as pa

from c2b_ray.audits.evaluate.report.page import results_of
from c2b_ray.report.export import csv_of, exported, json_of, of_classifier, parquet_of
from c2b_ray.report.redact import cleaned
from c2b_ray.storage.run import Run


def csv(run: Run, classifier: str | None = None) -> bytes:
    return csv_of(exported(_outcomes(run, classifier)))


def parquet(run: Run, classifier: str | None = None) -> bytes:
    return parquet_of(exported(_outcomes(run, classifier)))


def json(run: Run, classifier: str | None = None) -> bytes:
    """Returns one object: the run's id, its settings and short tables, and a row per outcome."""
    manifest, results = run.manifest, results_of(run)
    tables = {name: exported(run.read(name)).to_pylist() for name in results.pop("tables")}
    return json_of(
        {
            "run_id": manifest.get("run_id"),
            "status": manifest.get("status"),
            "finished": manifest.get("finished"),
            **cleaned(results),
            "versions": cleaned(manifest.get("versions", {})),
            **tables,
            "outcomes": exported(_outcomes(run, classifier)).to_pylist(),
        }
    )


def _outcomes(run: Run, classifier: str | None) -> pa.Table:
    return of_classifier(run.read("outcomes"), classifier, run.read("agreement")["classifier"].to_pylist())
