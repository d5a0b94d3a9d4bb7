"""Audits of folders without attributes: values read off the images, words of captions, slices of embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from PIL import Image

import c2b_ray
from c2b_ray.audits.c2b.estimate import estimate
from c2b_ray.audits.c2b.finding import in_finding_half, parted_by
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.config import AuditConfig
from c2b_ray.errors import ConfigError
from c2b_ray.tables import content_of
from c2b_ray.world import render, sample

CLASSES = ["bus", "fish"]
EACH = 160
WEATHER = ["clear", "rain", "snow", "fog"]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of each class, answers that are wrong on buses in fog, and other scenes with their weather."""
    out = tmp_path_factory.mktemp("world")
    random = np.random.default_rng(5)
    lines = ["file,label,prediction"]
    for place, name in enumerate(CLASSES):
        (out / "photos" / name).mkdir(parents=True)
        for n, scene in enumerate(sample(EACH, 60 + place, target_class=name)):
            Image.fromarray(render(scene)).save(out / "photos" / name / f"{n:03}.png")
            fails = random.random() < (0.75 if name == "bus" and scene.weather == "fog" else 0.04)
            lines.append(f"{name}/{n:03}.png,{name},{CLASSES[1 - place] if fails else name}")
    (out / "answers.csv").write_text("\n".join(lines))
    (out / "known").mkdir()
    rows = ["image,target_class,weather"]
    for n, scene in enumerate([one for name in CLASSES for one in sample(150, 70, target_class=name)]):
        Image.fromarray(render(scene)).save(out / "known" / f"{n}.png")
        rows.append(f"{n}.png,{scene.target_class},{scene.weather}")
    (out / "known" / "table.csv").write_text("\n".join(rows))
    return out


def fields(photos: Path, attributes: dict[str, list[str]] | None = None, **images: Any) -> dict[str, Any]:
    return {
        "task": "Name the object.",
        "classes": CLASSES,
        "classifier": f"table:{photos / 'answers.csv'}",
        "images": {"source": "labelled", "table": str(photos / "photos"), "properties": False, **images},
        **({"attributes": attributes} if attributes else {}),
    }


def audit(photos: Path, out: Path, attributes: dict[str, list[str]] | None = None, **images: Any) -> C2BRun:
    run = c2b_ray.audit(fields(photos, attributes, **images), out, via="here")
    assert isinstance(run, C2BRun)
    return run


def findings(run: C2BRun) -> set[tuple[str, str, str]]:
    rows = run.scores.filter(pc.equal(run.scores["verdict"], "against"))
    return set(zip(*(rows[name].to_pylist() for name in ("target_class", "attribute", "bias_class")), strict=True))


def test_values_are_read_corrected_and_kept_for_a_rerun(photos: Path, tmp_path: Path) -> None:
    read = {"model": "world:clip", "calibration": str(photos / "known" / "table.csv")}
    run = audit(photos, tmp_path / "run", {"weather": WEATHER}, read=read)
    assert findings(run) == {("bus", "weather", "fog")}
    assert set(run.scores["basis"].to_pylist()) == {"calibrated"}
    assert set(run.proposals["source"].to_pylist()) == {"read"}
    assert run.scores["shown"].null_count == 0
    assert run.manifest["derived"][0]["measure"] == "what world:clip reads off the images"
    page = (tmp_path / "run" / "report.html").read_text()
    assert "read off the images by a model" in page
    assert "on the verifier" not in page
    before = {path.name for path in (tmp_path / "run" / "readings").iterdir()}
    again = audit(photos, tmp_path / "run", {"weather": WEATHER}, read=read)
    assert {path.name for path in (tmp_path / "run" / "readings").iterdir()} == before
    assert again.scores.equals(run.scores)


def test_without_calibration_scores_are_the_readers_word(photos: Path, tmp_path: Path) -> None:
    run = audit(photos, tmp_path / "run", {"weather": WEATHER}, read="world:clip")
    assert set(run.scores["basis"].to_pylist()) == {"verifier"}
    assert "none" not in run.scores["verdict"].to_pylist()
    assert "on the verifier’s word" in (tmp_path / "run" / "report.html").read_text()


def test_a_language_model_is_asked_once_for_what_is_read(photos: Path, tmp_path: Path) -> None:
    config = {**fields(photos, read="world:clip"), "language_model": "world:lm"}
    run = c2b_ray.audit(config, tmp_path / "run", via="here")
    questions = run.read("questions")
    assert set(questions["source"].to_pylist()) == {"language_model"}
    assert ("bus", "weather", "fog") in findings(run)
    assert run.manifest["models"]["language_model"]["spec"] == "world:lm"
    assert not (tmp_path / "run" / "replies").exists()
    assert c2b_ray.audit(config, tmp_path / "run", via="here").read("questions").equals(questions)


def test_what_is_found_on_one_half_is_tested_on_the_other(photos: Path, tmp_path: Path) -> None:
    run = audit(photos, tmp_path / "run", words="world:clip", slices="world:clip")
    assert ("bus", "caption says fog", "yes") in findings(run)
    assert {row["source"] for row in run.proposals.to_pylist()} == {"word", "slice"}
    contents = dict(zip(*(run.read("images")[name].to_pylist() for name in ("image_id", "content")), strict=True))
    assert not any(in_finding_half(contents[one], 0) for one in run.draws["image_id"].to_pylist())
    answered = {contents[one] for one in run.read("predictions")["image_id"].to_pylist()}
    assert len(answered) == 2 * EACH, "the classifier answered about the finding half too"
    assert all(name.startswith("bus") for name in _values(run, "slice", "bus"))
    assert "found on the half of the images that is not tested" in (tmp_path / "run" / "report.html").read_text()


def _values(run: C2BRun, attribute: str, target: str) -> list[str]:
    rows = run.scores.filter(pc.equal(run.scores["attribute"], attribute))
    return list(rows.filter(pc.equal(rows["target_class"], target))["bias_class"].to_pylist())


def test_answers_about_the_tested_half_choose_nothing(photos: Path, tmp_path: Path) -> None:
    """Another classifier that agrees on the finding half alone leads to the same attributes and values."""
    lines = (photos / "answers.csv").read_text().splitlines()
    other = [lines[0]]
    for line in lines[1:]:
        key, label, prediction = line.split(",")
        if not in_finding_half(content_of((photos / "photos" / key).read_bytes()), 0):
            prediction = CLASSES[1 - CLASSES.index(prediction)] if key.endswith("1.png") else prediction
        other.append(f"{key},{label},{prediction}")
    (photos / "other.csv").write_text("\n".join(other))
    config = fields(photos, words="world:clip", slices="world:clip")
    first = c2b_ray.audit(config, tmp_path / "a", via="here")
    second = c2b_ray.audit({**config, "classifier": f"table:{photos / 'other.csv'}"}, tmp_path / "b", via="here")
    names = ["target_class", "attribute", "bias_classes"]
    assert first.read("proposals").select(names).equals(second.read("proposals").select(names))
    assert not first.read("scores")["correct"].equals(second.read("scores")["correct"])


def test_images_of_one_cluster_lie_in_one_half_and_others_by_their_bytes() -> None:
    clusters = pa.array(["a", None, "b", "a", "b"])
    rows = np.array([0, 1, 3, 4])
    assert parted_by(clusters, rows, ["1", "2", "3", "4"]) == ["cluster a", "2", "cluster a", "cluster b"]
    assert parted_by(None, rows, ["1", "2", "3", "4"]) == ["1", "2", "3", "4"]
    halves = [in_finding_half(f"{n}", 0) for n in range(2000)]
    assert 0.45 < np.mean(halves) < 0.55
    assert halves != [in_finding_half(f"{n}", 1) for n in range(2000)]


def test_the_estimate_counts_what_models_look_at(photos: Path) -> None:
    costs = {
        one.what: one for one in estimate(fields(photos, {"weather": WEATHER}, read="world:clip", slices="world:clip"))
    }
    assert costs["images to read values off"].most == 2 * EACH
    assert costs["images to embed"].most == 2 * EACH


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"images": {"read": "world:clip"}}, r"images\.read: name in `attributes`"),
        (
            {"images": {"read": "world:clip"}, "attributes": {"a": ["x", "y"]}, "budget": {"images": 500}},
            "`budget` takes",
        ),
        (
            {"images": {"read": "world:clip", "cluster": "camera"}, "attributes": {"a": ["x", "y"]}},
            r"`images\.cluster` is not",
        ),
        ({"images": {"words": "world:clip"}, "budget": {"images": 500}}, r"images\.words needs the answers"),
    ],
)
def test_what_has_no_valid_test_is_refused(more: dict[str, Any], match: str) -> None:
    images = {"source": "labelled", "table": "t.csv", **more.pop("images")}
    with pytest.raises(ValueError, match=match):
        AuditConfig(task="t", classes=["a"], classifier="world:resnet-control-0", images=images, **more)


def test_an_attribute_that_is_no_column_says_how_it_is_read(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"no such column; .*`read: \{model: a captioner or encoder\}` under `images`"
    ):
        audit(photos, tmp_path / "run", {"weather": WEATHER})


def test_fields_that_are_not_set_change_no_id() -> None:
    images = {"source": "labelled", "table": "t.csv"}
    config = AuditConfig(task="t", classes=["a"], classifier="world:resnet-control-0", images=images)
    assert not {"read", "words", "slices"} & set(config.model_dump(mode="json")["images"])
