"""Labelled images in one table: with the keys, labels and revision that they have here, and always the same bytes."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from c2b_ray.client.local_files import Images, pack
from c2b_ray.errors import SourceError
from c2b_ray.storage.labelled import LabelledTable


def png(seed):
    picture = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 255, (8, 8, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(picture, "PNG")
    return picture.getvalue()


@pytest.fixture
def photos(tmp_path):
    for name in ("bus", "boat"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(3):
            (tmp_path / "photos" / name / f"{number}.png").write_bytes(png(number))
    return tmp_path / "photos"


def nothing(what, done, total):
    pass


def packed(images, file):
    pack(images, file, nothing)
    return LabelledTable(str(file), columns={name: images.columns[name] for name in images.columns})


def assert_same(here, there, rows):
    assert there.keys.to_pylist() == here.keys.to_pylist()
    assert there.labels.to_pydict() == here.labels.to_pydict()
    assert there.revision == here.revision
    assert there.fetch(range(rows))["bytes"].to_pylist() == here.fetch(range(rows))["bytes"].to_pylist()


@pytest.mark.parametrize("metadata", ["file_name,weather\nbus/0.png,fog\nboat/1.png,clear\n", ""])
def test_a_folder_of_classes(photos, tmp_path, metadata):
    if metadata:
        (photos / "metadata.csv").write_text(metadata)
    images, file = Images(str(photos), "images.table"), tmp_path / "packed.parquet"
    assert not images.is_packed()
    here, there = images.open(), packed(images, file)
    assert_same(here, there, 6)
    assert there.clusters("folder").to_pylist() == here.clusters("folder").to_pylist()
    first = file.read_bytes()
    pack(images, file, nothing)
    assert file.read_bytes() == first, "the same images are sent once"


def test_a_table_whose_images_lie_elsewhere(photos, tmp_path):
    (tmp_path / "lists").mkdir()
    rows = ["file,what,id", f"{photos}/bus/0.png,bus,a", "../photos/boat/1.png,boat,b", "bus/2.png,bus,c"]
    (tmp_path / "lists/t.csv").write_text("\n".join(rows))
    columns = {"image": "file", "target_class": "what", "key": "id"}
    images = Images(str(tmp_path / "lists/t.csv"), "images.table", columns, str(photos))
    there = packed(images, tmp_path / "packed.parquet")
    assert_same(images.open(), there, 3)
    assert all(there.fetch(range(3))["bytes"].is_valid().to_pylist())


@pytest.mark.parametrize("target", [["bus", "boat"], "classes"])
def test_images_of_several_classes(photos, tmp_path, target):
    """A column of 0 and 1 for each class, or one of lists."""
    columns = {"image": ["bus/0.png", "boat/1.png"], "bus": [1, 0], "boat": [1, 1], "classes": [["bus", "boat"], []]}
    pq.write_table(pa.table(columns), photos / "t.parquet")
    images, file = Images(str(photos / "t.parquet"), "images.table", {"target_class": target}), tmp_path / "p.parquet"
    pack(images, file, nothing)
    here, there = (
        LabelledTable(table, columns={"target_class": target}, several=True) for table in (images.location, str(file))
    )
    assert_same(here, there, 2)
    assert all(there.fetch(range(2))["bytes"].is_valid().to_pylist())


def test_a_row_whose_image_is_missing_stays_an_error(photos, tmp_path):
    (photos / "t.csv").write_text("image,target_class\nbus/0.png,bus\nbus/lost.png,bus\n")
    images = Images(str(photos / "t.csv"), "images.table")
    there = packed(images, tmp_path / "packed.parquet")
    assert [error is None for error in there.fetch([0, 1])["error"].to_pylist()] == [True, False]
    assert there.keys.to_pylist() == ["bus/0.png", "bus/lost.png"]
    (photos / "bus/0.png").unlink()
    with pytest.raises(SourceError, match="none of its 2 images can be read: no such file"):
        pack(images, tmp_path / "packed.parquet", nothing)


def test_the_paths_of_packed_images_lead_nowhere_also_where_the_first_is_missing(photos, tmp_path):
    """They are below the root that the table had here; the endpoint would refuse them as leading out of its folder."""
    (photos / "t.csv").write_text(f"image,target_class\n{photos}/bus/lost.png,bus\n{photos}/bus/0.png,bus\n")
    images = Images(str(photos / "t.csv"), "images.table", root=str(photos))
    there = packed(images, tmp_path / "packed.parquet")
    assert there.leading_out() == []
    assert [error is None for error in there.fetch([0, 1])["error"].to_pylist()] == [False, True]


def test_no_file_outside_the_tables_folder_is_sent(photos, tmp_path):
    secret = tmp_path / "secret.png"
    secret.write_bytes(png(9))
    (photos / "link.png").symlink_to(secret)
    rows = ["image,target_class", "bus/0.png,bus", "../secret.png,bus", f"{secret},bus", "link.png,bus"]
    (photos / "t.csv").write_text("\n".join(rows))
    there = packed(Images(str(photos / "t.csv"), "images.table"), tmp_path / "packed.parquet")
    assert there.fetch(range(4))["bytes"].to_pylist()[1:] == [None] * 3
    assert png(9) not in (tmp_path / "packed.parquet").read_bytes()


@pytest.mark.parametrize("split", [1, 2])
def test_parquet_files_that_hold_the_images(tmp_path, split):
    """Of one file the packed table is not needed; a folder of several becomes one."""
    folder = tmp_path / "t"
    folder.mkdir()
    for number in range(split):
        columns = {"image": [png(number), png(number + 5)], "target_class": ["bus", "boat"], "weight": [1.5, 2.5]}
        pq.write_table(pa.table(columns), folder / f"{number}.parquet")
    assert Images(str(folder / "0.parquet"), "images.table").is_packed()
    images = Images(str(folder), "images.table")
    assert not images.is_packed()
    assert_same(images.open(), packed(images, tmp_path / "packed.parquet"), 2 * split)


def test_a_dataset_whose_classes_are_numbers_with_names_keeps_them(tmp_path):
    features = b'{"info": {"features": {"label": {"names": ["bus", "boat"], "_type": "ClassLabel"}}}}'
    folder = tmp_path / "t"
    folder.mkdir()
    table = pa.table({"image": [{"bytes": png(0), "path": "a.png"}, {"bytes": png(1), "path": None}], "label": [1, 0]})
    for name in ("a", "b"):
        pq.write_table(table.replace_schema_metadata({b"huggingface": features}), folder / f"{name}.parquet")
    images = Images(str(folder), "images.table")
    there = packed(images, tmp_path / "packed.parquet")
    assert there.labels["target_class"].to_pylist() == ["boat", "bus"] * 2
    assert_same(images.open(), there, 4)


def test_the_size_is_known_before_anything_is_packed(photos, tmp_path):
    images = Images(str(photos), "images.table")
    assert images.bytes() == sum(len(png(number)) for number in range(3)) * 2
    pack(images, tmp_path / "packed.parquet", nothing)
    assert 0 < (tmp_path / "packed.parquet").stat().st_size - images.bytes() < 10_000


def test_another_packages_metadata_is_no_size(tmp_path):
    table = pa.table({"image": [png(0)], "target_class": ["bus"]})
    pq.write_table(table, tmp_path / "a.parquet")
    pq.write_table(table.replace_schema_metadata({b"c2b_ray.packed": b"many"}), tmp_path / "b.parquet")
    assert LabelledTable(str(tmp_path / "b.parquet")).fetch([0])["bytes"].to_pylist() == [png(0)]
