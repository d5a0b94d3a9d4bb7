"""Suspected label errors of an audit: wrong labels are listed, a model that is wrong in fog is not."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import c2b_ray
from c2b_ray import world
from c2b_ray.audits.c2b.exports import label_errors_csv
from c2b_ray.audits.c2b.report.summary import summary
from c2b_ray.errors import ConfigError

CLASSES = ["bus", "boat", "mug"]
IMAGES, FLIPPED = 180, 6


def planted(folder: Path, seed: int = 0) -> tuple[dict[str, Any], set[str]]:
    """Writes scenes with six wrong labels, and predictions that are right but for buses in fog, which are mugs with
    confidence; returns an audit's fields and the keys of the wrong labels."""
    random = np.random.default_rng(seed)
    rows, predictions, wrong = ["image,target_class,weather"], ["image," + ",".join(CLASSES)], set()
    flipped = set(random.choice(IMAGES, FLIPPED, replace=False).tolist())
    for number in range(IMAGES):
        name, weather = CLASSES[number % 3], ("fog", "clear")[number // 3 % 2]
        [scene] = world.sample(1, 1000 + number, target_class=name, weather=weather)
        key = f"{number}.png"
        Image.fromarray(world.render(scene)).save(folder / key)
        label = CLASSES[(number + 1) % 3] if number in flipped else name
        wrong |= {key} if number in flipped else set()
        answer = "mug" if name == "bus" and weather == "fog" else name
        logits = 4.0 * np.array([one == answer for one in CLASSES]) + random.normal(0, 0.3, 3)
        probabilities = np.exp(logits) / np.exp(logits).sum()
        rows.append(f"{key},{label},{weather}")
        predictions.append(f"{key}," + ",".join(f"{p:.9f}" for p in probabilities))
    (folder / "labels.csv").write_text("\n".join(rows))
    (folder / "predictions.csv").write_text("\n".join(predictions))
    fields = {
        "task": "Tell what a picture shows.",
        "classes": CLASSES,
        "classifier": f"table:{folder / 'predictions.csv'}",
        "images": {"source": "labelled", "table": str(folder / "labels.csv")},
        "check": False,
    }
    return fields, wrong


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, set[str]]:
    folder = tmp_path_factory.mktemp("labels")
    fields, wrong = planted(folder)
    fields |= {"label_errors": {"encoder": "world:clip"}}
    return c2b_ray.audit(fields, out=folder / "run", via="here"), wrong


def test_wrong_labels_are_listed_and_a_models_own_errors_are_not(audited: tuple[Any, set[str]]) -> None:
    run, wrong = audited
    fog = {row["target_class"]: row for row in run.scores.to_pylist() if row["bias_class"] == "fog"}
    assert fog["bus"]["verdict"] == "against"
    listed = run.read("label_errors").to_pylist()
    keys = {row["key"] for row in listed}
    assert len(keys & wrong) >= 4  # a bus in fog that is labelled as the model errs cannot disagree
    assert len(keys - wrong) <= 1  # of 30 buses in fog that are called mugs
    assert all(row["neighbours_answer"] >= 0.5 > row["neighbours_label"] for row in listed)
    confidences = [row["confidence"] for row in listed]
    assert confidences == sorted(confidences, reverse=True)


def test_scores_without_them_leave_them_out(audited: tuple[Any, set[str]]) -> None:
    run, _ = audited
    before, after = (run.read(name).to_pylist() for name in ("scores", "scores_without"))
    listed = len(run.read("label_errors"))
    assert sum(row["n"] for row in before) - sum(row["n"] for row in after) == listed
    assert [row["correct"] for row in before] == [row["correct"] for row in after]  # each was a wrong answer
    worse = next(row for row in after if (row["target_class"], row["bias_class"]) == ("bus", "fog"))
    assert worse["verdict"] == "against"


def test_a_second_audit_of_the_same_images_embeds_none_again(audited: tuple[Any, set[str]]) -> None:
    run, _ = audited
    before = sorted(Path(run.location("embeddings")).iterdir()), run.read("label_errors")
    again = c2b_ray.audit(run.config, out=run.path, via="here")
    assert (sorted(Path(again.location("embeddings")).iterdir()), again.read("label_errors")) == before


def test_page_terminal_and_export_tell_of_them(audited: tuple[Any, set[str]]) -> None:
    run, _ = audited
    listed = run.read("label_errors").num_rows
    page = Path(run.report).read_text()
    assert "<h2>Suspected label errors</h2>" in page
    assert f"{listed} images are suspected of a wrong label" in page
    assert page.count('alt="') >= listed
    assert any(line.startswith(f"suspected label errors: {listed} images") for line in summary(run).lines)
    rows = list(csv.DictReader(io.StringIO(label_errors_csv(run).decode())))
    assert [row["key"] for row in rows] == run.read("label_errors")["key"].to_pylist()


def test_without_an_encoder_a_models_weakness_is_left_out(tmp_path: Path) -> None:
    fields, wrong = planted(tmp_path)
    run = c2b_ray.audit(fields | {"label_errors": True}, out=tmp_path / "run", via="here")
    listed = run.read("label_errors").to_pylist()
    keys = {row["key"] for row in listed}
    assert len(keys & wrong) >= 3
    assert len(keys - wrong) <= 1
    assert {row["neighbours_answer"] for row in listed} == {None}
    page = Path(run.report).read_text()
    assert "No encoder was named" in page
    # The buses in fog are not listed, and nothing but the encoder tells that their labels are right.
    fog = [row for row in run.read("scores_without").to_pylist() if row["bias_class"] == "fog"]
    assert next(row["verdict"] for row in fog if row["target_class"] == "bus") == "undetermined"
    assert "may be wrong labels or the classifier’s own errors" in page
    assert run.record.config["label_errors"] == {"encoder": None}
    assert not run.has("embeddings")


def test_scores_without_them_take_clusters_as_the_scores_do(tmp_path: Path) -> None:
    fields, _ = planted(tmp_path)
    table = tmp_path / "labels.csv"
    lines = table.read_text().splitlines()
    table.write_text("\n".join(f"{line},{'room' if n == 0 else n % 7}" for n, line in enumerate(lines)))
    fields |= {"label_errors": True, "images": {**fields["images"], "cluster": "room"}}
    run = c2b_ray.audit(fields, out=tmp_path / "run", via="here")
    before, after = (run.read(name) for name in ("scores", "scores_without"))
    assert before["clusters"].to_pylist() == [7] * 6
    assert after["clusters"].null_count == 0, "no score without them takes images as independent"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": ["bus"]}, "name two classes or more"),
        (
            {"images": {"source": "generate", "generator": "world:renderer"}, "attributes": {"a": ["b", "c"]}},
            "labelled table",
        ),
        ({"label_errors": {"encoder": "nothing:x"}}, "no encoder has the scheme"),
    ],
)
def test_what_has_no_labels_to_doubt_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    (tmp_path / "labels.csv").write_text("image,target_class,a\n0.png,bus,b")
    (tmp_path / "predictions.csv").write_text("image,bus,boat,mug\n0.png,1,0,0")
    fields = {
        "task": "Tell what a picture shows.",
        "classes": CLASSES,
        "classifier": f"table:{tmp_path / 'predictions.csv'}",
        "images": {"source": "labelled", "table": str(tmp_path / "labels.csv")},
        "label_errors": True,
    }
    with pytest.raises(ConfigError, match=message):
        c2b_ray.audit(fields | changes, out=tmp_path / "run", via="here")
