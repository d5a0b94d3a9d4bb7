"""`images.cluster`: what an audit of labelled images reads, refuses and keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import c2b_ray
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.config import AuditConfig
from c2b_ray.errors import ConfigError

LABELS = ["red", "blue"]
RETRIEVED = {"source": "retrieve", "index": "index", "cluster": "camera"}


def brightness(images: list[Any]) -> Any:
    return np.stack([image.mean(axis=(0, 1))[[0, 2]] for image in images])


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """72 red squares of six cameras, in a folder each."""
    rows = ["image,target_class,light,camera"]
    for n in range(72):
        camera = f"cam{n % 6}"
        folder = tmp_path / "photos" / camera
        folder.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(n).integers(0, 60, (40, 44, 3), np.uint8)
        Image.fromarray(noise + np.array((150, 20, 20), np.uint8)).save(folder / f"{n}.png")
        rows.append(f"{camera}/{n}.png,red,{('day', 'dark')[n // 6 % 2]},{camera}")
    (tmp_path / "photos" / "table.csv").write_text("\n".join(rows))
    return tmp_path / "photos" / "table.csv"


def audit(table: Path, out: str, **images: Any) -> C2BRun:
    config = {"task": "t", "classes": ["red"], "images": {"source": "labelled", "table": str(table), **images}}
    run = c2b_ray.audit(config, table.parent.parent / out, classifier=brightness, labels=LABELS)
    assert isinstance(run, C2BRun)
    return run


def test_a_column_and_the_folder_make_the_same_clusters(photos: Path) -> None:
    by_column, by_folder = audit(photos, "a", cluster="camera"), audit(photos, "b", cluster="folder")
    assert set(by_column.scores["attribute"].to_pylist()) == {"light"}
    assert by_column.scores["clusters"].to_pylist() == [6, 6]
    assert by_folder.read("clusters").equals(by_column.read("clusters"))
    assert by_column.record.config["images"]["cluster"] == "camera"


def test_without_clusters_the_run_is_as_before_and_names_the_column(photos: Path) -> None:
    run = audit(photos, "a")
    assert "cluster" not in run.record.config["images"], "its id is that of a run without the field"
    assert not run.has("clusters")
    assert run.scores["clusters"].null_count == run.scores.num_rows
    assert any("write `cluster: camera` under `images`" in warning for warning in run.manifest["warnings"])


@pytest.mark.parametrize(("site", "asks"), [("place {}", True), ("{}", True), ("named", False)])
def test_a_column_of_many_scenes_is_asked_about_though_it_is_compared(tmp_path: Path, site: str, asks: bool) -> None:
    """Thirty places of 20 photographs, answered alike: a column of as many words is compared, one of as many numbers is
    not. Where the file names it as an attribute, somebody knows what it is."""
    rows, answers = ["image,target_class,light,place"], ["file,prediction"]
    rates = np.random.default_rng(0).beta(0.7, 0.3, 30)
    for n in range(600):
        noise = np.random.default_rng(n).integers(0, 256, (12, 12, 3), np.uint8)
        Image.fromarray(noise).save(tmp_path / f"{n}.png")
        place = f"place {n % 30}" if site == "named" else site.format(n % 30)
        rows.append(f"{n}.png,red,{('day', 'dark')[n // 30 % 2]},{place}")
        answers.append(f"{n}.png,{'red' if np.random.default_rng(n).random() < rates[n % 30] else 'blue'}")
    (tmp_path / "table.csv").write_text("\n".join(rows))
    (tmp_path / "answers.csv").write_text("\n".join(answers))
    config: dict[str, Any] = {
        "task": "t", "classes": ["red"], "classifier": f"table:{tmp_path / 'answers.csv'}", "check": False,
        "images": {"source": "labelled", "table": str(tmp_path / "table.csv")},
        **({"attributes": {"light": ["day", "dark"], "place": [f"place {n}" for n in range(30)]}} if not asks else {}),
    }  # fmt: skip
    warnings = c2b_ray.audit(config, tmp_path / "run", via="here").manifest["warnings"]
    assert any("images of one place are answered alike" in warning for warning in warnings) == asks


def test_a_column_that_is_not_there_is_refused_with_the_nearest(photos: Path) -> None:
    with pytest.raises(ConfigError, match=r"images\.cluster: .* has no column 'camra'; did you mean 'camera'"):
        audit(photos, "a", cluster="camra")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"budget": {"images": 100}, "images_per_caption": 10}, "`budget` takes images as independent"),
        ({"images": {"source": "generate", "generator": "world:renderer", "cluster": "camera"}}, "does not belong"),
        ({"images": RETRIEVED, "verification": {"model": "world:clip"}}, "`verification` corrects answers as if"),
        ({"images": RETRIEVED, "confirm": True}, "`confirm` takes fresh images as independent of the earlier ones"),
        ({"images": RETRIEVED, "screening": {}}, "`screening` takes fresh images as independent of the earlier ones"),
    ],
)
def test_what_takes_images_as_independent_is_refused(more: dict[str, Any], reason: str) -> None:
    config = {"task": "t", "classes": ["red"], "classifier": "fake:", "attributes": {"light": ["day", "dark"]}}
    images = {"source": "labelled", "table": "t.csv", "cluster": "camera"}
    with pytest.raises(ValueError, match=reason):
        AuditConfig.model_validate({**config, "images": images, **more})


def test_clusters_are_seen_in_the_answers_where_no_column_is_called_so(photos: Path) -> None:
    """Photographs of two of six rooms are answered wrongly, whatever their light."""
    rows = photos.read_text().splitlines()
    rooms = [row.rsplit(",", 1)[1] for row in rows[1:]]
    table = photos.with_name("rooms.csv")
    lines = [row.rsplit(",", 1)[0] for row in rows]
    more = ["room", *(room.replace("cam", "room ") for room in rooms)]
    table.write_text("\n".join(f"{a},{b}" for a, b in zip(lines, more, strict=True)))
    for n, room in enumerate(rooms):
        if room in ("cam1", "cam4"):
            noise = np.random.default_rng(n).integers(0, 60, (40, 44, 3), np.uint8)
            Image.fromarray(noise + np.array((20, 20, 150), np.uint8)).save(photos.parent / room / f"{n}.png")
    attributes = {"light": ["day", "dark"]}
    images = {"source": "labelled", "table": str(table)}
    config = {"task": "t", "classes": ["red"], "attributes": attributes, "images": images}
    run = c2b_ray.audit(config, photos.parent.parent / "a", classifier=brightness, labels=LABELS)
    assert isinstance(run, C2BRun)
    asked = [warning for warning in run.manifest["warnings"] if "are answered alike by" in warning]
    assert len(asked) == 1, "the folders are the rooms"
    assert "intraclass correlation 1.00" in asked[0]
    assert "write `cluster: room` under `images`" in asked[0]
