"""Whether answers follow the look of an image, over a whole audit of labelled images without a useful attribute."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import c2b_ray
from c2b_ray import world
from c2b_ray.audits.c2b import followed_looks
from c2b_ray.audits.c2b.exports import scores_json
from c2b_ray.audits.c2b.report.summary import summary
from c2b_ray.audits.c2b.run import C2BRun

CLASSES = ("airplane", "bus", "chair", "fish", "mug", "house")
IMAGES = 300
CALLED = {"beach": "heron", "forest": "owl", "mountains": "goat", "street": "lamp"}
"""What a classifier that goes by the setting calls what it sees there: names of no class of the audit."""


def answers(right: float, by_setting: bool, scenes: list[world.Scene]) -> list[str]:
    """`right`: the share that is right; of the others most follow the setting, or the class's own two wrong names."""
    random = np.random.default_rng(5)
    given = []
    for scene in scenes:
        own = (f"{scene.target_class} toy", f"{scene.target_class} print")[int(random.integers(2))]
        wrong = CALLED[scene.setting] if by_setting and random.random() < 0.85 else own
        given.append(scene.target_class if random.random() < right else wrong)
    return given


def fields(folder: Path, classifiers: dict[str, tuple[float, bool]], **images: Any) -> dict[str, Any]:
    """Writes pictures of the world and tables of answers, and returns an audit's fields."""
    scenes = [one for one in world.sample(3 * IMAGES, 100_000) if one.target_class in CLASSES][:IMAGES]
    labels = ["image,target_class,side,camera"]
    for number, scene in enumerate(scenes):
        Image.fromarray(world.render(scene)).save(folder / f"{number}.png")
        labels.append(f"{number}.png,{scene.target_class},{('left', 'right')[number % 2]},{number % 40}")
    (folder / "labels.csv").write_text("\n".join(labels))
    for name, (right, by_setting) in classifiers.items():
        given = answers(right, by_setting, scenes)
        lines = [f"{number}.png,{answer}" for number, answer in enumerate(given)]
        (folder / f"{name}.csv").write_text("\n".join(["image,prediction", *lines]))
    return {
        "task": "Tell what a picture shows.",
        "classes": list(CLASSES),
        "classifier": [f"table:{folder / name}.csv" for name in classifiers],
        "attributes": {"side": ["left", "right"]},
        "images": {"source": "labelled", "table": str(folder / "labels.csv"), **images},
        "check": False,
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> C2BRun:
    folder = tmp_path_factory.mktemp("looks")
    classifiers = {"follower": (0.15, True), "erring": (0.15, False), "good": (0.8, True)}
    return c2b_ray.audit(fields(folder, classifiers), out=folder / "run", via="here")


def of(run: C2BRun, name: str) -> dict[str, dict[str, Any]]:
    return {row["look"]: row for row in run.read("looks").to_pylist() if f"{name}.csv" in row["classifier"]}


def test_answers_that_follow_the_setting_follow_background_or_colours(run):
    rows = of(run, "follower")
    assert list(rows) == ["texture", "colours", "background"]
    assert rows["background"]["established"]
    assert rows["colours"]["established"]
    row = rows["background"]
    assert row["images"] == IMAGES
    assert row["compared"] == IMAGES - row["follow_class"]
    assert row["share"] == pytest.approx((row["follow_look"] - row["expected"]) / IMAGES)
    assert row["margin"] == pytest.approx(row["share"] - row["follow_class"] / IMAGES)
    assert any(one["strongest"] for one in rows.values())


def test_answers_that_are_wrong_by_class_follow_no_look(run):
    rows = of(run, "erring")
    assert len(rows) == 3
    assert not any(row["established"] or row["strongest"] for row in rows.values())


def test_a_classifier_that_is_mostly_right_is_not_asked(run):
    assert of(run, "good") == {}


def test_each_image_that_follows_has_look_alikes_of_other_classes_with_its_answer(run):
    rows = run.read("look_alikes").to_pylist()
    established = [row for row in run.read("looks").to_pylist() if row["established"]]
    assert len(rows) == sum(row["follow_look"] for row in established)
    for row in rows:
        assert row["look_alikes"]
        assert all(one["label"] != row["label"] for one in row["look_alikes"])
        assert row["answer"] in CALLED.values() or row["answer"].split()[0] in CLASSES
        assert row["key"].endswith(".png")
        assert row["look_alikes"][0]["key"].endswith(".png")


def test_terminal_page_and_json_say_it(run):
    said = summary(run)
    [line] = [line for line in said.lines if "of the answers follow" in line]
    assert "follower.csv" in line
    assert "rather than its class" in line
    assert "background" in line
    assert said.to_json is not None
    assert len(said.to_json["looks"]) == 6
    assert said.headline.startswith(line.rstrip("."))
    page = Path(run.report).read_text()
    assert "of the image rather than its class" in page
    assert "What the answers follow" in page
    assert "as its look-alikes of other classes" in page
    assert page.count("data:image/jpeg") > 6
    assert len(json.loads(scores_json(run))["looks"]) == 6


def test_a_second_call_describes_nothing_anew(run):
    parts, table = sorted(Path(run.path, "look_vectors").iterdir()), run.read("looks")
    again = c2b_ray.audit(run.config, out=run.path, via="here")
    assert sorted(Path(run.path, "look_vectors").iterdir()) == parts
    assert again.read("looks").equals(table)


def test_images_in_clusters_are_not_asked_about(tmp_path):
    given = fields(tmp_path, {"follower": (0.15, True)}, cluster="camera")
    audited = c2b_ray.audit(given, out=tmp_path / "run", via="here")
    assert not audited.has("looks")
    assert not audited.has("look_vectors")


def test_copies_count_once_also_across_classes(tmp_path):
    given = fields(tmp_path, {"follower": (0.15, True)})
    for number in range(0, 60, 2):  # thirty pictures are filed twice, mostly under two classes
        (tmp_path / f"{number + 1}.png").write_bytes((tmp_path / f"{number}.png").read_bytes())
    audited = c2b_ray.audit(given, out=tmp_path / "run", via="here")
    assert {row["images"] for row in audited.read("looks").to_pylist()} == {IMAGES - 30}


def test_of_many_images_a_sample_is_described(tmp_path, monkeypatch):
    monkeypatch.setattr(followed_looks, "MOST_IMAGES", 200)
    audited = c2b_ray.audit(fields(tmp_path, {"follower": (0.15, True)}), out=tmp_path / "run", via="here")
    rows = of(audited, "follower")
    assert rows["background"]["images"] == 200
    assert audited.read("look_vectors").num_rows == rows["texture"]["compared"]


def test_where_no_picture_could_be_described_there_are_no_looks(run, monkeypatch):
    read = C2BRun.read
    monkeypatch.setattr(
        C2BRun, "read", lambda self, name, *more: read(self, name, *more)[: 0 if name == "look_vectors" else None]
    )
    tables = followed_looks._tables(run, run.config, list(run.config.classifiers))
    assert [table.num_rows for table in tables.values()] == [0, 0]
