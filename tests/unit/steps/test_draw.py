"""Draws of images, from an index and from a generator."""

import tracemalloc
from io import BytesIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from labelled_tables import labelled
from PIL import Image

from c2b_ray.audits.c2b.scoring.score import scored
from c2b_ray.audits.c2b.thresholds import Limit, Thresholds
from c2b_ray.errors import ConfigError, ServiceError, SourceError
from c2b_ray.image_check import checked_image
from c2b_ray.roles import GeneratedImage, Neighbours
from c2b_ray.steps.caption import caption
from c2b_ray.steps.decode import decode
from c2b_ray.steps.draw import fetch, generate, generated, image_id, wanted
from c2b_ray.steps.draw import png as png_of_pixels
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.steps.fingerprint import fingerprint
from c2b_ray.steps.propose import propose
from c2b_ray.steps.retrieve import CaptionSearch, retrieve
from c2b_ray.tables import DRAWS, IMAGES, PREDICTIONS, content_of
from c2b_ray.world.render import render
from c2b_ray.world.scenes import sample

PROPOSALS, _ = propose("task", ["bus"], None, {"weather": ["snow", "rain"]}, seed=0)
CAPTIONS, _ = caption("task", PROPOSALS, None, 1, seed=0)


class Encoder:
    dimension, revision = 2, "e"

    def encode_texts(self, texts):
        return np.array([[1, 0] if "snow" in t else [0, 1] for t in texts], np.float32)


class Index:
    encoder, encoder_revision, dimension, revision = "x:y", "e", 2, "r"
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


def test_an_index_of_the_same_encoder_with_other_weights_is_refused():
    index = Index()
    index.encoder_revision = "before"
    for used in (lambda: retrieve(CAPTIONS, Encoder(), index, k=2), lambda: CaptionSearch(Encoder(), index)):
        with pytest.raises(SourceError, match=r"x:y at revision before, the encoder is at revision e: build"):
            used()


class Files:
    """An image source: bytes, or an error."""

    revision = "r"

    def __init__(self, *rows):
        self.rows = rows

    def fetch(self, ids):
        data, errors = zip(*(self.rows[i] for i in ids), strict=True)
        return pa.table(
            {
                "key": [f"file {i}" for i in ids],
                "bytes": pa.array(data, pa.binary()),
                "error": pa.array(errors, pa.string()),
            }
        )


def png(width, height=None):
    data = BytesIO()
    Image.new("RGB", (width, height or width), (0, 90, 200)).save(data, "PNG")
    return data.getvalue()


def fetched(*rows):
    return fetch(wanted(np.arange(len(rows)), "r"), Files(*rows)).to_pylist()


def test_what_is_fetched_is_looked_at_and_only_pictures_are_kept():
    good, secret = png(32), b"root:x:0:0:root:/root:/bin/bash"
    picture, text, cut, absent, told = fetched(
        (good, None), (secret, None), (good[:60], None), (None, "no such file"), (good, "the source doubts it")
    )
    assert (picture["bytes"], picture["error"]) == (good, None)
    assert picture["fingerprint"] == fingerprint(decode(good))
    for row, said in ((text, "not an image"), (cut, "damaged"), (absent, "no such file"), (told, "doubts")):
        assert row["bytes"] is row["fingerprint"] is None
        assert said in row["error"]
    assert [row["content"] for row in (picture, text, absent)] == [content_of(good), content_of(secret), None]


def test_a_photograph_is_not_decoded_whole_for_its_fingerprint_which_stays_its_own():
    sides = np.stack(np.mgrid[0:1201, 0:1603, 0:1], -1)[:, :, 0] / (1201, 1603, 1)
    pixels = np.uint8(127 + 120 * np.sin(sides * (9, 14, 1) + sides[..., ::-1] * (5, 1, 3)))
    data = BytesIO()
    Image.fromarray(pixels).save(data, "JPEG", quality=90)
    tracemalloc.start()
    (row,) = fetched((data.getvalue(), None))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < pixels.nbytes / 4
    whole = fingerprint(decode(data.getvalue()))
    assert (
        np.abs(np.frombuffer(row["fingerprint"], np.uint8)[8:] - np.frombuffer(whole, np.uint8)[8:].astype(int)).max()
        < 2
    )


def test_an_image_of_too_many_pixels_is_not_decoded():
    (row,) = fetched((png(9_000, 8_000), None))
    assert row["bytes"] is None
    assert "too large: 9000 × 8000 pixels" in row["error"]


def test_each_picture_counts_once_under_any_number_of_names():
    # Every image four times: as many right answers of as many images as if each were there once.
    pictures = [render(scene) for scene in sample(40, 7)]
    rows = [png_of_pixels(picture) for picture in pictures]
    ids = wanted(np.arange(160), "r")
    images = fetch(ids, Files(*[(rows[i // 4], None) for i in range(160)]))
    names = [ids["image_id"][4 * i].as_py() for i in range(40)]
    snow, rain = CAPTIONS["caption_id"].to_pylist()
    draws, predictions = [], []
    for at, image in enumerate(ids["image_id"].to_pylist()):
        caption_id = snow if at // 4 < 20 else rain
        draws.append({"caption_id": caption_id, "image_id": image, "rank": at, "source": "labelled"})
        answer = "bus" if at // 4 % 5 else "boat"
        row = {"prediction_id": image, "image_id": image, "classifier": "m", "revision": "1"}
        predictions.append({**row, "predicted_class": answer})
    draws, predictions = pa.Table.from_pylist(draws, DRAWS), pa.Table.from_pylist(predictions, PREDICTIONS)
    once = draws.filter(pc.is_in(draws["image_id"], pa.array(names)))
    of_distinct = Distinct(images)
    copies = scored(CAPTIONS, draws, predictions, ["m"], Thresholds(0.05, 0.05), distinct=of_distinct)[0].to_pylist()
    alone = scored(CAPTIONS, once, predictions, ["m"], Thresholds(0.05, 0.05))[0].to_pylist()
    assert [row["n"] for row in copies] == [20, 20]
    assert [row.pop("repeats") for row in copies] == [60, 60]
    assert [row.pop("repeats") for row in alone] == [0, 0]
    np.testing.assert_equal(copies, alone)


LABELS = pa.table(
    {
        "target_class": ["bus", "bus", "bus", "Boat", "boat", "boat"],
        "weather": ["snow", "rain", "rain", "snow", None, "rain"],
        "note": ["a"] * 6,
    }
)


def test_a_labelled_table_gives_a_cell_per_value_and_null_belongs_to_none():
    proposals, captions, draws, wanted = labelled(LABELS, "r", ["bus", "boat"], None, Limit(None, 0))
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
        labelled(LABELS, "r", ["bus"], {"wether": ["a", "b"]}, Limit(None, 0))
    with pytest.raises(ConfigError, match="'truck'"):
        labelled(LABELS, "r", ["truck"], None, Limit(None, 0))


PROPOSALS, _ = propose("task", ["bus"], None, {"weather": ["snow", "rain"]}, seed=0)
CAPTIONS, _ = caption("task", PROPOSALS, None, 1, seed=0)


def test_what_is_generated_does_not_depend_on_how_much_or_beside_what():
    draws, wanted = generated(CAPTIONS, "g", 3, seed=7)
    assert draws.schema == DRAWS
    assert draws["rank"].to_pylist() == [0, 1, 2] * 2
    assert draws["similarity"].null_count == 6
    assert set(draws["source"].to_pylist()) == {"generate"}
    assert draws["image_id"].to_pylist() == wanted["image_id"].to_pylist()
    assert wanted["prompt"].to_pylist() == [text for text in CAPTIONS["text"].to_pylist() for _ in range(3)]
    assert len(set(wanted["image_id"].to_pylist())) == len(set(wanted["seed"].to_pylist())) == 6
    more = generated(CAPTIONS, "g", 5, seed=7)[1].to_pylist()
    assert [more[i] for i in (0, 1, 2, 5, 6, 7)] == wanted.to_pylist()  # the first three of five
    alone = generated(CAPTIONS.slice(1), "g", 3, seed=7)[1]
    assert alone.to_pylist() == wanted.to_pylist()[3:]


def test_the_order_of_classes_attributes_and_values_does_not_decide_what_is_generated():
    def seeds(classes, attributes):
        proposals, _ = propose("task", classes, None, attributes, seed=0)
        _, wanted = generated(caption("task", proposals, None, 2, seed=0)[0], "g", 2, seed=7)
        return {(row["image_id"], row["prompt"], row["seed"]) for row in wanted.to_pylist()}

    some = seeds(["bus", "boat"], {"weather": ["snow", "rain", "fog"], "size": ["small", "large"]})
    assert seeds(["boat", "bus"], {"Size": ["large", "small"], "weather": ["rain", "Fog", "snow"]}) == some


def test_generated_images_follow_seed_and_revision():
    one, other_seed, other_model = (generated(CAPTIONS, r, 1, seed=s)[1] for r, s in (("g", 7), ("g", 8), ("h", 7)))
    assert one["seed"].to_pylist() == other_model["seed"].to_pylist() != other_seed["seed"].to_pylist()
    ids = [table["image_id"].to_pylist() for table in (one, other_seed, other_model)]
    assert len({name for three in ids for name in three}) == 6


def test_nothing_to_generate_is_a_table_without_rows():
    draws, wanted = generated(CAPTIONS.slice(0, 0), "g", 3, seed=7)
    assert (draws.num_rows, wanted.num_rows) == (0, 0)
    assert draws.schema == DRAWS
    assert wanted.schema == generated(CAPTIONS, "g", 1, seed=7)[1].schema


class Generator:
    """Pictures of noise, and what a pipeline gives where it fails: NaN, black, one colour."""

    revision = "g"
    failures = {1: np.nan, 2: 0.0, 3: 0.5}  # noqa: RUF012

    def __init__(self, wanted):
        self.places = {row["seed"]: i for i, row in enumerate(wanted.to_pylist())}

    def generate(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request) -> GeneratedImage:
        place = self.places[request.seed]
        values = np.random.default_rng(request.seed).random((6, 8, 3))
        return checked_image(np.full_like(values, self.failures[place]) if place in self.failures else values, None)


def test_what_a_generator_cannot_draw_is_an_error_of_its_row():
    _, wanted = generated(CAPTIONS, "g", 3, seed=7)
    generator = Generator(wanted)
    images = generate(wanted, generator)
    assert images.schema == IMAGES
    assert images["image_id"].to_pylist() == wanted["image_id"].to_pylist()
    rows = images.to_pylist()
    reasons = [None, "NaN or infinite", "all black", "single colour", None, None]
    for row, asked, reason in zip(rows, wanted.to_pylist(), reasons, strict=True):
        assert row["key"] == f"{asked['prompt']} (seed {asked['seed']})"
        assert (row["bytes"] is None) == (reason is not None)
        assert reason is None if row["error"] is None else reason in row["error"]
    np.testing.assert_array_equal(
        decode(rows[0]["bytes"]), (np.random.default_rng(wanted["seed"][0].as_py()).random((6, 8, 3)) * 255).round()
    )
    parts = [generate(wanted.slice(start, 2), generator) for start in (4, 2, 0)]
    assert sorted(pa.concat_tables(parts).to_pylist(), key=lambda row: row["image_id"]) == sorted(
        rows, key=lambda row: row["image_id"]
    )


class Careless:
    """A generator of another package that checks nothing: gives what it was made with."""

    revision = "c"

    def __init__(self, *images):
        self.images = images

    def generate(self, requests):
        return list(self.images)


def test_what_a_careless_generator_gives_is_checked():
    _, wanted = generated(CAPTIONS, "c", 2, seed=7)
    noise = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)
    pixels = [noise, np.full((6, 8, 3), np.nan), np.zeros((6, 8, 3), np.uint8)]
    rows = generate(wanted, Careless(*(GeneratedImage(p) for p in pixels), GeneratedImage(None))).to_pylist()
    np.testing.assert_array_equal(decode(rows[0]["bytes"]), noise)
    for row, reason in zip(rows[1:], ["NaN or infinite", "all black", "neither an image nor a reason"], strict=True):
        assert row["bytes"] is None
        assert reason in row["error"]


def test_another_number_of_images_than_asked_for_is_refused():
    _, wanted = generated(CAPTIONS, "c", 1, seed=7)
    with pytest.raises(ServiceError, match="answered 2 prompts with 1 images"):
        generate(wanted, Careless(GeneratedImage(np.zeros((6, 8, 3), np.uint8))))
