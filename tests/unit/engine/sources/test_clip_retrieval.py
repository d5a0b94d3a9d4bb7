"""Embedding folders as clip-retrieval writes them: images from a folder or from shards, and every kind of hole."""

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from c2b_ray.engine.sources.clip_retrieval import is_folder, partitions
from c2b_ray.errors import SourceError
from c2b_ray.models.index.build import write
from c2b_ray.models.index.faiss_index import FaissIndex
from c2b_ray.roles import Floats

D = 16


def unit(n: int, seed: int = 0) -> Floats:
    vectors = np.random.default_rng(seed).normal(size=(n, D)).astype(np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


def folder(root: Path, paths: list[str], sizes: tuple[int, ...] = (4, 3)) -> Path:
    """Two partitions, as clip-retrieval writes them: float16, and a row of metadata for each."""
    vectors = unit(len(paths))
    for name in ("img_emb", "text_emb", "metadata"):
        (root / name).mkdir(parents=True)
    start = 0
    for n, size in enumerate(sizes):
        span = slice(start, start + size)
        np.save(root / "img_emb" / f"img_emb_{n}.npy", vectors[span].astype(np.float16))
        rows = {"image_path": paths[span], "caption": [f"caption {i}" for i in range(start, start + size)]}
        pq.write_table(pa.table(rows), root / "metadata" / f"metadata_{n}.parquet")
        start += size
    return root


def imported(source: Path, images: Path, out: Path, **more: object) -> FaissIndex:
    found = partitions(str(source), str(images), **more)  # type: ignore[arg-type]
    write(out, "e", "r", found, group_rows=2, images_root=str(images))
    return FaissIndex(str(out))


def test_images_of_a_folder_are_read_where_they_are(tmp_path: Path) -> None:
    images = tmp_path / "images"
    (images / "deep").mkdir(parents=True)
    names = ["0.jpg", "deep/1.jpg", "2.jpg", "gone.jpg"]
    for n, name in enumerate(names[:3]):
        (images / name).write_bytes(b"image %d" % n)
    (tmp_path / "secret.jpg").write_bytes(b"S")
    paths = [str(images / name) for name in names] + ["2.jpg", str(tmp_path / "secret.jpg"), "../secret.jpg"]
    source = folder(tmp_path / "embedded", paths)
    assert is_folder(str(source))
    assert not is_folder(str(images))
    index = imported(source, images, tmp_path / "index")
    assert index.count == 7
    for row, vector in enumerate(unit(7)):
        assert index.search(vector[None], 1).ids.tolist() == [[row]]
    rows = index.fetch([4, 0, 1, 3, 5, 6, 0])
    assert rows.column_names == ["key", "bytes", "metadata", "error"]
    assert rows["bytes"].to_pylist() == [b"image 2", b"image 0", b"image 1", None, None, None, b"image 0"]
    assert rows["key"].to_pylist() == [paths[i] for i in (4, 0, 1, 3, 5, 6, 0)]
    assert json.loads(rows["metadata"][0].as_py()) == {"caption": "caption 4"}
    errors = rows["error"].to_pylist()
    assert [errors[i] for i in (0, 1, 2, 6)] == [None] * 4
    assert errors[3] == "gone.jpg: no such file"
    assert "leads out of" in errors[4]
    assert "leads out of" in errors[5]
    assert index.metadata([1]).to_pylist() == [{"key": paths[1], "metadata": '{"caption": "caption 1"}'}]


def test_images_that_have_been_moved(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "0.jpg").write_bytes(b"0")
    source = folder(tmp_path / "embedded", [f"/data/old/{i}.jpg" for i in range(7)])
    index = imported(source, tmp_path / "here", tmp_path / "index", moved_from="/data/old")
    assert index.fetch([0, 1])["bytes"].to_pylist() == [b"0", None]
    assert index.fetch([1])["error"].to_pylist() == ["1.jpg: no such file"]


def shard(path: Path, names: list[str], cut: int | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name in names:
            for member, data in (
                (f"{name}.json", b"{}"),
                (f"{name}.mask.png", b"mask"),
                (f"{name}.jpg", name.encode()),
            ):
                info = tarfile.TarInfo(member)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    if cut is not None:
        path.write_bytes(path.read_bytes()[:cut])


def test_images_in_shards_are_found_by_the_names_of_their_samples(tmp_path: Path) -> None:
    keys = [f"{n:09d}" for n in range(7)]
    shard(tmp_path / "shards" / "00000.tar", keys[:4])
    shard(tmp_path / "shards" / "00001.tar", keys[4:6], cut=5 * 1024 + 100)  # within the header of sample 5's image
    source = folder(tmp_path / "embedded", keys)
    index = imported(source, tmp_path / "shards", tmp_path / "index")
    rows = index.fetch([5, 0, 3, 4])
    assert rows["bytes"].to_pylist() == [None, keys[0].encode(), keys[3].encode(), keys[4].encode()]
    assert index.fetch([6])["error"].to_pylist() == ["the source names no file of this image"]
    shard(tmp_path / "shards" / "00002.tar", [keys[0]])
    with pytest.raises(SourceError, match=r"sample '000000000' is in 00000\.tar and in 00002\.tar"):
        partitions(str(source), str(tmp_path / "shards"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return folder(tmp_path / "embedded", [f"{i}.jpg" for i in range(9)], (4, 3, 2))


def refused(source: Path, said: str) -> None:
    with pytest.raises(SourceError, match=said):
        write(source / "out", "e", "r", partitions(str(source), str(source)))
    assert not (source / "out").exists()


def test_a_folder_with_holes_names_the_file(source: Path) -> None:
    (source / "img_emb" / "img_emb_1.npy").rename(source / "aside.npy")
    refused(source, r"img_emb: partition 1 is missing \(there are 0 to 2\); copy or embed it again")
    whole = (source / "aside.npy").read_bytes()
    (source / "img_emb" / "img_emb_1.npy").write_bytes(whole[:-3])
    refused(source, r"img_emb_1\.npy: damaged or cut short .*embed that partition again")
    (source / "img_emb" / "img_emb_1.npy").write_bytes(b"")
    refused(source, r"img_emb_1\.npy: damaged or cut short")
    (source / "img_emb" / "img_emb_1.npy").write_bytes(whole)
    (source / "metadata" / "metadata_2.parquet").unlink()
    refused(source, r"metadata: partition 2 is missing")


def test_a_hole_at_the_start_is_one(source: Path) -> None:
    (source / "img_emb" / "img_emb_0.npy").unlink()
    refused(source, r"img_emb: partition 0 is missing \(there are 0 to 2\)")


def test_a_damaged_page_of_metadata_names_its_file(source: Path) -> None:
    path = source / "metadata" / "metadata_1.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:8] + bytes(30) + whole[38:])  # the footer is whole, and says so many rows
    refused(source, r"metadata_1\.parquet: damaged, .*embed that partition again")


def test_images_of_no_folder_are_refused(source: Path) -> None:
    for place in (source / "typo", source / "img_emb" / "img_emb_0.npy"):
        with pytest.raises(SourceError, match=rf"{place.name}: no such folder; --images"):
            partitions(str(source), str(place))


def test_counts_that_differ_name_both_files_and_the_row(source: Path) -> None:
    pq.write_table(pa.table({"image_path": ["a", "b"]}), source / "metadata" / "metadata_1.parquet")
    refused(source, r"metadata_1\.parquet: 2 rows, but img_emb_1\.npy has 3, so from row 2 on")


def test_dimensions_that_differ_name_both_files(source: Path) -> None:
    np.save(source / "img_emb" / "img_emb_2.npy", np.ones((2, D + 1), np.float16))
    refused(source, r"img_emb_2\.npy: dimension 17, .*img_emb_0\.npy has 16")
    np.save(source / "img_emb" / "img_emb_2.npy", np.ones((2, D), np.int32))
    refused(source, r"img_emb_2\.npy: int32 of shape \(2, 16\); expected floats")


@pytest.mark.parametrize(("value", "said"), [(np.nan, "not a number"), (np.inf, "not a number"), (0.0, "zero")])
def test_rows_without_a_direction_are_named_or_left_out(source: Path, value: float, said: str) -> None:
    vectors = np.load(source / "img_emb" / "img_emb_1.npy")
    vectors[2] = value
    np.save(source / "img_emb" / "img_emb_1.npy", vectors)
    refused(source, rf"img_emb_1\.npy: row 2 is {said}; embed that partition again, or --skip-bad")
    index = imported(source, source, source / "index", skip_bad=True)
    assert (index.count, index.manifest.skipped) == (8, 1)
    assert index.metadata(range(8))["key"].to_pylist() == [f"{i}.jpg" for i in range(9) if i != 6]
    assert index.search(unit(9)[[8]], 1).ids.tolist() == [[7]]


def test_metadata_without_paths_and_folders_of_nothing(source: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"url": ["a", "b"]}), source / "metadata" / "metadata_2.parquet")
    refused(source, r"metadata_2\.parquet: no column image_path; it has url")
    pq.write_table(pa.table({"image_path": [["a"], ["b"]]}), source / "metadata" / "metadata_2.parquet")
    refused(source, r"metadata_2\.parquet: its column image_path holds list")
    with pytest.raises(SourceError, match=r"holds no img_emb/img_emb_<n>\.npy"):
        partitions(str(tmp_path), str(tmp_path))
