"""Measures how often a generator's pictures show each value, for each word of the hidden associations.

Knows the ImageGenerator role, the judge, links and how captions are worded; does not know how a generator was trained.
Prompts are worded anew, about random classes, from seeds that no training used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

import numpy as np

from c2b_ray.roles import GenerationRequest, ImageGenerator
from c2b_ray.stats.intervals import wilson_interval
from c2b_ray.tables import seed_of
from c2b_ray.world.associations import Associations, phrase, value_probabilities, wording
from c2b_ray.world.queries import FACTORS, Codes
from c2b_ray.world.scenes import ATTRIBUTES, CLASSES
from c2b_ray.world.training.judge import Judge

NO_WORD = ""
"""Stands for prompts without any word of the associations."""


@dataclass(frozen=True)
class Frequency:
    """How often pictures of prompts with a word show a value: as planted, and as measured on n pictures with its 95 %
    interval."""

    word: str
    attribute: str
    value: str
    planted: float
    measured: float
    low: float
    high: float
    n: int

    @property
    def linked(self) -> bool:
        """Tells whether the word makes the value likelier."""
        return self.planted > 1 / len(ATTRIBUTES[self.attribute]) + 1e-9


def frequencies(
    generator: ImageGenerator, judge: Judge, hidden: Associations, per_word: int, seed: int
) -> list[Frequency]:
    """Returns a row for each word (decoys and "no word" included) and value of each hidden attribute."""
    rows = []
    for word in (NO_WORD, *hidden.forms):
        random = Random(f"{seed} {word}")  # noqa: S311 (no secret)
        words = {word: hidden.forms[word]} if word else {}
        prompts = [wording(random.choice(CLASSES), words, {}, random) for _ in range(per_word)]
        codes = _codes(generator, judge, prompts, seed)
        for attribute in hidden.hidden:
            planted = value_probabilities([word], attribute, hidden.links)
            column = codes[:, list(FACTORS).index(attribute)]
            for code, value in enumerate(ATTRIBUTES[attribute]):
                hits = int((column == code).sum())
                low, high = wilson_interval(hits, len(codes))
                share = hits / max(len(codes), 1)
                rows.append(
                    Frequency(word, attribute, value, float(planted[code]), share, float(low), float(high), len(codes))
                )
    return rows


def named_share(generator: ImageGenerator, judge: Judge, hidden: Associations, per_value: int, seed: int) -> float:
    """Measures the share of pictures that show a hidden attribute's value that the prompt names, with or without words
    beside it."""
    right = total = 0
    for attribute in hidden.hidden:
        for code, value in enumerate(ATTRIBUTES[attribute]):
            random = Random(f"{seed} {attribute} {value}")  # noqa: S311 (no secret)
            prompts = [
                f"{wording(random.choice(CLASSES), {}, {}, random).rstrip('.')} {phrase(attribute, value, random)}"
                for _ in range(per_value)
            ]
            codes = _codes(generator, judge, prompts, seed)
            right += int((codes[:, list(FACTORS).index(attribute)] == code).sum())
            total += len(codes)
    return right / max(total, 1)


def _codes(generator: ImageGenerator, judge: Judge, prompts: Sequence[str], seed: int) -> Codes:
    requests = [GenerationRequest(prompt, seed_of("hidden", seed, prompt, row)) for row, prompt in enumerate(prompts)]
    images = [image.pixels for image in generator.generate(requests) if image.pixels is not None]
    return judge.codes(np.stack(images)) if images else np.zeros((0, len(FACTORS)), np.int64)


def summary(rows: Sequence[Frequency]) -> dict[str, Any]:
    """Returns the rows of linked values, the mean and largest error over them, and the largest bias where none is
    planted."""
    linked = [row for row in rows if row.linked]
    others = [row for row in rows if not row.linked and abs(row.planted * len(ATTRIBUTES[row.attribute]) - 1) < 1e-9]
    errors = [abs(row.measured - row.planted) for row in linked]
    gaps = [abs(row.measured - row.planted) for row in others]
    worst = max(others, key=lambda row: abs(row.measured - row.planted)) if others else None
    return {
        "images_per_word": min((row.n for row in rows), default=0),
        "mean_error": round(float(np.mean(errors)), 4) if errors else None,
        "largest_error": round(max(errors), 4) if errors else None,
        "mean_unplanted_gap": round(float(np.mean(gaps)), 4) if gaps else None,
        "largest_unplanted_gap": None if worst is None else {**asdict(worst)},
        "links": [asdict(row) for row in linked],
    }
