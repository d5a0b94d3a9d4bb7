"""Tables of predictions in their three shapes, and the row that each fault is found in."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from c2b_ray.errors import ConfigError, SourceError, SpecError
from c2b_ray.models import catalog
from c2b_ray.roles import Classifier
from c2b_ray.steps.classify import Classes, answers, classification, predict
from c2b_ray.tables import IMAGES


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


def test_a_format_that_is_not_read_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"expected a \.csv or \.parquet file"):
        table(tmp_path / "t.csv.gz", "file,class\na.jpg,dog\n")


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


def test_parquet(tmp_path: Path) -> None:
    rows = {"file": ["a", "b"], "cat": [0.5, 0.1], "dog": pa.array([0.5, 0.9], pa.float32())}
    pq.write_table(pa.table(rows), tmp_path / "t.parquet")
    assert probabilities(catalog.classifier(f"table:{tmp_path / 't.parquet'}"), "b") == [[0.1, 0.9]]


def test_keys_are_looked_up_as_they_are_then_normalised(tmp_path: Path) -> None:
    found = table(tmp_path / "t.csv", "file,label\n./a//b.jpg,x\nc\\d.jpg,y\n")
    assert probabilities(found, "./a//b.jpg", "a/b.jpg", "c/d.jpg", "c/../c/d.jpg") == [[1, 0], [1, 0], [0, 1], [0, 1]]
    assert np.isnan(found.logits([], ["b.jpg", "A/B.jpg", ""])).all()


def test_a_file_without_an_answer_has_none(tmp_path: Path) -> None:
    found = table(tmp_path / "t.csv", "file,cat,dog\na,,\nb,0,0\nc,0.5,0.5\n")
    logits = found.logits([], ["a", "b", "c"])
    assert np.isnan(logits[0]).all()
    assert np.isfinite(logits[1:]).all()


def test_an_answer_of_zeros_is_a_wrong_answer(tmp_path: Path) -> None:
    logits = table(tmp_path / "t.csv", "file,cat,dog\nb,0,0\nc,0.1,0.2\n").logits([], ["b", "c"])
    for rule in ("top1", "among_classes"):
        nothing, dog = answers(logits, ("cat", "dog"), Classes(("cat", "dog"), ((0,), (1,))), rule)
        assert nothing is not None
        assert dog is not None
        assert (nothing.predicted_class, dog.predicted_class) == (None, "dog")
        assert nothing.undecided is not None


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


def test_probabilities_that_sum_to_more_than_one_are_refused(tmp_path: Path) -> None:
    for text in ("file,class,probability\na,x,0.3\nb,x,0.6\nb,y,0.6\n", "file,x,y\na,0.5,0.5\nb,0.6,0.6\n"):
        with pytest.raises(SourceError, match=r"the probabilities of 'b' sum to 1.2, more than 1"):
            table(tmp_path / "t.csv", text)
    assert probabilities(table(tmp_path / "t.csv", "file,x,y,z\na,0.334,0.333,0.334\n"), "a") == [
        [0.3337, 0.3327, 0.3337]
    ]


def test_an_answer_outside_the_classes_is_wrong_and_a_label_that_was_never_answered_can_be_named(
    tmp_path: Path,
) -> None:
    (tmp_path / "labels.txt").write_text("minibus\ntram\nsnowplow\n")
    (tmp_path / "t.csv").write_text("file,label\n0,snowplow\n1,minibus\n")
    found = catalog.classifier(f"table:{tmp_path / 't.csv'}?labels={tmp_path / 'labels.txt'}")
    assert found.labels == ("minibus", "tram", "snowplow")  # in the file's order, which a label map may count in
    asked = classification("t", found, ["minibus", "tram"], None)
    data = BytesIO()
    Image.new("RGB", (8, 8)).save(data, "PNG")
    rows = [{"image_id": str(i), "key": str(i), "bytes": data.getvalue()} for i in range(2)]
    answers = predict(pa.Table.from_pylist(rows, IMAGES), found, asked).to_pylist()
    assert [(row["label"], row["predicted_class"]) for row in answers] == [("snowplow", None), ("minibus", "minibus")]
    (tmp_path / "w.csv").write_text("file,minibus\n0,1\n")
    with pytest.raises(SpecError, match="a column for each label"):
        catalog.classifier(f"table:{tmp_path / 'w.csv'}?labels={tmp_path / 'labels.txt'}")


def test_numbers_of_classes_are_no_positions_among_the_numbers_that_were_answered(tmp_path: Path) -> None:
    """As text 9 comes after 134, and of ImageNet's classes a table lists those that it has."""
    found = table(tmp_path / "t.csv", "file_name,predicted_class,predicted_probability\na,9,0.5\nb,134,0.7\nc,11,1\n")
    asked = classification("t", found, ["ostrich", "crane"], {"ostrich": [9], "crane": ["134"]})
    assert [[found.labels[at] for at in group] for group in asked.labels_of_class] == [["9"], ["134"]]
    with pytest.raises(ConfigError, match="has no label 2"):
        classification("t", found, ["shark"], {"shark": [2]})


def test_spellings_of_one_label_are_one_and_a_label_that_is_listed_twice_is_refused(tmp_path: Path) -> None:
    found = table(tmp_path / "t.csv", "file,prediction\na,caf\u00e9\nb,cafe\u0301\nc,\u200bcaf\u00e9\nd,bus\n")
    assert found.labels == ("bus", "caf\u00e9")
    assert probabilities(found, "a", "b", "c", "d") == [[0, 1], [0, 1], [0, 1], [1, 0]]
    (tmp_path / "names.txt").write_text("crane\nbus\ncrane\n")
    with pytest.raises(SourceError, match=r"lists 'crane' more than once \(1 and 3\)"):
        catalog.classifier(f"table:{tmp_path / 't.csv'}?labels={tmp_path / 'names.txt'}")
