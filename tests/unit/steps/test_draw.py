import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.roles import Neighbours
from c2b_ray.steps.caption import caption
from c2b_ray.steps.draw import image_id, labelled, retrieve
from c2b_ray.steps.propose import propose

PROPOSALS, _ = propose("task", ["bus"], None, {"weather": ["snow", "rain"]}, seed=0)
CAPTIONS, _ = caption("task", PROPOSALS, None, 1, seed=0)


class Encoder:
    dimension, revision = 2, "e"

    def encode_texts(self, texts):
        return np.array([[1, 0] if "snow" in t else [0, 1] for t in texts], np.float32)


class Index:
    encoder, dimension, revision = "x:y", 2, "r"
    vectors = np.array([[1, 0], [0, 1], [0.6, 0.8]], np.float32)

    def search(self, embeddings, k):
        similarity = embeddings @ self.vectors.T
        ids = np.argsort(-similarity, axis=1)[:, :k]
        ids = np.pad(ids, ((0, 0), (0, k - ids.shape[1])), constant_values=-1)
        return Neighbours(ids, np.take_along_axis(similarity, np.maximum(ids, 0), axis=1))


def test_each_caption_draws_its_nearest_images_in_order():
    draws, wanted = retrieve(CAPTIONS, Encoder(), Index(), k=2)
    snow, rain = CAPTIONS["caption_id"].to_pylist()
    found = [(r["caption_id"], r["image_id"], r["rank"]) for r in draws.to_pylist()]
    assert found == [
        (snow, image_id("r", 0), 0),
        (snow, image_id("r", 2), 1),
        (rain, image_id("r", 1), 0),
        (rain, image_id("r", 2), 1),
    ]
    assert wanted["row"].to_pylist() == [0, 1, 2]  # image 2 is fetched once


def test_an_index_smaller_than_k_gives_what_it_has():
    draws, _ = retrieve(CAPTIONS, Encoder(), Index(), k=5)
    assert draws.num_rows == 6


def test_an_index_of_another_dimension_is_refused():
    index = Index()
    index.dimension = 512
    with pytest.raises(SourceError, match=r"512 dimensions, the encoder gives 2.*c2b index build"):
        retrieve(CAPTIONS, Encoder(), index, k=2)


LABELS = pa.table(
    {
        "target_class": ["bus", "bus", "bus", "Boat", "boat", "boat"],
        "weather": ["snow", "rain", "rain", "snow", None, "rain"],
        "note": ["a"] * 6,
    }
)


def test_a_labelled_table_gives_a_cell_per_value_and_null_belongs_to_none():
    proposals, captions, draws, wanted = labelled(LABELS, "r", ["bus", "boat"], None, (None, 0))
    assert proposals["attribute"].to_pylist() == ["weather", "weather"]  # note has one value
    text = dict(zip(captions["caption_id"].to_pylist(), captions["text"].to_pylist(), strict=True))
    count = dict.fromkeys(text.values(), 0)
    for caption_id in draws["caption_id"].to_pylist():
        count[text[caption_id]] += 1
    assert count == {
        "bus, weather: rain": 2,
        "bus, weather: snow": 1,
        "boat, weather: rain": 1,
        "boat, weather: snow": 1,
    }
    assert wanted["row"].to_pylist() == [0, 1, 2, 3, 5]


def test_a_limit_is_drawn_by_the_seed():
    labels = pa.table({"target_class": ["bus"] * 60, "weather": ["snow", "rain"] * 30})
    draw = [labelled(labels, "r", ["bus"], None, (10, seed))[3]["row"].to_pylist() for seed in (0, 0, 1)]
    assert len(draw[0]) == 20
    assert draw[0] == draw[1] != draw[2]


def test_mistakes_name_the_column_or_class():
    with pytest.raises(ConfigError, match=r"attributes.wether.*did you mean 'weather'"):
        labelled(LABELS, "r", ["bus"], {"wether": ["a", "b"]}, (None, 0))
    with pytest.raises(ConfigError, match="'truck'"):
        labelled(LABELS, "r", ["truck"], None, (None, 0))
