"""Audits of classifiers that give each label on its own, from the graph to the page; oracles: fairlearn, scikit-learn.

The pictures are of one colour: red says whether there is a car, green whether there is a person, blue is high in fog.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import yaml
from fairlearn.metrics import MetricFrame
from PIL import Image
from sklearn import metrics as oracle

import c2b_ray
from c2b_ray.audits.c2b.from_images import Choices, drafted
from c2b_ray.audits.c2b.report.summary import summary
from c2b_ray.audits.c2b.scoring.metric import labelled_images
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


def frame_of(
    metric: Callable[[Any, Any, Any], float], truth: np.ndarray, answers: np.ndarray, p: np.ndarray, groups: np.ndarray
) -> MetricFrame:
    """Returns fairlearn's frame of a metric of truth, answers and probabilities."""

    def of_rows(t: Any, rows: Any) -> float:
        return metric(truth[rows], answers[rows], p[rows])

    return MetricFrame(metrics=of_rows, y_true=truth, y_pred=np.arange(len(truth)), sensitive_features=groups)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("threshold", [None, 0.7, {"car": 0.2}])
def test_each_label_has_the_metric_of_all_images_by_group(world: World, name: str, threshold: Any) -> None:
    fields = world.audit(BLIND_IN_FOG, metric=name, tau=0.0, threshold=threshold)
    found = cells(c2b_ray.audit(fields, out=world.folder / "run", via="here"))
    p = world.probabilities(BLIND_IN_FOG)
    cuts = (0.2, 0.5) if isinstance(threshold, dict) else (threshold or 0.5,) * 2
    for at, label in enumerate(CLASSES):
        truth, answers = world.shows[:, at], p[:, at] >= cuts[at]
        frame = frame_of(METRICS[name], truth, answers, p[:, at], world.weather)
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


# What goes with labels on their own, and what is refused


@pytest.mark.parametrize(
    ("more", "field", "message"),
    [
        ({"perturb": ["blur"]}, "perturb", "gives each label on its own"),
        ({"label_errors": True}, "label_errors", "gives each label on its own"),
        ({"right": "top5"}, "right", "ranks labels that exclude each other"),
        ({"metric": "f1", "images_per_caption": 20}, "images_per_caption", "how frequent a label is"),
        ({"threshold": {"bus": 0.4}}, "threshold", "'bus' is none of the classes"),
        ({"threshold": 1.5}, "threshold", "less than 1"),
    ],
)
def test_what_needs_one_answer_is_refused(world: World, more: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"{field}.*{message}"):
        c2b_ray.audit(world.audit(FAIR, **more), out=world.folder / "run", via="here")
    assert not (world.folder / "run").exists()


def test_retrieved_and_generated_images_are_refused(world: World) -> None:
    generated = {"source": "generate", "generator": "world:renderer"}
    fields = world.audit(FAIR) | {"images": generated}
    with pytest.raises(ConfigError, match=r"images\.source.*use source: labelled"):
        c2b_ray.audit(fields, out=world.folder / "run", via="here")


def test_labels_that_exclude_each_other_need_one_class_an_image(world: World) -> None:
    fields = world.audit(FAIR)
    net = scores_of_colours(world.folder / "soft.onnx", *FAIR, CLASSES, sigmoid=False)
    soft = f"onnx:{net}?preprocess=unit"
    with pytest.raises(ConfigError, match=r"images\.table.*\?head=sigmoid"):
        c2b_ray.audit(fields | {"classifier": soft}, out=world.folder / "run", via="here")
    both = {"one": fields["classifier"], "other": soft}
    with pytest.raises(ConfigError, match="one gives each label on its own, and the labels of other exclude"):
        c2b_ray.audit(fields | {"classifier": both}, out=world.folder / "run", via="here")
    stated = c2b_ray.audit(fields | {"classifier": f"{soft}&head=sigmoid"}, out=world.folder / "a", via="here")
    read = c2b_ray.audit(fields, out=world.folder / "b", via="here")
    assert [row["correct"] for row in stated.scores.to_pylist()] == [row["correct"] for row in read.scores.to_pylist()]


def test_other_audits_refuse_labels_on_their_own(world: World) -> None:
    from c2b_ray.models import catalog
    from c2b_ray.steps.classify import classification

    spec = world.audit(FAIR)["classifier"]
    with pytest.raises(ConfigError, match="needs labels that exclude each other"):
        classification(spec, catalog.described("classifier", spec), CLASSES, None)


def test_a_part_of_the_images_has_recall_alone(world: World) -> None:
    run = c2b_ray.audit(world.audit(BLIND_IN_FOG, images_per_caption=60), out=world.folder / "run", via="here")
    assert not run.has("labelled_images")
    assert {row["n"] for row in run.scores.to_pylist()} == {60}
    assert ("car", "fog", "against") in verdicts(run)
    assert "Precision, recall and F1 of each class" not in Path(run.report).read_text()


# One sigmoid


def test_one_sigmoid_has_two_classes_and_a_threshold(world: World) -> None:
    """In fog the score of a car is lower: at .5 half of the cars there are missed, from .1 on hardly any."""
    net = scores_of_colours(world.folder / "net.onnx", *_of_car(BLIND_IN_FOG), ["car"])
    rows = [
        f"{name},{'car' if shown else 'not car'},{weather}"
        for name, shown, weather in zip(world.names, world.shows[:, 0], world.weather, strict=True)
    ]
    (world.folder / "labels.csv").write_text("\n".join(["image,target_class,weather", *rows]))
    fields = {
        "task": "Say whether there is a car.",
        "classes": ["car", "not car"],
        "classifier": f"onnx:{net}?preprocess=unit",
        "images": {"source": "labelled", "table": str(world.folder / "labels.csv")},
    }
    p, truth = world.probabilities(BLIND_IN_FOG)[:, 0], world.shows[:, 0]
    for threshold, at, positive in [
        (None, 0.5, True),
        (0.1, 0.1, True),
        ({"car": 0.9}, 0.9, True),
        ({"not car": 0.9}, 0.1, False),
    ]:
        run = c2b_ray.audit(
            fields | {"threshold": threshold}, out=world.folder / f"run {threshold}".replace(":", ""), via="here"
        )
        # Of 'not car', 0.9 is reached where the probability of a car is 0.1 or less.
        answers = p >= at if positive else p > at
        for value in WEATHER:
            here = world.weather == value
            assert cells(run)["car", value]["correct"] == (truth & answers & here).sum()
            assert cells(run)["not car", value]["correct"] == (~truth & ~answers & here).sum()
        assert ("from a probability of" in Path(run.report).read_text()) == (threshold is not None)
    both = fields | {"threshold": {"car": 0.3, "not car": 0.3}}
    with pytest.raises(
        ConfigError, match="threshold: of two labels that exclude each other, give the threshold of one"
    ):
        c2b_ray.audit(both, out=world.folder / "run", via="here")


def test_one_sigmoid_that_is_said_to_be_one_label_is_against_all_else(world: World) -> None:
    net = scores_of_colours(world.folder / "one.onnx", *_of_car(BLIND_IN_FOG), ["car"])
    fields = world.audit(FAIR, metric="f1", tau=0.0) | {
        "classes": ["car"],
        "classifier": f"onnx:{net}?preprocess=unit&head=sigmoid",
    }
    found = cells(c2b_ray.audit(fields, out=world.folder / "run", via="here"))
    p, truth = world.probabilities(BLIND_IN_FOG)[:, 0], world.shows[:, 0]
    for value in WEATHER:
        here = world.weather == value
        expected = oracle.f1_score(truth[here], p[here] >= 0.5)
        assert found["car", value]["accuracy"] == pytest.approx(expected, abs=1e-12)


def test_a_threshold_needs_two_labels_or_labels_on_their_own(world: World) -> None:
    weight, bias = [[24, 0, 1], [0, 24, 1], [0, 0, 1]], [-12, -12, 0]
    net = scores_of_colours(world.folder / "net.onnx", weight, bias, [*CLASSES, "dog"], sigmoid=False)
    (world.folder / "labels.csv").write_text("image,target_class,weather\n000.png,car,sun\n001.png,car,fog\n")
    fields = {
        "task": "Say what a picture shows.",
        "classes": ["car"],
        "classifier": f"onnx:{net}?preprocess=unit",
        "images": {"source": "labelled", "table": str(world.folder / "labels.csv")},
        "threshold": 0.4,
    }
    with pytest.raises(ConfigError, match="has 3 labels that exclude each other, of which the likeliest is the answer"):
        c2b_ray.audit(fields, out=world.folder / "run", via="here")


def _of_car(head: tuple[Any, Any]) -> tuple[list[list[float]], list[float]]:
    weight, bias = head
    return [[row[0]] for row in weight], bias[:1]


# Tables of several labels


def test_a_run_without_a_threshold_has_the_id_that_it_had(world: World) -> None:
    from c2b_ray.config import read_audit

    fields = read_audit(world.audit(FAIR, "columns")).model_dump(mode="json")
    assert "threshold" not in fields
    assert "separator" not in fields["images"]


def test_cells_of_several_labels_hold_each_image_of_a_label(world: World) -> None:
    run = c2b_ray.audit(world.audit(FAIR), out=world.folder / "run", via="here")
    assert {name: row["n"] for name, row in cells(run).items()} == {
        (label, value): (world.shows[:, at] & (world.weather == value)).sum()
        for at, label in enumerate(CLASSES)
        for value in WEATHER
    }
    shown = {row["image_id"]: row for row in run.read("labelled_images").to_pylist()}
    assert len(shown) == len(world.names)
    assert sorted(len(row["classes"]) for row in shown.values()) == sorted(world.shows.sum(axis=1).tolist())
    assert run.read("pooled").num_rows == 0  # an image of two labels would count twice
    assert any("rows have no class" in warning for warning in run.manifest["warnings"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,car,person,weather\n0.png,1,2,sun\n", r"row 1: 'person' is '2', expected 0 or 1"),
        (
            "image,car,person,weather\n0.png,1,,sun\n",
            r"row 1: 'person' is blank.* Write 0 .* `--class-column 'person'`",
        ),
        ("image,car,person\n0.png,-1.0,0\n1.png,0,1\n", r"row 1: 'car' is -1.0, so it is not known.*are. Audit one"),
        ("image,car,person\n0.png,1,-1\n1.png,-1,1\n", r"column 'car' holds -1 and never 0. Write 0 .* CelebA"),
        ("image,car,person,weather\n0.png,yes,no,sun\n", r"column 'car' is string, expected 0 and 1"),
    ],
)
def test_columns_of_labels_are_of_0_and_1(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(SourceError, match=message):
        _ = opened(tmp_path / "t.csv", columns={"target_class": ["car", "person"]}).labels


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_images_of_which_a_label_is_not_known_are_in_no_number_of_it(world: World, kind: str) -> None:
    """CheXpert writes −1 where a label is uncertain, and nothing where it is not mentioned: neither is a 0."""
    unknown = np.arange(len(world.names)) % 5 < 2
    cars = [[None, -1.0][n % 5] if unknown[n] else float(shown) for n, shown in enumerate(world.shows[:, 0])]
    columns = {"Path": world.names, "car": cars, "person": world.shows[:, 1].astype(float), "weather": world.weather}
    table, path = pa.table(columns), world.folder / f"chexpert.{kind}"
    known = world.folder / f"known.{kind}"
    for place, rows in ((path, table), (known, table.filter(pa.array(~unknown)))):
        pa_csv.write_csv(rows, place) if kind == "csv" else pq.write_table(rows, place)
    net = scores_of_colours(world.folder / "net.onnx", *EAGER_IN_FOG, CLASSES)
    with pytest.raises(SourceError, match=r"row 1: 'car' is blank, so it is not known, and other labels of this row"):
        drafted(path, f"onnx:{net}?preprocess=unit")
    scores = {}
    for place in (path, known):
        draft = drafted(place, f"onnx:{net}?preprocess=unit", Choices(target_class="car"))
        assert draft.fields["images"]["columns"]["target_class"] == ["car"]
        fields = draft.fields | {"metric": "balanced_accuracy", "attributes": {"weather": WEATHER}}
        run = c2b_ray.audit(fields, out=world.folder / f"run-{place.stem}", via="here")
        compared = ["bias_class", "n", "correct", "accuracy", "accuracy_low", "accuracy_high", "phi", "verdict"]
        scores[place] = run.scores.select(compared).to_pylist()
        told = any(f"{unknown.sum()} rows have no target_class" in line for line in run.manifest["warnings"])
        assert told == (place == path)
    assert scores[path] == scores[known]


def opened(path: Path, **images: Any) -> Any:
    return table_opener({"table": str(path), **images})()


def test_columns_that_are_not_there_are_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("image,car,weather\n0.png,1,sun\n")
    with pytest.raises(ConfigError, match=r"target_class: .* has no column 'cars'; did you mean 'car'"):
        opened(tmp_path / "t.csv", columns={"target_class": ["cars"]})


def test_what_rows_show_is_compared_as_names_are(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "image,target_class,weather\na,Car | person ,sun\nb,CAR,sun\nc,,fog\nd,dog|dog,fog\n"
    )
    table = opened(tmp_path / "t.csv", separator="|")
    assert table.labels["target_class"].to_pylist() == ["Car; person", "CAR", "", "dog"]
    check_classes(table.labels, ["car", "dog"])
    with pytest.raises(ConfigError, match="no row of the labelled table has target_class 'boat'"):
        check_classes(table.labels, ["boat"])
    said = not_compared(table.labels, ["car", "dog"], ["weather"])
    assert said == [
        "column weather has one value only in 2 of 2 classes, such as 'sun' of car, so nothing is compared there"
    ]
    images, rows = labelled_images(table.labels, ["car", "person"], {"weather": ["sun", "fog"]})
    assert rows.tolist() == [0, 1, 2, 3]
    assert images["classes"].to_pylist() == [["car", "person"], ["car"], [], []]


def test_lists_of_numbers_without_a_name_are_not_known(tmp_path: Path) -> None:
    """Data sets write −1 where a label is not known: it is not the last name, and no sign that there is nothing."""
    features = {"target_class": [{"_type": "ClassLabel", "names": ["car", "person"]}]}
    table = pa.table({"image": list("abcde"), "target_class": [[0, 1], [-1], [1, 2], [], None]})
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "labels.parquet")
    assert opened(tmp_path / "labels.parquet").labels["target_class"].to_pylist() == [
        "car; person",
        None,
        None,
        "",
        None,
    ]


def test_lists_of_labels_are_for_audits_that_take_several(tmp_path: Path) -> None:
    from c2b_ray.storage.labelled import LabelledTable

    pq.write_table(pa.table({"image": ["a"], "target_class": [["car"]]}), tmp_path / "t.parquet")
    with pytest.raises(ConfigError, match="this needs one class for each image"):
        _ = LabelledTable(str(tmp_path / "t.parquet")).labels
    assert opened(tmp_path / "t.parquet").labels["target_class"].to_pylist() == ["car"]
    pq.write_table(pa.table({"image": ["a"], "target_class": [["a; b"]]}), tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=r"row 1: the label 'a; b' holds ';'"):
        _ = opened(tmp_path / "t.parquet").labels


# Before the run


def test_c2b_check_shows_each_label_s_own_probability_and_which_are_given(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    from c2b_ray.audits.check import check
    from c2b_ray.cli.doctor import check as command

    def file(**fields: Any) -> str:
        path = world.folder / "audit.yaml"
        path.write_text(yaml.safe_dump(world.audit(FAIR) | fields))
        return str(path)

    for classes, threshold, at in [(CLASSES, None, [0.5, 0.5]), (CLASSES, {"car": 0.99}, [0.99, 0.5])]:
        (model,) = check(file(threshold=threshold)).models
        assert len(model.answers) == 3
        for answer in model.answers:
            row = world.names.index(answer.picture)
            own = dict(zip(CLASSES, world.probabilities(FAIR)[row], strict=True))
            assert dict(answer.top) == pytest.approx(own, abs=1e-3)
            given = {name for name, least in zip(CLASSES, at, strict=True) if own[name] >= least}
            assert set(answer.given or ()) == given
            assert set(answer.below or ()) == set(classes) - given
            assert answer.of_class == "; ".join(world.labels(row))
            assert answer.right is (set(world.labels(row)) <= given)
    of_car = check(file(classes=["car"])).models[0].answers
    assert all("person" in dict(answer.top) and "person" not in (answer.given or ()) for answer in of_car)
    assert not any("person" in (answer.below or ()) for answer in of_car)
    command(file(classes=["car"]), "auto", False)
    assert "; of no class person " in capsys.readouterr().out


def test_c2b_check_takes_the_threshold_of_one_sigmoid(world: World) -> None:
    from c2b_ray.audits.check import check

    net = scores_of_colours(world.folder / "net.onnx", *_of_car(BLIND_IN_FOG), ["car"])
    shown = ["car" if one else "not car" for one in world.shows[:, 0]]
    rows = [f"{name},{of},{weather}" for name, of, weather in zip(world.names, shown, world.weather, strict=True)]
    (world.folder / "labels.csv").write_text("\n".join(["image,target_class,weather", *rows]))
    fields = {
        "task": "Say whether there is a car.",
        "classes": ["car", "not car"],
        "classifier": f"onnx:{net}?preprocess=unit",
        "images": {"source": "labelled", "table": "labels.csv"},
    }
    path = world.folder / "audit.yaml"
    for least in (1e-6, 1 - 1e-6):  # every picture is one of a car, and none
        path.write_text(yaml.safe_dump(fields | {"threshold": {"car": least}}))
        answers = check(str(path)).models[0].answers
        name = "car" if least < 0.5 else "not car"
        assert [(answer.top[0][0], answer.right) for answer in answers] == [
            (name, one.of_class == name) for one in answers
        ]
