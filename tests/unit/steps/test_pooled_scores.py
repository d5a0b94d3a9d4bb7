import numpy as np
import pytest

from c2b_ray.schemas import POOLED
from c2b_ray.steps.judge import LABELS, Estimate, Levels
from c2b_ray.steps.pooled_scores import pooled


def of_class(name, accuracy, n, doubts=None, values=("blurred", "sharp")):
    total = np.full(len(accuracy), n)
    return Estimate(
        classifier="m",
        target_class=name,
        attribute="focus",
        values=values,
        accuracy=np.array(accuracy, float),
        effective=total.astype(float),
        basis=LABELS,
        doubts=list(doubts or [None] * len(accuracy)),
        shared=np.zeros(len(accuracy)),
        columns={"n": total, "correct": np.round(np.array(accuracy) * n).astype(int)},
    )


def test_one_effect_over_ten_classes_is_found_where_no_class_alone_shows_it():
    table = pooled([of_class(f"c{i}", [0.80 + 0.01 * i, 0.90], 150) for i in range(8)], Levels(0.02, 0.05))
    assert table.schema == POOLED
    blurred, sharp = table.to_pylist()
    assert (blurred["bias_class"], blurred["classes"], blurred["n"]) == ("blurred", 8, 1200)
    assert blurred["phi"] == pytest.approx(-sharp["phi"])
    assert (blurred["verdict"], sharp["verdict"]) == ("against", "for")


def test_cells_in_doubt_and_single_classes_take_no_part():
    classes = [of_class("a", [0.5, 0.9], 100, ["impure", None]), of_class("b", [0.9, 0.9], 100)]
    assert pooled(classes, Levels(0.05, 0.05)).num_rows == 0
    assert pooled([], Levels(0.05, 0.05)).num_rows == 0


def test_values_are_one_by_their_normalised_names():
    classes = [of_class("a", [0.8, 0.9], 50), of_class("b", [0.8, 0.9], 50, values=("Blurred", "sharp"))]
    assert [row["classes"] for row in pooled(classes, Levels(0.05, 0.05)).to_pylist()] == [2, 2]
