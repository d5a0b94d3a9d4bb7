"""`images.cluster` of images from an index: its metadata name the cluster of each."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import c2b_ray
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.c2b.scoring.clusters import check_clusters_of_index, clusters_of_index
from c2b_ray.audits.index import build
from c2b_ray.audits.kit.session import Session
from c2b_ray.errors import ConfigError
from c2b_ray.models.index.faiss_index import FaissIndex

LABELS = ["red", "blue"]


def brightness(images: list[Any]) -> Any:
    return np.stack([image.mean(axis=(0, 1))[[0, 2]] for image in images])


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An index of 48 squares of six cameras; of the last image the camera is not known."""
    folder = tmp_path_factory.mktemp("clusters")
    rows = []
    for n in range(48):
        noise = np.random.default_rng(n).integers(0, 60, (40, 44, 3), np.uint8)
        file = io.BytesIO()
        Image.fromarray(noise + np.array((150, 20, 20), np.uint8)).save(file, "png")
        camera = None if n == 47 else f"cam{n % 6}"
        rows.append({"key": f"{n % 4}/{n}.png", "image": file.getvalue(), "camera": camera, "site": n % 3, "note": ""})
    pq.write_table(pa.Table.from_pylist(rows), folder / "photos.parquet")
    build(str(folder / "photos.parquet"), "world:clip", str(folder / "index"), Session("here"))
    return str(folder / "index")


def audit(index: str, out: Path, cluster: str | None) -> C2BRun:
    images = {"source": "retrieve", "index": index} | ({} if cluster is None else {"cluster": cluster})
    config = {
        "task": "t", "classes": ["red"], "images": images, "attributes": {"light": ["day", "dark"]},
        "captions_per_cell": 2, "images_per_caption": 10, "check": False,
    }  # fmt: skip
    run = c2b_ray.audit(config, out, classifier=c2b_ray.InMemory(brightness, LABELS, revision="1"))
    assert isinstance(run, C2BRun)
    return run


def test_the_cameras_of_retrieved_images_are_kept_and_counted(index: str, tmp_path: Path) -> None:
    run = audit(index, tmp_path / "run", "camera")
    known = dict(zip(*run.read("clusters").to_pydict().values(), strict=True))
    numbers = {row["image_id"]: int(row["key"].split("/")[1][:-4]) for row in run.images.to_pylist()}
    assert all(known[image] == (None if n == 47 else f"cam{n % 6}") for image, n in numbers.items())
    for row in run.scores.to_pylist():
        assert row["captions"] == 2
        assert 2 <= row["clusters"] <= 7
    assert "camera" in Path(run.report).read_text()


def test_without_clusters_the_run_is_as_before(index: str, tmp_path: Path) -> None:
    run = audit(index, tmp_path / "run", None)
    assert "cluster" not in run.record.config["images"], "its id is that of a run without the field"
    assert not run.has("clusters")


def test_an_audit_names_the_columns_that_the_index_has(index: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"images\.cluster: .* no column 'camra' .*did you mean 'camera'"):
        audit(index, tmp_path / "run", "camra")


def test_columns_and_folders_of_an_index(index: str) -> None:
    def opened() -> FaissIndex:
        return FaissIndex(index)

    images = pa.table({"image_id": ["a", "b", "c"], "row": [4, 47, 0]})
    assert clusters_of_index(opened, images, "camera")["cluster"].to_pylist() == ["cam4", None, "cam0"]
    assert clusters_of_index(opened, images, "site")["cluster"].to_pylist() == ["1", "2", "0"]
    assert clusters_of_index(opened, images, "folder")["cluster"].to_pylist() == ["0", "3", "0"]
    check_clusters_of_index(opened, "folder")
    with pytest.raises(ConfigError, match="none of 3 images of the index has a note; name another column"):
        clusters_of_index(opened, images, "note")
