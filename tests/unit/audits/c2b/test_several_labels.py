"""Audits of classifiers that give each label on its own, from the graph to the page; oracles: fairlearn, scikit-learn.

The pictures are of one colour: red says whether there is a car, green whether there is a person, blue is high in fog.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fairlearn.metrics import MetricFrame
from PIL import Image
from sklearn import metrics as oracle

import c2b_ray
from c2b_ray.audits.c2b.report.headline import summary
from c2b_ray.audits.c2b.scoring.label_sets import labelled_images
from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.steps.labels import check_classes, not_compared
from c2b_ray.storage.labelled import table_opener
from tests.support.sigmoid_graphs import SIDE, of_colour, scores_of_colours

CLASSES = ["car", "person"]
WEATHER = ["sun", "fog"]
IMAGES = 600
FAIR = ([[24, 0], [0, 24], [0, 0]], [-12, -12])
"""Weights of red, green and blue for car and person, and biases: the score is 0 at half of the channel."""
BLIND_IN_FOG = ([[24, 0], [0, 24], [-5, 0]], [-11, -12])
"""Blue, which fog raises by .5, lowers the score of car alone."""
EAGER_IN_FOG = ([[24, 0], [0, 24], [5, 0]], [-13, -12])


class World:
    """Labelled pictures in a folder, and what they show."""

    def __init__(self, folder: Path, seed: int = 0, images: int = IMAGES) -> None:
        random = np.random.default_rng(seed)
        self.folder = folder
        self.fog = np.arange(images) % 2 == 1
        self.shows = random.random((images, 2)) < [0.4, 0.5]
        strength = 0.5 + np.where(self.shows, 0.15, -0.15) + random.normal(0, 0.08, (images, 2))
        self.colours = np.column_stack([strength, np.where(self.fog, 0.7, 0.2)])
        self.names = [f"{number:03d}.png" for number in range(images)]
        # Noise, so that no two pictures are copies of one; the network sees the means.
        pictures = [
            np.clip(of_colour(*colour) + random.integers(-30, 31, (SIDE, SIDE, 3)), 0, 255).astype(np.uint8)
            for colour in self.colours
        ]
        for name, picture in zip(self.names, pictures, strict=True):
            Image.fromarray(picture).save(folder / name)
        self.seen = np.stack([picture.mean(axis=(0, 1)) / 255 for picture in pictures])

    @property
    def weather(self) -> np.ndarray:
        return np.where(self.fog, "fog", "sun")

    def labels(self, row: int) -> list[str]:
        return [name for name, shown in zip(CLASSES, self.shows[row], strict=True) if shown]

    def probabilities(self, head: tuple[Any, Any]) -> np.ndarray:
        weight, bias = head
        result: np.ndarray = 1 / (1 + np.exp(-(self.seen @ np.array(weight) + bias)))
        return result

    def table(self, how: str = "separated") -> dict[str, Any]:
        """Writes the labels and returns the section `images` of an audit."""
        rows = range(len(self.names))
        images: dict[str, Any] = {"source": "labelled"}
        if how == "lists":
            columns = {
                "image": self.names,
                "target_class": [self.labels(r) for r in rows],
                "weather": list(self.weather),
            }
            pq.write_table(pa.table(columns), self.folder / "labels.parquet")
            return images | {"table": str(self.folder / "labels.parquet")}
        path = self.folder / "labels.csv"
        if how == "columns":
            lines = [f"{self.names[r]},{self.shows[r, 0]:d},{self.shows[r, 1]:d},{self.weather[r]}" for r in rows]
            path.write_text("\n".join(["image,car,person,weather", *lines]))
            return images | {"table": str(path), "columns": {"target_class": CLASSES}}
        lines = [f"{self.names[r]},{';'.join(self.labels(r))},{self.weather[r]}" for r in rows]
        path.write_text("\n".join(["image,target_class,weather", *lines]))
        return images | {"table": str(path), "separator": ";"}

    def audit(self, head: tuple[Any, Any], how: str = "separated", **fields: Any) -> dict[str, Any]:
        net = scores_of_colours(self.folder / "net.onnx", *head, CLASSES)
        return {
            "task": "Say what a picture shows.",
            "classes": CLASSES,
            "classifier": f"onnx:{net}?preprocess=unit",
            "images": self.table(how),
            "attributes": {"weather": WEATHER},
            **fields,
        }


def cells(run: c2b_ray.C2BRun) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["target_class"], row["bias_class"]): row for row in run.scores.to_pylist()}


def verdicts(run: c2b_ray.C2BRun) -> set[tuple[str, str, str]]:
    found = {(*name, row["verdict"]) for name, row in cells(run).items()}
    return {one for one in found if one[2] in ("for", "against")}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# The frame: each label against all images that do not show it, by group


METRICS: dict[str, Callable[[Any, Any, Any], float]] = {
    "recall": lambda t, a, p: oracle.recall_score(t, a),
    "precision": lambda t, a, p: oracle.precision_score(t, a),
    "f1": lambda t, a, p: oracle.f1_score(t, a),
    "balanced_accuracy": lambda t, a, p: oracle.balanced_accuracy_score(t, a),
    "auroc": lambda t, a, p: oracle.roc_auc_score(t, p),
    "confidence": lambda t, a, p: p[t].mean(),
}


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("threshold", [None, 0.7, {"car": 0.2}])
def test_each_label_has_the_metric_of_all_images_by_group(world: World, name: str, threshold: Any) -> None:
    fields = world.audit(BLIND_IN_FOG, metric=name, tau=0.0, threshold=threshold)
    found = cells(c2b_ray.audit(fields, out=world.folder / "run", via="here"))
    p = world.probabilities(BLIND_IN_FOG)
    cuts = (0.2, 0.5) if isinstance(threshold, dict) else (threshold or 0.5,) * 2
    for at, label in enumerate(CLASSES):
        truth, answers = world.shows[:, at], p[:, at] >= cuts[at]
        frame = MetricFrame(
            metrics=lambda t, rows: METRICS[name](truth[rows], answers[rows], p[rows, at]),
            y_true=truth,
            y_pred=np.arange(len(truth)),
            sensitive_features=world.weather,
        )
        for value in WEATHER:
            row = found[label, value]
            # Probabilities are kept in float32.
            assert row["accuracy"] == pytest.approx(frame.by_group[value], abs=1e-6 if name == "confidence" else 1e-12)
            assert row["phi"] == pytest.approx(
                frame.by_group[value] - frame.by_group[WEATHER[1 - WEATHER.index(value)]], abs=1e-6
            )
            assert row["n"] == (truth & (world.weather == value)).sum()


# A planted bias is found, and nothing else


@pytest.mark.parametrize(
    ("head", "metric", "expected"),
    [
        (FAIR, "accuracy", set()),
        (FAIR, "f1", set()),
        (FAIR, "auroc", set()),
        (FAIR, "balanced_accuracy", set()),
        (BLIND_IN_FOG, "accuracy", {("car", "fog", "against"), ("car", "sun", "for")}),
        (BLIND_IN_FOG, "f1", {("car", "fog", "against"), ("car", "sun", "for")}),
        # Labels that are given too often are no matter of recall.
        (EAGER_IN_FOG, "precision", {("car", "fog", "against"), ("car", "sun", "for")}),
    ],
)
def test_a_planted_bias_is_found_in_its_label_alone(
    world: World, head: tuple[Any, Any], metric: str, expected: set[tuple[str, str, str]]
) -> None:
    run = c2b_ray.audit(world.audit(head, metric=metric), out=world.folder / "run", via="here")
    assert verdicts(run) == expected
    page = Path(run.report).read_text()
    assert "below the threshold" not in page.split('<section id="explore">')[0]
    said = summary(run)
    assert ("car" in str(said)) == bool(expected)


@pytest.mark.parametrize("how", ["lists", "columns"])
def test_lists_and_columns_of_labels_are_the_same_table(world: World, how: str) -> None:
    separated = cells(c2b_ray.audit(world.audit(BLIND_IN_FOG), out=world.folder / "a", via="here"))
    other = cells(c2b_ray.audit(world.audit(BLIND_IN_FOG, how), out=world.folder / "b", via="here"))
    assert {name: (row["n"], row["correct"], row["verdict"]) for name, row in other.items()} == {
        name: (row["n"], row["correct"], row["verdict"]) for name, row in separated.items()
    }
