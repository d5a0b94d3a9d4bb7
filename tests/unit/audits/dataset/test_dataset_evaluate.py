"""An evaluation counts what classifiers answer, goes on where it ended, and says what its numbers are of."""

from __future__ import annotations

import json
import re
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from synthetic_dataset import Recipe, renamed, write_dataset

from c2b_ray.audits.dataset.evaluation import ReferenceImages, _apart, evaluate
from c2b_ray.audits.dataset.evaluation_rows import family, listed
from c2b_ray.audits.kit.session import Session
from c2b_ray.cli.dataset import _tell_evaluation
from c2b_ray.cli.dataset import evaluate as evaluate_command
from c2b_ray.errors import ConfigError, RunError
from c2b_ray.storage import files
from c2b_ray.storage.failure_dataset import open_dataset
from c2b_ray.world.scenes import CLASSES
from c2b_ray.world.table import write_sample

HERE = Session("here")
BUILT = ("world:resnet-planted-1", "world:resnet-planted-0")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    location = tmp_path_factory.mktemp("failures") / "dir"
    write_dataset(location, Recipe(BUILT, rows_per_caption=4, shard_rows=7))
    return str(location)


def rows_of(dataset):
    opened = open_dataset(dataset)
    return [row for table in opened.tables([s.name for s in opened.shards]) for row in table.to_pylist()]


def predictions(path, dataset, right):
    """A classifier that is a table: right where `right` of an image's id says so, else it says chair."""
    rows = [(row["image_id"], row["label"] if right(row["image_id"]) else "chair") for row in rows_of(dataset)]
    probabilities = [[0.8 if name == said else 0.02 - k / 1000 for k, name in enumerate(CLASSES)] for _, said in rows]
    columns = {"key": [key for key, _ in rows]} | {
        name: [row[k] for row in probabilities] for k, name in enumerate(CLASSES)
    }
    files.write_table(path, pa.table(columns))
    return f"table:{path}"


def test_rates_transfer_and_consistency_are_counts_of_the_answers(dataset, tmp_path):
    half = predictions(tmp_path / "half.parquet", dataset, lambda key: int(key, 16) % 2 == 0)
    third = predictions(tmp_path / "third.parquet", dataset, lambda key: int(key, 16) % 3 == 0)
    out = str(tmp_path / "out")
    evaluate(dataset, [f"vit-half={half}"], out, session=HERE)
    result = evaluate(dataset, [f"vit-half={half}", f"resnet third={third}"], out, session=HERE)
    keys = {row["image_id"]: int(row["image_id"], 16) for row in rows_of(dataset)}
    rates = {(row["of"], row["classifier"], row["rule"]): row for row in result.rates.to_pylist()}
    assert rates["dataset", "vit-half", "top1"]["failures"] == sum(key % 2 != 0 for key in keys.values())
    # A wrong answer is chair; the label comes behind those of the classes before it.
    behind = Counter(row["label"] for row in rows_of(dataset) if keys[row["image_id"]] % 2)
    assert rates["dataset", "vit-half", "top3"]["failures"] == sum(
        n for name, n in behind.items() if CLASSES.index(name) > 1
    )
    both = [key % 3 != 0 for key in keys.values() if key % 2]
    assert rates["failures of vit-half", "resnet third", "top1"]["rate"] == pytest.approx(np.mean(both))
    built = [keys[row["image_id"]] % 3 != 0 for row in rows_of(dataset) if row["answers"][1]["failed"]]
    assert rates[f"failures of {BUILT[1]}", "resnet third", "top1"]["rate"] == pytest.approx(np.mean(built))
    assert [one.family for one in result.entries] == ["resnet", "vit"]
    known = json.loads((tmp_path / "out" / "results.json").read_text())
    assert known["captions"] == 6
    assert "Transfer, top-1" in (tmp_path / "out" / "index.html").read_text()
    parts = list((tmp_path / "out" / "answers").glob("*/part-*"))
    assert sum(files.read_table(part).num_rows for part in parts) == 2 * len(keys)  # the first answered once


def test_classifiers_of_the_build_are_called_by_their_names_with_commas_between_and_beside_specs(dataset, tmp_path):
    spec = predictions(tmp_path / "a,b.parquet", dataset, lambda key: True)
    texts = [f"{BUILT[1]}, {BUILT[0]}", f"{spec},{BUILT[0]}"]
    assert _apart(open_dataset(dataset), texts) == [BUILT[1], BUILT[0], spec, BUILT[0]]
    assert _apart(open_dataset(dataset), [spec, f"again={spec}"]) == [spec, f"again={spec}"]


def test_a_classifier_that_answers_for_no_image_is_said_to_have_answered_for_none(dataset, tmp_path, capsys):
    files.write_table(tmp_path / "t.parquet", pa.table({"key": ["another"], **{name: [0.1] for name in CLASSES}}))
    out = str(tmp_path / "out")
    evaluate_command(dataset, [f"silent=table:{tmp_path}/t.parquet"], out, neighbours=0, via="here")
    reasons = f"{out}/answers gives the reason for each"
    said = f"silent, dataset, top1: no answer for any of {len(rows_of(dataset))} images; {reasons}"
    told = capsys.readouterr().out
    assert said in told
    assert "silent: a table of predictions answers for the image_id of the dataset's rows" in " ".join(told.split())


def test_another_label_map_asks_for_other_answers(dataset, tmp_path):
    spec = predictions(tmp_path / "t.parquet", dataset, lambda key: False)
    labels = {row["label"] for row in rows_of(dataset)}
    wrong = evaluate(dataset, [spec], str(tmp_path / "out"), session=HERE)
    # Every answer is chair: with a map that takes chair for mug, mugs are right.
    known = {name: [name] for name in labels} | {"mug": ["chair"]}
    (tmp_path / "map.json").write_text(json.dumps(known))
    against = ReferenceImages(label_map=str(tmp_path / "map.json"))
    mapped = evaluate(dataset, [spec], str(tmp_path / "out"), against, HERE)
    mugs = sum(row["label"] == "mug" for row in rows_of(dataset))
    assert wrong.rates["failures"][0].as_py() - mapped.rates["failures"][0].as_py() == mugs > 0


def test_an_evaluation_of_another_dataset_is_left_alone(dataset, tmp_path):
    spec = predictions(tmp_path / "t.parquet", dataset, lambda key: True)
    evaluate(dataset, [spec], str(tmp_path / "out"), session=HERE)
    write_dataset(tmp_path / "other", Recipe(rows_per_caption=2))
    with pytest.raises(RunError, match="another dataset"):
        evaluate(str(tmp_path / "other"), [spec], str(tmp_path / "out"), session=HERE)
    with pytest.raises(ConfigError, match="is there twice"):
        evaluate(dataset, [spec, spec], str(tmp_path / "out"), session=HERE)


def test_a_reference_that_is_too_small_says_how_many_it_needs(dataset, tmp_path, capsys):
    write_sample(tmp_path / "reference.parquet", 30, 5)
    against = ReferenceImages(str(tmp_path / "reference.parquet"), neighbours=3)
    result = evaluate(dataset, ["world:resnet-control-0", BUILT[0]], str(tmp_path / "out"), against, HERE)
    assert result.compared.fid is None
    assert "the Fréchet distance needs 129 at least" in result.compared.why[0]  # 128 dimensions, and one
    rates = {(row["of"], row["classifier"], row["rule"]): row for row in result.rates.to_pylist()}
    assert rates["reference", "world:resnet-control-0", "top1"]["images"] == 30
    assert rates["reference", "world:resnet-control-0", "top1"]["rate"] < 0.1
    assert rates["dataset", BUILT[0], "top1"]["rate"] > 0.4
    neighbours = result.compared.neighbours.to_pylist()
    assert len({row["image_id"] for row in neighbours}) == 3
    assert all(row["label"] == row["neighbour_label"] for row in neighbours if row["among"] == "same_label")
    _tell_evaluation(result, str(tmp_path / "out"))
    told = capsys.readouterr().out
    assert "Fréchet distance none; Kernel distance" in told
    page = (tmp_path / "out" / "index.html").read_text()
    assert not re.search("FID|KID", told)
    assert "Fréchet distance" in page
    assert "not the FID and KID of the literature" in page
    assert page.count("data:image/jpeg") > 10


def test_labels_of_a_reference_that_classifiers_lack_are_left_out(dataset, tmp_path):
    write_sample(tmp_path / "all.parquet", 60, 5)
    table = files.read_table(tmp_path / "all.parquet")
    strange = ["submarine" if label == "fish" else label for label in table["target_class"].to_pylist()]
    files.write_table(
        tmp_path / "reference.parquet",
        table.set_column(table.column_names.index("target_class"), "target_class", [strange]),
    )
    against = ReferenceImages(str(tmp_path / "reference.parquet"), neighbours=0)
    result = evaluate(dataset, ["world:resnet-control-0"], str(tmp_path / "out"), against, HERE)
    rates = {(row["of"], row["rule"]): row for row in result.rates.to_pylist()}
    assert rates["reference", "top1"]["images"] == 60 - strange.count("submarine") < 60
    assert result.compared.reference_images == 60


def test_labels_of_a_reference_may_be_spelt_otherwise(dataset, tmp_path):
    alike = renamed(tmp_path / "alike.parquet", 60, str)
    other = renamed(tmp_path / "other.parquet", 60, lambda label: f"{label.title()}_")
    of = [
        evaluate(dataset, ["world:resnet-control-0"], str(tmp_path / name), ReferenceImages(table), HERE)
        for name, table in (("a", alike), ("b", other))
    ]
    assert str(of[0].rates.to_pylist()) == str(of[1].rates.to_pylist())  # NaN included
    assert of[0].rates.to_pylist()[-1]["images"] == 60
    assert of[0].compared.agreement == of[1].compared.agreement
    same = [result.compared.neighbours.filter(pc.field("among") == "same_label").num_rows for result in of]
    assert same[0] == same[1] > 0


def test_rates_on_a_reference_do_not_depend_on_what_was_evaluated_before(dataset, tmp_path):
    reference = renamed(tmp_path / "reference.parquet", 60, str)
    columns = [name for name in CLASSES if name != "fish"]
    files.write_table(tmp_path / "t.parquet", pa.table({"key": ["x"], **{name: [0.05] for name in columns}}))
    specs = ["world:resnet-control-0", f"no fish=table:{tmp_path}/t.parquet"]
    against = ReferenceImages(reference, specs[0], neighbours=0)
    evaluate(dataset, specs[:1], str(tmp_path / "out"), against, HERE)
    after = evaluate(dataset, specs, str(tmp_path / "out"), against, HERE)
    alone = evaluate(dataset, specs, str(tmp_path / "alone"), against, HERE)
    assert str(after.rates.to_pylist()) == str(alone.rates.to_pylist())  # NaN included
    fish = files.read_table(reference)["target_class"].to_pylist().count("fish")
    assert {row["images"] + row["unanswered"] for row in alone.rates.to_pylist() if row["of"] == "reference"} == {
        60 - fish
    }


def test_consistency_on_selected_images_is_said_to_be_lower_and_that_on_a_reference_is_shown(dataset, tmp_path):
    against = ReferenceImages(renamed(tmp_path / "reference.parquet", 60, str), neighbours=0)
    result = evaluate(dataset, ["world:resnet-control-0", BUILT[0]], str(tmp_path / "out"), against, HERE)
    rows = {
        (row["of"], row["classifier_a"], row["classifier_b"], row["rule"]) for row in result.consistency.to_pylist()
    }
    assert {of for of, a, b, _ in rows if a != b} == {"dataset", "reference"}
    page = (tmp_path / "out" / "index.html").read_text()
    assert "error consistency here is lower than on images that nobody selected" in page
    assert "Error consistency, top-1, reference" in page


def test_lists_of_specs_may_hold_commas_of_their_own():
    text = "timm:a?mean=0.4,0.5,0.6,b=world:clip?labels=x,y, onnx:/p/q.onnx"
    assert listed(text) == ["timm:a?mean=0.4,0.5,0.6", "b=world:clip?labels=x,y", "onnx:/p/q.onnx"]
    names = ["timm:resnet50.a1_in1k", "timm:vit_base_patch16_224", "BiT-M (101x1)", "timm:/models/with-0", "RN2"]
    assert [family(name) for name in names] == ["resnet", "vit", "bit", "with", "rn"]
