import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.errors import ServiceError
from c2b_ray.image_check import checked_image
from c2b_ray.roles import GeneratedImage
from c2b_ray.steps.caption import caption
from c2b_ray.steps.decode import decode
from c2b_ray.steps.draw import generate, generated
from c2b_ray.steps.propose import propose
from c2b_ray.tables import DRAWS, IMAGES

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
