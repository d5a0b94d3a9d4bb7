"""Models whose files have the same name in two folders: one name in every page and format of a table, and no path."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from run_recipes import Recipe
from synthetic_dataset import write_dataset
from synthetic_run import make_run

from c2b_ray.endpoint.api.reads import results_of
from c2b_ray.report.redact import names_of
from c2b_ray.storage.tables import RowGroups

SPECS = ["onnx:/srv/first/net.onnx", "onnx:/srv/second/net.onnx"]
GROUP = 4


@pytest.fixture
def job(endpoint: Any) -> Any:
    """An audit whose scores are of one classifier, and then of another."""
    job = endpoint.finish()
    run = make_run(endpoint.run_path(job.id), Recipe(images_per_cell=6))
    location = f"{run.path}/scores.parquet"
    scores = pq.read_table(location)
    column = scores.schema.get_field_index("classifier")
    half = scores.num_rows // 2
    specs = pa.array([SPECS[0]] * half + [SPECS[1]] * (scores.num_rows - half))
    pq.write_table(scores.set_column(column, scores.schema.field(column), specs), location, row_group_size=GROUP)
    listed = json.loads(Path(run.path, "run.json").read_text(encoding="utf-8"))
    written = Path(location).read_bytes()
    listed["tables"]["scores"] |= {"bytes": len(written), "sha256": hashlib.sha256(written).hexdigest()}
    Path(run.path, "run.json").write_text(json.dumps(listed), encoding="utf-8")
    return job


def test_a_classifier_has_one_name_on_every_page_and_in_every_format(endpoint: Any, job: Any) -> None:
    names = names_of(SPECS)
    client, path = endpoint.as_("a"), f"/v1/audits/{job.id}/tables/scores"
    paged, cursor = [], None
    while cursor is not None or not paged:
        page = client.get(path, params={"limit": 3} | ({"cursor": cursor} if cursor else {})).json()
        paged, cursor = paged + [row["classifier"] for row in page["items"]], page["next"]
    half = len(paged) // 2
    assert paged == [names[SPECS[0]]] * half + [names[SPECS[1]]] * (len(paged) - half)
    assert len(paged) > 2 * GROUP
    for at in (path, f"/v1/audits/{job.id}/exports/csv"):
        rows = list(csv.DictReader(io.StringIO(client.get(at, params={"format": "csv"}).text)))
        assert [row["classifier"] for row in rows] == paged
    parquet = pq.read_table(pa.BufferReader(client.get(path, params={"format": "parquet"}).content))
    assert parquet["classifier"].to_pylist() == paged


@pytest.mark.parametrize(("state", "whole"), [("finished", {"classifier", "verdict"}), ("running", {"classifier"})])
def test_a_page_of_a_running_job_reads_only_the_models_of_the_whole_table(
    endpoint: Any, job: Any, monkeypatch: pytest.MonkeyPatch, state: Any, whole: set[str]
) -> None:
    results = replace(results_of(job, endpoint.run_path(job.id)), job=replace(job, state=state), names={})
    read: dict[int, set[str]] = {}
    real = RowGroups.read

    def noted(self: RowGroups, group: int, columns: Any) -> pa.Table:
        read.setdefault(group, set()).update(columns)
        return real(self, group, columns)

    monkeypatch.setattr(RowGroups, "read", noted)
    page = results.page("scores", 0, GROUP)
    assert page["classifier"].to_pylist() == [names_of(SPECS)[SPECS[0]]] * GROUP
    of_others = set().union(*(columns for group, columns in read.items() if group))
    assert of_others & {"classifier", "verdict"} == whole


def test_a_row_group_is_read_when_it_is_sent(endpoint: Any, job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    results = results_of(job, endpoint.run_path(job.id))
    _, parts = results.slices("scores")
    read: list[int] = []
    real = RowGroups.read

    def counted(self: RowGroups, group: int, columns: Any) -> pa.Table:
        read.append(group)
        return real(self, group, columns)

    monkeypatch.setattr(RowGroups, "read", counted)
    assert next(parts).num_rows == 0
    assert read == []
    assert next(parts).num_rows == GROUP
    assert read == [0]
    assert sum(part.num_rows for part in parts) == results.rows("scores") - GROUP


def test_exports_of_a_dataset_have_its_rows(endpoint: Any) -> None:
    job = endpoint.finish("dataset")
    write_dataset(endpoint.run_path(job.id))
    client, path = endpoint.as_("a"), f"/v1/audits/{job.id}"
    listed = client.get(f"{path}/tables/rows", params={"limit": 10_000}).json()["items"]
    assert json.loads(client.get(f"{path}/exports/json").content) == listed
    rows = list(csv.DictReader(io.StringIO(client.get(f"{path}/exports/csv").text)))
    assert [row["image_id"] for row in rows] == [row["image_id"] for row in listed]
    parquet = pq.read_table(pa.BufferReader(client.get(f"{path}/exports/parquet").content))
    assert parquet["image_id"].to_pylist() == [row["image_id"] for row in listed]
    assert all(parquet["image"].to_pylist())
