"""Images of one class crossed by two attributes: rows of a labelled table, and retrieved images with a verifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from labelled_tables import labelled, labelled_pairs

from c2b_ray.audits.c2b.hypotheses.labelled import caption_pairs
from c2b_ray.audits.c2b.scoring.pairs import PairImages, score_pairs
from c2b_ray.audits.c2b.thresholds import Limit, Thresholds
from c2b_ray.audits.c2b.verification.verified import VerifiedImages
from c2b_ray.steps.caption import caption
from c2b_ray.steps.cells import bias_class, pairs
from c2b_ray.steps.observe import CLASS
from c2b_ray.steps.propose import propose
from c2b_ray.tables import CALIBRATION, DRAWS, PREDICTIONS, VERIFICATIONS

Counts = Mapping[tuple[str, str], tuple[int, int]]
"""Counts of right and wrong answers by (weather, lighting)."""

SNOW_AT_NIGHT = {
    ("rain", "day"): (180, 20),
    ("rain", "night"): (160, 40),
    ("snow", "day"): (180, 20),
    ("snow", "night"): (60, 140),
}


def labelled_world(counts: Counts) -> tuple[pa.Table, pa.Table, pa.Table, pa.Table]:
    """Returns proposals, captions, draws and predictions."""
    rows = [
        {"target_class": "bus", "weather": x, "lighting": y, "predicted_class": answer}
        for (x, y), (right, wrong) in counts.items()
        for answer in ["bus"] * right + ["boat"] * wrong
    ]
    labels = pa.Table.from_pylist([{k: v for k, v in row.items() if k != "predicted_class"} for row in rows])
    proposals, captions, draws, wanted = labelled(labels, "r", ["bus"], None, Limit(None, 0))
    chosen = pairs(proposals, [("weather", "lighting")])
    more_captions, more_draws, _ = labelled_pairs(labels, "r", chosen, Limit(None, 0))
    places = zip(wanted["image_id"].to_pylist(), wanted["row"].to_pylist(), strict=True)
    answers = [_answer("m", image, rows[at]["predicted_class"]) for image, at in places]
    return (
        proposals,
        pa.concat_tables([captions, more_captions]),
        pa.concat_tables([draws, more_draws]),
        pa.Table.from_pylist(answers, PREDICTIONS),
    )


def _answer(classifier: str, image: str, predicted: str) -> dict[str, str]:
    row = {"prediction_id": f"{image} {classifier}", "image_id": image, "classifier": classifier, "revision": "1"}
    return row | {"predicted_class": predicted}


class RetrievedWorld:
    """Images of buses drawn for the cells of two attributes, what they show, and a verifier's answers about them.

    `rates`: how often the verifier is right about each attribute; otherwise it names another value.
    """

    def __init__(
        self, shape: tuple[int, int], rates: tuple[float, float] = (1.0, 1.0), seed: int = 0, captions: int = 1
    ) -> None:
        self.values = [[f"{name}{i}" for i in range(size)] for name, size in zip("ab", shape, strict=True)]
        self.proposals, _ = propose("t", ["bus"], None, {"a": self.values[0], "b": self.values[1]}, seed=0)
        single, _ = caption("t", self.proposals, None, captions, seed=0)
        (self.pair,) = pairs(self.proposals, [("a", "b")])
        of_pair, _ = caption_pairs([self.pair], single, None, seed=0)
        self.captions = pa.concat_tables([single, of_pair])
        self.ids = {(row["bias_class"], row["number"]): row["caption_id"] for row in of_pair.to_pylist()}
        self.rates, self.random = rates, np.random.default_rng(seed)
        self.draws: list[dict[str, Any]] = []
        self.pool: list[dict[str, Any]] = []
        self.answers: list[dict[str, Any]] = []
        self.verifications: list[dict[str, Any]] = []

    def add(
        self,
        drawn: tuple[int, int],
        shows: tuple[int, int],
        images: int,
        accuracy: float,
        shows_class: bool = True,
        accepted: bool = False,
        number: int = 0,
    ) -> None:
        """Adds images drawn for one cell that show another. With `accepted`, images that the verifier assigns to
        another cell are not drawn."""
        caption_id = self.ids[bias_class(self.values[0][drawn[0]], self.values[1][drawn[1]]), number]
        for _ in range(images):
            image = f"image {len(self.verifications):05}"
            said = [self._said(value, i) for i, value in enumerate(shows)]
            draw = {"caption_id": caption_id, "image_id": image, "rank": 0, "source": "retrieve"}
            self.pool.append(draw)
            self.verifications.append(
                {
                    "verification_id": image, "image_id": image, "target_class": "bus", "revision": "1",
                    "class_shown": "bus" if shows_class else "mug", "attributes": ["a", "b"],
                    "values": [self.values[i][value] for i, value in enumerate(said)], "certainties": [None, None],
                }
            )  # fmt: skip
            if not accepted or (tuple(said) == drawn and shows_class):
                self.draws.append(draw)
                self.answers.append(_answer("m", image, "bus" if self.random.random() < accuracy else "mug"))

    def _said(self, value: int, attribute: int) -> int:
        size = len(self.values[attribute])
        right = self.random.random() < self.rates[attribute]
        return value if right else int((value + self.random.integers(1, size)) % size)

    def verified(self, images: int = 400, of_class: bool = True) -> VerifiedImages:
        """Returns the verifier's answers with a calibration on this many images of each value, of the class, and of
        other classes."""
        rows = [
            {
                "attribute": name, "value": value, "answer": answer, "source": "table",
                "images": images * (rate if value == answer else (1 - rate) / (len(values) - 1)),
            }
            for name, values, rate in zip("ab", self.values, self.rates, strict=True)
            for value in values
            for answer in values
        ]  # fmt: skip
        rows += [
            {"attribute": CLASS, "value": value, "answer": value, "source": "table", "images": float(images)}
            for value in ("bus", "mug")
            if of_class
        ]
        table = pa.Table.from_pylist(self.verifications, VERIFICATIONS)
        return VerifiedImages(table, pa.Table.from_pylist(rows, CALIBRATION))

    def scores(
        self, verified: VerifiedImages | None = None, source: str = "retrieve", classifiers: Sequence[str] = ("m",)
    ) -> dict[tuple[str, str], dict[str, Any]]:
        """Returns rows of intersections by their two values."""
        draws = pa.Table.from_pylist([row | {"source": source} for row in self.draws], DRAWS)
        images = PairImages(draws, None, verified, pa.Table.from_pylist(self.pool, DRAWS))
        answers = pa.Table.from_pylist(self.answers, PREDICTIONS)
        rows = score_pairs(self.proposals, self.captions, answers, images, classifiers, Thresholds(0.05, 0.05))
        return {(row["value_a"], row["value_b"]): row for row in rows.to_pylist()}
