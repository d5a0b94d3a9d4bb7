"""Neighbours met part by part are those of a comparison with all at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from c2b_ray.audits.dataset.evaluation_rows import agreement, nearest, rank
from c2b_ray.tables.dataset import FEATURES


def table(vectors, labels, prefix, predicted=None):
    count = len(vectors)
    columns = {
        "feature_id": [f"{prefix}f{n}" for n in range(count)],
        "key": [f"{prefix}{n}" for n in range(count)],
        "row": list(range(count)),
        "label": labels,
        "predicted": predicted or [None] * count,
        "vector": vectors.tolist(),
        "error": [None] * count,
    }
    return pa.table(columns, FEATURES)


def test_the_nearest_of_all_and_of_the_label():
    random = np.random.default_rng(0)
    queries, others = random.normal(size=(5, 8)), random.normal(size=(90, 8)) * random.uniform(0.1, 9, (90, 1))
    labels = random.choice(["bus", "boat", "mug"], 90).tolist()
    failures = table(queries, ["bus", "boat", "mug", "bus", "fish"], "q", ["boat"] * 5)
    whole = table(others, labels, "r")
    result = nearest(failures, (whole.slice(start, 17) for start in range(0, 90, 17)), k=4)
    cosine = (queries / np.linalg.norm(queries, axis=1, keepdims=True)) @ (
        others / np.linalg.norm(others, axis=1, keepdims=True)
    ).T
    for query, label in enumerate(failures["label"].to_pylist()):
        for among, allowed in (("all", np.ones(90, bool)), ("same_label", np.array(labels) == label)):
            rows = [r for r in result.to_pylist() if r["image_id"] == f"q{query}" and r["among"] == among]
            expected = [int(row) for row in np.argsort(-np.where(allowed, cosine[query], -9)) if allowed[row]][:4]
            assert [row["row"] for row in rows] == expected
            assert [row["neighbour_label"] for row in rows] == [labels[row] for row in expected]
    shares = agreement(result, lambda name: name)
    mostly = [np.mean([labels[row] == "boat" for row in np.argsort(-cosine[q])[:4]]) > 0.5 for q in range(5)]
    assert shares["mostly_predicted"] == np.mean(mostly)
    outputs = result.drop_columns("predicted").append_column(  # an output that stands for boat
        "predicted", pa.array(["Ferry"] * result.num_rows)
    )
    assert agreement(outputs, lambda name: "boat" if name == "Ferry" else name) == shares


def test_labels_that_are_as_likely_come_first():
    values = np.array([1.0, 3.0, 3.0, 2.0, -np.inf])
    assert rank(values, [1]) == 2  # as likely as another: wrong by top-1
    assert rank(values, [0, 1, 2]) == 1
    assert rank(values, [3]) == 3
    assert rank(values, [4]) == 5
