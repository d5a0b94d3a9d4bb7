"""A table of labels alone has no probabilities: a metric of them says nothing, another one does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import c2b_ray

CLASSES = ["cat", "dog"]


@pytest.fixture(scope="module")
def fields(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """120 images of each class, answered well by day and badly at night; `labels.csv` has the answers alone, `sure.csv`
    their probabilities too."""
    out, random = tmp_path_factory.mktemp("answers"), np.random.default_rng(1)
    table, answers, sure = ["image,target_class,light"], ["image,prediction"], ["image,cat,dog"]
    for n in range(240):
        name, light = CLASSES[n % 2], ("day", "night")[n // 2 % 2]
        Image.fromarray(random.integers(0, 255, (8, 8, 3), np.uint8)).save(out / f"{n}.png")
        table.append(f"{n}.png,{name},{light}")
        right = float(np.clip(random.normal(0.85 if light == "day" else 0.55, 0.2), 0.01, 0.99))
        cat = right if name == "cat" else 1 - right
        answers.append(f"{n}.png,{CLASSES[int(cat < 0.5)]}")
        sure.append(f"{n}.png,{cat:.3f},{1 - cat:.3f}")
    for name, lines in (("table", table), ("labels", answers), ("sure", sure)):
        (out / f"{name}.csv").write_text("\n".join(lines))
    return {
        "task": "Tell what a picture shows.",
        "classes": CLASSES,
        "images": {"source": "labelled", "table": str(out / "table.csv"), "properties": False},
        "check": False,
    }


def verdicts(fields: dict[str, Any], answers: str, metric: Any, out: Path) -> tuple[set[str], set[str | None]]:
    folder = Path(fields["images"]["table"]).parent
    more = {} if callable(metric) else {"metric": metric}
    own = {"metric": metric} if callable(metric) else {}
    run = c2b_ray.audit({**fields, "classifier": f"table:{folder / answers}", **more}, out=out, via="here", **own)
    rows = run.scores.to_pylist()
    return {row["verdict"] for row in rows}, {row["undetermined_because"] for row in rows}


@pytest.mark.parametrize("metric", ["confidence", "auroc", "calibration"])
def test_a_metric_of_probabilities_is_in_doubt_without_them(
    fields: dict[str, Any], metric: str, tmp_path: Path
) -> None:
    found, (because,) = verdicts(fields, "labels.csv", metric, tmp_path / "run")
    assert found == {"undetermined"}
    assert because is not None
    assert because.startswith("the classifier gave answers without probabilities")


def test_with_probabilities_and_for_metrics_of_answers_there_are_findings(
    fields: dict[str, Any], tmp_path: Path
) -> None:
    def share(truth: np.ndarray, answers: np.ndarray, _: np.ndarray) -> float:
        return float((truth == answers).mean())

    asked: list[tuple[str, Any]] = [("sure.csv", "confidence"), ("labels.csv", "precision"), ("labels.csv", share)]
    for at, (answers, metric) in enumerate(asked):
        assert verdicts(fields, answers, metric, tmp_path / str(at))[0] == {"for", "against"}


def test_a_class_that_a_metric_of_all_classes_does_not_look_at_is_named(fields: dict[str, Any], tmp_path: Path) -> None:
    """Owls have one value: those that are called cats are not in the precision of cats."""
    folder = Path(fields["images"]["table"]).parent
    rows = (folder / "table.csv").read_text().splitlines()
    table = [line.replace("cat,day", "owl,day") if n % 3 == 0 else line for n, line in enumerate(rows)]
    (folder / "owls.csv").write_text("\n".join(table))
    answers = (folder / "labels.csv").read_text().splitlines()
    answers[1] = "0.png,owl"
    (folder / "with_owls.csv").write_text("\n".join(answers))
    more = {"classes": [*CLASSES, "owl"], "images": {**fields["images"], "table": str(folder / "owls.csv")}}
    said = {}
    for metric in ("precision", "confidence"):
        own = {"metric": metric, "classifier": f"table:{folder / 'with_owls.csv'}"}
        run = c2b_ray.audit({**fields, **more, **own}, out=tmp_path / metric, via="here")
        said[metric] = [line for line in run.manifest["warnings"] if "looks at no image" in line]
    assert said["confidence"] == []
    assert len(said["precision"]) == 1
    assert said["precision"][0].startswith("precision of light looks at no image of owl,")
