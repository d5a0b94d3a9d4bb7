"""Trainings take the proportions that they are to take, go on where they ended, and save what loads again."""

from __future__ import annotations

import json
from io import BytesIO
from itertools import islice

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from synthetic_dataset import Recipe as DatasetRecipe
from synthetic_dataset import write_dataset

from c2b_ray.audits.dataset import harden as hardening
from c2b_ray.audits.dataset.harden import TRAINED, Hardening, harden, summary_of
from c2b_ray.audits.dataset.harden_images import CleanImages, _apart
from c2b_ray.audits.kit.session import Session
from c2b_ray.errors import ConfigError, RunError, SourceError, SpecError
from c2b_ray.models import catalog
from c2b_ray.models.training import Pool, Recipe, batches
from c2b_ray.stats import paired_difference_interval
from c2b_ray.storage.failure_dataset import open_dataset
from c2b_ray.world.render import render
from c2b_ray.world.scenes import sample

HERE = Session("here")
QUICK = Hardening("finetune", seeds=1, steps=2, batch=8)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    location = tmp_path_factory.mktemp("failures") / "dir"
    write_dataset(location, DatasetRecipe(rows_per_caption=6))
    return str(location)


def test_a_twentieth_of_all_rows_is_of_the_dataset_and_no_row_comes_twice_before_all_came():
    drawn = list(islice(batches((1000, 30), Recipe(100, 96, 1.0), np.random.default_rng(0)), 100))
    clean, more = (np.concatenate(rows) for rows in zip(*drawn, strict=True))
    assert all(len(a) + len(b) == 96 for a, b in drawn)
    assert len(more) == 480
    assert np.array_equal(np.sort(more[:30]), np.arange(30))
    assert np.array_equal(np.sort(clean[:1000]), np.arange(1000))
    alone = next(batches((1000, 0), Recipe(100, 96, 1.0), np.random.default_rng(0)))
    assert [len(rows) for rows in alone] == [96, 0]


def test_a_hardened_classifier_loads_and_answers_as_was_counted(dataset, tmp_path, monkeypatch):
    out = str(tmp_path / "out")
    trained, fit = [], hardening.fit

    def dies_at_the_second(*arguments):
        if len(trained) == 1:
            trained.append("dies")
            raise KeyboardInterrupt
        trained.append("fits")
        return fit(*arguments)

    monkeypatch.setattr(hardening, "at_once", lambda: 1)
    monkeypatch.setattr(hardening, "fit", dies_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        harden(dataset, out, clean=CleanImages("world:100"), options=QUICK, session=HERE)
    result = harden(dataset, out, clean=CleanImages("world:100"), options=QUICK, session=HERE)
    assert trained == ["fits", "dies", "fits"]  # the first training was kept
    row = next(row for row in result.trainings.to_pylist() if row["arm"] == "with")
    classifier = catalog.classifier(row["spec"])
    _, parts = hardening.split_of(open_dataset(dataset), None, 0.2)
    rows = [
        row
        for t in open_dataset(dataset).tables([s.name for s in open_dataset(dataset).shards])
        for row in t.to_pylist()
    ]
    held_out = [row for row, test in zip(rows, parts.test, strict=True) if test]
    from c2b_ray.steps.decode import decode

    logits = classifier.logits([decode(row["image"]) for row in held_out], [row["image_id"] for row in held_out])
    right = [classifier.labels[k] == row["label"] for k, row in zip(logits.argmax(axis=1), held_out, strict=True)]
    assert (sum(right), len(right)) == (row["dataset_right"], row["dataset_images"])
    known = json.loads((tmp_path / "out" / "results.json").read_text())
    assert known["accuracy"]["with"]["dataset"]["mean"] == sum(right) / len(right)
    page = (tmp_path / "out" / "index.html").read_text()
    assert "Trained with the dataset" in page
    assert f"Of {len(right)} failures that no training saw, " in page
    assert "after training on clean images alone" in page
    with pytest.raises(RunError, match="other settings"):
        harden(dataset, out, clean=CleanImages("world:200"), options=QUICK, session=HERE)


def test_what_is_measured_on_is_trained_on_nowhere():
    pictures = np.stack([render(scene) for scene in sample(12, 5)])
    numbers = np.arange(12)

    def pool(*rows):
        return Pool(pictures[list(rows)], numbers[list(rows)])

    # Of ten photos 8 and 9 are held out; the dataset holds the failures 5 to 8, of which 5 is held out.
    images = _apart(pool(0, 1, 2, 3, 4, 5, 6, 7), pool(8, 9), pool(6, 7, 8), pool(5))
    assert images.clean.labels.tolist() == [0, 1, 2, 3, 4, 6, 7]
    assert np.array_equal(images.clean.images[np.arange(7)], pictures[[0, 1, 2, 3, 4, 6, 7]])
    assert images.dataset.labels.tolist() == [6, 7]
    assert (images.clean_left_out, images.dataset_left_out) == (1, 1)
    apart = _apart(pool(0, 1), pool(2), pool(3), pool(4))
    assert (len(apart.clean), len(apart.dataset), apart.clean_left_out, apart.dataset_left_out) == (2, 1, 0, 0)
    with pytest.raises(SourceError, match="all failures to train on are images that accuracy is measured on"):
        _apart(pool(0, 1), pool(2), pool(2), pool(4))


def saved_again(pixels):
    sink = BytesIO()
    Image.fromarray(pixels).save(sink, "JPEG", quality=85)
    return np.asarray(Image.open(sink))


COPIES = {
    "saved again": saved_again,
    "moved": lambda pixels: np.concatenate([pixels[:, :1], pixels[:, :-1]], axis=1),
    "mirrored": lambda pixels: pixels[:, ::-1],
    "lighter": lambda pixels: np.minimum(pixels, 240) + 15,
}


@pytest.mark.parametrize("change", COPIES)
def test_copies_of_what_is_measured_on_are_trained_on_nowhere(change):
    pictures = np.stack([render(scene) for scene in sample(60, 6)])
    copies = np.stack([COPIES[change](picture) for picture in pictures])
    clean = Pool(np.concatenate([pictures[:20], copies[20:60]]), np.arange(60))
    dataset = Pool(copies[10:30], np.arange(20))
    # Measured on: clean 20 to 39, and failures 40 to 59.
    images = _apart(clean, Pool(pictures[20:40], np.arange(20)), dataset, Pool(pictures[40:60], np.arange(20)))
    # Nearly all copies are recognised, and no other picture is taken for one.
    assert images.clean_left_out >= 38
    assert images.clean.labels.tolist()[:20] == list(range(20))
    assert images.dataset_left_out >= 9
    assert images.dataset.labels.tolist()[:10] == list(range(10))


def test_means_and_gains_are_over_seeds():
    def row(arm, seed, clean, failures):
        counts = {"clean_right": clean, "clean_images": 100, "dataset_right": failures, "dataset_images": 10}
        counts |= {"clean_left_out": 0, "dataset_left_out": 0}
        answers = {
            "clean_answers": [i < clean for i in range(100)],
            "dataset_answers": [i < failures for i in range(10)],
        }
        return {
            "training_id": f"{arm}{seed}",
            "arm": arm,
            "seed": seed,
            **counts,
            **answers,
            "model": None,
            "spec": None,
            "seconds": 1.0,
        }

    rows = [row("as_it_is", 0, 90, 0), row("with", 0, 92, 8), row("with", 1, 90, 10), row("without", 0, 91, 2)]
    rows.append(row("without", 1, 91, 4))
    result = summary_of(pa.Table.from_pylist(rows, TRAINED), {}, np.arange(10))
    assert result.dataset["with"].mean == pytest.approx(0.9)
    assert result.dataset["with"].sd == pytest.approx(0.2 / 2**0.5)  # deviations of .1 either way, over n - 1 = 1
    assert result.gains["without"]["dataset"].mean == pytest.approx(0.6)
    # The same gain at either seed: what is left are the images, 6 of 10 of which only trainings with them get right.
    low, high = paired_difference_interval(0, 6, 10)
    assert result.gains["without"]["dataset"].low == pytest.approx(float(low), abs=1e-3)
    assert result.gains["without"]["dataset"].high == pytest.approx(float(high), abs=1e-3)
    assert result.gains["as_it_is"]["clean"].mean == pytest.approx(0.01)
    over_seeds = 12.7062 * 0.01  # t(.975, 1)
    over_images = float(paired_difference_interval(0, 1, 100)[1]) - 0.01
    assert result.gains["as_it_is"]["clean"].high == pytest.approx(0.01 + np.hypot(over_seeds, over_images), abs=1e-4)


def test_a_gain_on_three_images_is_not_told_as_certain():
    """Both seeds answer all three right, which were all wrong before: 1 of 3 captions more or fewer would change it."""
    right, wrong = np.ones((2, 3)), np.zeros((1, 3))
    gain = hardening._gain(right, wrong, np.array([4, 5, 6]))
    assert gain.mean == gain.high == 1
    assert gain.low < 0.5
    of_one_caption_each = hardening._gain(np.ones((2, 40)), np.zeros((1, 40)), np.arange(40))
    assert 0.8 < of_one_caption_each.low < 1


@pytest.mark.long
@pytest.mark.parametrize(("over_as_it_is", "over_without", "said"), [(0.4, 0.1, 1), (0.4, 0.3, 0), (-0.1, -0.06, 0)])
def test_a_gain_of_training_anew_is_told_where_there_is_a_gain(over_as_it_is, over_without, said):
    unknown = {"low": None, "high": None}
    gains = {
        arm: {name: {"mean": mean, **unknown} for name in ("clean", "dataset")}
        for arm, mean in (("as_it_is", over_as_it_is), ("without", over_without))
    }
    sentences = hardening.gain_sentences(gains)
    assert sum(sentence.startswith("Most of the gain") for sentence in sentences) == said


def test_only_the_classifiers_own_failures_harden_it_and_the_builds_label_map_is_used(tmp_path):
    members = ("world:resnet-planted-1", "world:resnet-planted-0")
    write_dataset(tmp_path / "dir", DatasetRecipe(members, rows_per_caption=6, labels={"bus": "coach"}))
    about = json.loads((tmp_path / "dir" / "dataset.json").read_text())
    with pytest.raises(ConfigError, match="has 2 classifiers"):
        harden(
            str(tmp_path / "dir"), str(tmp_path / "out"), clean=CleanImages("world:100"), options=QUICK, session=HERE
        )
    about["config"]["classifier"] = {members[0]: members[0], members[1]: members[1]}
    (tmp_path / "dir" / "dataset.json").write_text(json.dumps(about))
    with pytest.raises(ConfigError, match="is 'coach'"):
        harden(str(tmp_path / "dir"), str(tmp_path / "out"), members[1], CleanImages("world:100"), QUICK, HERE)
    about["config"]["label_map"] = {"coach": ["bus"]}  # clean images call it by the output's own name
    (tmp_path / "dir" / "dataset.json").write_text(json.dumps(about))
    other = harden(str(tmp_path / "dir"), str(tmp_path / "other"), members[1], CleanImages("world:100"), QUICK, HERE)
    assert other.about["split"]["rows"] == 12
    result = harden(str(tmp_path / "dir"), str(tmp_path / "out"), members[0], CleanImages("world:100"), QUICK, HERE)
    assert result.about["split"]["rows"] == 24  # of 36, the others are coaches that only the other one fails


def test_what_cannot_be_trained_is_named(dataset, tmp_path):
    with pytest.raises(SpecError, match="can be trained here"):
        harden(dataset, str(tmp_path / "out"), "http://localhost:1", CleanImages("world:100"), QUICK, session=HERE)
    with pytest.raises(ConfigError, match="name what timm:resnet18 was trained on"):
        harden(dataset, str(tmp_path / "out"), "timm:resnet18", session=HERE)
    with pytest.raises(ConfigError, match="neither retrain nor finetune"):
        Hardening("tune")
