"""Scores and comparisons of labelled images that come in clusters."""

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.audits.c2b.report.overview import effective_of_all, taken
from c2b_ray.audits.c2b.scoring.clusters import Clusters
from c2b_ray.audits.c2b.scoring.comparison import ComparisonSide, SharedImages, compare, compare_pooled
from c2b_ray.audits.c2b.scoring.score import scored
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.errors import ConfigError
from c2b_ray.stats.intervals import share_interval
from c2b_ray.steps.caption import caption
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.steps.labels import may_be_clusters, without_cluster
from c2b_ray.steps.propose import propose
from c2b_ray.tables import CLUSTERS, DRAWS, PREDICTIONS


def tables(images, classes=("bus",)):
    """Captions, draws, predictions and clusters; `images`: (class, weather, camera, answers of each classifier)."""
    values = list(dict.fromkeys(image[1] for image in images))
    proposals, _ = propose("task", list(classes), None, {"weather": values}, seed=0)
    captions, _ = caption("task", proposals, None, 1, seed=0)
    of = {(row["target_class"], row["bias_class"]): row["caption_id"] for row in captions.to_pylist()}
    draws, predictions, clusters = [], [], []
    for i, (target, value, camera, answers) in enumerate(images):
        name = f"image-{i}"
        draws.append({"caption_id": of[target, value], "image_id": name, "rank": i, "source": "labelled"})
        clusters.append({"image_id": name, "cluster": camera})
        for classifier, right in answers.items():
            row = {"prediction_id": f"{classifier}-{i}", "image_id": name, "classifier": classifier, "revision": "1"}
            predictions.append({**row, "predicted_class": target if right else "boat"})
    rows = (draws, DRAWS), (predictions, PREDICTIONS), (clusters, CLUSTERS)
    return captions, *(pa.Table.from_pylist(of_table, schema) for of_table, schema in rows)


def cameras(wrong, each=20, **more):
    """`wrong`: value → the number of wrong answers of each of its cameras."""
    return [
        ("bus", value, f"{value}-{camera}", {"m": image >= errors, **dict.fromkeys(more, True)})
        for value, of_value in wrong.items()
        for camera, errors in enumerate(of_value)
        for image in range(each)
    ]


def rows(images, clustered=True):
    captions, draws, predictions, clusters = tables(images)
    known = Clusters(clusters, "camera") if clustered else None
    scores, pooled = scored(captions, draws, predictions, ["m"], Thresholds(0.05, 0.05), clusters=known)
    return {row["bias_class"]: row for row in scores.to_pylist()}, pooled


def test_one_bad_camera_is_no_finding():
    """40 errors in 100 images of snow against 10 in 100, but one camera has 20 of them and another 18."""
    images = cameras({"snow": [20, 18, 1, 1, 0], "sun": [2, 2, 2, 2, 2]})
    assert rows(images, clustered=False)[0]["snow"]["verdict"] == "against"
    snow = rows(images)[0]["snow"]
    assert (snow["verdict"], snow["n"], snow["clusters"], snow["images_to_settle"]) == ("undetermined", 100, 5, None)
    assert snow["undetermined_because"].startswith("too few clusters (camera: 5 here): about ")
    assert snow["phi_low"] < 0 < snow["phi_high"]


def test_an_effect_that_all_cameras_show_is_found():
    images = cameras({"snow": [8, 9, 7, 8, 9, 7], "sun": [1, 0, 1, 1, 0, 1]})
    assert [row["verdict"] for row in rows(images)[0].values()] == ["against", "for"]


def test_a_value_of_one_camera_is_undetermined_and_compares_with_nothing():
    found = rows(cameras({"snow": [15], "sun": [1, 0, 1, 1], "rain": [1, 1, 0, 1]}))[0]
    assert found["snow"]["verdict"] == "undetermined"
    assert "all images of 'snow' are of one camera" in found["snow"]["undetermined_because"]
    assert abs(found["sun"]["phi"]) < 0.05  # against rain alone


def test_images_without_a_camera_are_clusters_of_their_own():
    images = [(*image[:2], None, image[3]) for image in cameras({"snow": [20, 18, 1, 1, 0], "sun": [2] * 5})]
    clustered, independent = rows(images)[0]["snow"], rows(images, clustered=False)[0]["snow"]
    assert (clustered["clusters"], clustered["verdict"]) == (100, "against")
    assert clustered["phi_low"] == pytest.approx(independent["phi_low"], abs=0.01)


def test_scores_over_all_classes_count_a_camera_once():
    images = [
        (target, *image[1:]) for target in ("bus", "car") for image in cameras({"snow": [9, 9, 0], "sun": [2] * 3})
    ]
    captions, draws, predictions, clusters = tables(images, ("bus", "car"))
    thresholds = Thresholds(0.05, 0.05)
    _, independent = scored(captions, draws, predictions, ["m"], thresholds)
    _, pooled = scored(captions, draws, predictions, ["m"], thresholds, clusters=Clusters(clusters, "camera"))
    assert pooled["clusters"].to_pylist() == [3, 3]
    assert independent["verdict"].to_pylist() == ["against", "for"]
    assert pooled["verdict"].to_pylist() == ["undetermined"] * 2


def test_the_accuracy_of_a_class_and_of_all_has_limits_of_clusters():
    """Of 40 scenes with 10 frames each, answered nearly alike, 400 images tell little more than 40: Wilson's limits of
    the images held the truth in .54 of 150 such tables, those of the clusters in .93. Frames that are copies count
    once, here one frame of each scene."""
    held = 0
    for run in range(30):
        random = np.random.default_rng(run)
        rates = random.beta(0.8, 0.2, 40).repeat(10)  # .8 of the frames are right on average
        shown = [
            ("bus", ("day", "dark")[i % 2], f"scene-{i // 10}", {"m": random.random() < rates[i]}) for i in range(400)
        ]
        captions, draws, predictions, clusters = tables(shown)
        of_scenes, no_copies = Clusters(clusters, "scene"), Pictures(1)
        of_class = taken(captions, draws, predictions, {"m"}, no_copies, of_scenes)["m"]["bus"]
        share = of_class.names["bus"] / 400
        low, high = share_interval(share, of_class.effective)
        held += low <= 0.8 <= high
        of_all = effective_of_all(captions, draws, predictions, no_copies, of_scenes, 0.95)
        assert 400 * of_all["m"] == pytest.approx(of_class.effective), "one class is all classes"
    assert held >= 26
    once = taken(captions, draws, predictions, {"m"}, Pictures(10))["m"]["bus"]
    assert (once.names.total(), once.effective) == (40, 40.0)


class Pictures(Distinct):
    """Knows that this many images in a row are copies of one picture."""

    def __init__(self, copies: int):
        self.copies = copies

    def pictures(self, ids):
        return np.array([int(name.removeprefix("image-")) // self.copies for name in ids.ids.to_pylist()])


def test_comparisons_of_two_classifiers_are_of_clusters():
    """B is better on one camera of six for each value, by much: 8 of 60 images, none against."""
    images = [
        ("bus", value, f"{value}-{camera}", {"a": camera > 0 or image >= 8, "b": True})
        for value in ("snow", "sun")
        for camera in range(6)
        for image in range(10)
    ]
    captions, draws, predictions, clusters = tables(images)

    def compared(known):
        a, b = (ComparisonSide(captions, draws, predictions, name, clusters=known) for name in "ab")
        shared = SharedImages(a, b)
        return compare(shared, 0.05, 0.05).to_pylist()[0], compare_pooled(shared, 0.05, 0.05).to_pylist()[0]

    cell, pooled = compared(None)
    assert cell["effective"] == 60
    assert pooled["p_value"] == pytest.approx(2 / 2**8)
    cell, pooled = compared(Clusters(clusters, "camera"))
    assert cell["effective"] < 15
    assert cell["difference"] == pytest.approx(8 / 60)
    assert cell["difference_low"] < 0
    assert pooled["p_value"] > 0.05


def drawn(each=20, captions=4, answers=None):
    """Images that captions drew: of each caption, all images of one camera, and each camera has images of all captions.

    `answers`: (caption, image) → the answers of the classifiers.
    """
    proposals, _ = propose("task", ["bus"], None, {"weather": ["snow", "sun"]}, seed=0)
    table, _ = caption("task", proposals, None, captions, seed=0)
    draws, predictions, clusters = [], [], []
    for row in table.to_pylist():
        for i in range(each):
            name = f"{row['caption_id']}-{i}"
            draws.append({"caption_id": row["caption_id"], "image_id": name, "rank": i, "source": "retrieve"})
            clusters.append({"image_id": name, "cluster": f"camera {i % 5}"})
            for classifier, right in answers(row["number"], i).items():
                one = {"prediction_id": f"{classifier}-{name}", "image_id": name, "classifier": classifier}
                predictions.append(one | {"revision": "1", "predicted_class": "bus" if right else "boat"})
    rows = (draws, DRAWS), (predictions, PREDICTIONS), (clusters, CLUSTERS)
    return table, *(pa.Table.from_pylist(of_table, schema) for of_table, schema in rows)


def width(row, name):
    return row[f"{name}_high"] - row[f"{name}_low"]


def test_retrieved_images_have_captions_and_clusters_and_both_widen():
    """Captions 0 and 1 are hard, and so is camera 0: what each adds to the variance is added to the other's."""

    def answers(number, image):
        return {"m": number > 1 or image % 5 > 1 or image < 5}

    captions, draws, predictions, clusters = drawn(answers=answers)
    thresholds = Thresholds(0.05, 0.05)
    known = Clusters(clusters, "camera")
    both = scored(captions, draws, predictions, ["m"], thresholds, clusters=known)[0].to_pylist()[0]
    alone = scored(captions, draws, predictions, ["m"], thresholds)[0].to_pylist()[0]
    rows_of_table = draws.set_column(draws.schema.get_field_index("source"), "source", [["labelled"] * len(draws)])
    labelled = scored(captions, rows_of_table, predictions, ["m"], thresholds, clusters=known)[0].to_pylist()[0]
    assert (both["captions"], both["clusters"]) == (4, 5)
    assert width(both, "accuracy") > max(width(alone, "accuracy"), width(labelled, "accuracy"))
    assert width(both, "phi") >= width(alone, "phi")


def test_comparisons_of_retrieved_images_keep_the_spread_of_captions():
    """B is better on caption 0 alone, whatever the camera: clusters change little, captions much."""

    def answers(number, image):
        return {"a": number > 0, "b": True}

    captions, draws, predictions, clusters = drawn(answers=answers)

    def compared(known):
        a, b = (ComparisonSide(captions, draws, predictions, name, clusters=known) for name in "ab")
        shared = SharedImages(a, b)
        return compare(shared, 0.05, 0.05).to_pylist()[0], compare_pooled(shared, 0.05, 0.05)

    alone, both = compared(None)[0], compared(Clusters(clusters, "camera"))[0]
    assert alone["effective"] < 20
    assert both["effective"] <= alone["effective"]
    assert (both["captions"], both["caption_spread"]) == (alone["captions"], alone["caption_spread"])


def labels(**columns):
    return pa.table({"target_class": ["bus"] * 40, **columns})


def test_a_column_that_looks_like_a_cluster_is_named():
    table = labels(
        camera=[f"c{i % 8}" for i in range(40)], weather=["snow", "sun"] * 20, patient_id=list(map(str, range(40)))
    )
    (said,) = may_be_clusters(table).values()
    assert "column camera (8 values, 5 images each)" in said
    assert may_be_clusters(without_cluster(table, "camera")) == {}


def test_a_column_cannot_be_cluster_and_attribute():
    with pytest.raises(ConfigError, match="'camera' is one of the `attributes` too"):
        without_cluster(labels(camera=["a"] * 40), "camera", ["Camera"])


def test_many_clusters_agree_with_independent_images():
    random = np.random.default_rng(1000)
    images = [
        ("bus", ["snow", "sun"][i % 2], f"c{random.integers(100)}", {"m": bool(random.random() < 0.8)})
        for i in range(1000)
    ]
    clustered, independent = rows(images)[0]["snow"], rows(images, clustered=False)[0]["snow"]
    for name in ("phi_low", "phi_high"):
        assert clustered[name] == pytest.approx(independent[name], abs=0.015)
