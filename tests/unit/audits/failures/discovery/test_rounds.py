"""Rounds: which images are drawn, who answers, what is counted and what is kept."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from c2b_ray.audits.failures.discovery.rounds import (
    BATCH,
    ORDERS,
    SAMPLE,
    AnswerRules,
    GeneratedDraws,
    RoundModels,
    Truth,
    draw_rounds,
)
from c2b_ray.errors import SourceError
from c2b_ray.roles import GeneratedImage
from c2b_ray.tables import ROUNDS

NAMES = ("bus", "boat", "mug")


class Shades:
    """An image of a single pair of greys for each seed; what `broken` says is no image."""

    revision = "shades"

    def __init__(self, broken=lambda seed: None):
        self.broken, self.requests = broken, []

    def generate(self, requests):
        self.requests.append([(request.prompt, request.seed) for request in requests])
        return [self._image(request.seed) for request in requests]

    def _image(self, seed):
        if self.broken(seed) is not None:
            return GeneratedImage(None, self.broken(seed))
        image = np.zeros((4, 4, 3), np.uint8)
        image[:2] = 100 + seed % 100
        return GeneratedImage(image)


class BySeed:
    """Answers boat where the seed's last two digits are below 10, no number below 2, else bus."""

    labels, revision = NAMES, "by-seed"

    def logits(self, images, keys):
        shades = np.array([int(image[0, 0, 0]) - 100 for image in images])
        logits = np.zeros((len(images), 3), np.float32)
        logits[:, 0] = 5
        logits[shades < 10, 1] = 9
        logits[shades < 2] = np.nan
        return logits


DECIDER = AnswerRules("by-seed", "by-seed", NAMES, {"bus": Truth(np.array([True, False, False]))})


def orders(draws, first=0, stage="discovery", part="search", examples=2, enough=(), text="a bus"):
    order = {
        "round_id": [DECIDER.round_id(f"order {first}", "bus")],
        "order_id": f"order {first}",
        "caption_id": "caption",
        "label": "bus",
        "text": text,
        "stage": stage,
        "part": part,
        "generator": "shades",
        "first": first,
        "draws": draws,
        "examples": examples,
        "enough": list(enough),
        "rows": None,
    }
    return pa.Table.from_pylist([order], ORDERS)


def drawn(table, generator=None, seed=0):
    generator = generator or Shades()
    return draw_rounds(table, RoundModels(GeneratedDraws(generator, seed), ((BySeed(), DECIDER),))), generator


def test_counts_are_those_of_the_answers_whatever_the_batch():
    rounds, generator = drawn(orders(200))
    row = rounds.to_pylist()[0]
    seeds = [seed for batch in generator.requests for _, seed in batch]
    boats = [seed for seed in seeds if 2 <= seed % 100 < 10]
    assert rounds.schema == ROUNDS
    assert row["draws"] + row["unusable"] == 200
    assert row["unusable"] == sum(seed % 100 < 2 for seed in seeds) > 0
    assert row["failures"] == len(boats) > 2
    assert (row["predicted"], row["counts"]) == (["boat"], [len(boats)])
    assert [example["seed"] for example in row["examples"]] == boats[:2]
    assert np.array(Image.open(BytesIO(row["examples"][0]["image"])))[0, 0, 0] == 100 + boats[0] % 100
    assert "not numbers" in row["reasons"][0]
    halves = [drawn(orders(100, first))[0].to_pylist()[0] for first in (0, 100)]
    assert sum(half["failures"] for half in halves) == row["failures"]


def test_stages_captions_and_runs_never_share_a_seed():
    def seeds(**given):
        run = given.pop("seed", 0)
        return {seed for batch in drawn(orders(BATCH * 3, **given), seed=run)[1].requests for _, seed in batch}

    sets = [seeds(), seeds(stage="confirmation"), seeds(text="a red bus"), seeds(seed=1), seeds(first=BATCH * 3)]
    assert sum(map(len, sets)) == len(set.union(*sets)) == BATCH * 15


def test_images_are_kept_of_each_kind_until_there_are_enough_and_of_a_sample_all():
    assert len(drawn(orders(200, enough=["by-seed\nboat"]))[0]["examples"][0]) == 0
    sample = drawn(orders(20, part=SAMPLE))[0].to_pylist()[0]
    assert len(sample["examples"]) == 20
    assert sample["failures"] < 20


def test_bad_images_are_counted_with_their_reason_and_a_source_of_nothing_else_is_refused():
    some, _ = drawn(orders(60), Shades(lambda seed: "the image is all black" if seed % 2 else None))
    assert some["unusable"][0].as_py() > 15
    assert "the image is all black" in some["reasons"][0].as_py()
    with pytest.raises(SourceError, match=r"none of 60 images of 'a bus' can be used.*all black.*black or NaN images"):
        drawn(orders(60), Shades(lambda seed: "the image is all black"))


def test_a_true_label_that_is_nearly_as_likely_is_no_failure_below_its_threshold():
    """Footnote 2: of a bus at .40 that is taken for a boat at .45, and one at .10."""
    logits = np.log(np.array([[0.40, 0.45, 0.15], [0.10, 0.80, 0.10]], np.float32))
    truths = {"bus": Truth(np.array([True, False, False]))}
    assert AnswerRules("c", "1", NAMES, truths).decide(logits, "bus").failed.tolist() == [True, True]
    strict = AnswerRules("c", "1", NAMES, truths, true_below=0.3)
    assert strict.decide(logits, "bus").failed.tolist() == [False, True]
    assert strict.round_id("order", "bus") != AnswerRules("c", "1", NAMES, truths).round_id("order", "bus")
