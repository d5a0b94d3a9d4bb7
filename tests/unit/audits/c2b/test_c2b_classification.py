"""A stage of answers that has nothing left to do: it starts nothing, says so, and drops what is there twice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import c2b_ray
from c2b_ray.audits.c2b.classification import classify
from c2b_ray.audits.c2b.run import C2BRun, load_c2b_run
from c2b_ray.audits.kit.backend import backend
from c2b_ray.engine.images import AuditedClassifier
from c2b_ray.engine.progress import Progress
from c2b_ray.roles import Classifier
from c2b_ray.steps.classify import Classification
from c2b_ray.storage.parts import writing

LABELS = ("red", "blue")
COUNT = 16


def brightness(images: list[Any]) -> Any:
    return np.stack([image.mean(axis=(0, 1))[[0, 2]] for image in images])


@pytest.fixture
def run(tmp_path: Path) -> C2BRun:
    rows = ["image,target_class,light"]
    for n in range(COUNT):
        name = LABELS[n // 2 % 2]
        Image.new("RGB", (20 + n, 20), name).save(tmp_path / f"{n}.png")
        rows.append(f"{n}.png,{name},{('day', 'dark')[n % 2]}")
    (tmp_path / "table.csv").write_text("\n".join(rows))
    images = {"source": "labelled", "table": str(tmp_path / "table.csv")}
    config = {"task": "Tell red from blue.", "classes": list(LABELS), "images": images}
    model = c2b_ray.InMemory(brightness, LABELS, revision="1")
    return load_c2b_run(c2b_ray.audit(config, tmp_path / "run", classifier=model))


def unloadable() -> Classifier:
    raise AssertionError("nothing is left to answer")


def classified(run: C2BRun) -> list[Progress]:
    """Returns what the stage says that answers what is left of the run."""
    name, revision = (run.predictions[column][0].as_py() for column in ("classifier", "revision"))
    question = Classification(name, revision, LABELS, ((0,), (1,)), labels=LABELS)
    told: list[Progress] = []
    with backend("here") as models:
        classify([AuditedClassifier(unloadable, question)], run, models, told.append, None)
    return told


def test_answers_that_are_all_there_are_counted_and_no_stage_runs(run: C2BRun) -> None:
    with writing(run.location("predictions")):  # a stage would not get to write
        assert classified(run) == [Progress(0, 0, COUNT, COUNT, 0.0)]


def test_answers_that_are_there_twice_as_after_a_kill_are_dropped(run: C2BRun) -> None:
    for part in Path(run.location("predictions")).glob("part-*.parquet"):
        shutil.copy(part, part.with_name(f"part-again-{part.name}"))
    assert run.count("predictions") == 2 * COUNT
    assert classified(run)[-1].resumed == COUNT
    assert run.count("predictions") == COUNT
