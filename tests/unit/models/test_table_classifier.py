"""Tables of predictions in their three shapes, and the row that each fault is found in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from c2b_ray.errors import SourceError
from c2b_ray.models import catalog
from c2b_ray.roles import Classifier


def table(path: Path, text: str) -> Classifier:
    path.write_text(text)
    return catalog.classifier(f"table:{path}")


def probabilities(classifier: Classifier, *keys: str) -> list[list[float]]:
    logits = classifier.logits([np.zeros((1, 1, 3), np.uint8)] * len(keys), keys)
    odds = np.exp(logits.astype(np.float64))
    return [[round(float(p), 4) for p in row / row.sum()] for row in odds]


def test_long(tmp_path: Path) -> None:
    found = table(tmp_path / "t.csv", "file,class,probability\na.jpg,dog,0.75\na.jpg,cat,0.25\nb.jpg,cat,1\n")
    assert found.labels == ("cat", "dog")
    assert probabilities(found, "b.jpg", "a.jpg") == [[1, 0], [0.25, 0.75]]
    assert np.isfinite(found.logits([], ["b.jpg"])).all()


def test_long_of_the_likeliest_alone_keeps_their_ratio(tmp_path: Path) -> None:
    found = table(tmp_path / "t.csv", "file,class,probability\na,x,0.6\na,y,0.2\nb,z,0.5\n")
    assert probabilities(found, "a", "b") == [[0.75, 0.25, 0], [0, 0, 1]]


def test_wide(tmp_path: Path) -> None:
    found = table(tmp_path / "t.csv", "key,zebra,ant,7\na,0.2,0.5,0.3\nb,1,0,0\n")
    assert found.labels == ("zebra", "ant", "7")
    assert probabilities(found, "a", "b") == [[0.2, 0.5, 0.3], [1, 0, 0]]


@pytest.mark.parametrize("column", ["label", "prediction", "predicted_class", "class"])
def test_the_predicted_label_alone(tmp_path: Path, column: str) -> None:
    found = table(tmp_path / "t.csv", f"filename,{column}\na,007\nb,cat\n")
    assert found.labels == ("007", "cat")
    assert probabilities(found, "a", "b") == [[1, 0], [0, 1]]


def test_parquet_and_uris(tmp_path: Path) -> None:
    rows = {"file": ["a", "b"], "cat": [0.5, 0.1], "dog": pa.array([0.5, 0.9], pa.float32())}
    pq.write_table(pa.table(rows), tmp_path / "t.parquet")
    for spec in (f"table:{tmp_path / 't.parquet'}", f"table:file://{tmp_path / 't.parquet'}"):
        assert probabilities(catalog.classifier(spec), "b") == [[0.1, 0.9]]


def test_keys_are_looked_up_as_they_are_then_normalised(tmp_path: Path) -> None:
    found = table(tmp_path / "t.csv", "file,label\n./a//b.jpg,x\nc\\d.jpg,y\n")
    assert probabilities(found, "./a//b.jpg", "a/b.jpg", "c/d.jpg", "c/../c/d.jpg") == [[1, 0], [1, 0], [0, 1], [0, 1]]
    assert np.isnan(found.logits([], ["b.jpg", "A/B.jpg", ""])).all()


def test_a_file_without_an_answer_has_none(tmp_path: Path) -> None:
    found = table(tmp_path / "t.csv", "file,cat,dog\na,,\nb,0,0\nc,0.5,0.5\n")
    logits = found.logits([], ["a", "b", "c"])
    assert np.isnan(logits[:2]).all()
    assert np.isfinite(logits[2]).all()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("file,class,probability\na,x,0.5\nb,x,1\na,x,0.5\n", "row 3: 'a', 'x' is there already, in row 1"),
        ("file,label\na,x\na,y\n", "row 2: 'a', 'y' is there already, in row 1"),
        ("file,cat,dog\na,0,1\nb,0,1\nb,0,1\n", "row 3: 'b' is there already, in row 2"),
        ("file,label\na/b,x\n./a/b,y\n", "listed under another spelling"),
        ("file,class,probability\na,x,0.5\na,y,1.5\n", "row 2: 1.5 is no probability"),
        ("file,cat,dog\na,-3.2,1\n", "row 1: -3.2 is no probability"),
        ("file,cat,dog\na,high,low\n", "column 'cat' is string"),
        ("file,class,probability\na,x,high\n", "probability"),
        ("image_id,cat\na,1\n", "expected rows with a column 'file'"),
        ("file\na\n", "expected rows"),
        ("file,label\n", "expected rows"),
        ("file,label\na,x\n,y\n", "row 2: no file"),
        ("file,label\na,x\nb,\n", "row 2: no label"),
        ("", "cannot be read"),
    ],
)
def test_faults_are_named_with_their_row(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(SourceError, match=reason):
        table(tmp_path / "t.csv", text)


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_text("file,label")
    (tmp_path / "t.txt").write_text("")
    for name, reason in [
        ("t.parquet", "cannot be read"),
        ("no.csv", "cannot be read"),
        ("t.txt", r"\.csv or \.parquet"),
    ]:
        with pytest.raises(SourceError, match=reason):
            catalog.classifier(f"table:{tmp_path / name}")
