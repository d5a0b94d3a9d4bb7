"""Images that stay where they are: what a run holds of them, how it reads them again, what it says where it cannot."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from PIL import Image

import c2b_ray
from c2b_ray.audits.c2b.report import page
from c2b_ray.audits.c2b.run import C2BRun, load_c2b_run
from c2b_ray.audits.runs import write_report
from c2b_ray.endpoint.api.problems import ProblemError
from c2b_ray.endpoint.api.reads import Results
from c2b_ray.errors import ImageError, SourceError
from c2b_ray.report import explore
from c2b_ray.report.pictures import read_pictures
from c2b_ray.steps import prepared
from c2b_ray.steps.draw import fetch, wanted
from c2b_ray.steps.fetch import InPlace
from c2b_ray.storage import files
from c2b_ray.storage.confined import Folder
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.tables import content_id

LABELS = ["red", "blue"]
COUNT = 24


def brightness(images: list[Any]) -> Any:
    return np.stack([image.mean(axis=(0, 1))[[0, 2]] for image in images])


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Red and blue squares; of the blue ones those in the dark are red."""
    folder = tmp_path / "photos"
    folder.mkdir()
    rows = ["image,target_class,light"]
    for n in range(COUNT):
        light, name = ("day", "dark")[n % 2], LABELS[n // 2 % 2]
        colour = (200, 20, 20) if name == "red" or light == "dark" else (20, 20, 200)
        pixels = np.full((40 + n, 44, 3), colour, np.uint8) + np.random.default_rng(n).integers(0, 30, 1, np.uint8)
        Image.fromarray(pixels).save(folder / f"{n}.png")
        rows.append(f"{n}.png,{name},{light}")
    (folder / "table.csv").write_text("\n".join(rows))
    return folder


def audit(photos: Path, **more: Any) -> C2BRun:
    table = {"source": "labelled", "table": str(photos / "table.csv")}
    config = {"task": "Tell red from blue.", "classes": LABELS, "images": table} | more
    model = c2b_ray.InMemory(brightness, LABELS, revision="1")
    return load_c2b_run(c2b_ray.audit(config, photos.parent / "run", classifier=model))


def bytes_of(run: C2BRun) -> int:
    return sum(file.stat().st_size for file in Path(run.path).rglob("*") if file.is_file())


def page_of(run: C2BRun) -> str:
    return Path(run.report).read_text()


def test_a_run_holds_places_sizes_and_hashes_and_its_report_the_pictures(photos: Path) -> None:
    run = audit(photos)
    images = run.read("images")
    assert images["bytes"].null_count == images.num_rows == COUNT
    assert run.predictions["error"].null_count == COUNT
    table = LabelledTable(str(photos / "table.csv"))
    for row in images.to_pylist():
        data = (photos / row["key"]).read_bytes()
        assert table.fetch([row["row"]])["bytes"][0].as_py() == data
        assert row["size"] == len(data)
    before = page_of(run)
    assert before.count("data:image/jpeg") > 4
    shutil.rmtree(photos)
    write_report(run.path)
    assert page_of(run) == before, "what the report shows is in the run"


def test_of_a_picture_that_is_gone_and_was_never_shown_a_page_says_so(photos: Path) -> None:
    run = audit(photos)
    files.remove_directory(run.location("shown"))
    (photos / "table.csv").rename(photos / "moved.csv")
    write_report(run.path)
    assert "data:image/jpeg" not in page_of(run)
    assert "not there any more" in page_of(run)


def test_images_are_read_and_decoded_once(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    real = prepared.decoded
    monkeypatch.setattr(prepared, "decoded", lambda *given: decoded.append(1) or real(*given))
    read: list[str] = []
    opened = Folder.read
    monkeypatch.setattr(Folder, "read", lambda self, name, most: read.append(name) or opened(self, name, most))
    seen: list[str] = []
    models = {name: c2b_ray.InMemory(brightness, LABELS, revision=name) for name in "ab"}
    config = {"task": "t", "classes": LABELS, "images": {"source": "labelled", "table": str(photos / "table.csv")}}
    run = c2b_ray.audit(config, photos.parent / "run", classifier=models, listener=lambda e: seen.append(e.step))
    assert isinstance(run, C2BRun)
    in_pass = read[:COUNT]
    assert sorted(in_pass) == sorted(f"{n}.png" for n in range(COUNT))
    assert len(decoded) == COUNT
    assert run.count("predictions") == 2 * COUNT
    assert not any("fetch" in step for step in seen)


def test_all_images_are_kept_where_the_config_says_so(photos: Path) -> None:
    run = audit(photos, keep_images=True)
    images = run.images
    assert images["bytes"].null_count == 0
    assert images["row"].null_count == COUNT
    assert run.record.config["keep_images"] is True


def test_a_run_of_a_release_before_goes_on_with_the_bytes_that_it_has(photos: Path) -> None:
    run = audit(photos)
    whole = run.predictions.sort_by("image_id")
    table = run.read("images")
    data = LabelledTable(str(photos / "table.csv")).fetch(table["row"].to_pylist())["bytes"]
    old = table.select(["image_id", "key"]).append_column("bytes", data)
    old = old.append_column("content", pa.array([content_id(one) for one in data.to_pylist()], pa.string()))
    for name in ("fingerprint", "error"):
        old = old.append_column(name, table[name])
    for name in ("images", "predictions", "shown"):
        files.remove_directory(run.location(name))
    files.make_directory(run.location("images"))
    files.write_table(run.location("images/part-0.parquet"), old)
    manifest = json.loads(Path(run.location("run.json")).read_text())
    unfinished = {key: value for key, value in manifest.items() if key not in ("tables", "finished")}
    assert "keep_images" not in manifest["config"], "its id is that of a run without the field"
    Path(run.location("run.json")).write_text(json.dumps(unfinished | {"status": "running"}))
    (photos / "3.png").unlink()  # the run has its bytes
    again = audit(photos)
    assert again.predictions.sort_by("image_id").equals(whole)
    assert again.read("images")["row"].null_count == COUNT
    assert page_of(again).count("data:image/jpeg") > 4


def test_a_file_that_is_not_there_is_an_error_of_its_row(photos: Path) -> None:
    (photos / "5.png").unlink()
    (photos / "6.png").write_bytes(b"no picture")
    run = audit(photos)
    errors = {row["key"]: row["error"] for row in run.images.to_pylist() if row["error"]}
    assert sorted(errors) == ["5.png", "6.png"]
    assert errors["5.png"] == "no such file beside the table"
    assert run.predictions["error"].null_count == COUNT - 2


def test_what_vanished_or_was_changed_since_is_an_error_that_says_so(photos: Path) -> None:
    load: Callable[[], LabelledTable] = lambda: LabelledTable(str(photos / "table.csv"))  # noqa: E731
    images = fetch(wanted(np.arange(6), "r"), load(), keep=False)
    (photos / "1.png").unlink()
    data = (photos / "2.png").read_bytes()
    (photos / "2.png").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    (photos / "3.png").write_bytes(data + b"more")
    found = InPlace(load).with_bytes(images.drop_columns(["fingerprint"])).to_pylist()
    assert [row["key"] for row in found if row["error"] is None] == ["0.png", "4.png", "5.png"]
    assert found[0]["bytes"] == (photos / "0.png").read_bytes()
    gone, changed, longer = (row["error"] for row in found[1:4])
    assert gone == "it was there when the run first read it, and is not now: no such file beside the table"
    assert changed.startswith("its bytes were changed after the run had first read them")
    assert f"{len(data) + 4} now" in longer
    assert all(row["bytes"] is None for row in found[1:4])
    unplaced = InPlace(None).with_bytes(images)
    assert pc.all(pc.is_valid(unplaced["error"])).as_py()


def test_a_disk_that_hangs_stops_the_audit_which_resumes_when_it_is_back(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back, real = Event(), Folder.read

    def hung(self: Folder, name: str, most: int) -> bytes:
        if name == "7.png" and not back.wait(20):
            raise ImageError("the test is over")
        return real(self, name, most)

    monkeypatch.setattr(Folder, "read", hung)
    monkeypatch.setenv("C2B_READ_TIMEOUT", "0.3")
    with pytest.raises(SourceError, match=r"photos/7\.png: no answer for 0\.3 seconds.*run the same command again"):
        audit(photos)
    back.set()
    assert audit(photos).predictions["error"].null_count == COUNT


def test_a_picture_is_read_where_it_lies_and_else_as_the_report_showed_it(photos: Path) -> None:
    run = audit(photos)
    shown = pq.read_table(Path(run.location("shown")))
    names = dict(zip(*(run.images[name].to_pylist() for name in ("image_id", "key")), strict=True))
    image_id = shown["image_id"][0].as_py()
    assert read_pictures(run, [image_id]) == {image_id: (photos / names[image_id]).read_bytes()}
    (photos / names[image_id]).unlink()
    assert read_pictures(run, [image_id]) == {image_id: shown["bytes"][0].as_py()}
    assert bytes_of(run) < 200_000


def test_an_endpoint_shows_what_the_run_holds_and_nothing_of_the_folder(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reduced(ids: Sequence[str], pictures: Mapping[str, bytes], **more: bool) -> tuple[dict[str, bytes], int]:
        return explore.reduced(ids[: COUNT // 2], pictures, **more)

    monkeypatch.setattr(page, "reduced", reduced)  # a page has room for 600 pictures
    run = audit(photos)
    shown = pq.read_table(Path(run.location("shown")))
    kept = dict(zip(*(shown[name].to_pylist() for name in ("image_id", "bytes")), strict=True))
    results = Results(SimpleNamespace(state="running"), run.path, run=run)  # type: ignore[arg-type]
    for image_id in run.images["image_id"].to_pylist():
        if image_id in kept:
            assert results.image(image_id) == kept[image_id]
        else:
            with pytest.raises(ProblemError):
                results.image(image_id)
    assert 0 < len(kept) < COUNT
    assert results.table("images").num_rows == COUNT
