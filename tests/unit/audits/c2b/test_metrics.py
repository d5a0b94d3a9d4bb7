"""Audits by another metric than accuracy, from predictions with planted biases; oracle: scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn import metrics as oracle

import c2b_ray
from c2b_ray.audits.c2b.comparison import compare
from c2b_ray.audits.c2b.report.summary import summary
from c2b_ray.audits.gate import cells_of, check
from c2b_ray.errors import ConfigError, RunError

CLASSES = ["bus", "cat", "car"]
WEATHER = ["sun", "fog"]


def written(folder: Path, mixed: bool = False, missed: float = 0.0, seed: int = 0) -> dict[str, Any]:
    """Writes 400 rows of a labelled table with predictions beside it, and returns an audit's fields.

    In fog, half of the cats are taken for buses, with low confidence. `mixed`: a tenth of the pictures in fog are
    buses, in place of a third, and no answer depends on the weather; `missed`: the share of buses taken for cars.
    """
    random = np.random.default_rng(seed)
    rows, predictions = ["image,target_class,weather"], ["image," + ",".join(CLASSES)]
    for number in range(400):
        weather = WEATHER[number % 2]
        shares = [0.1, 0.45, 0.45] if mixed and weather == "fog" else [1 / 3] * 3
        truth = int(random.choice(3, p=shares))
        answer = truth
        if truth == 1 and (random.random() < (0.25 if mixed else 0.5 * (weather == "fog"))):
            answer = 0
        if truth == 0 and random.random() < missed:
            answer = 2
        logits = random.normal(0, 0.3, 3)
        logits[answer] += 1.5 + 1.5 * (answer == truth)
        probabilities = np.exp(logits) / np.exp(logits).sum()
        Image.fromarray(random.integers(0, 256, (16, 16, 3), np.uint8)).save(folder / f"{number}.png")
        rows.append(f"{number}.png,{CLASSES[truth]},{weather}")
        predictions.append(f"{number}.png," + ",".join(f"{p:.9f}" for p in probabilities))
    (folder / "labels.csv").write_text("\n".join(rows))
    (folder / "predictions.csv").write_text("\n".join(predictions))
    return {
        "task": "Tell what a picture shows.",
        "classes": CLASSES,
        "classifier": f"table:{folder / 'predictions.csv'}",
        "images": {"source": "labelled", "table": str(folder / "labels.csv")},
        "check": False,
    }


def scores(folder: Path, fields: dict[str, Any], **arguments: Any) -> dict[tuple[str, str], dict[str, Any]]:
    run = c2b_ray.audit(fields, out=folder / "run", via="here", **arguments)
    return {(row["target_class"], row["bias_class"]): row for row in run.scores.to_pylist()}


def truth_of(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the class and the weather of each row, and its probabilities."""
    labels = np.array([line.split(",")[1:] for line in (folder / "labels.csv").read_text().splitlines()[1:]])
    lines = (folder / "predictions.csv").read_text().splitlines()[1:]
    return labels[:, 0], labels[:, 1], np.array([[float(part) for part in line.split(",")[1:]] for line in lines])


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("recall", lambda t, a, p: oracle.recall_score(t, a)),
        ("precision", lambda t, a, p: oracle.precision_score(t, a)),
        ("f1", lambda t, a, p: oracle.f1_score(t, a)),
        ("auroc", lambda t, a, p: oracle.roc_auc_score(t, p)),
        ("confidence", lambda t, a, p: p[t].mean()),
    ],
)
def test_each_cell_has_the_metric_of_its_class_against_the_rest(tmp_path: Path, name: str, function: Any) -> None:
    cells = scores(tmp_path, written(tmp_path) | {"metric": name})
    truth, weather, probabilities = truth_of(tmp_path)
    for number, target in enumerate(CLASSES):
        for value in WEATHER:
            here = weather == value
            answers = probabilities[here].argmax(axis=1) == number
            expected = function(truth[here] == target, answers, probabilities[here, number])
            assert cells[target, value]["accuracy"] == pytest.approx(expected, abs=1e-6)  # probabilities are float32
            assert cells[target, value]["metric"] == name
            assert cells[target, value]["n"] == (here & (truth == target)).sum()


def test_a_bias_that_accuracy_cannot_see_is_found_by_precision(tmp_path: Path) -> None:
    """No bus is missed in fog, but cats are taken for buses there."""
    fields = written(tmp_path)
    (tmp_path / "accuracy").mkdir()
    plain = scores(tmp_path / "accuracy", fields)
    assert plain["bus", "fog"]["verdict"] not in ("for", "against")
    cells = scores(tmp_path, fields | {"metric": "precision"})
    assert cells["bus", "fog"]["verdict"] == "against"
    assert cells["bus", "sun"]["verdict"] == "for"
    assert cells["cat", "fog"]["verdict"] not in ("for", "against")
    assert cells["bus", "fog"]["phi_high"] < -0.05
    assert abs(cells["bus", "fog"]["phi_of_mix"]) < 0.12  # the classes are drawn, and so mixed a little


def test_classes_in_another_mix_are_no_bias(tmp_path: Path) -> None:
    """Where buses are rare more of the answers "bus" are wrong, though no answer depends on the weather."""
    cells = scores(tmp_path, written(tmp_path, mixed=True) | {"metric": "precision"})
    row = cells["bus", "fog"]
    assert row["phi"] < -0.2
    assert row["verdict"] == "undetermined"
    assert "classes in another mix" in row["doubt"]
    assert row["phi_of_mix"] == pytest.approx(row["phi"], abs=0.05)


def test_a_rare_value_is_not_worse_calibrated_for_being_rare(tmp_path: Path) -> None:
    """Chance makes the calibration error of few images large: φ says so, and its limits hold 0."""
    random, images = np.random.default_rng(3), 600
    fields = written(tmp_path)
    rare, logits = random.random(images) < 0.06, random.normal(0, 1.2, (images, 3))
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    rows, predictions = ["image,target_class,weather"], ["image," + ",".join(CLASSES)]
    for number in range(images):
        name, target = f"{number}.png", CLASSES[random.choice(3, p=shares[number])]
        Image.fromarray(random.integers(0, 256, (16, 16, 3), np.uint8)).save(tmp_path / name)
        rows.append(f"{name},{target},{WEATHER[int(rare[number])]}")
        predictions.append(f"{name}," + ",".join(f"{p:.9f}" for p in shares[number]))
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    (tmp_path / "predictions.csv").write_text("\n".join(predictions))
    cells = scores(tmp_path, fields | {"metric": "calibration"})
    few = [cells[target, WEATHER[1]] for target in CLASSES]
    assert all(row["phi"] < -0.05 and row["verdict"] == "undetermined" for row in few)
    assert all(row["phi_low"] < 0 < row["phi_high"] for row in few)
    assert any("another number of images" in (row["doubt"] or "") for row in few)


def test_a_function_of_ones_own_is_tested_by_permutation_and_never_none(tmp_path: Path) -> None:
    def matthews(truth: Any, answers: Any, probabilities: Any) -> float:
        return float(np.corrcoef(truth, answers)[0, 1])

    cells = scores(tmp_path, written(tmp_path), metric=matthews)
    truth, weather, probabilities = truth_of(tmp_path)
    here = weather == "fog"
    expected = oracle.matthews_corrcoef(truth[here] == "bus", probabilities[here].argmax(axis=1) == 0)
    assert cells["bus", "fog"]["accuracy"] == pytest.approx(expected, abs=1e-12)
    assert cells["bus", "fog"]["verdict"] == "against"
    assert cells["bus", "fog"]["metric"] == "python:matthews"
    assert cells["bus", "fog"]["phi_low"] < cells["bus", "fog"]["phi"] < cells["bus", "fog"]["phi_high"]
    assert cells["bus", "fog"]["p_value"] <= 0.002
    assert {row["verdict"] for row in cells.values()} <= {"for", "against", "undetermined"}
    assert cells["car", "fog"]["undetermined_because"].startswith("not tested")


def test_a_metric_of_a_finished_run_is_kept_and_told(tmp_path: Path) -> None:
    fields = written(tmp_path) | {"metric": "precision"}
    run = c2b_ray.audit(fields, out=tmp_path / "run", via="here")
    page = Path(run.report).read_text()
    assert "precision for <b>bus</b> is lower when <b>weather is fog</b>: 6" in page.replace("</b> <b>", "")
    assert "Cells are compared by precision" in page
    assert '<th scope="col" class="number">Precision</th>' in page
    assert run.record.config["metric"] == "precision"
    assert summary(run).headline.startswith("bus, weather fog: precision ")
    assert "precision" in [column.name for column in summary(run).columns]


def test_gates_speak_of_the_metric_and_comparisons_refuse_it(tmp_path: Path) -> None:
    run = c2b_ray.audit(written(tmp_path) | {"metric": "precision"}, out=tmp_path / "run", via="here")
    cells = cells_of(run.scores.to_pylist())
    by_cell = {one.cell: one for one in check(["precision<0.8"], cells)}
    assert by_cell["bus/weather/fog"].outcome == "failed"
    assert by_cell["bus/weather/fog"].message.startswith("precision is 0.6")
    assert "precision 0.6" in by_cell["bus/weather/fog"].evidence
    assert by_cell["bus/weather/sun"].outcome == "passed"
    with pytest.raises(ConfigError, match="no measure 'accuracy'"):
        check(["accuracy<0.8"], cells)
    with pytest.raises(RunError, match="compare cells by precision"):
        compare(run, c2b_ray.audit(written(tmp_path) | {"metric": "precision"}, out=tmp_path / "again", via="here"))


def test_accuracy_is_no_part_of_a_runs_id(tmp_path: Path) -> None:
    fields = written(tmp_path)
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    a = c2b_ray.audit(fields, out=tmp_path / "a" / "run", via="here")
    b = c2b_ray.audit(fields | {"metric": "accuracy"}, out=tmp_path / "b" / "run", via="here")
    assert a.manifest["run_id"] == b.manifest["run_id"]
    assert "metric" not in a.config
    assert a.predictions["probabilities"].null_count == a.predictions.num_rows


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metric": "precison"}, "precision"),
        ({"metric": "auroc", "classes": ["bus"]}, "two classes or more"),
        ({"metric": "f1", "budget": {"images": 100}}, "`budget`"),
        ({"metric": "f1", "right": "top5"}, "right: top5"),
        ({"metric": "python:mine"}, "from Python"),
        (
            {
                "metric": "f1",
                "images": {"source": "generate", "generator": "world:renderer"},
                "attributes": {"a": ["b", "c"]},
            },
            "labelled table",
        ),
    ],
)
def test_what_cannot_be_tested_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        c2b_ray.audit(written(tmp_path) | changes, out=tmp_path / "run", via="here")


def test_a_function_that_nobody_passed_is_refused_before_any_model_answers(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="run the audit from Python"):
        c2b_ray.audit(written(tmp_path) | {"metric": "python:mine"}, out=tmp_path / "run", via="here")
    assert not (tmp_path / "run").exists()


def test_a_metric_of_ones_own_is_called_in_this_process(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="called in this process"):
        c2b_ray.audit(written(tmp_path), out=tmp_path / "run", via="actors", metric=lambda t, a, p: 0.0)


def test_what_right_answers_explain_is_not_asked_of_another_metric(tmp_path: Path) -> None:
    """Cats are taken for buses in fog, and of other images where they are large: no bus is answered wrongly. Neither
    finding is the other seen through its images, which the right answers to buses cannot tell."""
    random, fields = np.random.default_rng(3), written(tmp_path)
    rows, predictions = ["image,target_class,weather,size"], ["image,bus,cat,car"]
    for number in range(400):
        truth, fog, size = int(random.integers(2)), bool(random.integers(2)), random.integers(1, 101)
        taken = truth == 1 and (random.random() < 0.5 * fog or random.random() < 0.5 * (size > 66))
        rows.append(f"{number}.png,{CLASSES[truth]},{WEATHER[fog]},{size}")
        predictions.append(f"{number}.png," + ("0.8,0.1,0.1" if taken or truth == 0 else "0.1,0.8,0.1"))
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    (tmp_path / "predictions.csv").write_text("\n".join(predictions))
    images = fields["images"] | {"cut": {"size": [66.5]}}
    cells = scores(tmp_path, fields | {"metric": "precision", "classes": CLASSES[:2], "images": images})
    found = {
        (row["attribute"], row["group_reason"]) for name, row in cells.items() if name[0] == "bus" and row["group"]
    }
    assert {attribute for attribute, reason in found if reason is None} == {"weather", "size"}
    assert not any("without the images" in (reason or "") for _, reason in found)
