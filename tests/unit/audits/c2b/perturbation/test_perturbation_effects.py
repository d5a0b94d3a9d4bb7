"""Effects of perturbations from answers: counts, tests and verdicts, against the formulas of comparisons."""

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray import stats
from c2b_ray.audits.c2b.perturbation.effects import EFFECT_COLUMNS, effects
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.tables import PERTURBED_IMAGES

LEVELS = Thresholds(0.05, 0.05)
KINDS = [("blur", 1), ("blur", 5)]


def sample(classes, repeats=(), clusters=None):
    """`classes`: of each image."""
    return pa.Table.from_pylist(
        [
            {
                "image_id": f"i{n}",
                "target_class": name,
                "repeat": n in repeats,
                "cluster": None if clusters is None else clusters[n],
            }
            for n, name in enumerate(classes)
        ],
        PERTURBED_IMAGES,
    )


def answers(by_kind, classifier="net"):
    """`by_kind`: (perturbation, level) → the answer to each image; None: none, for an error."""
    kinds = {"level": pa.int8(), "answered": pa.list_(pa.string())}
    rows = [
        {
            "classifier": classifier,
            "image_id": f"i{n}",
            "perturbation": kind[0],
            "level": kind[1],
            "label": answer,
            "predicted_class": answer,
            "answered": None,
            "undecided": None,
            "error": "broken" if answer is None else None,
        }
        for kind, given in by_kind.items()
        for n, answer in enumerate(given)
    ]
    return pa.Table.from_pylist(rows, pa.schema([(name, kinds.get(name, pa.string())) for name in EFFECT_COLUMNS]))


def by_key(table):
    return {(row["target_class"], row["perturbation"], row["level"]): row for row in table.to_pylist()}


def test_counts_are_of_pairs_without_errors_and_copies():
    classes = ["bus"] * 6 + ["car"] * 2
    given = {
        ("none", 0): ["bus", "bus", "bus", "car", None, "bus", "car", "bus"],
        ("blur", 1): ["bus", "car", "tree", "bus", "bus", "car", "car", "car"],
        ("blur", 5): ["tree", "tree", None, "car", "bus", "bus", "car", "car"],
    }
    rows = by_key(effects(sample(classes, repeats={5}), answers(given), ["net"], KINDS, LEVELS))
    assert set(rows) == {(name, "blur", level) for name in ("bus", "car") for level in (1, 5)}
    names = ("n", "errors", "repeats", "correct_unperturbed", "correct", "only_unperturbed", "only_perturbed")
    assert [rows["bus", "blur", 1][name] for name in names] == [4, 1, 1, 3, 2, 2, 1]
    assert [rows["bus", "blur", 5][name] for name in names] == [3, 2, 1, 2, 0, 2, 0]
    assert [rows["car", "blur", 1][name] for name in names] == [2, 0, 0, 1, 2, 0, 1]
    assert (rows["bus", "blur", 1]["mistaken_for"], rows["bus", "blur", 1]["mistaken"]) == ("car", 1)  # first by name
    assert (rows["bus", "blur", 5]["mistaken_for"], rows["bus", "blur", 5]["mistaken"]) == ("tree", 2)
    assert rows["car", "blur", 1]["mistaken_for"] is None


def planted(n=100, lost=60):
    """Blur 5 takes `lost` of n right answers, blur 1 none."""
    right = ["bus"] * n
    return {("none", 0): right, ("blur", 1): right, ("blur", 5): ["car"] * lost + ["bus"] * (n - lost)}


def test_numbers_are_those_of_paired_tests_in_one_family():
    table = effects(sample(["bus"] * 100), answers(planted()), ["net"], KINDS, LEVELS)
    rows = by_key(table)
    worse, same = rows["bus", "blur", 5], rows["bus", "blur", 1]
    assert worse["difference"] == pytest.approx(-0.6)
    low, high = stats.paired_difference_interval(60, 0, 100)
    assert (worse["difference_low"], worse["difference_high"]) == pytest.approx((float(low), float(high)))
    assert (worse["accuracy_low"], worse["accuracy_high"]) == pytest.approx(stats.wilson_interval(40, 100))
    p = [
        max(float(stats.paired_difference_p_values(a, 0, 100, 0.05)), float(stats.mcnemar_p_values(a, 0)))
        for a in (0, 60)
    ]
    assert table["p_value"].to_pylist() == pytest.approx(p)
    assert table["q_value"].to_pylist() == pytest.approx(stats.benjamini_hochberg(p).tolist())
    assert (worse["verdict"], same["verdict"]) == ("against", "none")
    assert worse["images_to_settle"] is same["images_to_settle"] is None


def test_few_images_are_undetermined_and_say_how_many_would_do():
    row = by_key(effects(sample(["bus"] * 12), answers(planted(12, 3)), ["net"], KINDS, LEVELS))["bus", "blur", 5]
    assert row["verdict"] == "undetermined"
    assert row["images_to_settle"] == stats.paired_images_to_settle(3, 0, 12, 0.05, 0.025)


def test_a_class_that_is_hardly_ever_right_has_nothing_to_lose_and_is_not_called_robust():
    wrong = {kind: ["car"] * 980 + ["bus"] * 20 for kind in [("none", 0), *KINDS]}
    for row in effects(sample(["bus"] * 1000), answers(wrong), ["net"], KINDS, LEVELS).to_pylist():
        assert (row["verdict"], row["images_to_settle"]) == ("undetermined", None)
    right = {kind: ["car"] * 900 + ["bus"] * 100 for kind in [("none", 0), *KINDS]}
    for row in effects(sample(["bus"] * 1000), answers(right), ["net"], KINDS, LEVELS).to_pylist():
        assert row["verdict"] == "none"


def test_a_perturbation_may_help():
    given = {("none", 0): ["car"] * 60 + ["bus"] * 20, ("blur", 1): ["bus"] * 80, ("blur", 5): ["bus"] * 80}
    rows = by_key(effects(sample(["bus"] * 80), answers(given), ["net"], KINDS, LEVELS))
    assert rows["bus", "blur", 1]["verdict"] == "for"


def test_a_class_without_an_answer_is_undetermined_and_no_test():
    given = {kind: [None] * 5 for kind in [("none", 0), *KINDS]}
    row = by_key(effects(sample(["bus"] * 5), answers(given), ["net"], KINDS, LEVELS))["bus", "blur", 1]
    assert (row["n"], row["errors"], row["verdict"], row["images_to_settle"]) == (0, 5, "undetermined", None)
    assert np.isnan(row["accuracy"])
    assert np.isnan(row["q_value"])


def test_pictures_of_few_cameras_are_no_more_evidence_than_their_cameras():
    """All of the loss is one camera's: of 100 independent images it is a finding, of five cameras' it is none."""
    given = planted(100, 20)
    cameras = [f"camera {n // 20}" for n in range(100)]
    alone = by_key(effects(sample(["bus"] * 100), answers(given), ["net"], KINDS, LEVELS))["bus", "blur", 5]
    of_cameras = by_key(
        effects(sample(["bus"] * 100, clusters=cameras), answers(given), ["net"], KINDS, LEVELS, clustered=True)
    )["bus", "blur", 5]
    assert alone["verdict"] == "against"
    assert alone["clusters"] is None
    assert of_cameras["verdict"] == "undetermined"
    assert of_cameras["clusters"] == 5
    assert of_cameras["effective"] < 10
    assert of_cameras["difference"] == pytest.approx(alone["difference"])
    assert of_cameras["difference_low"] < alone["difference_low"]


def test_images_without_a_cluster_are_clusters_of_their_own():
    given = planted(100, 20)
    clusters = [None] * 100
    one = by_key(effects(sample(["bus"] * 100, clusters=clusters), answers(given), ["net"], KINDS, LEVELS, True))
    assert one["bus", "blur", 5]["clusters"] == 100
    assert one["bus", "blur", 5]["verdict"] == "against"


def test_several_classifiers_are_one_family():
    table = pa.concat_tables([answers(planted(), "one"), answers(planted(100, 0), "two")])
    rows = effects(sample(["bus"] * 100), table, ["one", "two"], KINDS, LEVELS).to_pylist()
    assert [(row["classifier"], row["verdict"]) for row in rows] == [
        ("one", "none"), ("one", "against"), ("two", "none"), ("two", "none"),
    ]  # fmt: skip
    assert [row["q_value"] for row in rows] == pytest.approx(
        stats.benjamini_hochberg([row["p_value"] for row in rows]).tolist()
    )
