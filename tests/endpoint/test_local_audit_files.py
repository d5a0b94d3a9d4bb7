"""An audit file of this machine on an endpoint: its files are uploaded, and the results are those of a local run."""

import csv
import io
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
from endpoint_app import started
from live_endpoint import served
from uploaded_files import images, model

import c2b_ray
from c2b_ray.audits.c2b.from_images import drafted
from c2b_ray.client import Endpoint
from c2b_ray.endpoint.work import dispatcher
from c2b_ray.storage.run import load_run

COLUMNS = ("target_class", "attribute", "bias_class", "n", "correct", "accuracy", "phi", "p_value", "verdict")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    runners = {"poll_seconds": 0.05, "spare": False}
    endpoint = started(tmp_path_factory.mktemp("endpoint"), {"via": "here", "runners": runners})
    yield endpoint
    endpoint.db.close()


@pytest.fixture(scope="module")
def url(endpoint):
    with served(endpoint.app) as url:
        yield url


@pytest.fixture
def working(endpoint):
    """A dispatcher and a runner, which end every job."""
    with dispatcher.working(endpoint.db, endpoint.config):
        yield


@pytest.fixture
def photographs(tmp_path):
    """The folder of uploaded_files.images, with a model of its own beside it."""
    zipfile.ZipFile(io.BytesIO(images())).extractall(tmp_path / "photos")
    (tmp_path / "net.onnx").write_bytes(model())
    return tmp_path / "photos"


def as_folder(photos: Path) -> dict[str, Any]:
    return {"source": "labelled", "table": "photos"}


def as_table(photos: Path) -> dict[str, Any]:
    """A CSV in another folder, whose paths lead out of it."""
    (photos.parent / "lists").mkdir()
    with (photos / "metadata.csv").open() as file, (photos.parent / "lists/t.csv").open("w", newline="") as written:
        rows = [
            (f"../photos/{row['file_name']}", row["file_name"].split("/")[0], row["weather"])
            for row in csv.DictReader(file)
        ]
        csv.writer(written).writerows([("file", "class", "weather"), *rows])
    return {
        "source": "labelled", "table": "lists/t.csv", "root": "photos",
        "columns": {"image": "file", "target_class": "class"},
    }  # fmt: skip


def as_parquet(photos: Path) -> dict[str, Any]:
    """A table that holds the images."""
    paths = sorted(photos.rglob("*.png"))
    table = {
        "image": [path.read_bytes() for path in paths],
        "target_class": [path.parent.name for path in paths],
        "weather": ["clear" if int(path.stem) % 2 else "snow" for path in paths],
    }
    pq.write_table(pa.table(table), photos.parent / "t.parquet")
    return {"source": "labelled", "table": "t.parquet"}


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    some = table.select([name for name in COLUMNS if name in table.column_names])
    return some.sort_by([(name, "ascending") for name in COLUMNS[:3]]).to_pylist()


@pytest.mark.parametrize("images_of", [as_folder, as_table, as_parquet])
def test_a_local_audit_file_gives_the_same_rows_at_the_endpoint(
    endpoint, url, working, photographs, images_of, tmp_path, monkeypatch, c2b
):
    file = tmp_path / "audit.yaml"
    config = {"task": "t", "classes": ["bus", "boat"], "classifier": "onnx:net.onnx", "images": images_of(photographs)}
    config |= {"images_per_caption": 15, "check": False}  # some of the images, which are to be the same ones
    file.write_text(yaml.safe_dump(config))
    here = c2b_ray.audit(file, tmp_path / "here", via="here")
    monkeypatch.setenv("C2B_ENDPOINT", url)
    monkeypatch.setenv("C2B_KEY", endpoint.keys["a"])
    status, _, err = c2b("remote", "audit", file, "--json")
    assert status == 0, err
    with Endpoint(url, endpoint.keys["a"]) as client:
        job = next(iter(client.list(1)))
        there = load_run(str(endpoint.run_path(job["id"])))
    assert rows_of(there.scores) == rows_of(here.scores)
    assert there.draws.select(["image_id"]).sort_by("image_id") == here.draws.select(["image_id"]).sort_by("image_id")
    keys = [pc.unique(run.read("images")["key"]).to_pylist() for run in (here, there)]
    assert sorted(keys[0]) == sorted(keys[1])
    assert pc.unique(there.scores["classifier"]).to_pylist() == ["onnx:net.onnx"]
    page = client_page(url, endpoint, job["id"])
    assert str(tmp_path) not in page, "a page shows no folder of the client"


def client_page(url, endpoint, job_id):
    with Endpoint(url, endpoint.keys["a"]) as client:
        return client.report(job_id).decode()


def test_bare_images_need_no_file(endpoint, url, working, photographs, tmp_path, monkeypatch, c2b):
    classifier = f"onnx:{tmp_path}/net.onnx"
    here = c2b_ray.audit(drafted(photographs, classifier).fields, tmp_path / "here", via="here")
    monkeypatch.setenv("C2B_ENDPOINT", url)
    monkeypatch.setenv("C2B_KEY", endpoint.keys["a"])
    status, out, err = c2b("remote", "audit", photographs, "--classifier", classifier, "--name", "bare")
    assert status == 0, err
    assert "80 images, 2 classes" in err
    job_id = out.split()[0]
    there = load_run(str(endpoint.run_path(job_id)))
    assert rows_of(there.scores) == rows_of(here.scores)
    assert rows_of(there.scores), "of the column of metadata.csv"
