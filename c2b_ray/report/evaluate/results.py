"""The results of an evaluation as one JSON value: its settings and its short tables.

Knows the run's tables; knows nothing of pages.
"""

from __future__ import annotations

from typing import Any

from c2b_ray.config.classifiers import specs_by_name
from c2b_ray.store.run import Run
from c2b_ray.text import finite

LONG = ("outcomes", "truth", "detected", "matches", "thresholds", "recall")
"""Tables that are not in the JSON, only in their Parquet files."""
SETTINGS = ("task", "tau", "alpha", "many", "sentence_encoder", "b2t")


def results_of(run: Run) -> dict[str, Any]:
    manifest, config = run.manifest, run.config
    whole = {
        **{name: config[name] for name in SETTINGS},
        "classifiers": specs_by_name(config["classifier"]),
        "classes": manifest.get("classes") or [],
        "thresholds": manifest.get("thresholds") or {},
        "notes": manifest.get("notes") or [],
        "tables": {name: run.read(name).to_pylist() for name in run.kind.tables if name not in LONG},
    }
    result: dict[str, Any] = finite(whole)
    return result
