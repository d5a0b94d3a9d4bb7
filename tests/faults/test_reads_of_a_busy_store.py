"""What users keep on an object store is read while the store is busy, or cuts connections, for longer than the client's
own three attempts last: labelled tables of every format, predictions, captions, images, and the pictures of a run."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty_proxy import Fault

from c2b_ray.audits.dataset import plan
from c2b_ray.engine.sources.files import Location, listing
from c2b_ray.models import table_classifier
from c2b_ray.models.catalog import Spec
from c2b_ray.report.pictures import read_pictures
from c2b_ray.storage import files, resolve, sealed, tables
from c2b_ray.storage.labelled_rows import open_rows

TABLE = pa.table({"file": ["a.png", "b.png"], "label": ["bus", "boat"]})
PICTURES = pa.table({"image_id": ["1", "2"], "bytes": [b"one", b"two"]})


@dataclass(frozen=True)
class _Run:
    """What `read_pictures` asks of a run with one table."""

    out: str

    def has(self, name: str) -> bool:
        return True

    def in_parts(self, name: str) -> bool:
        return False

    def location(self, name: str) -> str:
        return f"{self.out}/{name}"

    @property
    def record(self) -> SimpleNamespace:
        return SimpleNamespace(config={})


def _parquet(table):
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def _arrow(table):
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


CONTENT = {
    "t.csv": b"file,label\na.png,bus\nb.png,boat\n",
    "t.parquet": _parquet(TABLE),
    "parts/p.parquet": _parquet(TABLE),
    "saved/state.json": json.dumps({"_data_files": [{"filename": "data.arrow"}]}).encode(),
    "saved/data.arrow": _arrow(TABLE),
    "photos/bus/a.png": b"of a bus",
    "photos/boat/b.png": b"of a boat",
    "photos/metadata.jsonl": b'{"file_name": "bus/a.png", "hue": "red"}\n',
    "captions.csv": b"label,caption\nbus,a bus at night\n",
    "run/images.parquet": bytes(sealed.encoded(PICTURES)),
}


def _labels(at, _):
    rows = open_rows(at, "table")
    again = [label for part in rows.each(["label"]) for label in part["label"].to_pylist()]
    assert rows.columns(["label"])["label"].to_pylist() == again
    return sorted(again)


def _predicted(at, _):
    spec = Spec(f"table:{at}", "table", at)
    assert table_classifier.describe(spec).labels == table_classifier.load(spec).labels
    return list(table_classifier.load(spec).labels)


def _downloaded(at, tmp_path):
    files.download(at, tmp_path / "here")
    return sorted(path.read_bytes() for path in (tmp_path / "here").iterdir())


def _fetched(at, _):
    folder = Location(at, *resolve(at))
    return folder.fetch_all(listing(folder).names)


def _captions(at, _):
    return list(plan.of_file(at))


def _pictures(at, _):
    return read_pictures(_Run(at), ["2"])


def _same(at, tmp_path):
    (tmp_path / "t.csv").write_bytes(CONTENT["t.csv"])
    return tables.same(at, tmp_path / "t.csv")


LABELS = ["boat", "bus"]
READS = {
    "labels-csv": (_labels, "t.csv", LABELS),
    "labels-parquet": (_labels, "t.parquet", LABELS),
    "labels-parts": (_labels, "parts", LABELS),
    "labels-saved": (_labels, "saved", LABELS),
    "labels-photos": (_labels, "photos", LABELS),
    "predictions-csv": (_predicted, "t.csv", LABELS),
    "predictions-parquet": (_predicted, "t.parquet", LABELS),
    "captions": (_captions, "captions.csv", [("bus", "a bus at night")]),
    "images": (_fetched, "photos/bus", [(b"of a bus", None)]),
    "pictures": (_pictures, "run", {"2": b"two"}),
    "same": (_same, "t.csv", True),
    "download": (_downloaded, "photos/bus", [b"of a bus"]),
}


@pytest.fixture
def stored(s3_proxy):
    for name, data in CONTENT.items():
        files.write_bytes(f"s3://tests/reads/{name}", data)
    return "s3://tests/reads"


@pytest.mark.parametrize("kind", ["busy", "cut_download"])
@pytest.mark.parametrize("name", READS)
def test_a_store_is_read_that_is_busy_or_cuts_connections_for_a_while(s3_proxy, stored, tmp_path, name, kind):
    read, of, expected = READS[name]
    s3_proxy.faults[:] = [
        Fault(kind, ("GET",), path="/tests/reads/", times=4),  # of objects
        *([Fault(kind, ("HEAD",), times=4)] if kind == "busy" else []),
    ]
    assert read(f"{stored}/{of}", tmp_path) == expected
    assert s3_proxy.count(kind) >= 4
