"""A labelled audit looks at some images of all classes first, and stops where its classifier is set up wrongly."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import c2b_ray
from c2b_ray.audits.c2b import first_look
from c2b_ray.audits.runs import summary
from c2b_ray.engine.here import InProcess
from c2b_ray.errors import ConfigError
from c2b_ray.models import catalog
from c2b_ray.roles import ModelFact
from c2b_ray.world.table import write_sample

PLACES = {"sound": 0, "shifted": 1}


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    path = tmp_path_factory.mktemp("scenes") / "scenes.parquet"
    write_sample(path, 700, 1007)
    return path


@pytest.fixture(scope="module")
def control():
    return catalog.classifier("world:resnet-control-0")


def config(scenes, control, **more):
    return {
        "task": "Name the thing.",
        "classes": list(control.labels),
        "attributes": {"weather": ["clear", "fog"]},
        "images": {"source": "labelled", "table": str(scenes)},
        **more,
    }


def in_memory(control, places, calls=None):
    def model(images):
        if calls is not None:
            calls.append(len(images))
        return np.roll(control.logits(list(images), [""] * len(images)), places, 1)

    return c2b_ray.InMemory(model, labels=list(control.labels), revision=f"shifted by {places}")


def test_a_hopeless_audit_stops_and_goes_on_where_it_is_told_to(scenes, control, tmp_path, monkeypatch):
    monkeypatch.setattr(first_look, "IMAGES", 150)
    warned, out = [], tmp_path / "run"

    def heard(event):
        if event.kind == "warning":
            warned.append(event.step)

    for _ in range(2):  # the same command again, as after an interruption
        with pytest.raises(ConfigError, match=r"1 place after the right one.*first look at \d+ images.*`check: false`"):
            c2b_ray.audit(config(scenes, control), out, "here", heard, classifier=in_memory(control, 1))
    manifest = json.loads((out / "run.json").read_text())
    assert manifest["status"] == "failed"
    assert manifest["setup"][0]["kind"] == "shifted"
    run = c2b_ray.audit(config(scenes, control, check=False), out, "here", heard, classifier=in_memory(control, 1))
    assert [row["hopeless"] for row in run.manifest["setup"]] == [True]
    told = summary(run)
    assert told.first[0].startswith("set-up: ")
    assert told.to_json["setup"][0]["kind"] == "shifted"
    page = Path(run.report).read_text()
    assert page.index("The set-up looks wrong") < page.index('id="found"')
    assert "Until then nothing below says anything about the classifier" in page


def test_a_sound_audit_answers_no_image_twice(scenes, control, tmp_path, monkeypatch):
    monkeypatch.setattr(first_look, "IMAGES", 100)
    calls = []
    run = c2b_ray.audit(config(scenes, control), tmp_path / "a", "here", classifier=in_memory(control, 0, calls))
    images = len(run.draws["image_id"].unique())
    assert run.predictions.num_rows == images == run.count("images")
    assert run.manifest["setup"] == []
    other = c2b_ray.audit(
        config(scenes, control, check=False), tmp_path / "b", "here", classifier=in_memory(control, 0)
    )
    assert other.scores.equals(run.scores)
    assert other.manifest["run_id"] == run.manifest["run_id"]


def test_one_stage_looks_first_where_each_stage_loads_its_models(scenes, control, tmp_path, monkeypatch):
    """As on Ray: a stage of its own for the first look loaded every model twice."""
    monkeypatch.setattr(first_look, "IMAGES", 60)
    kept, loads = InProcess.run, []

    def loading(self, rows, step, role_factory, *arguments, **more):
        def load():
            loads.append(1)
            return role_factory()

        return kept(self, rows, step, load, *arguments, **{**more, "config": replace(more["config"], rows_per_file=64)})

    monkeypatch.setattr(InProcess, "run", loading)
    monkeypatch.setattr(InProcess, "loads_anew", property(lambda self: True, lambda self, value: None), raising=False)
    for name, budget in (("all", {}), ("budget", {"budget": {"images": 400, "first": 20}})):
        del loads[:]
        out = tmp_path / name
        for _ in range(2):  # the same command again, as after an interruption
            with pytest.raises(ConfigError, match=r"1 place after the right one.*first look at 60 images"):
                c2b_ray.audit(config(scenes, control, **budget), out, "here", classifier=in_memory(control, 1))
        assert len(loads) == 1  # the second time all answers are there
        run = c2b_ray.load_run(out)
        assert run.count("draws") == 60
        answered = run.predictions["image_id"].to_pylist()
        assert 60 <= len(answered) < 400  # of those that came with them, some are answered too
        assert set(run.draws["image_id"].to_pylist()) <= set(answered)
    del loads[:]
    run = c2b_ray.audit(config(scenes, control), tmp_path / "sound", "here", classifier=in_memory(control, 0))
    assert len(loads) == 1
    monkeypatch.undo()
    other = c2b_ray.audit(config(scenes, control), tmp_path / "other", "here", classifier=in_memory(control, 0))
    assert other.scores.equals(run.scores)
    assert other.draws.equals(run.draws)
    assert sorted(other.predictions["prediction_id"].to_pylist()) == sorted(
        run.predictions["prediction_id"].to_pylist()
    )


def test_the_first_images_are_of_all_classes_and_no_first_rows(scenes, control, tmp_path, monkeypatch):
    monkeypatch.setattr(first_look, "IMAGES", 50)
    seen = {}

    def note(config, run, askings, runner, steps):
        seen["draws"] = run.draws
        seen["captions"] = run.captions

    monkeypatch.setattr("c2b_ray.audits.c2b.audit.refuse_hopeless", note)
    for budget in ({}, {"budget": {"images": 400, "first": 20}}):
        c2b_ray.audit(
            config(scenes, control, **budget), tmp_path / f"{bool(budget)}", "here", classifier=in_memory(control, 0)
        )
        target = dict(
            zip(*(seen["captions"][name].to_pylist() for name in ("caption_id", "target_class")), strict=True)
        )
        rows = set(zip(*(seen["draws"][name].to_pylist() for name in ("image_id", "caption_id")), strict=True))
        of = {name: len({image for image, caption in rows if target[caption] == name}) for name in control.labels}
        assert set(of.values()) == {5}


def test_one_classifier_of_several_is_warned_of(scenes, control, tmp_path, monkeypatch):
    monkeypatch.setattr(first_look, "IMAGES", 150)
    warned = []
    run = c2b_ray.audit(
        config(scenes, control), tmp_path / "run", "here",
        lambda event: warned.append(event.step) if event.kind == "warning" else None,
        classifier={name: in_memory(control, places) for name, places in PLACES.items()},
    )  # fmt: skip
    assert any(text.startswith("shifted: ") for text in warned)
    assert [row["classifier"] for row in run.manifest["setup"]] == ["shifted"]
    assert summary(run).first[0].startswith("set-up: shifted: ")


def test_settings_are_noted_and_assumed_ones_warned_of(scenes, control, tmp_path, monkeypatch):
    held = in_memory(control, 0)
    facts = (
        ModelFact("normalisation", "mean 0.5 and std 0.5", "ImageNet's usual ones", assumed=True, option="mean"),
        ModelFact("label names", "10, bus to bicycle", "labels="),
    )
    warned = []
    stated = property(lambda self: facts, lambda self, value: None)
    monkeypatch.setattr("c2b_ray.models.memory_classifier.MemoryClassifier.facts", stated, raising=False)
    run = c2b_ray.audit(
        config(scenes, control, check=False), tmp_path / "run", "here",
        lambda event: warned.append(event.step) if event.kind == "warning" else None,
        classifier=held,
    )  # fmt: skip
    said = "normalisation is assumed to be mean 0.5 and std 0.5 (ImageNet's usual ones); `mean=` in its spec states it"
    assert f"model: {said}" in warned
    assert not any("label names" in text for text in warned)
    (entry,) = (value for name, value in run.manifest["models"].items() if name.startswith("classifier "))
    assert [fact["name"] for fact in entry["facts"]] == ["normalisation", "label names"]
    page = Path(run.report).read_text()
    assert page.index("1 setting of the models is assumed") < page.index('id="found"')
    assert "Settings of the models, and where each was read" in page
