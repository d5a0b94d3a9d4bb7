"""Many captions: what is written, from which files, and that an interrupted search goes on."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from c2b_ray.models import catalog
from c2b_ray.models.index import build as faiss_build
from c2b_ray.models.index.plan import IndexWishes
from c2b_ray.storage.parts import read_stage

CAPTIONS = ["a photo of a bus in the fog", "a boat", "a bus", "a boat at night", "a bus"]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of texts instead of images: the encoder puts both into one space, and the nearest of a caption is itself."""
    root = tmp_path_factory.mktemp("index")
    texts = [f"{thing} {n}" for n in range(300) for thing in ("a bus", "a boat", "a tree", "a dog")] + CAPTIONS[:4]
    encoder = catalog.encoder("world:clip")
    vectors = encoder.encode_texts(texts)
    rows = {
        "key": pa.array(texts),
        "bytes": pa.array([b""] * len(texts), pa.binary()),
        "embedding": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1]),
    }
    pq.write_table(pa.table(rows), root / "rows.parquet")
    parts, wish = [root / "rows.parquet"], IndexWishes("ivfpq", shards=2)
    faiss_build.write(root / "index", "world:clip", encoder.revision, parts, wish)
    return root / "index"


def test_many_captions(index: Path, tmp_path: Path, c2b) -> None:
    pq.write_table(pa.table({"caption": [*CAPTIONS, "", None]}), tmp_path / "captions.parquet", row_group_size=3)
    asked = ("index", "search", index, "--captions", tmp_path / "captions.parquet", "--out", tmp_path / "out", "-k", 4)
    status, out, _ = c2b(*asked, "--json")
    assert status == 0
    said = json.loads(out)
    assert (said["rows"], said["errors"], said["resumed"]) == (7, 2, 0)
    rows = {row["row"]: row for row in read_stage(str(tmp_path / "out")).to_pylist()}
    assert [rows[n]["caption"] for n in range(7)] == [*CAPTIONS, "", ""]
    opened = catalog.index(str(index))
    found = opened.search(catalog.encoder("world:clip").encode_texts(CAPTIONS), 4)
    for n in range(5):
        assert rows[n]["keys"] == opened.metadata(found.ids[n].tolist())["key"].to_pylist()
        np.testing.assert_allclose(rows[n]["similarities"], found.similarities[n], atol=1e-5)
        assert rows[n]["similarities"][0] == pytest.approx(1, abs=1e-3)
    assert [rows[n]["error"] for n in (4, 5, 6)] == [None, "an empty caption", "an empty caption"]
    assert rows[5]["keys"] == []
    # Half of it lost, as by a kill: the same command makes the rest, and no other row.
    lost = next((tmp_path / "out").glob("part-*.parquet"))
    expected = len(pq.read_table(lost))
    lost.unlink()
    status, out, _ = c2b(*asked, "--json")
    assert status == 0
    assert (json.loads(out)["rows"], json.loads(out)["resumed"]) == (expected, 7 - expected)
    status, _, err = c2b(*asked[:-1], 5)
    assert status == 2
    assert "holds answers to other captions" in err


def test_lines_of_a_text_file(index: Path, tmp_path: Path, c2b) -> None:
    (tmp_path / "captions.txt").write_text("a boat\n\n  a bus  \n")
    status, out, _ = c2b("index", "search", index, "--captions", tmp_path / "captions.txt", "--out", tmp_path / "out")
    assert status == 0
    assert "2 captions answered" in out
    rows = read_stage(str(tmp_path / "out"), ["row", "caption"]).sort_by("row").to_pylist()
    assert rows == [{"row": 0, "caption": "a boat"}, {"row": 2, "caption": "a bus"}]


def test_what_is_no_file_of_captions(index: Path, tmp_path: Path, c2b) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    pq.write_table(pa.table({"words": ["x"]}), tmp_path / "other.parquet")
    (tmp_path / "damaged.parquet").write_text("nothing")
    for name, said in [
        ("empty.txt", "holds no caption"),
        ("other.parquet", "no column caption or text; it has words"),
        ("damaged.parquet", "cannot be read"),
        ("nowhere.txt", "no such file"),
        ("captions.csv", "expected captions in a .txt file"),
    ]:
        captions = ("--captions", tmp_path / name, "--out", tmp_path / f"out-{name}")
        status, _, err = c2b("index", "search", index, *captions)
        assert (status, said in err) == (2, True), err
    status, _, err = c2b("index", "search", index, "--captions", tmp_path / "empty.txt")
    assert (status, "--out DIR" in err) == (2, True)
    assert c2b("index", "search", index)[0] == 2
    assert c2b("index", "search", index, "a bus", "--captions", "x.txt")[0] == 2


def test_an_embedding_folder_from_the_command_line(tmp_path: Path, c2b) -> None:
    vectors = catalog.encoder("world:clip").encode_texts(CAPTIONS[:4])
    (tmp_path / "e" / "img_emb").mkdir(parents=True)
    (tmp_path / "e" / "metadata").mkdir()
    np.save(tmp_path / "e" / "img_emb" / "img_emb_0.npy", vectors.astype(np.float16))
    table = pa.table({"image_path": [f"{n}.jpg" for n in range(4)]})
    pq.write_table(table, tmp_path / "e" / "metadata" / "metadata_0.parquet")
    made = ("--encoder", "world:clip", "--out", tmp_path / "index", "--json")
    status, out, _ = c2b("index", "import", tmp_path / "e", *made)
    assert status == 0
    assert (json.loads(out)["images"], json.loads(out)["kind"]) == (4, "flat")
    status, out, _ = c2b("index", "search", tmp_path / "index", "a boat at night", "-k", 1, "--json")
    assert json.loads(out)[0]["key"] == "3.jpg"
    status, _, err = c2b("index", "import", tmp_path / "e", *made, "--skip-bad")
    assert (status, "index of other images or another encoder" in err) == (2, True)
    status, out, _ = c2b("index", "build", "--images", tmp_path / "e", *made[:3], tmp_path / "again", "--json")
    assert (status, json.loads(out)["images"]) == (0, 4)
    np.save(tmp_path / "e" / "img_emb" / "img_emb_0.npy", np.ones((4, 3), np.float16))
    status, _, err = c2b("index", "import", tmp_path / "e", *made[:3], tmp_path / "third")
    assert (status, "name the encoder that made them" in err) == (2, True)
