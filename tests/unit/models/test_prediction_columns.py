"""Which columns of a table of predictions are the answers: never the truth, never a measurement, or refused by name."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from c2b_ray.errors import InputError, SourceError
from c2b_ray.models import catalog
from c2b_ray.models.prediction_files import kind_of
from c2b_ray.roles import Classifier

FILES = [f"img/{i}.png" for i in range(6)]
TRUTH = ["cat", "dog", "cat", "dog", "cat", "dog"]
ANSWERS = ["dog", "dog", "cat", "cat", "cat", "dog"]
CAT = [0.2, 0.1, 0.7, 0.8, 0.6, 0.4]
DOG = [0.8, 0.9, 0.3, 0.2, 0.4, 0.6]
TRUE_NAMES = [
    "label",
    "class",
    "target",
    "target_class",
    "ground_truth",
    "gt",
    "y_true",
    "truth",
    "annotation",
    "actual",
]
PREDICTED_NAMES = [
    "prediction",
    "pred",
    "predicted",
    "Predicted Label",
    "output",
    "y_pred",
    "answer",
    "top1",
    "model_pred",
]


def load(path: Path, columns: dict[str, object], options: str = "") -> Classifier:
    pq.write_table(pa.table(columns), path / "t.parquet")
    pyarrow.csv.write_csv(pa.table(columns), path / "t.csv") if all(
        not pa.types.is_nested(pa.array(column).type) for column in columns.values()
    ) else None
    found = catalog.classifier(f"table:{path / 't.parquet'}{options}")
    if (path / "t.csv").exists():
        of_csv = catalog.classifier(f"table:{path / 't.csv'}{options}")
        assert said(of_csv) == said(found)
    return found


def said(classifier: Classifier) -> list[str]:
    logits = classifier.logits([], FILES)
    return [classifier.labels[at] for at in logits.argmax(axis=1)]


@pytest.mark.parametrize(("truth", "predicted"), list(product(TRUE_NAMES, PREDICTED_NAMES)))
def test_beside_the_truth_the_prediction_is_the_answer(tmp_path: Path, truth: str, predicted: str) -> None:
    for columns in ({truth: TRUTH, predicted: ANSWERS}, {predicted: ANSWERS, truth: TRUTH}):
        assert said(load(tmp_path, {"file": FILES, **columns})) == ANSWERS
        assert said(load(tmp_path, {"file": FILES, **columns, "confidence": DOG})) == ANSWERS


def test_numbers_of_classes_are_told_apart_like_names(tmp_path: Path) -> None:
    found = load(tmp_path, {"file": FILES, "label": [0, 1, 0, 1, 0, 1], "pred": [1, 1, 0, 0, 0, 1]})
    assert said(found) == ["1", "1", "0", "0", "0", "1"]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"label": TRUTH, "target": ANSWERS}, "'label' and 'target' may hold the truth"),
        ({"class": TRUTH, "label": ANSWERS}, "'class' and 'label' may hold"),
        ({"pred": TRUTH, "output": ANSWERS}, "'pred' and 'output' may hold the answers"),
        ({"ground_truth": TRUTH}, "'ground_truth' may hold the truth"),
        ({"label": ANSWERS, "split": ["test"] * 6}, "is 'label' the answer or the truth"),
        ({"label": ANSWERS, "weather": TRUTH}, "is 'label' the answer or the truth"),
        ({"label": [0, 1, 0, 1, 0, 1], "prob": DOG}, "'label' may be the truth, and 'prob' that of label 1"),
        ({"pred": ANSWERS, "score": DOG, "confidence": DOG[::-1]}, "may hold the probability"),
        ({"prediction": DOG}, "is 'prediction' a label's probability"),
        ({"cat": CAT, "dog": DOG, "width": [640.0] * 6}, "in column 'width'"),
        ({"cat": CAT, "dog": DOG, "index": list(range(6))}, "in column 'index'"),
        ({"cat": [0.1, 0.2] * 3, "dog": [0.3] * 6, "loss": [0.11, 0.2] * 3}, "is 'loss' a label's probability"),
        ({"cat": CAT, "dog": DOG, "glare": [0.001, 0.002, 0.001, 0.003, 0.001, 0.002]}, "without column 'glare'"),
        ({"cat": ["0.2", "n/a", "0.7", "0.8", "0.6", "0.4"], "dog": DOG}, "column 'cat' is string"),
        ({"prediction": ANSWERS, "cat": CAT[::-1], "dog": DOG[::-1]}, "'prediction' is 'dog', and the likeliest"),
        ({"resnet50": ANSWERS}, "prediction=resnet50"),
        ({"path": FILES[::-1], "pred": ANSWERS}, "'file' and 'path' may name the files"),
    ],
)
def test_what_may_be_either_is_refused_by_name(tmp_path: Path, columns: dict[str, object], reason: str) -> None:
    with pytest.raises(SourceError, match=reason):
        load(tmp_path, {"file": FILES, **columns})


@pytest.mark.parametrize(
    "columns",
    [
        {"label": TRUTH, "cat": CAT, "dog": DOG},
        {"prediction": ANSWERS, "cat": CAT, "dog": DOG},
        {"label": TRUTH, "prediction": ANSWERS, "cat": CAT, "dog": DOG, "confidence": DOG},
        {"cat": CAT, "dog": DOG, "split": ["test"] * 6},
        {"Unnamed: 0": list(range(6)), "cat": CAT, "dog": DOG},
        {"cat": CAT, "dog": DOG, "loss": [0.11, 0.9, 0.2, 0.3, 0.1, 0.2]},
        {"cat": CAT, "dog": DOG, "correct": [0, 1, 1, 0, 1, 1]},
        {"cat": CAT, "dog": DOG, "when": ["2024-01-01"] * 6},
    ],
)
def test_columns_of_probabilities_are_the_answers_and_nothing_beside_them_is_a_label(
    tmp_path: Path, columns: dict[str, object]
) -> None:
    found = load(tmp_path, {"file": FILES, **columns})
    assert found.labels == ("cat", "dog")
    assert said(found) == ANSWERS


def test_a_label_with_the_name_of_a_measurement_is_kept_where_the_sums_need_it(tmp_path: Path) -> None:
    found = load(tmp_path, {"file": FILES, "fig": CAT, "date": DOG})
    assert found.labels == ("fig", "date")


def test_a_sole_label_is_the_answer_and_a_fact_says_that_this_is_assumed(tmp_path: Path) -> None:
    found = load(tmp_path, {"file": FILES, "label": ANSWERS})
    assert said(found) == ANSWERS
    assert [fact.value for fact in found.facts if fact.assumed] == ["column 'label'"]
    assert not any(fact.assumed for fact in load(tmp_path, {"file": FILES, "prediction": ANSWERS}).facts)


def test_options_name_the_columns(tmp_path: Path) -> None:
    columns = {"file": FILES[::-1], "where": FILES, "label": TRUTH, "class": ANSWERS, "sure": DOG, "score": CAT}
    found = load(tmp_path, columns, "?file=where&prediction=class&probability=sure")
    assert said(found) == ANSWERS
    wide = {"file": FILES, "cat": CAT, "dog": DOG, "width": [640.0] * 6}
    assert load(tmp_path, wide, "?ignore=width").labels == ("cat", "dog")
    with pytest.raises(InputError, match="ignore='wide' is no column; did you mean 'width'"):
        load(tmp_path, wide, "?ignore=wide")


def test_lists_of_the_likeliest_labels_are_read(tmp_path: Path) -> None:
    top = [[a, b] for a, b in zip(ANSWERS, ["cow"] * 6, strict=True)]
    found = load(tmp_path, {"file": FILES, "label": TRUTH, "top2": top, "scores": [[0.9, 0.1]] * 6})
    assert (found.labels, said(found)) == (("cat", "cow", "dog"), ANSWERS)
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    probabilities = [list(pair) for pair in zip(CAT, DOG, strict=True)]
    found = load(tmp_path, {"file": FILES, "probs": probabilities}, f"?labels={tmp_path / 'names.txt'}")
    assert (found.labels, said(found)) == (("cat", "dog"), ANSWERS)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"probs": [[0.1, 0.9]] * 6}, "'probs' is a list of numbers in each row; name the labels"),
        ({"top2": [["cat", "dog"]] * 6}, "several labels in a row"),
        ({"top2": [["cat", "dog"]] * 6, "scores": [[0.9]] * 6}, "row 1: 'top2' has 2 entries, 'scores' has 1"),
        ({"a": [["cat"]] * 6, "b": [["dog"]] * 6}, "'a', 'b' are lists"),
        ({"pred": ANSWERS, "probs": [[0.1, 0.9]] * 6}, "ignore=probs"),
    ],
)
def test_lists_that_may_mean_anything_are_refused(tmp_path: Path, columns: dict[str, object], reason: str) -> None:
    with pytest.raises(SourceError, match=reason):
        load(tmp_path, {"file": FILES, **columns})


NAMES = st.sampled_from(
    [*TRUE_NAMES, *PREDICTED_NAMES, "cat", "dog", "split", "id", "Unnamed: 0", "", "width", "loss", "prob", "score",
     "label_id", "is_correct", "true_prob", "weather", "date", "file", "path", "top2", "étiquette", "pred_idx"]
)  # fmt: skip
CONTENTS: list[list[object]] = [
    TRUTH, CAT, DOG, [640, 480] * 3, [0, 1] * 3, ["test"] * 6, [None] * 6, ["2024-01-01"] * 6, FILES, list(range(6)),
    [[0.1, 0.9]] * 6, [["cat", "dog"]] * 6, [True, False] * 3, [b"x"] * 6, [-3.5, 2.0] * 3, [float("nan")] * 6,
    [None, "cat"] * 3,
]  # fmt: skip


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(NAMES, st.sampled_from(CONTENTS), max_size=5), st.sampled_from(PREDICTED_NAMES))
def test_whatever_the_columns_the_prediction_is_the_answer_or_the_table_is_refused(
    tmp_path: Path, others: dict[str, list[object]], predicted: str
) -> None:
    """The named prediction differs from every other column, so that an answer shows which column was taken."""
    pq.write_table(pa.table({**others, "file": FILES, predicted: ANSWERS}), tmp_path / "t.parquet")
    try:
        found = catalog.classifier(f"table:{tmp_path / 't.parquet'}")
    except InputError:
        return
    decided = [len(set(row)) > 1 for row in found.logits([], FILES)]  # an answer of probability 0 is none
    assert [a for a, sure in zip(said(found), decided, strict=True) if sure] == [
        a for a, sure in zip(ANSWERS, decided, strict=True) if sure
    ]


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(NAMES, st.sampled_from(CONTENTS), max_size=5))
def test_no_other_column_becomes_a_label_of_columns_of_probabilities(
    tmp_path: Path, others: dict[str, list[object]]
) -> None:
    columns = {**others, "file": FILES, "cat": CAT, "dog": DOG}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    try:
        found = catalog.classifier(f"table:{tmp_path / 't.parquet'}")
    except InputError:
        return
    if any(kind_of(name) == "prediction" for name in others):
        return  # it says that its values are the answers, and `cat` and `dog` do not contradict it
    assert set(found.labels) <= {"cat", "dog"}
    assert np.isfinite(found.logits([], FILES)).all()
    assert said(found) == ANSWERS
