"""What an index is built of, which builds and directories are refused, and how a build or a copy goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import faiss
import numpy as np
import pyarrow as pa
import pytest
from index_parts import D, lists, part, unit
from pyarrow import fs

from c2b_ray.errors import RunError, SourceError
from c2b_ray.models.index import faiss_index
from c2b_ray.models.index import vectors as index_vectors
from c2b_ray.models.index.build import ParquetPart, write
from c2b_ray.models.index.faiss_index import FaissIndex
from c2b_ray.models.index.plan import IndexWishes
from c2b_ray.roles import Floats

NEW_IN_FORMAT_2 = ("plan", "shards", "images_root")


def test_rows_without_bytes_or_embedding_are_left_out_and_counted(tmp_path: Path) -> None:
    good = unit(5)
    bad = good.copy()
    bad[1, 2] = np.nan
    mask = pa.array([False, False, True, False, False])
    embeddings = pa.FixedSizeListArray.from_arrays(pa.array(bad.reshape(-1)), D, mask=mask)
    data = pa.array([b"0", b"1", b"2", None, b"4"], pa.binary())
    file = part(tmp_path / "a.parquet", 0, good, embedding=embeddings, bytes=data)
    manifest = write(tmp_path / "index", "e", "r", [file])
    assert (manifest.count, manifest.skipped) == (2, 3)
    index = FaissIndex(str(tmp_path / "index"))
    assert index.fetch([0, 1])["bytes"].to_pylist() == [b"0", b"4"]
    assert index.search(good[[4]], 1).ids.tolist() == [[1]]


def test_the_revision_follows_the_content(tmp_path: Path) -> None:
    vectors = unit(300)
    one = part(tmp_path / "one.parquet", 0, vectors)
    halves = [part(tmp_path / "a.parquet", 0, vectors[:150]), part(tmp_path / "b.parquet", 150, vectors[150:])]
    other = part(tmp_path / "other.parquet", 0, unit(300, seed=5))
    built = {
        name: write(tmp_path / name, *encoder, parts).revision
        for name, encoder, parts in [
            ("i1", ("e", "r"), [one]),
            ("i2", ("e", "r"), [one]),
            ("i3", ("e", "r2"), [one]),
            ("i4", ("e", "r"), [other]),
        ]
    }
    assert built["i1"] == built["i2"]
    assert len({built["i1"], built["i3"], built["i4"]}) == 3
    assert write(tmp_path / "i5", "e", "r", halves).count == 300


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    good = part(tmp_path / "a.parquet", 0, unit(3))
    narrow = part(tmp_path / "b.parquet", 3, unit(2), embedding=lists(np.eye(2, dtype=np.float32)))
    long = part(tmp_path / "c.parquet", 3, 2 * unit(2))
    other = part(tmp_path / "d.parquet", 3, unit(2), caption=pa.array([1, 2]))
    text = tmp_path / "e.parquet"
    text.write_text("no Parquet")
    for parts, reason in [
        ([good, narrow], "dimension 2, others of 8"),
        ([good, long], "unit norm"),
        ([good, other], "other types or names"),
        ([good, text], "not a Parquet file"),
        ([good, tmp_path / "nowhere.parquet"], "no such file"),
        ([], "no image to index"),
    ]:
        with pytest.raises(SourceError, match=reason):
            write(tmp_path / "index", "e", "r", parts)
        assert {p.name[0] for p in tmp_path.iterdir()} == set("abcde"), "a scratch directory stayed"
    write(tmp_path / "index", "e", "r", [good])
    with pytest.raises(SourceError, match="exists already"):
        write(tmp_path / "index", "e", "r", [good])


def test_a_directory_that_is_no_whole_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no image index"):
        FaissIndex(str(tmp_path / "nowhere"))
    write(tmp_path / "index", "e", "r", [part(tmp_path / "a.parquet", 0, unit(4))])
    manifest = tmp_path / "index" / "manifest.json"
    whole = manifest.read_text()
    for change, reason in [
        ("{", "is no index manifest"),
        ("[]", "is no index manifest"),
        ('{"format": 1}', "no field 'parts'"),
        (json.dumps({**json.loads(whole), "format": 3}), "format 3"),
        (json.dumps({**json.loads(whole), "kind": "tree"}), "kind 'tree'"),
        (json.dumps({**json.loads(whole), "count": 5}), "do not add up to 5"),
        (json.dumps({**json.loads(whole), "dimension": 9}), "its manifest says 4 of 9"),
        (json.dumps({**json.loads(whole), "dimension": "8"}), "must be above 0"),
        (json.dumps({**json.loads(whole), "group_rows": 0}), "must be above 0"),
        (json.dumps({**json.loads(whole), "images_root": "/"}), "images_root is '/', expected the folder"),
        (whole.replace("images/part-00000", "../a"), "its parts name '../a.parquet', which is no file of the index"),
        (whole.replace("shard-00000", "/dev/zero"), "its shards name '/dev/zero.faiss', which is no file of the index"),
    ]:
        manifest.write_text(change)
        with pytest.raises(SourceError, match=reason):
            FaissIndex(str(tmp_path / "index"))
    manifest.write_text(whole)
    vectors = tmp_path / "index" / "shard-00000.faiss"
    vectors.write_bytes(vectors.read_bytes()[:-10])
    with pytest.raises(SourceError, match="damaged"):
        FaissIndex(str(tmp_path / "index"))


@pytest.mark.parametrize("kind", ["hnsw", "ivfpq"])
def test_damage_to_any_file_is_named(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "index", "e", "r", [part(tmp_path / "a.parquet", 0, unit(1000))], IndexWishes(kind, shards=2))
    for name, said in [
        ("shard-00001.faiss", "shard-00001.faiss: damaged"),
        ("vectors.f16", "15990 bytes, expected 16000"),
        ("rows.arrow", "rows.arrow: cannot be read"),
    ]:
        file = tmp_path / "index" / name
        whole = file.read_bytes()
        file.write_bytes(whole[:-10])
        with pytest.raises(SourceError, match=f"{said}.*rebuild"):
            FaissIndex(str(tmp_path / "index"))
        file.unlink()
        with pytest.raises(SourceError, match=f"{name}.*rebuild"):
            FaissIndex(str(tmp_path / "index"))
        file.write_bytes(whole)
    assert FaissIndex(str(tmp_path / "index")).count == 1000


def test_centroids_of_centroids(tmp_path: Path, vectors: Floats, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an index with thousands of lists is made of."""
    monkeypatch.setattr(index_vectors, "TWO_LEVELS", 4)
    near = np.concatenate([vectors[:1], vectors[0] + 1e-3 * unit(900, seed=4), unit(99, seed=5)])  # uneven clusters
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    manifest = write(tmp_path / "i", "e", "r", [part(tmp_path / "a.parquet", 0, near)], IndexWishes("ivfpq"))
    shard = faiss.read_index(str(tmp_path / "i" / "shard-00000.faiss"))
    assert shard.nlist == shard.quantizer.ntotal == manifest.plan.lists == 16
    found = FaissIndex(str(tmp_path / "i")).search(near[901:], 1)
    assert found.ids[:, 0].tolist() == list(range(901, 1000))


def test_an_index_of_format_1_is_still_read(tmp_path: Path, vectors: Floats) -> None:
    """As version 0.1 wrote it: one flat index, no rows.arrow."""
    write(tmp_path / "index", "e", "r", [part(tmp_path / "a.parquet", 0, vectors)])
    (tmp_path / "index" / "rows.arrow").unlink()
    (tmp_path / "index" / "shard-00000.faiss").rename(tmp_path / "index" / "vectors.faiss")
    manifest = tmp_path / "index" / "manifest.json"
    old = {key: value for key, value in json.loads(manifest.read_text()).items() if key not in NEW_IN_FORMAT_2}
    manifest.write_text(json.dumps({**old, "format": 1}))
    index = FaissIndex(str(tmp_path / "index"))
    assert index.search(vectors[[7]], 1).ids.tolist() == [[7]]
    assert index.metadata([7, 3]).equals(index.fetch([7, 3]).drop_columns(["bytes"]))


class Dying:
    """A source that ends its process, as a full disk or a power cut would, at its second batch, once."""

    rows = 700
    name = "dying"

    def __init__(self, inner: ParquetPart, sound: bool) -> None:
        self._inner, self._sound = inner, sound

    def read(self, most: int) -> Iterator[tuple[pa.Table, Floats]]:
        for n, batch in enumerate(self._inner.read(most)):
            if n == 1 and not self._sound:
                raise KeyboardInterrupt
            yield batch


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivfpq"])
def test_an_interrupted_build_goes_on(tmp_path: Path, vectors: Floats, kind: str) -> None:
    wish = IndexWishes(kind, shards=2)
    first = part(tmp_path / "a.parquet", 0, vectors[:300])
    second = part(tmp_path / "b.parquet", 300, vectors[300:])
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "index", "e", "r", [first, Dying(ParquetPart(second), sound=False)], wish)
    assert not (tmp_path / "index").exists()
    begun = (tmp_path / ".index.partial" / "images" / "part-00000.parquet").stat().st_mtime_ns
    with pytest.raises(RunError, match="begun from other images or other options"):
        write(tmp_path / "index", "e", "r2", [first, Dying(ParquetPart(second), sound=True)], wish)
    manifest = write(tmp_path / "index", "e", "r", [first, Dying(ParquetPart(second), sound=True)], wish)
    assert (tmp_path / "index" / "images" / "part-00000.parquet").stat().st_mtime_ns == begun, "done again"
    undisturbed = write(tmp_path / "other", "e", "r", [first, Dying(ParquetPart(second), sound=True)], wish)
    assert manifest == undisturbed
    for name in ("vectors.f16", "rows.arrow"):
        one, other = (tmp_path / index / name for index in ("index", "other"))
        assert one.exists() == other.exists()
        assert not one.exists() or one.read_bytes() == other.read_bytes()
    assert FaissIndex(str(tmp_path / "index")).search(vectors[[999]], 1).ids.tolist() == [[999]]
    assert {p.name for p in tmp_path.iterdir()} == {"a.parquet", "b.parquet", "index", "other"}


def test_a_second_builder_refuses(tmp_path: Path, vectors: Floats) -> None:
    class Nested(Dying):
        def read(self, most: int) -> Iterator[tuple[pa.Table, Floats]]:
            with pytest.raises(RunError, match="another process is building here"):
                write(tmp_path / "index", "e", "r", [file])
            return self._inner.read(most)

    file = part(tmp_path / "a.parquet", 0, vectors[:700])
    assert write(tmp_path / "index", "e", "r", [Nested(ParquetPart(file), sound=True)]).count == 700


def test_a_remote_index_is_brought_once(tmp_path: Path, vectors: Floats, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "far", "e", "r", [part(tmp_path / "a.parquet", 0, vectors)], IndexWishes("ivfpq", shards=2))
    monkeypatch.setenv("C2B_CACHE", str(tmp_path / "cache"))
    remote = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())  # no local file system, so far as anyone sees
    for module in (faiss_index, faiss_index):
        monkeypatch.setattr(module, "resolve", lambda path: (remote, path.removeprefix("far://")))
    index = FaissIndex("far://far")
    assert index.search(vectors[[5]], 1).ids.tolist() == [[5]]
    assert index.fetch([5])["key"].to_pylist() == ["folder/5.jpg"]
    (kept,) = (tmp_path / "cache" / "indexes").iterdir()
    assert sorted(p.name for p in kept.iterdir() if p.name != ".lock") == [
        "rows.arrow",
        "shard-00000.faiss",
        "shard-00001.faiss",
        "vectors.f16",
    ]
    (tmp_path / "far" / "shard-00000.faiss").unlink()  # not read again
    assert FaissIndex("far://far").search(vectors[[5]], 1).ids.tolist() == [[5]]


def test_lost_images_are_named(tmp_path: Path) -> None:
    write(tmp_path / "index", "e", "r", [part(tmp_path / "a.parquet", 0, unit(4))])
    index = FaissIndex(str(tmp_path / "index"))
    (tmp_path / "index" / "images" / "part-00000.parquet").unlink()
    with pytest.raises(SourceError, match=r"part-00000\.parquet"):
        index.fetch([0])
