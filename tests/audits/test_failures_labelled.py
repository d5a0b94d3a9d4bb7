"""`c2b_ray.find_failures` on labelled images: captions are values of columns, and no image is in two parts."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from PIL import Image

import c2b_ray
from c2b_ray.audits.failures.discovery.value_sets import Condition
from c2b_ray.audits.failures.estimate import estimate
from c2b_ray.audits.failures.report.page import summary
from c2b_ray.errors import ConfigError

LABELS = ("bus", "boat", "mug")
LIGHTING, WEATHER = ("day", "night"), ("clear", "snow", "fog")


def picture(label, light, weather, number):
    image = np.random.default_rng(number).integers(0, 256, (8, 8, 3), np.uint8)  # no two are copies
    image[0, :3, 0] = LABELS.index(label) * 40, LIGHTING.index(light) * 40, WEATHER.index(weather) * 40
    image[1, 0, 0] = number % 200 + 20
    data = BytesIO()
    Image.fromarray(image).save(data, "PNG")
    return data.getvalue()


def answer(images):
    """Buses at night in snow are boats; of all images a twentieth is a mug, whatever it shows."""
    logits = np.zeros((len(images), 3), np.float32)
    for row, image in enumerate(images):
        label, light, weather = (int(code) // 40 for code in image[0, :3, 0])
        shown = 1 if (label, light, weather) == (0, 1, 1) else 2 if image[1, 0, 0] % 20 == 0 else label
        logits[row, shown % 3] = 9
    return logits


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("labelled") / "images.parquet"
    random = np.random.default_rng(0)
    rows = [
        {"image": picture(label, light, weather, number), "target_class": label, "lighting": light, "weather": weather}
        for number in range(900)
        for label, light, weather in [(random.choice(LABELS[:2]), random.choice(LIGHTING), random.choice(WEATHER))]
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def find(table, out, **changes):
    config = {"labels": ["bus", "boat"], "images": {"labelled": {"table": str(table)}}, **changes}
    model = c2b_ray.InMemory(answer, LABELS, revision="planted")
    return c2b_ray.find_failures(config, out, classifier={"planted": model})


def test_values_of_columns_that_fail_are_found_tested_and_measured_on_different_images(table, tmp_path):
    run = find(table, tmp_path / "run")
    rows = run.hypotheses.to_pylist()
    findings = {(row["label"], row["caption"], row["target"]): row for row in rows if row["verdict"] == "failure"}
    pair = findings["bus", "images of bus. its lighting is night. its weather is snow.", "boat"]
    assert pair["failures"] == pair["draws"] > 20
    assert (pair["baseline_failures"], pair["baseline_rate"]) == (0, 0)
    assert not [row for row in findings.values() if row["target"] == "mug"]
    label = Condition("bus").caption.caption_id
    rounds = [row for row in run.read("rounds").to_pylist() if row["caption_id"] == label]
    buses = sum(label == "bus" for label in pq.read_table(table)["target_class"].to_pylist())
    assert sum(row["draws"] for row in rounds) == buses
    assert {row["part"] for row in rounds} == {"search", "test", "measure"}
    kept = [(one["key"], one["seed"]) for row in run.read("rounds").to_pylist() for one in row["examples"]]
    assert kept
    assert all(key == f"row {row}" for key, row in kept)  # the table holds the bytes, so that no image has a file
    measured = next(row for row in rounds if row["part"] == "measure")
    assert pair["draws"] + pair["baseline_draws"] == measured["draws"] < buses / 2
    assert "its lighting is night" in Path(run.report).read_text()
    assert find(table, tmp_path / "run").hypotheses.equals(run.hypotheses)


def test_copies_of_an_image_are_one_images_evidence(tmp_path):
    random = np.random.default_rng(0)
    rows = []
    for number in range(80):
        image = random.integers(0, 256, (8, 8, 3), np.uint8)
        image[0, 0] = number % 2 * 200, (random.random() < 0.3) * 200, 0  # what it shows, and whether that is missed
        data = BytesIO()
        Image.fromarray(image).save(data, "PNG")
        row = {"image": data.getvalue(), "target_class": LABELS[number % 2], "site": str(random.choice(list("ABCD")))}
        rows += [row] * 12
    random.shuffle(rows)

    def misses_some(images):
        shown = [int(image[0, 0, 0] > 100) ^ int(image[0, 0, 1] > 100) for image in images]
        return np.eye(2, dtype=np.float32)[shown] * 9

    def found(rows, name):
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{name}.parquet")
        config = {"labels": list(LABELS[:2]), "images": {"labelled": {"table": str(tmp_path / f"{name}.parquet")}}}
        model = c2b_ray.InMemory(misses_some, LABELS[:2], revision="1")
        return c2b_ray.find_failures(config, tmp_path / name, classifier={"model": model})

    run = found(rows, "copied")
    assert not [row for row in run.hypotheses.to_pylist() if row["verdict"] == "failure"]
    assert (run.manifest["spent"]["labelled images"], run.manifest["copies"]) == (80, 880)
    assert "880 copies of others count for nothing" in Path(run.report).read_text()
    first = {row["image"]: row for row in reversed(rows)}
    once = found(list(reversed(first.values())), "once")
    of_both = [{row["caption"] for row in one.hypotheses.to_pylist()} for one in (run, once)]
    assert all(of_both)  # captions were tested
    answers = [
        sorted((row["predicted"], row["failed"]) for row in one.read("answers").to_pylist()) for one in (run, once)
    ]
    assert answers[0] == answers[1]


def picture_of(random, *shown):
    """A smooth picture without details, whose upper left corner is light or dark in red and in green."""
    colours = random.integers(60, 200, (5, 5, 3), np.uint8)
    colours[:2, :2, :2] = 60 + 120 * np.array(shown)
    return np.asarray(Image.fromarray(colours).resize((64, 64), Image.Resampling.BICUBIC))


def saved(pixels, size, quality):
    """A picture saved again: at this size, as JPEG of this quality, or as PNG (quality 0)."""
    data, image = BytesIO(), Image.fromarray(pixels).resize((size, size), Image.Resampling.LANCZOS)
    image.save(data, "JPEG" if quality else "PNG", quality=quality or None)
    return data.getvalue()


def test_pictures_that_were_saved_again_are_one_pictures_evidence_too(tmp_path):
    """Eighty pictures, each at four sizes and three qualities: 960 files, of which twelve in a row fail or do not."""
    random = np.random.default_rng(3)
    rows = []
    for number in range(80):
        pixels = picture_of(random, number % 2, random.random() < 0.3)
        row = {"target_class": LABELS[number % 2], "site": str(random.choice(list("ABCD")))}
        rows += [row | {"image": saved(pixels, size, q)} for size in (64, 80, 96, 128) for q in (0, 90, 95)]
    random.shuffle(rows)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "images.parquet")

    def misses_some(images):
        shown = [int(image[4, 4, 0] > 100) ^ int(image[4, 4, 1] > 100) for image in images]
        return np.eye(2, dtype=np.float32)[shown] * 9

    config = {"labels": list(LABELS[:2]), "images": {"labelled": {"table": str(tmp_path / "images.parquet")}}}
    model = c2b_ray.InMemory(misses_some, LABELS[:2], revision="1")
    run = c2b_ray.find_failures(config, tmp_path / "run", classifier={"model": model})
    assert (run.manifest["spent"]["labelled images"], run.manifest["copies"]) == (80, 880)
    assert run.hypotheses.num_rows
    assert not [row for row in run.hypotheses.to_pylist() if row["verdict"] == "failure"]


def test_a_picture_with_several_values_counts_once_on_each_side_and_lies_in_one_part(tmp_path):
    """Each of 120 pictures as it is, saved again, and half as large, which the classifier misses; a site is chance."""
    random, rows = np.random.default_rng(4), []
    for number in range(120):
        pixels = picture_of(random, number % 2, False)
        row = {"target_class": LABELS[number % 2], "site": str(random.choice(list("AB")))}
        for saving, (size, quality) in {"none": (64, 0), "jpeg": (64, 92), "small": (32, 0)}.items():
            rows.append(row | {"image": saved(pixels, size, quality), "saving": saving})
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "images.parquet")

    def misses_small_ones(images):
        shown = [int(image[4, 4, 0] > 100) ^ int(len(image) == 32) for image in images]
        return np.eye(2, dtype=np.float32)[shown] * 9

    config = {"labels": list(LABELS[:2]), "images": {"labelled": {"table": str(tmp_path / "images.parquet")}}}
    model = c2b_ray.InMemory(misses_small_ones, LABELS[:2], revision="1")
    run = c2b_ray.find_failures(config, tmp_path / "run", classifier={"model": model})
    rows = [row for row in run.hypotheses.to_pylist() if row["label"] == "bus" and row["target"] == "boat"]
    found = [row for row in rows if row["caption"] == "images of bus. its saving is small."]
    assert {row["stage"] for row in found if row["verdict"] == "failure"} == {"confirmation"}
    assert sum(row["spent"] for row in found) == 60  # of all three parts, no picture twice
    assert [row["draws"] for row in found] == [row["baseline_draws"] for row in found]
    assert all((row["rate"], row["baseline_rate"]) == (1, 0) for row in found)
    assert (run.manifest["spent"]["labelled images"], run.manifest["copies"]) == (360, 0)
    assert "240 copies of others, with other values" in Path(run.report).read_text()


def test_targets_of_all_labels_together_can_be_named(table, tmp_path):
    targets = {"any label": ["boat"], "bus": ["boat"], "boat": ["mug"]}
    rows = find(table, tmp_path / "run", targets=targets).hypotheses.to_pylist()
    assert {row["target"] for row in rows if row["label"] == "any label"} == {"boat"}
    with pytest.raises(ConfigError, match="targets"):
        find(table, tmp_path / "other", targets={"tram": ["boat"]})


def test_the_estimate_refuses_what_the_run_refuses(tmp_path):
    for label in ("bus", "boat"):
        (tmp_path / label).mkdir()
        (tmp_path / label / "0.png").write_bytes(picture("bus", "day", "fog", 1))
    config = {"labels": ["bus", "boat"], "classifier": "world:resnet-control-0"}
    config |= {"images": {"labelled": {"table": str(tmp_path)}}}
    for act in (estimate, lambda fields: c2b_ray.find_failures(fields, tmp_path / "run")):
        with pytest.raises(ConfigError, match="no column beside image and target_class can be an attribute"):
            act(config)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="labels: no row of the labelled table has target_class 'mug'"):
        estimate({**config, "labels": ["mug", "boat"]})


def test_the_estimate_counts_the_images_of_the_run_s_labels(table, tmp_path):
    """Buses are half of the images; the others are neither classified nor counted. Images beside a generator are."""
    answers = pa.table({"file": ["a", "b"], "label": ["bus", "boat"]})
    pq.write_table(answers, tmp_path / "answers.parquet")
    config = {"labels": ["bus"], "classifier": f"table:{tmp_path}/answers.parquet", "budget": {"draws": 1000}}
    buses = pq.read_table(table)["target_class"].to_pylist().count("bus")
    costs = estimate({**config, "images": {"labelled": {"table": str(table)}}})
    assert [(cost.least, cost.most) for cost in costs] == [(buses, buses)]
    run = find(table, tmp_path / "run", labels=["bus"])
    assert run.manifest["spent"]["labelled images"] == buses < 900
    generated = {**config, "captions": ["a bus at night"], "images": {"generate": {"model": "world:renderer"}}}
    alone, beside = (estimate(config)[-1] for config in (generated, {**generated, "labelled": str(table)}))
    assert (beside.least - alone.least, beside.most - alone.most) == (buses, buses)


def test_a_label_that_no_row_has_and_a_captioner_are_refused(table, tmp_path):
    with pytest.raises(ConfigError, match="mug"):
        find(table, tmp_path / "run", labels=["mug"])
    with pytest.raises(ConfigError, match="`captioner` is for generated images"):
        find(table, tmp_path / "run", captioner="world:clip")


def test_a_run_says_what_was_tried_and_what_it_would_have_found(table, tmp_path):
    run = find(table, tmp_path / "run")
    search = run.manifest["search"]
    assert (search["columns"], search["most_columns"], search["tried"][2]) == (2, 3, 0)  # two columns have no triples
    assert min(search["tried"][:2]) > 0
    assert search["tested"] == run.hypotheses.filter(pc.equal(run.hypotheses["stage"], "confirmation")).num_rows
    bus, boat, _ = (row for row in search["labels"])
    assert (bus["label"], boat["label"]) == ("bus", "boat")
    common, rare = (one["rates"] for one in boat["least"])
    assert boat["usual"] < common[0] < common[1] < 1
    assert rare[0] is None or rare[0] > common[0]
    lines = " ".join(summary(run).lines)
    assert "Causes of up to 3 values were searched for in the table’s 2 columns" in lines
    assert "4 times in 5" in lines
    page = Path(run.report).read_text()
    assert "What this run would have found" in page
    assert "1 in 10 shows it, 80" in page
