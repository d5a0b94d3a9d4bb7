"""The prompts of a run of `c2b prompts` in the formats that other programs read: CSV, JSON, Parquet.

Knows the tables of the run; knows nothing of where an export goes.
"""

from __future__ import annotations

from c2b_ray.errors import Argument, ConfigError, RunError
from c2b_ray.report.export import csv_of, exported, json_of, parquet_of
from c2b_ray.report.redact import cleaned
from c2b_ray.storage.run import Run

TABLES = ("prompts", "methods", "gains", "associations", "modifiers", "heads")


def csv(run: Run, classifier: str | None = None) -> bytes:
    return csv_of(exported(_complete(run, classifier).read("prompts")))


def parquet(run: Run, classifier: str | None = None) -> bytes:
    return parquet_of(exported(_complete(run, classifier).read("prompts")))


def json(run: Run, classifier: str | None = None) -> bytes:
    """One object: the run's id, its settings, its models, and the rows of each table."""
    manifest = _complete(run, classifier).manifest
    tables = {name: exported(run.read(name)).to_pylist() for name in TABLES}
    run_fields = {name: manifest.get(name) for name in ("run_id", "status", "finished", "notes")}
    cleaned_parts = {name: cleaned(manifest.get(name, {})) for name in ("config", "models", "versions")}
    return json_of({**run_fields, **cleaned_parts, **tables})


def _complete(run: Run, classifier: str | None) -> Run:
    if classifier is not None:
        raise ConfigError(Argument.CLASSIFIER, "a run of c2b prompts has no classifiers")
    if not run.has("prompts"):
        raise RunError(f"{run.path}: the run has no prompts yet; run its c2b prompts to the end", run=run.path)
    return run
