"""The reference of an evaluation: its copies, its size, and tables of predictions that list files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from synthetic_dataset import Recipe, renamed, write_dataset

from c2b_ray.audits.dataset.build import build_dataset
from c2b_ray.audits.dataset.evaluation import ReferenceImages, evaluate
from c2b_ray.audits.dataset.evaluation_parts import EvaluationAnswers, consistencies, rates
from c2b_ray.audits.kit.session import Session
from c2b_ray.storage import files
from c2b_ray.world.scenes import CLASSES
from c2b_ray.world.table import write_sample

HERE = Session("here")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    location = tmp_path_factory.mktemp("failures") / "dir"
    write_dataset(location, Recipe(rows_per_caption=4, shard_rows=7))
    return str(location)


def test_a_table_of_predictions_answers_for_the_files_of_a_reference(dataset, tmp_path):
    known = files.read_table(renamed(tmp_path / "all.parquet", 40, str))
    (tmp_path / "photos").mkdir()
    for number, image in enumerate(known["image"].to_pylist()):
        (tmp_path / "photos" / f"{number}.png").write_bytes(image)
    labels = known["target_class"].to_pylist()
    names = [f"photos/{number}.png" for number in range(40)]
    files.write_table(tmp_path / "reference.parquet", pa.table({"image": names, "target_class": labels}))
    said = [label if number % 4 else "chair" for number, label in enumerate(labels)]
    files.write_table(tmp_path / "answers.parquet", pa.table({"file": names, "label": said}))
    (tmp_path / "labels.txt").write_text("\n".join(CLASSES))
    spec = f"mine=table:{tmp_path}/answers.parquet?labels={tmp_path}/labels.txt"
    against = ReferenceImages(str(tmp_path / "reference.parquet"), "world:resnet-control-0", neighbours=0)
    rates = evaluate(dataset, [spec], str(tmp_path / "out"), against, HERE).rates.to_pylist()
    row = next(row for row in rates if (row["of"], row["rule"]) == ("reference", "top1"))
    wrong = sum(one != label for one, label in zip(said, labels, strict=True))
    assert (row["images"], row["failures"]) == (40, wrong)


def test_a_table_of_predictions_answers_for_the_files_of_the_build_s_table(tmp_path):
    table, specs = tmp_path / "photos.csv", {}
    write_sample(tmp_path / "all.parquet", 30, 5)
    known = files.read_table(tmp_path / "all.parquet")
    names = [f"{number}.png" for number in range(30)]
    for name, image in zip(names, known["image"].to_pylist(), strict=True):
        (tmp_path / name).write_bytes(image)
    labels = known["target_class"].to_pylist()
    table.write_text("\n".join(["image,target_class", *map(",".join, zip(names, labels, strict=True))]))
    (tmp_path / "labels.txt").write_text("\n".join(CLASSES))
    for spec, wrong in (("built", 2), ("other", 3)):
        said = [label if number % wrong else "chair" for number, label in enumerate(labels)]
        files.write_table(tmp_path / f"{spec}.parquet", pa.table({"file": names, "label": said}))
        specs[spec] = f"table:{tmp_path}/{spec}.parquet?labels={tmp_path}/labels.txt"
    config = {
        "classifier": {"built": specs["built"]},
        "images": {"labelled": {"table": str(table)}},
        "near_duplicates": None,
    }
    built = build_dataset(config, tmp_path / "dataset", "here")
    failed = [number for number in range(0, 30, 2) if labels[number] != "chair"]
    assert built.rows == len(failed)

    def rates_of(name):
        result = evaluate(
            str(tmp_path / "dataset"), ["built", f"other={specs['other']}"], str(tmp_path / name), session=HERE
        )
        return {r["classifier"]: r for r in result.rates.to_pylist() if (r["of"], r["rule"]) == ("dataset", "top1")}

    rows = rates_of("out")
    assert (rows["built"]["images"], rows["built"]["failures"]) == (len(failed), len(failed))
    assert (rows["other"]["images"], rows["other"]["failures"]) == (len(failed), sum(n % 3 == 0 for n in failed))
    table.write_text(table.read_text().replace("1.png,", "2.png,"))
    assert rates_of("after")["other"]["images"] == 0  # of another table nothing is known


def test_copies_in_a_reference_are_one_picture_s_evidence(dataset, tmp_path):
    once = files.read_table(renamed(tmp_path / "once.parquet", 40, lambda label: "mug" if label == "bus" else label))
    files.write_table(tmp_path / "copied.parquet", pa.concat_tables([once] * 10))
    spec = "world:resnet-planted-0"
    results = [
        evaluate(
            dataset, [spec], str(tmp_path / name), ReferenceImages(f"{tmp_path}/{name}.parquet", neighbours=0), HERE
        )
        for name in ("once", "copied")
    ]
    rows = [{(r["of"], r["rule"]): r for r in one.rates.to_pylist()}["reference", "top1"] for one in results]
    assert [row["images"] for row in rows] == [40, 400]
    assert 0 < rows[0]["rate"] == rows[1]["rate"]
    widths = [row["rate_high"] - row["rate_low"] for row in rows]
    assert widths[1] == pytest.approx(widths[0], rel=0.02)  # as of 40 pictures; as of 400 it is a third
    page = (tmp_path / "copied" / "index.html").read_text()
    assert "360 images of the reference are copies of others: intervals there count pictures." in page
    assert "are copies of others" not in (tmp_path / "once" / "index.html").read_text()


def test_a_reference_may_have_more_images_than_there_are_clusters_of_captions():
    ids = pa.array([f"{number:040d}" for number in range(6000)])
    answers = EvaluationAnswers.of([ids], np.arange(6000), np.zeros((6000, 0), bool), 2, most=6000)
    answers.ranks[:] = 1
    answers.ranks[:600, 0] = answers.ranks[:300, 1] = 4
    row = rates("reference", answers, ["a", "b"])[0]
    assert (row["images"], row["captions"], row["failures"], row["rate"]) == (6000, 6000, 600, 0.1)
    spread = 1.96 * np.sqrt(0.1 * 0.9 / 6000)
    assert [row["rate_low"], row["rate_high"]] == pytest.approx([0.1 - spread, 0.1 + spread], abs=4e-4)
    pairs = {
        (r["classifier_a"], r["classifier_b"], r["rule"]): r
        for r in consistencies("reference", answers, "ab").to_pylist()
    }
    assert pairs["a", "b", "top1"]["kappa"] == pytest.approx((0.95 - 0.86) / 0.14)  # observed .95, expected .86
