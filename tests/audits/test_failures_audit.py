"""`c2b_ray.find_failures` on the world, without Ray: a planted failure is found and confirmed on fresh seeds."""

from __future__ import annotations

import json
import pathlib
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import c2b_ray
from c2b_ray.audits.failures.report.page import summary
from c2b_ray.endpoint.work.progress import ProgressReporter
from c2b_ray.errors import ConfigError, InputError
from c2b_ray.steps.draw import png
from c2b_ray.storage.run import finished
from c2b_ray.world import CLASSES, Scene, render, sample
from c2b_ray.world.queries import read

renderer = import_module("c2b_ray.world.render")  # `c2b_ray.world.render` is the function

CONFIG = {
    "labels": ["bus"],
    "images": {"generate": {"model": "world:renderer"}},
    "captioner": "world:clip",
    "hierarchy": "world",
    "budget": {"draws": 4000},
}
VALUES = {"lighting": "night", "weather": "snow"}


@pytest.fixture(scope="module")
def scenes():
    with known_renders() as known:
        yield known


def find(scenes, out, listener=None, **changes):
    model = c2b_ray.InMemory(PlantedRenders(scenes, "bus", VALUES, "boat", 0.5), CLASSES, revision="planted")
    return c2b_ray.find_failures({**CONFIG, **changes}, out, listener=listener, classifier={"planted": model})


COUNTED = Counter()
"""What the steps of `run` told at their ends."""
BOOKED = ProgressReporter(lambda report: None, lambda: None)
"""What the shared endpoint counts while `run` is made."""


@pytest.fixture(scope="module")
def run(scenes, tmp_path_factory):
    def listener(event):
        COUNTED.update(event.counts)
        BOOKED(event)

    return find(scenes, tmp_path_factory.mktemp("failures") / "run", listener)


def test_steps_tell_how_many_draws_failed(run):
    rounds = run.rounds.to_pylist()
    for stage in ("discovery", "confirmation"):
        of_stage = [row for row in rounds if row["stage"] == stage]
        for outcome, count in (
            ("failed", sum(row["failures"] for row in of_stage)),
            ("passed", sum(row["draws"] - row["failures"] for row in of_stage)),
        ):
            assert COUNTED[f"{stage} {outcome}"] == count > 0


def test_every_image_that_was_drawn_is_booked_also_those_of_the_confirmation(run):
    spent = run.manifest["spent"]
    assert spent["confirmation test"] > 0
    assert BOOKED.images == sum(spent.values())


def test_the_planted_failure_is_found_and_its_rate_holds_the_truth(run):
    findings = [row for row in run.hypotheses.to_pylist() if row["verdict"] == "failure"]
    said = [{k: v for k, v in read(row["caption"]).items() if k != "target_class"} for row in findings]
    assert VALUES in said
    exact = findings[said.index(VALUES)]
    assert exact["stage"] == "confirmation"
    assert exact["rate_low"] <= 0.5 <= exact["rate_high"]
    assert exact["baseline_rate"] < 0.1 < 1 / exact["p_value"]
    assert exact["q_value"] <= 0.05
    assert sum(run.manifest["spent"].values()) <= 4000
    assert run.manifest["estimate"]["draws"] == [1800, 4000]  # three quarters of discovery, and the whole budget
    assert [one["share"] for one in run.manifest["estimate"]["least_rates"]] == [0.1, 0.02]
    assert run.manifest["dropped_sentences"].keys() <= {"names_label", "names_class", "says_nothing", "repeated"}


def test_the_failures_of_a_kind_are_described_by_what_they_share(run):
    groups = [row["clusters"] for row in run.read("combinations").to_pylist()]
    said = [read(". ".join(clusters[0]["sentences"])).items() for clusters in groups if clusters[0]["sentences"]]
    assert any(VALUES.items() <= one for one in said)
    for clusters in groups:
        assert all(one["scores"] == sorted(one["scores"]) for one in clusters)


def test_discovery_and_confirmation_share_no_draw(run):
    rounds = run.rounds.select(["caption_id", "stage", "part", "first", "draws", "unusable"]).to_pylist()
    taken = {}
    for row in rounds:
        numbers = range(row["first"], row["first"] + row["draws"] + row["unusable"])
        here = taken.setdefault((row["caption_id"], row["stage"]), set())
        assert here.isdisjoint(numbers)
        here.update(numbers)
    assert {row["stage"] for row in rounds} == {"discovery", "confirmation"}


@pytest.mark.long
def test_a_run_that_is_killed_anywhere_ends_with_the_same_table(scenes, run, tmp_path):
    class Killed(BaseException):
        pass

    began = []

    def dies_in_its_second_step(event):
        if event.kind == "begin":
            began.append(event.step)
            if len(began) % 2 == 0:
                raise Killed

    for _ in range(8):
        with pytest.raises(Killed):
            find(scenes, tmp_path / "run", dies_in_its_second_step)
    assert {"describe failures", "draw captions that may fail"} <= set(began)
    again = find(scenes, tmp_path / "run")
    assert again.hypotheses.equals(run.hypotheses)
    assert again.candidates.equals(run.candidates)
    assert find(scenes, tmp_path / "run").hypotheses.equals(run.hypotheses)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"labels": ["tram"], "hierarchy": None}, "no label of planted is 'tram'"),
        ({"budget": {"draws": 0}}, "budget.draws"),
        ({"captions": ["in the snow"]}, "names none of the labels 'bus'"),
        ({"hierarchy": {"boat": "vehicle"}}, "has no label 'bus'"),
        ({"prompt": "a photo"}, "must hold {label}"),
        ({"captioner": None}, "give `captioner`, `captions`, or both"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(scenes, tmp_path, changes, said):
    if isinstance(changes.get("hierarchy"), dict):
        path = tmp_path / "hierarchy.yaml"
        path.write_text(json.dumps(changes["hierarchy"]))
        changes = {"hierarchy": str(path)}
    with pytest.raises(InputError) as refused:
        find(scenes, tmp_path / "run", **changes)
    assert said in str(refused.value)
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_directory_of_another_config_is_refused(scenes, run):
    with pytest.raises(InputError, match=r"another run, [0-9a-f]{20}, and this is [0-9a-f]{20} \(its seed differs\)"):
        find(scenes, run.path, seed=1)


def test_a_classifier_in_memory_answers_here_alone(scenes):
    with pytest.raises(ConfigError, match="via"):
        c2b_ray.find_failures(CONFIG, via="serve", classifier=lambda images: images, labels=CLASSES)


def test_a_question_has_draws_of_its_own_and_leaves_what_was_decided(scenes, tmp_path):
    from c2b_ray.audits.failures.ask import ask

    model = {
        "planted": c2b_ray.InMemory(PlantedRenders(scenes, "bus", VALUES, "boat", 0.5), CLASSES, revision="planted")
    }
    small = {**CONFIG, "budget": {"draws": 1000}}
    run = c2b_ray.find_failures(small, tmp_path / "run", classifier=model)
    before, rounds = run.hypotheses, set(run.rounds["round_id"].to_pylist())
    answered = ask(run, "a bus at night in the snow", 1500, classifier=model)
    first = answered.rows.to_pylist()[0]
    assert (first["verdict"], first["origin"], first["target"]) == ("failure", "person", None)
    assert first["rate_low"] < 0.5 < first["rate_high"]
    after = answered.run.hypotheses
    assert after.slice(0, before.num_rows).equals(before)
    assert after.num_rows > before.num_rows
    drawn = len(set(answered.run.rounds["round_id"].to_pylist()) - rounds)
    again = ask(run, "a bus at night in the snow", classifier=model)
    assert again.rows.equals(answered.rows)
    assert drawn > 0
    assert (answered.is_new, again.is_new) == (True, False)
    known = ask(run, "a bus at night in the snow", 1500, "airplane", classifier=model)
    assert known.is_new
    assert {(row["target"], row["verdict"] == "failure") for row in known.rows.to_pylist()} == {("airplane", False)}
    assert known.run.manifest["questions"] == 2
    after = known.run.hypotheses
    ids = known.run.candidates["caption_id"].to_pylist()
    assert len(ids) == len(set(ids))
    with pytest.raises(ConfigError, match="planted has no label 'boot'; did you mean"):
        ask(run, "a bus at night in the snow", 1500, "boot", classifier=model)
    rerun = c2b_ray.find_failures(small, tmp_path / "run", classifier=model)
    assert str(rerun.hypotheses.to_pylist()) == str(after.to_pylist())  # NaN included
    assert rerun.manifest["questions"] == 2
    with pytest.raises(ConfigError, match="names none of the labels"):
        ask(run, "at night in the snow", classifier=model)


class Interrupted(Exception):
    pass


def test_a_question_that_is_interrupted_leaves_the_run_readable_and_goes_on(scenes, tmp_path):
    """Its run is finished for whoever reads it, and for the next question, which may be the same."""
    from c2b_ray.audits.failures.ask import ask

    model = {
        "planted": c2b_ray.InMemory(PlantedRenders(scenes, "bus", VALUES, "boat", 0.5), CLASSES, revision="planted")
    }
    run = c2b_ray.find_failures({**CONFIG, "budget": {"draws": 1000}}, tmp_path / "run", classifier=model)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    before = run.hypotheses

    def stopping(event):
        if event.kind == "end":
            raise Interrupted

    with pytest.raises(Interrupted):
        ask(run, "a bus at night in the snow", 1500, listener=stopping, classifier=model)
    assert finished(run.path).hypotheses.equals(before)
    drawn = run.rounds.num_rows
    answered = ask(run, "a bus at night in the snow", 1500, classifier=model)
    whole = ask(tmp_path / "copy", "a bus at night in the snow", 1500, classifier=model)
    assert str(answered.rows.to_pylist()) == str(whole.rows.to_pylist())  # NaN included
    assert whole.run.rounds.num_rows == answered.run.rounds.num_rows > drawn
    assert (run.manifest["status"], run.manifest["questions"], run.manifest["asking"]) == ("finished", 1, 0)
    run.update({"status": "running", "asking": 2})  # as where it ended right after the answer was written
    assert not ask(run, "a bus at night in the snow", 1500, classifier=model).is_new
    assert run.manifest["status"] == "finished"


def test_findings_are_tried_elsewhere_and_the_generator_is_verified(scenes, tmp_path):
    model = {
        name: c2b_ray.InMemory(PlantedRenders(scenes, "bus", VALUES, "boat", rate), CLASSES, revision=name)
        for name, rate in (("planted", 0.5), ("sound", 0.0))
    }
    config = {
        **CONFIG,
        "captioner": None,
        "captions": ["a bus at night in the snow"],
        "verifier": "world:clip",
        "budget": {"draws": 1500},
        "generalise": {"generators": ["world:renderer?mislabel=0.1"], "runs": 5, "images": 20},
    }
    table = tmp_path / "photos.parquet"
    pq.write_table(
        pa.table({"image": 3 * [png(render(scene)) for scene in sample(6, 1)], "target_class": ["bus"] * 18}), table
    )
    run = c2b_ray.find_failures({**config, "labelled": str(table)}, tmp_path / "run", classifier=model)
    beside = [row for row in run.transfers.to_pylist() if row["source"] == str(table)]
    assert [(row["classifier"], row["draws"]) for row in beside] == [("planted", 6), ("sound", 6)]
    rows = [row for row in run.transfers.to_pylist() if row["target"] == "boat"]
    assert {(row["classifier"], row["source"]) for row in rows} == {
        (name, source) for name in model for source in ("world:renderer", "world:renderer?mislabel=0.1")
    }
    for row in rows:
        assert row["draws"] == row["baseline_draws"] == 100
        assert len(row["rates"]) == len(row["baseline_rates"]) == 5
        assert (row["p_value"] < 0.05) == (row["classifier"] == "planted")
    trusted = [row for row in run.reliability.to_pylist() if row["attribute"] is None]
    assert [(row["label"], row["images"]) for row in trusted] == [("bus", 67)]
    assert trusted[0]["shown"] > 50


def test_it_says_which_captions_were_tried_and_which_rate_it_would_have_found(run):
    (row,) = run.manifest["caption_search"]["labels"]
    of_caption = {one["caption_id"]: one for one in run.read("candidates").to_pylist() if one["origin"] != "baseline"}
    rounds = run.rounds.to_pylist()
    for name, stage, part in (("screened", "discovery", "search"), ("tested", "confirmation", "test")):
        drawn = {one["caption_id"] for one in rounds if (one["stage"], one["part"]) == (stage, part)}
        assert sum(row[name]) == len(drawn & of_caption.keys()) > 0
    assert sum(row["proposed"]) == len(of_caption)
    assert 0 < row["pairs_not_tried"] < row["pairs"]
    # Half of the images with both values fail: the run found that, and says no more than it can.
    assert 2 * row["usual"] < row["least"] < 0.5
    shown = summary(run)
    assert shown.to_json["caption_search"] == run.manifest["caption_search"]
    assert any("would have been found 4 times in 5, at best" in line for line in shown.lines)
    assert "pairs not drawn" in pathlib.Path(run.report).read_text()


@dataclass(frozen=True)
class PlantedRenders:
    """Answers rightly, except for `target` on a share `rate` of the images of `label` that show `values`."""

    scenes: dict[bytes, Scene]
    label: str
    values: Mapping[str, str]
    target: str
    rate: float

    def __call__(self, images: list[np.ndarray]) -> np.ndarray:
        logits = np.zeros((len(images), len(CLASSES)), np.float32)
        for row, image in enumerate(images):
            logits[row, CLASSES.index(self._answer(image.tobytes()))] = 9
        return logits

    def _answer(self, image: bytes) -> str:
        scene = self.scenes.get(image)
        if scene is None:  # pictures on which models in memory are tried first
            return CLASSES[0]
        planted = scene.target_class == self.label and all(scene.attribute(k) == v for k, v in self.values.items())
        return self.target if planted and Random(image).random() < self.rate else scene.target_class


@contextmanager
def known_renders() -> Iterator[dict[bytes, Scene]]:
    """Records the scene of every image that `world:renderer` renders in this process while the block runs."""
    scenes: dict[bytes, Scene] = {}
    plain = renderer.render

    def noted(scene: Scene) -> np.ndarray:
        image = plain(scene)
        scenes[image.tobytes()] = scene
        return image

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(renderer, "render", noted)
        yield scenes
