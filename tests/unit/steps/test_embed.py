import json

import numpy as np
import pyarrow as pa

from c2b_ray.steps.retrieve import embed
from c2b_ray.world import render, sample
from c2b_ray.world.table import picture


class Encoder:
    dimension, revision = 3, "1"

    def encode_images(self, images):
        return np.array([[image.shape[0], image.mean(), 1] for image in images], np.float32)


def test_good_images_are_embedded_in_place_and_bad_ones_say_why():
    scene = sample(1, 1001)[0]
    rows = pa.table(
        {
            "key": ["a", "b", "c"],
            "bytes": [b"", picture(scene), None],
            "error": pa.array([None, None, "no such file"], pa.string()),
            "target_class": ["x", scene.target_class, "y"],
        }
    )
    found = embed(rows, Encoder()).to_pylist()
    assert [row["embedding"] is None for row in found] == [True, False, True]
    assert found[1]["embedding"][1] == np.float32(render(scene).mean())
    assert found[0]["error"]
    assert found[2]["error"] == "no such file"
    assert json.loads(found[1]["metadata"]) == {"target_class": scene.target_class}
