"""Datasets of failures of a classifier that looks at one pixel, built without Ray."""

import numpy as np
import pyarrow.parquet as pq

import c2b_ray

CAPTIONS = "label,caption\nboat,a photo of a boat at night\nmug,a photo of a striped mug\nboat,a boat on the beach\n"


def answer(images):
    """Classifies by one pixel: boat where it is dark, else mug."""
    dark = np.array([image[3, 3].astype(int).sum() < 300 for image in images])
    return np.stack([dark * 4.0, ~dark * 4.0], axis=1).astype(np.float32)


def config(tmp_path, **changes):
    (tmp_path / "captions.csv").write_text(CAPTIONS)
    return {
        "captions": {"file": str(tmp_path / "captions.csv")},
        "images": {"generate": {"model": "world:renderer"}},
        "classifier": "set by the test",
        "draws_per_caption": 50,
        "cap_per_caption": 9,
        "shard_draws": 40,
        "batch": 16,
        **changes,
    }


def built(tmp_path, name="out", **changes):
    model = c2b_ray.InMemory(answer, ["boat", "mug"], revision="pixel")
    return c2b_ray.build_dataset(config(tmp_path, **changes), tmp_path / name, classifier={"pixel": model})


def canonical(location):
    """Returns all rows and drops, in order, as Python values."""
    rows = c2b_ray.load_dataset(location).to_table().to_pylist()
    drops = [row for path in sorted((location / "drops").iterdir()) for row in pq.read_table(path).to_pylist()]
    return sorted(rows, key=lambda row: (row["caption_number"], row["draw"])), drops
