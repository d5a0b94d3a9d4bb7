"""One class, from labelled rows to scores: right over all labels, classifiers called by their names."""

import csv

import pytest
from labelled_tables import labelled

import c2b_ray
from c2b_ray.audits.c2b.first_look import unanswered
from c2b_ray.audits.c2b.scoring.score import scored
from c2b_ray.audits.c2b.thresholds import Limit, Thresholds
from c2b_ray.config import read_audit
from c2b_ray.errors import ConfigError
from c2b_ray.models import catalog
from c2b_ray.steps.classify import classification, predict
from c2b_ray.steps.draw import fetch
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.world import sample
from c2b_ray.world.table import picture

EACH = 12


def write(path, header, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def test_an_answer_outside_the_only_class_is_wrong_and_named(tmp_path):
    rows = []
    for n in range(2 * EACH):
        weather = ("fog", "clear")[n % 2]
        (tmp_path / f"{n}.png").write_bytes(picture(sample(1, 2000 + n, target_class="bus", weather=weather)[0]))
        rows.append((f"{n}.png", "bus", weather))
    write(tmp_path / "labels.csv", ("image", "target_class", "weather"), rows)
    told = [(image, "snowplow" if weather == "fog" else "bus") for image, _, weather in rows]
    write(tmp_path / "answers.csv", ("file", "label"), told)
    write(tmp_path / "strangers.csv", ("file", "label"), [("else.png", "bus"), ("other.png", "tram")])
    specs = {"fooled": f"table:{tmp_path}/answers.csv", "strange": f"table:{tmp_path}/strangers.csv"}
    images = {"source": "labelled", "table": str(tmp_path / "labels.csv")}
    asked = read_audit({"task": "Find buses.", "classes": ["bus"], "classifier": specs, "images": images})
    table = LabelledTable(str(asked.images.table))
    _, captions, draws, wanted = labelled(table.labels, table.revision, asked.classes, None, Limit(None, 0))
    kept = fetch(wanted, table)
    found = {}
    for name, spec in asked.specs.items():
        classifier = catalog.classifier(spec)
        found[name] = predict(kept, classifier, classification(name, classifier, asked.classes, None, asked.right))
    scores = scored(captions, draws, found["fooled"], ["fooled"], Thresholds(asked.tau, asked.alpha))[0].to_pylist()
    fog = next(row for row in scores if row["bias_class"] == "fog")
    assert (fog["correct"], fog["n"], fog["mistaken_for"], fog["mistaken"]) == (0, EACH, "snowplow", EACH)
    assert fog["verdict"] == "against"
    assert unanswered(draws, kept, found["fooled"], ["fooled"]) is None
    said = unanswered(draws, kept, found["strange"], ["strange"])
    assert f"strange answered 0 of the {2 * EACH} images drawn" in str(said)


def test_an_image_that_was_measured_is_not_advised_to_be_measured(tmp_path):
    (tmp_path / "0.png").write_bytes(picture(sample(1, 2000, target_class="bus")[0]))
    write(tmp_path / "labels.csv", ("image", "target_class"), [("0.png", "bus")])
    write(tmp_path / "answers.csv", ("file", "label"), [("0.png", "bus"), ("1.png", "tram")])
    images = {"source": "labelled", "table": str(tmp_path / "labels.csv")}
    fields = {"task": "Find buses.", "classes": ["bus"], "classifier": f"table:{tmp_path}/answers.csv"}
    for number, more in enumerate(({}, {"properties": True})):
        with pytest.raises(ConfigError, match=r"nothing that was measured can: .*too alike.*and \d+ more") as error:
            c2b_ray.audit({**fields, "images": images | more}, out=tmp_path / str(number), via="here")
        assert "properties" not in str(error.value)
    with pytest.raises(ConfigError, match="properties: true"):
        c2b_ray.audit({**fields, "images": images | {"properties": False}}, out=tmp_path / "run", via="here")
