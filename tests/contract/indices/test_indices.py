"""What every ImageIndex must do, against brute force."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import faiss
import numpy as np
import pyarrow.parquet as pq
import pytest
from index_parts import D, part, unit

from c2b_ray.errors import SourceError, SpecError
from c2b_ray.models import catalog
from c2b_ray.models.index.build import write
from c2b_ray.models.index.faiss_index import FaissIndex
from c2b_ray.models.index.plan import IndexWishes
from c2b_ray.roles import Floats, ImageIndex


def tolerance(directory: Path) -> float:
    """Of cosines: vectors are kept in float32, or in float16, where each component is off by 2⁻¹¹ of itself at most."""
    return 1e-5 if json.loads((directory / "manifest.json").read_text())["kind"] == "flat" else 2**-11


@pytest.fixture(
    scope="module",
    params=[
        IndexWishes(),
        IndexWishes("flat", shards=3),
        IndexWishes("hnsw"),
        IndexWishes("hnsw", shards=2),
        IndexWishes("ivfpq"),
        IndexWishes("ivfpq", shards=3),
    ],
    ids=lambda wish: f"{wish.kind}-{wish.shards}",
)
def directory(tmp_path_factory: pytest.TempPathFactory, vectors: Floats, request: pytest.FixtureRequest) -> Path:
    root = tmp_path_factory.mktemp("index")
    files = [
        part(root / "a.parquet", 0, vectors[:600]),
        part(root / "none.parquet", 0, vectors[:0]),
        part(root / "b.parquet", 600, vectors[600:]),
    ]
    write(root / "index", "open_clip:X/y", "rev", files, request.param, group_rows=100)
    return root / "index"


def test_the_catalogue_opens_it_by_path_and_by_scheme(directory: Path) -> None:
    for spec in (str(directory), f"faiss:{directory}"):
        index = catalog.index(spec)
        assert isinstance(index, ImageIndex)
        assert (index.encoder, index.dimension) == ("open_clip:X/y", D)
        assert len(index.revision) == 20
    with pytest.raises(SpecError, match="unknown option"):
        catalog.index(f"faiss:{directory}?k=3")


def test_it_is_described_from_its_manifest_alone(directory: Path, tmp_path: Path) -> None:
    for spec in (str(directory), f"faiss:{directory}?device=cpu"):
        assert catalog.describe("index", spec) == catalog.description_of(catalog.index(spec))
    shutil.copy(directory / "manifest.json", tmp_path)
    assert catalog.describe("index", str(tmp_path)) == catalog.describe("index", str(directory))
    with pytest.raises(SpecError, match="unknown option"):
        catalog.describe("index", f"faiss:{directory}?k=3")


def test_search_agrees_with_brute_force(directory: Path, vectors: Floats) -> None:
    queries = unit(20, seed=1)
    found = FaissIndex(str(directory)).search(queries, 7)
    cosines = queries @ vectors.T
    expected = np.argsort(-cosines, axis=1)[:, :7]
    assert found.ids.dtype == np.int64
    assert found.similarities.dtype == np.float32
    assert (found.ids == expected).all()
    np.testing.assert_allclose(
        found.similarities, np.take_along_axis(cosines, expected, axis=1), atol=tolerance(directory)
    )


def test_an_image_is_its_own_nearest_neighbour(directory: Path, vectors: Floats) -> None:
    found = FaissIndex(str(directory)).search(vectors[[3, 999]], 1)
    assert found.ids.tolist() == [[3], [999]]
    np.testing.assert_allclose(found.similarities, 1, atol=tolerance(directory))


def test_beyond_the_last_image_there_is_none(directory: Path) -> None:
    found = FaissIndex(str(directory)).search(unit(2, seed=2), 1003)
    assert (found.ids[:, 1000:] == -1).all()
    assert np.isnan(found.similarities[:, 1000:]).all()
    assert sorted(found.ids[0, :1000]) == list(range(1000))


def test_no_queries_and_no_neighbours(directory: Path) -> None:
    index = FaissIndex(str(directory))
    assert index.search(np.zeros((0, D), np.float32), 5).ids.shape == (0, 5)
    assert index.search(unit(2), 0).similarities.shape == (2, 0)


def test_fetch_keeps_order_repeats_and_metadata(directory: Path) -> None:
    ids = [999, 0, 600, 599, 0, 100]
    table = FaissIndex(str(directory)).fetch(ids)
    assert table.column_names == ["key", "bytes", "caption"]
    assert table["key"].to_pylist() == [f"folder/{i}.jpg" for i in ids]
    assert table["bytes"].to_pylist() == [b"image %d" % i for i in ids]
    assert table["caption"].to_pylist() == [f"number {i}" for i in ids]
    assert FaissIndex(str(directory)).fetch([]).column_names == table.column_names
    whole = FaissIndex(str(directory)).fetch(range(1000))
    assert whole["key"].to_pylist() == [f"folder/{i}.jpg" for i in range(1000)]


def test_metadata_are_the_rows_without_the_images(directory: Path) -> None:
    index = FaissIndex(str(directory))
    ids = [999, 0, 600, 599, 0, 100]
    assert index.metadata(ids).equals(index.fetch(ids).drop_columns(["bytes"]))
    assert index.metadata([]).equals(index.fetch([]).drop_columns(["bytes"]))
    with pytest.raises(SourceError, match="no image 1000"):
        index.metadata([1000])


def test_single_queries_find_what_a_batch_finds(directory: Path) -> None:
    index, queries = FaissIndex(str(directory)), unit(150, seed=3)
    together = index.search(queries, 5)
    alone = [index.search(query[None], 5) for query in queries]
    assert (np.concatenate([found.ids for found in alone]) == together.ids).all()


def test_fetch_reads_only_the_row_groups_it_needs(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    real = pq.ParquetFile.read_row_group
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", lambda self, i: (seen.append(i), real(self, i))[1])
    FaissIndex(str(directory)).fetch([101, 150, 599, 950])  # groups of 100: 1 and 5 of part a, 3 of part b
    assert seen == [1, 5, 3]


@pytest.mark.parametrize("image", [-1, 1000])
def test_an_unknown_id_is_named(directory: Path, image: int) -> None:
    with pytest.raises(SourceError, match=f"no image {image}; its ids are 0 to 999"):
        FaissIndex(str(directory)).fetch([0, image])


def test_another_dimension_is_another_encoder(directory: Path) -> None:
    with pytest.raises(SourceError, match=r"open_clip:X/y has dimension 8, .* \(1, 9\); rebuild with c2b index build"):
        FaissIndex(str(directory)).search(np.zeros((1, 9), np.float32), 1)


def test_options_say_how_hard_to_look(directory: Path, vectors: Floats) -> None:
    for options in ("probes=1&shortlist=1", "device=cpu", "probes=9999"):
        found = catalog.index(f"faiss:{directory}?{options}").search(vectors[:3], 1)
        assert found.ids.tolist() == [[0], [1], [2]]
    for options, said in [("probes=0", "from 1 on"), ("shortlist=many", "from 1 on"), ("device=tpu", "auto, cpu, gpu")]:
        with pytest.raises(SpecError, match=said):
            catalog.index(f"faiss:{directory}?{options}")


@pytest.mark.skipif(faiss.get_num_gpus() > 0, reason="there is a GPU")
def test_a_gpu_that_is_asked_for_must_be_there(directory: Path) -> None:
    with pytest.raises(SourceError, match="device=gpu: this process has no GPU, or faiss sees none"):
        catalog.index(f"faiss:{directory}?device=gpu")
