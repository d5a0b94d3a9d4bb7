"""Labelled images without a single attribute: an audit measures them, and finds where a classifier fails."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from c2b_ray import audit
from c2b_ray.audits.c2b.estimate import estimate
from c2b_ray.audits.kit.progress import Event
from c2b_ray.config import AuditConfig
from c2b_ray.errors import ConfigError, RunError
from c2b_ray.world import render, sample

CLASSES = ("bus", "bird")
EACH = 150


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """World scenes in one folder a class, and nothing beside them."""
    folder = tmp_path_factory.mktemp("bare") / "photos"
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
        for number, scene in enumerate(sample(EACH, 100_000, target_class=name)):
            Image.fromarray(render(scene)).save(folder / name / f"{number:03}.png")
    return folder


def darkest(folder: Path, share: float) -> set[str]:
    """Returns the darkest images of a folder, by Pillow's own grey: not by what the audit measures."""
    light = {path.name: np.asarray(Image.open(path).convert("L")).mean() for path in sorted(folder.iterdir())}
    return set(sorted(light, key=light.__getitem__)[: round(share * len(light))])


def answers(photos: Path, to: Path, fails: Callable[[str, str], bool]) -> str:
    """Writes a table of predictions of a classifier that is right for 19 of 20 images, and for 8 of 20 where it
    fails."""
    random = np.random.default_rng(100_001)
    with to.open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["file", "label", "prediction"])
        for path in sorted(photos.glob("*/*.png")):
            truth = path.parent.name
            right = random.random() < (0.4 if fails(truth, path.name) else 0.95)
            rows.writerow([f"{truth}/{path.name}", truth, truth if right else next(c for c in CLASSES if c != truth)])
    return f"table:{to}"


def config(photos: Path, classifier: str, **images: Any) -> dict[str, Any]:
    source = {"source": "labelled", "table": str(photos), **images}
    return {"task": "t", "classes": list(CLASSES), "classifier": classifier, "images": source}


@pytest.fixture
def planted(photos: Path, tmp_path: Path) -> str:
    dark = darkest(photos / "bus", 0.2)
    return answers(photos, tmp_path / "answers.csv", lambda truth, name: truth == "bus" and name in dark)


def test_a_planted_failure_in_the_dark_is_the_first_finding(photos: Path, planted: str, tmp_path: Path) -> None:
    told: list[Event] = []
    run = audit(config(photos, planted), tmp_path / "run", via="here", listener=told.append)
    scores = run.scores.to_pylist()
    found = {
        (row["target_class"], row["attribute"], row["bias_class"]) for row in scores if row["verdict"] == "against"
    }
    assert ("bus", "brightness", "dark") in found
    assert {name for name, *_ in found} == {"bus"}
    assert set(run.proposals["source"].to_pylist()) == {"property"}
    brightness = next(one for one in run.manifest["derived"] if one["attribute"] == "brightness")
    edge = float(brightness["ranges"]["bus"]["dark"].removeprefix("below "))
    measured = {row["key"]: row["brightness"] for row in run.read("properties").to_pylist()}
    assert sum(value < edge for key, value in measured.items() if key.startswith("bus/")) == 0.2 * EACH
    page = Path(run.report).read_text()
    assert f"below {edge:g}" in page
    assert "mean luma" in page
    assert "resolution is no attribute" in " ".join(event.step for event in told if event.kind == "warning")


def test_a_classifier_that_fails_nowhere_in_particular_has_no_finding(photos: Path, tmp_path: Path) -> None:
    run = audit(
        config(photos, answers(photos, tmp_path / "answers.csv", lambda *_: False)), tmp_path / "run", via="here"
    )
    assert not [row for row in run.scores.to_pylist() if row["verdict"] in ("for", "against")]
    assert len(run.proposals) >= 2 * 9


def test_the_properties_that_the_file_names_are_measured_and_no_others(
    photos: Path, planted: str, tmp_path: Path
) -> None:
    run = audit(config(photos, planted, properties=["Brightness", "hue"]), tmp_path / "run", via="here")
    assert set(run.proposals["attribute"].to_pylist()) == {"brightness", "hue"}
    with pytest.raises(ConfigError, match="no property 'brightnes'; did you mean 'brightness'"):
        audit(config(photos, planted, properties=["brightnes"]), tmp_path / "other", via="here")


def test_without_properties_there_is_nothing_to_compare_and_the_error_says_so(photos: Path, planted: str) -> None:
    with pytest.raises(ConfigError, match="properties: true"):
        audit(config(photos, planted, properties=False), via="here")


def test_a_rerun_measures_nothing_again_and_a_replaced_file_is_noticed(
    photos: Path, planted: str, tmp_path: Path
) -> None:
    run = audit(config(photos, planted), tmp_path / "run", via="here")
    before = sorted((tmp_path / "run/properties").iterdir())
    again = audit(config(photos, planted), tmp_path / "run", via="here")
    assert sorted((tmp_path / "run/properties").iterdir()) == before
    assert again.scores.equals(run.scores)
    first = photos / "bus/000.png"
    kept = first.read_bytes()
    try:
        first.write_bytes((photos / "bus/001.png").read_bytes())
        with pytest.raises(RunError, match="other files now than it measured"):
            audit(config(photos, planted), tmp_path / "run", via="here")
    finally:
        first.write_bytes(kept)


def test_columns_of_the_table_come_first_and_measurements_join_them_on_request(
    photos: Path, planted: str, tmp_path: Path
) -> None:
    table = photos.parent / "labels.csv"
    paths = sorted(photos.glob("*/*.png"))
    with table.open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["image", "key", "target_class", "weather", "hours"])
        for number, path in enumerate(paths):
            key = f"{path.parent.name}/{path.name}"
            rows.writerow([f"photos/{key}", key, path.parent.name, ["fog", "sun"][number % 2], number * 7 % 100 / 4])
    plain = config(table, planted)
    run = audit(plain, tmp_path / "plain", via="here")
    assert set(run.proposals["attribute"].to_pylist()) == {"weather"}
    assert not run.has("properties")
    assert "derived" not in run.manifest
    assert any("`cut: {hours: quantiles}`" in line for line in run.manifest["warnings"])
    both = audit(
        config(table, planted, properties=["brightness"], cut={"hours": [6, 12]}), tmp_path / "both", via="here"
    )
    origins = dict(zip(*(both.proposals[name].to_pylist() for name in ("attribute", "source")), strict=True))
    assert origins == {"weather": "user", "hours": "number", "brightness": "property"}
    assert len({row["q_value"] for row in both.scores.to_pylist()}) > 1
    values = {row["bias_class"] for row in both.scores.to_pylist() if row["attribute"] == "hours"}
    assert values == {"below 6", "6 to 12", "12 or more"}


def test_an_estimate_counts_what_is_measured(photos: Path, planted: str) -> None:
    measured, read, *_ = estimate(config(photos, planted))
    assert (measured.what, measured.least, measured.most) == ("images to measure", 2 * EACH, 2 * EACH)
    assert measured.per_second is not None
    assert measured.per_second > 1
    assert (read.what, read.least) == ("images to read", 2 * EACH)


def test_cameras_that_are_only_folders_are_asked_about(photos: Path, tmp_path: Path) -> None:
    """Cameras have their own light, and one of them fails: what looks like a finding about the dark is one about it."""
    random = np.random.default_rng(100_002)
    lines = ["file,label,prediction"]
    for name in CLASSES:
        for number, path in enumerate(sorted((photos / name).iterdir())):
            camera, key = number % 10, f"{name}/camera{number % 10}/{path.name}"
            (tmp_path / "photos" / key).parent.mkdir(parents=True, exist_ok=True)
            picture = Image.open(path)
            picture.point(lambda level, c=camera: round(level * (0.6 + 0.04 * c if c else 0.15))).save(
                tmp_path / "photos" / key
            )
            right = random.random() < (0.98 if camera else 0.1)
            lines.append(f"{key},{name},{name if right else next(c for c in CLASSES if c != name)}")
    (tmp_path / "answers.csv").write_text("\n".join(lines))
    run = audit(config(tmp_path / "photos", f"table:{tmp_path / 'answers.csv'}"), tmp_path / "run", via="here")
    assert any("`cluster: folder`" in line for line in run.manifest["warnings"])
    clustered = config(tmp_path / "photos", f"table:{tmp_path / 'answers.csv'}", cluster="folder")
    again = audit(clustered, tmp_path / "clustered", via="here")
    findings = [sum(row["verdict"] in ("for", "against") for row in one.scores.to_pylist()) for one in (run, again)]
    assert findings[0] > 0
    assert findings[1] < findings[0]


def test_a_run_on_a_folder_that_has_grown_measures_the_new_images(photos: Path, tmp_path: Path) -> None:
    grown = tmp_path / "photos"
    for name in CLASSES:
        (grown / name).mkdir(parents=True)
        for path in sorted((photos / name).iterdir())[:60]:
            (grown / name / path.name).write_bytes(path.read_bytes())
    classifier = answers(photos, tmp_path / "answers.csv", lambda *_: False)
    audit(config(grown, classifier, properties=["brightness"]), tmp_path / "run", via="here")
    for path in sorted((photos / "bird").iterdir())[60:80]:  # before the rows of all buses
        (grown / "bird" / path.name).write_bytes(path.read_bytes())
    again = audit(config(grown, classifier, properties=["brightness"]), tmp_path / "run", via="here")
    fresh = audit(config(grown, classifier, properties=["brightness"]), tmp_path / "fresh", via="here")
    assert again.manifest["derived"] == fresh.manifest["derived"]
    assert again.scores.equals(fresh.scores)


def test_an_image_that_cannot_be_read_has_no_value_and_the_others_have(photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
        for path in sorted((photos / name).iterdir())[:40]:
            (folder / name / path.name).write_bytes(path.read_bytes())
    (folder / "bus/000.png").write_bytes(b"no picture")
    classifier = answers(photos, tmp_path / "answers.csv", lambda *_: False)
    run = audit(config(folder, classifier, properties=["brightness"]), tmp_path / "run", via="here")
    (broken,) = [row for row in run.read("properties").to_pylist() if row["error"]]
    assert broken["key"] == "bus/000.png"
    assert broken["brightness"] is None
    assert run.manifest["blank_rows"] == {"brightness": 1}
    assert sum(row["n"] for row in run.scores.to_pylist()) == 79


def test_properties_and_cuts_keep_the_ids_of_runs_without_them_and_belong_to_labelled_images() -> None:
    plain = config(Path("photos"), "table:a.csv")
    fields = AuditConfig.model_validate(plain).model_dump(mode="json")["images"]
    assert not {"properties", "cut"} & set(fields)
    kept = AuditConfig.model_validate(config(Path("photos"), "table:a.csv", properties=False, cut={}))
    assert {"properties": False, "cut": {}}.items() <= kept.model_dump(mode="json")["images"].items()
    for wrong, message in (
        ({"cut": {"age": [40, 18]}}, "ascending"),
        ({"cut": {"age": []}}, "ascending"),
        ({"cut": {"age": "decade"}}, "quantiles"),
        ({"cut": {"age": [1], "Age": [2]}}, "given twice"),
        ({"properties": ["hue", "Hue"]}, "given twice"),
    ):
        with pytest.raises(ValidationError, match=message):
            AuditConfig.model_validate(config(Path("photos"), "table:a.csv", **wrong))
    with pytest.raises(ValidationError, match="`properties` does not belong"):
        AuditConfig.model_validate({**plain, "images": {"source": "generate", "generator": "g", "properties": True}})
