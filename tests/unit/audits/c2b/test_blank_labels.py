"""Rows of a labelled table without a class or a value: counted and named wherever an audit is told."""

import json

import numpy as np
import pytest
from PIL import Image

from c2b_ray import audit
from c2b_ray.audits.c2b.exports import scores_json
from c2b_ray.audits.c2b.report.summary import summary
from c2b_ray.models.memory_classifier import InMemory


def rows():
    for i in range(24):
        yield f"{i}.png", ("bus", "boat")[i % 2], ("fog", "rain")[i // 12]
    yield from (("a.png", "", "fog"), ("b.png", "  ", "rain"), ("c.png", "bus", ""), ("d.png", "plane", ""))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("blank")
    lines = ["image,target_class,weather"]
    for number, (name, target, weather) in enumerate(rows()):
        Image.fromarray(np.full((8, 8, 3), 9 * number, np.uint8)).save(folder / name)
        lines.append(f"{name},{target},{weather}")
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    config = {
        "task": "Name it.",
        "classes": ["bus", "boat"],
        "images": {"source": "labelled", "table": str(folder / "t.csv")},
    }
    model = InMemory(lambda images: np.eye(2)[[0] * len(images)], labels=["bus", "boat"], output="probabilities")
    told = []
    made = audit(config, folder / "run", "here", told.append, classifier=model)
    return made, [event.step for event in told if event.kind == "warning"]


def test_they_are_said_while_the_audit_runs_and_noted_in_its_manifest(run):
    made, said = run
    assert made.manifest["blank_rows"] == {"target_class": 2, "weather": 1}
    assert said == [
        "2 rows have no target_class, and so are in no cell",
        "1 row has no weather, and so is in no cell of weather",
    ]


def test_they_are_in_both_json_and_on_the_page(run):
    made, _ = run
    assert summary(made).to_json["blank_rows"] == made.manifest["blank_rows"]
    assert json.loads(scores_json(made))["blank_rows"] == made.manifest["blank_rows"]
    with open(made.report, encoding="utf-8") as page:
        html = page.read()
    assert "rows of the labelled table without a value in column target_class" in html
    assert "rows of the labelled table without a value in column weather" in html
