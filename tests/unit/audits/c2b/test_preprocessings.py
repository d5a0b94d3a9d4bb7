"""Which preprocessing is right far more often, on labelled images of which each is answered by its brightness."""

from __future__ import annotations

import numpy as np

from c2b_ray.audits.c2b.estimate import PreprocessingTrial, far_best, try_preprocessings
from c2b_ray.errors import SpecError
from c2b_ray.steps.classify import Classification, classification


class Bright:
    """Answers "light" for pictures whose numbers are above a half."""

    labels = ("dark", "light")
    revision = "1"

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def logits(self, images, keys):
        means = np.array([image.mean() * self.scale for image in images])
        return np.stack([0.5 - means, means - 0.5], axis=1).astype(np.float32)


def load(word: str) -> Bright:
    if word == "broken":
        raise SpecError("no such thing")
    return Bright({"unit": 1 / 255, "none": 1.0}[word])


def classify(classifier: Bright) -> Classification:
    return classification("bright", classifier, ["dark", "light"], None)


def test_each_word_is_counted_and_the_best_by_far_is_named() -> None:
    images = [np.full((4, 4, 3), level, np.uint8) for level in range(10, 250, 12)]
    targets = ["light" if image.mean() > 127.5 else "dark" for image in images]
    tried = try_preprocessings(["none", "broken", "unit"], load, classify, images, targets)
    assert tried == [
        PreprocessingTrial("unit", 20, 20),
        PreprocessingTrial("none", 10, 20),
        PreprocessingTrial("broken", error="no such thing"),
    ]
    assert far_best(tried) == tried[0]


def test_none_is_named_where_they_hardly_differ_or_one_alone_could_be_tried() -> None:
    assert far_best([PreprocessingTrial("unit", 20, 20), PreprocessingTrial("none", 17, 20)]) is None
    assert far_best([PreprocessingTrial("unit", 200, 200), PreprocessingTrial("none", 180, 200)]) is None
    assert far_best([PreprocessingTrial("unit", 20, 20), PreprocessingTrial("none", error="x")]) is None
