"""MLflow: a run of an experiment, on a tracking server or in a local store.

`mlflow:URI|EXPERIMENT`; without URI, MLFLOW_TRACKING_URI says which, and the experiment is `c2b-ray`.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import mlflow
import pyarrow as pa
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from c2b_ray.audits.tracking.record import TABLE, Record
from c2b_ray.errors import ServiceError
from c2b_ray.text import without_credentials

EXPERIMENT = "c2b-ray"
LONGEST_SETTING, LONGEST_TAG, LONGEST_NAME = 6000, 5000, 250
AT_ONCE = 100
RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
T = TypeVar("T")


def connect(name: str) -> MlflowTracker:
    """Returns the tracker, its experiment made where it is missing. Raises ServiceError where it does not answer."""
    os.environ.setdefault(RETRIES, "2")  # by default it retries for minutes before it reports that no server answers
    uri, _, experiment = name.partition("|")
    client = mlflow.MlflowClient(tracking_uri=uri or None)
    with _refusals(uri or mlflow.get_tracking_uri()):
        stored = client.get_experiment_by_name(experiment or EXPERIMENT)
        number = stored.experiment_id if stored else client.create_experiment(experiment or EXPERIMENT)
    return MlflowTracker(client, uri or mlflow.get_tracking_uri(), number)


@dataclass(frozen=True)
class MlflowTracker:
    """An experiment. `uri`: of its tracking server or store."""

    client: mlflow.MlflowClient
    uri: str
    experiment: str

    def log(self, record: Record) -> str:
        with _refusals(self.uri):
            run_id = self._run_of(record)
            milliseconds = int(1000 * time.time())
            metrics = [Metric(_name(name), value, milliseconds, 0) for name, value in record.metrics.items()]
            settings = [Param(_name(name), value[:LONGEST_SETTING]) for name, value in record.settings.items()]
            files, tag_values = dict(record.files), dict(record.tags)
            if record.table is not None:  # what the tracking UI shows as a table, beside the files
                files[f"{TABLE}.table.json"] = _table(record.table)
                tag_values["mlflow.loggedArtifacts"] = json.dumps([{"path": f"{TABLE}.table.json", "type": "table"}])
            tags = [RunTag(name, value[:LONGEST_TAG]) for name, value in tag_values.items()]
            for metric_batch in batches(metrics):
                self.client.log_batch(run_id, metrics=metric_batch)
            for setting_batch in batches(settings):
                self.client.log_batch(run_id, params=setting_batch)
            self.client.log_batch(run_id, tags=tags)
            with tempfile.TemporaryDirectory(prefix="c2b-mlflow-") as folder:
                for name, data in files.items():
                    (Path(folder) / name).write_bytes(data)
                self.client.log_artifacts(run_id, folder)
            self.client.set_terminated(run_id, "FINISHED", int(1000 * record.ended) or None)
        return f"MLflow run {run_id} of experiment {self.experiment} at {without_credentials(self.uri)}"

    def _run_of(self, record: Record) -> str:
        """Returns the run that was logged before, else a new one."""
        query = f"tags.`c2b.run_id` = '{record.run_id}'"
        for stored in self.client.search_runs([self.experiment], query, max_results=1):
            return str(stored.info.run_id)
        created = self.client.create_run(self.experiment, int(1000 * record.began) or None, run_name=record.name)
        return str(created.info.run_id)


def batches(items: Sequence[T]) -> Iterator[list[T]]:
    """Yields as many at once as MLflow takes."""
    for start in range(0, len(items), AT_ONCE):
        yield list(items[start : start + AT_ONCE])


def _name(text: str) -> str:
    """Returns a name of letters, digits and the signs that MLflow takes."""
    return re.sub(r"[^\w\-. :/]", "_", text, flags=re.ASCII)[:LONGEST_NAME]


def _table(table: pa.Table) -> bytes:
    """Returns the table in the form of MLflow's own tables: pandas' `split`."""
    rows, columns = table.to_pylist(), table.column_names
    document: dict[str, Any] = {"columns": columns, "data": [[row[name] for name in columns] for row in rows]}
    return json.dumps(document, ensure_ascii=False, default=str).encode()


@contextmanager
def _refusals(uri: str) -> Iterator[None]:
    try:
        yield
    except MlflowException as error:
        reason = without_credentials(" ".join(str(error).split()))[:500]
        raise ServiceError(f"MLflow at {without_credentials(uri)}: {reason}") from error
