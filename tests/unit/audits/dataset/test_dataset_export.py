"""Exports hold every row once, load where they are meant to load, and appear whole or not at all."""

from __future__ import annotations

import importlib.util
import json
import shutil
import tarfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image
from synthetic_dataset import Recipe, dataset_rows, write_dataset
from torchvision.datasets import ImageFolder

from c2b_ray.audits.dataset import export as exporting
from c2b_ray.audits.dataset import formats as card
from c2b_ray.audits.dataset.export import FORMATS, export
from c2b_ray.audits.dataset.formats import ExportedRows
from c2b_ray.audits.kit.session import Session
from c2b_ray.errors import ConfigError, RunError, SourceError
from c2b_ray.report.formats.folder import WORK, Folder, folder_names
from c2b_ray.steps.decode import decode
from c2b_ray.storage.failure_dataset import open_dataset
from c2b_ray.tables.dataset import DATASET_ROWS

HERE = Session("here")
FIRST, SECOND = "world:resnet-planted-1", "world:resnet-planted-0"
HOSTILE = {"boat": "../../boat, <b>ship</b>", "mug": "Bus", "bus": "bus"}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    location = tmp_path_factory.mktemp("failures") / "dir"
    write_dataset(location, Recipe((FIRST, SECOND), rows_per_caption=4, shard_rows=5, labels=HOSTILE))
    return str(location)


@pytest.fixture(autouse=True)
def _several_files(monkeypatch):
    monkeypatch.setattr(exporting, "FILE_ROWS", 10)


def rows_of(dataset: str, classifier: str | None = None) -> dict[str, dict]:
    opened = open_dataset(dataset, classifier)
    names = [shard.name for shard in opened.shards]
    return {row["image_id"]: row for table in opened.tables(names) for row in table.to_pylist()}


def test_an_image_folder_has_each_image_below_its_label_and_all_that_is_known_of_it(dataset, tmp_path):
    export(dataset, "imagefolder", str(tmp_path / "out"), session=HERE)
    rows, folders = rows_of(dataset), folder_names(HOSTILE.values())
    lines = [json.loads(line) for line in (tmp_path / "out" / "metadata.jsonl").read_text().splitlines()]
    assert [line["image_id"] for line in lines] == list(rows)
    for line in lines:
        file = tmp_path / "out" / line["file_name"]
        row = rows[line["image_id"]]
        assert file.read_bytes() == row["image"]
        assert file.parent.name == folders[row["label"]]
        assert line["answers"] == row["answers"]
        assert int(line["fingerprint"], 16) == row["fingerprint"]
    images = list((tmp_path / "out").rglob("*.png"))
    assert len(images) == len(rows)
    assert len({name.casefold() for name in folders.values()}) == 3  # Bus and bus are one folder on many disks


def test_every_format_of_images_is_one_that_torchvision_lists_and_has_the_same_pixels(tmp_path):
    whole = pa.Table.from_pylist(dataset_rows(Recipe(rows_per_caption=2))[:5], DATASET_ROWS)
    pictures = [Image.open(BytesIO(data)) for data in whole["image"].to_pylist()]
    files = []
    for picture, kind in zip(pictures, ("GIF", "PPM", "JPEG", "WEBP", "AVIF"), strict=True):
        picture.save(file := BytesIO(), kind)
        files.append(file.getvalue())
    rows = whole.set_column(whole.column_names.index("image"), "image", pa.array(files, pa.binary()))
    labels = tuple(sorted(set(rows["label"].to_pylist())))
    assert FORMATS["imagefolder"](labels, 1).write(0, [rows], Folder(str(tmp_path))).rows == 5
    shutil.rmtree(tmp_path / WORK)
    found = {Path(path).stem: path for path, _ in ImageFolder(str(tmp_path)).samples}
    assert sorted(Path(path).suffix for path in found.values()) == [".jpg", ".png", ".png", ".ppm", ".webp"]
    for name, data in zip(rows["image_id"].to_pylist(), files, strict=True):
        assert np.array_equal(decode(Path(found[name]).read_bytes()), decode(data))


@pytest.mark.parametrize(
    ("rows", "category"),
    [
        (999, "n<1K"),
        (1_000, "1K<n<10K"),
        (9_999_999, "1M<n<10M"),
        (10_000_000, "10M<n<100M"),
        (999_999_999_999, "100B<n<1T"),
        (10**12, "n>1T"),
    ],
)
def test_the_card_names_a_category_of_sizes_of_the_hub(rows, category):
    text = card.readme(ExportedRows(rows, {"cat": rows}, {"classifier": "m"}, {}, None), {}, "")
    assert yaml.safe_load(text.split("---\n")[1])["size_categories"] == [category]


def test_the_card_of_a_tables_images_does_not_call_them_drawn_or_synthetic():
    config = {"classifier": "a", "images": {"labelled": {"table": "photos"}, "generate": None, "index": None}}
    text = card.readme(ExportedRows(3, {"cat": 3}, config, {}, None), {}, "")
    assert "synthetic" not in text
    assert "Labels are those of the table that the images come from" in text
    drawn = card.readme(
        ExportedRows(3, {"cat": 3}, {**config, "images": {"generate": {"model": "g"}}}, {}, None), {}, ""
    )
    assert "synthetic" in drawn
    assert "was drawn to show" in drawn


def test_labels_become_names_that_every_file_system_takes():
    names = folder_names(["a/b", "a_b", "..", "CON", "", "x" * 300, "crane", "Crane", "hen. ", "bullet train, bullet"])
    assert len({name.casefold() for name in names.values()}) == len(names)
    for name in names.values():
        assert "/" not in name
        assert not name.startswith(".")
        assert len(name.encode()) < 200
    assert names["bullet train, bullet"] == "bullet train, bullet"


def test_shards_of_tar_are_the_same_bytes_each_time(dataset, tmp_path):
    outs = [tmp_path / "a", tmp_path / "b"]
    for out in outs:
        assert export(dataset, "webdataset", str(out), session=HERE).files == 3
    names = sorted(file.name for file in outs[0].iterdir())
    assert names == [
        ".c2b-export.json",
        "README.md",
        *("labels.json" for _ in "1"),
        *(f"shard-{n:06d}.tar" for n in range(3)),
    ]
    for name in names:
        assert (outs[0] / name).read_bytes() == (outs[1] / name).read_bytes()
    labels, rows, seen = json.loads((outs[0] / "labels.json").read_text()), rows_of(dataset), []
    for name in names[3:]:
        with tarfile.open(outs[0] / name) as tar:
            members = tar.getmembers()
            for image, number, record in zip(*[iter(members)] * 3, strict=True):
                key = image.name.partition(".")[0]
                known = json.loads(tar.extractfile(record).read())
                assert [number.name, record.name] == [f"{key}.cls", f"{key}.json"]
                row = rows[known["image_id"]]
                assert tar.extractfile(image).read() == row["image"]
                assert labels[int(tar.extractfile(number).read())] == row["label"] == known["label"]
                seen.append(known["image_id"])
    assert seen == list(rows)


def test_parquet_says_its_features_and_the_card_how_many_rows_there_are(dataset, tmp_path):
    export(dataset, "huggingface", str(tmp_path / "out"), session=HERE)
    rows, written = rows_of(dataset), {}
    for file in sorted((tmp_path / "out" / "data").iterdir()):
        features = json.loads(pq.read_schema(file).metadata[b"huggingface"])["info"]["features"]
        assert features["image"] == {"_type": "Image"}
        for row in pq.read_table(file).to_pylist():
            row["label"] = features["label"]["names"][row["label"]]
            row["image"] = row["image"]["bytes"]
            written[row["image_id"]] = row
    assert written == rows
    card = yaml.safe_load((tmp_path / "out" / "README.md").read_text().split("---\n")[1])
    assert card["dataset_info"]["splits"][0]["num_examples"] == len(rows)
    assert [feature["name"] for feature in card["dataset_info"]["features"]] == list(next(iter(rows.values())))


@pytest.mark.skipif(importlib.util.find_spec("datasets") is None, reason="the library `datasets` is not installed")
def test_hugging_face_loads_the_export_as_it_stands(dataset, tmp_path):
    import datasets

    export(dataset, "huggingface", str(tmp_path / "out"), session=HERE)
    loaded = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"), split="train")
    rows = rows_of(dataset)
    assert loaded["image_id"] == list(rows)
    assert loaded.features["label"].int2str(loaded["label"]) == [row["label"] for row in rows.values()]


def test_samples_of_fiftyone_have_the_answer_of_each_classifier(dataset, tmp_path):
    export(dataset, "fiftyone", str(tmp_path / "out"), session=HERE)
    rows = rows_of(dataset)
    samples = json.loads((tmp_path / "out" / "samples.json").read_text())["samples"]
    labels = json.loads((tmp_path / "out" / "labels.json").read_text())
    assert [sample["image_id"] for sample in samples] == list(rows)
    for sample in samples:
        row = rows[sample["image_id"]]
        assert (tmp_path / "out" / sample["filepath"]).read_bytes() == row["image"]
        assert sample["ground_truth"]["label"] == row["label"] == labels["classes"][labels["labels"][row["image_id"]]]
        assert sample["predicted_1_world_resnet_planted_0"]["label"] == row["answers"][1]["predicted"]


def test_one_classifiers_failures_are_exported_with_its_answers(dataset, tmp_path):
    result = export(dataset, "webdataset", str(tmp_path / "out"), SECOND, HERE)
    rows = rows_of(dataset, SECOND)
    assert 0 < result.rows == len(rows) < len(rows_of(dataset))
    assert {(row["classifier"], row["label"], row["predicted"]) for row in rows.values()} == {(SECOND, "bus", "house")}
    with pytest.raises(ConfigError, match="did you mean"):
        export(dataset, "webdataset", str(tmp_path / "other"), "world:resnet-planted-2", HERE)


@pytest.mark.parametrize("format", FORMATS)
def test_an_export_that_was_interrupted_goes_on_and_appears_whole(dataset, tmp_path, monkeypatch, format):
    out, undisturbed = tmp_path / "out", tmp_path / "undisturbed"
    kind = type(FORMATS[format](("bus",), 1))
    write, numbers = kind.write, []

    def dies(self, number, tables, folder):
        if number == 1 and numbers.count(1) == 0:
            numbers.append(1)
            write(self, number, list(tables)[:1], folder)
            raise KeyboardInterrupt
        numbers.append(number)
        return write(self, number, tables, folder)

    monkeypatch.setattr(kind, "write", dies)
    with pytest.raises(KeyboardInterrupt):
        export(dataset, format, str(out), session=HERE)
    assert not out.exists()
    with pytest.raises(RunError, match="unfinished export of another"):
        export(dataset, format, str(out), FIRST, HERE)
    export(dataset, format, str(out), session=HERE)
    monkeypatch.setattr(kind, "write", write)
    export(dataset, format, str(undisturbed), session=HERE)
    assert numbers.count(0) == 1
    assert bytes_below(out) == bytes_below(undisturbed)


def bytes_below(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_files_that_are_there_are_not_touched(dataset, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(RunError, match="holds files already"):
        export(dataset, "webdataset", str(tmp_path), session=HERE)
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


def test_what_is_no_finished_dataset_is_named(dataset, tmp_path):
    with pytest.raises(SourceError, match="is not a dataset of failures"):
        export(str(tmp_path), "webdataset", str(tmp_path / "out"), session=HERE)
    (tmp_path / "dataset.json").write_text("{}")
    with pytest.raises(SourceError, match="its build has not ended"):
        export(str(tmp_path), "webdataset", str(tmp_path / "out"), session=HERE)
    with pytest.raises(ConfigError, match="did you mean 'imagefolder'"):
        export(dataset, "image_folder", str(tmp_path / "out"), session=HERE)
