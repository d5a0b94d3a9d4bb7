"""Several classifiers in one pass over the images: what each says, what is done again after a stop, what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from c2b_ray.engine.here import InProcess
from c2b_ray.engine.images import AuditedClassifier, ImageStages, RowsByImage, prediction_ids, selected
from c2b_ray.engine.rows import each_once, not_yet
from c2b_ray.errors import WeightsError
from c2b_ray.roles import Floats, Pixels
from c2b_ray.steps import decode
from c2b_ray.steps.classify import classification, predict
from c2b_ray.storage import files
from c2b_ray.storage.parts import digests, read_stage
from c2b_ray.tables import IMAGES


class Brightness:
    """Calls what is bright a bus."""

    labels = ("bus", "boat")

    def __init__(self, level: int, revision: str | None = None) -> None:
        self.level, self.revision = level, revision or f"at {level}"
        self.seen = 0

    def logits(self, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
        self.seen += len(images)
        return np.array([[float(image.mean()), self.level] for image in images], np.float32)


def images(n: int = 40) -> pa.Table:
    rows = []
    for i in range(n):
        data = BytesIO()
        Image.fromarray(np.full((8, 8, 3), 6 * i, np.uint8)).save(data, "PNG")
        rows.append({"image_id": f"{i:020d}", "key": f"{i}.png", "bytes": data.getvalue(), "error": None})
    rows[7] |= {"bytes": b"no picture"}
    return pa.Table.from_pylist(rows, IMAGES)


def contestant(name: str, model: Brightness) -> AuditedClassifier:
    return AuditedClassifier(lambda: model, classification(name, model, ["bus", "boat"], None))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    files.make_directory(tmp_path / "images")
    for part in range(2):
        files.write_table(str(tmp_path / f"images/part-{part}.parquet"), images().slice(20 * part, 20))
    return tmp_path


def classify(place: Path, models: dict[str, Brightness]) -> pa.Table:
    """All predictions in order, after a pass of these classifiers."""
    wanted = digests(pa.array([f"{i:020d}" for i in range(5, 40)]))
    told = []
    ImageStages(InProcess()).classify(
        selected(str(place / "images"), lambda: [wanted[20:], wanted[:25]]),
        [contestant(name, model) for name, model in models.items()],
        str(place / "predictions"),
        told.append,
    )
    assert told[-1].rows + told[-1].resumed == told[-1].total == 35 * len(models)
    return read_stage(str(place / "predictions")).sort_by([("classifier", "ascending"), ("image_id", "ascending")])


def test_all_classifiers_answer_as_each_does_alone_and_images_are_decoded_once(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = []
    real = decode.decode
    monkeypatch.setattr(decode, "decode", lambda *given: decoded.append(1) or real(*given))
    models = {"a": Brightness(50), "b": Brightness(100), "c": Brightness(150)}
    found = classify(place, models)
    assert len(decoded) == 35
    alone = [
        predict(images().slice(5), model, classification(name, model, ["bus", "boat"], None))
        for name, model in models.items()
    ]
    assert found.equals(pa.concat_tables(alone))
    assert found["error"].null_count == found.num_rows - 3


def test_a_pass_goes_on_where_one_of_its_classifiers_stopped(place: Path) -> None:
    whole = classify(place, {"a": Brightness(50)})
    files.write_table(str(place / "predictions/part-kept.parquet"), whole.slice(0, 11))
    for name in files.entries(str(place / "predictions")):
        if name.startswith("part-") and name != "part-kept.parquet":
            files.remove_file(str(place / "predictions" / name))
    a, b = Brightness(50), Brightness(100)
    found = classify(place, {"a": a, "b": b})
    assert found.slice(0, 35).equals(whole)
    assert found.num_rows == 70
    # Of image 7, which is no picture and was answered before, nobody is asked.
    assert (a.seen, b.seen) == (35 - 11, 34)
    again = Brightness(50)
    assert classify(place, {"a": again, "b": Brightness(100)}).equals(found)
    assert again.seen == 0


def test_a_model_that_is_another_than_was_described_is_refused(place: Path) -> None:
    described, there = Brightness(50, "of the head"), Brightness(50, "of the node")
    one = AuditedClassifier(lambda: there, classification("m", described, ["bus", "boat"], None))
    with pytest.raises(WeightsError, match=r"m: .*revision of the node.*began with .of the head"):
        ImageStages(InProcess()).classify(
            selected(str(place / "images"), lambda: [digests(pa.array(["0" * 20]))]),
            [one],
            str(place / "predictions"),
            lambda _: None,
        )


def test_of_a_list_of_ids_those_remain_that_are_not_done() -> None:
    rows = pa.table({"n": [1, 2, 3, 1], "id": [["a", "b"], ["c"], ["d", "e", "f"], ["a", "b"]]})
    done = np.sort(digests(pa.array(["b", "c", "e"])))
    left = not_yet(rows, "id", done)
    assert left.to_pylist() == [{"n": 1, "id": ["a"]}, {"n": 3, "id": ["d", "f"]}, {"n": 1, "id": ["a"]}]
    assert each_once(left, "id").to_pylist() == left.to_pylist()[:2]
    assert not_yet(rows.slice(2, 1), "id", done).to_pylist() == [{"n": 3, "id": ["d", "f"]}]


def test_wanted_rows_of_a_part_are_those_of_its_images() -> None:
    random = np.random.default_rng(0)
    ids = [f"{i:020d}" for i in random.integers(0, 500, 1000)]
    rows = pa.table({"image_id": ids, "n": list(range(1000))})
    wanted = RowsByImage.by_image(rows)
    for start in range(0, 600, 60):
        images = pa.chunked_array([[f"{i:020d}" for i in range(start, start + 60)]])
        expected = rows.filter(pa.compute.is_in(rows["image_id"], images.combine_chunks()))
        assert sorted(wanted.of(images)["n"].to_pylist()) == sorted(expected["n"].to_pylist())


def test_no_digests_are_held_where_all_images_are_wanted(place: Path) -> None:
    there = digests(images()["image_id"])
    of_all = selected(str(place / "images"), lambda: [there[::2], there])
    assert (of_all.marks, of_all.total) == (None, len(there))
    assert sum(block.num_rows for block in of_all.blocks) == 2
    one = contestant("m", Brightness(50)).question
    assert sum(map(len, prediction_ids([one], of_all))) == len(there)
    of_some = selected(str(place / "images"), lambda: [there[3:7], there[5:9]])
    assert of_some.marks is not None
    assert (of_some.total, len(of_some.marks), [block["name"].to_pylist() for block in of_some.blocks]) == (
        6,
        6,
        [["part-0.parquet"]],
    )


def test_images_that_are_wanted_and_not_there_select_nothing_else(place: Path) -> None:
    none = selected(str(place / "images"), lambda: [digests(pa.array(["x", "y"]))])
    assert none.of(images()).num_rows == 0
    assert none.total == 2
