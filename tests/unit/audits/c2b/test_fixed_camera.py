"""Photographs of a fixed camera, which look like copies of one picture: its labels tell that they are none."""

import csv
import io

import numpy as np
import pytest
from PIL import Image

import c2b_ray


@pytest.fixture
def labelled(tmp_path):
    """Eighty photographs of one place, half of them with a mark of a few pixels; the classifier is wrong at night."""
    noise, place = np.random.default_rng(0), np.linspace(40, 200, 96)[None, :, None].repeat(96, 0).repeat(3, 2)
    photographs, answers = [["image", "target_class", "shift"]], [["file", "label"]]
    for number in range(80):
        marked, night = bool(number % 2), number >= 40
        picture = place + noise.normal(0, 3, place.shape)
        picture[20:24, 30:34] += 40 * marked
        Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(tmp_path / f"{number}.png")
        photographs.append([f"{number}.png", "marked" if marked else "plain", "night" if night else "day"])
        answers.append([f"{number}.png", "marked" if marked != night else "plain"])
    for name, rows in (("labels", photographs), ("answers", answers)):
        text = io.StringIO()
        csv.writer(text).writerows(rows)
        (tmp_path / f"{name}.csv").write_text(text.getvalue())
    return tmp_path


def audited(labelled, classes):
    images = {"source": "labelled", "table": str(labelled / "labels.csv")}
    config = {"task": "t", "classes": classes, "classifier": f"table:{labelled / 'answers.csv'}", "images": images}
    return c2b_ray.audit(config, labelled / "-".join(classes), via="here")


def test_photographs_of_several_classes_count_each(labelled):
    run = audited(labelled, ["marked", "plain"])
    rows = run.scores.to_pylist()
    assert [(row["n"], row["repeats"]) for row in rows] == [(20, 0)] * 4
    assert {row["bias_class"]: row["verdict"] for row in rows} == {"day": "for", "night": "against"}
    assert len(run.wrong_answers()) == 40


def test_photographs_of_one_class_may_be_copies_and_the_summary_says_so(labelled):
    run = audited(labelled, ["plain"])
    assert [(row["n"], row["repeats"]) for row in run.scores.to_pylist()] == [(1, 19)] * 2
    assert "most images are left out as near-duplicates" in run.kind.summarise(run).to_json["cautions"][0]
