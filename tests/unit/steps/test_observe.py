"""What models say of labelled images, by the world's own encoder; a file that is no picture is an error of its row."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from c2b_ray.models import catalog
from c2b_ray.roles import Question
from c2b_ray.steps.observe import AT_ONCE, describe, embed, read, with_files
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.tables import content_of
from c2b_ray.world import render, sample


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """Buses at night and by day, more than are decoded at once, and a file that is no picture."""
    folder = tmp_path_factory.mktemp("photos")
    (folder / "bus").mkdir()
    light = ["night", "day"] * (AT_ONCE // 2 + 2)
    for n, lighting in enumerate(light):
        Image.fromarray(render(sample(1, 40 + n, target_class="bus", lighting=lighting)[0])).save(
            folder / f"bus/{n:03}.png"
        )
    (folder / "bus" / "zzz.png").write_bytes(b"no picture")
    count = len(light) + 1
    table = pa.table(
        {
            "observation_id": [f"o{n}" for n in range(count)],
            "image_id": [f"i{n}" for n in range(count)],
            "row": np.arange(count),
            "target_class": ["bus"] * count,
        }
    )
    return with_files(table, partial(LabelledTable, str(folder)))


def test_files_are_read_with_the_hash_of_their_bytes(rows):
    assert rows["key"].to_pylist()[:2] == ["bus/000.png", "bus/001.png"]
    assert rows["content"].to_pylist() == [content_of(data) for data in rows["bytes"].to_pylist()]


def test_values_are_read_off_each_image(rows):
    texts = ("a photo of a bus by day", "a photo of a bus at night")
    question = Question("Which lighting does the picture of a bus show?", ("day", "night"), texts)
    found = read(rows, catalog.captioner("world:clip"), {"bus": {"lighting": question}})
    values = [of[0] if of else None for of in found["values"].to_pylist()]
    right = [value == expected for value, expected in zip(values, ["night", "day"] * len(values), strict=False)]
    assert np.mean(right[:-1]) >= 0.9
    assert values[-1] is None
    assert found["error"].to_pylist()[-1] is not None
    assert found["error"].null_count == found.num_rows - 1
    assert found["attributes"].to_pylist()[0] == ["lighting"]
    assert 0.5 <= found["certainties"].to_pylist()[0][0] <= 1


def test_captions_mention_the_class_and_embeddings_have_length_one(rows):
    said = describe(rows, catalog.captioner("world:clip"))
    assert all("bus" in caption for caption in said["caption"].to_pylist()[:-1])
    assert said["caption"].to_pylist()[-1] is None
    assert said["error"].to_pylist()[-1] is not None
    vectors = embed(rows, catalog.encoder("world:clip"))["vector"].to_pylist()
    assert vectors[-1] is None
    assert np.linalg.norm(vectors[0]) == pytest.approx(1, abs=1e-3)
