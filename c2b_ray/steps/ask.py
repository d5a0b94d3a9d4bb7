"""Computes how often the classifier is right on images of a sentence, compared with the class's other images.

It knows how a class is read from a sentence and which answers count; `metrics` has the formulas, and the caller
provides images and answers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray import metrics
from c2b_ray.errors import ConfigError, nearest
from c2b_ray.names import normalise
from c2b_ray.steps.answers import Taken, answers_of
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.steps.image_ids import ImageIds

MOST_MISTAKES = 3


@dataclass(frozen=True)
class Rate:
    """The number of answered images, how many are right, and the accuracy with its interval; NaN where there
    are none."""

    n: int
    correct: int
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True)
class SentenceAnswer:
    """One classifier's results on the images of a sentence.

    `of_sentence`: the rate on the images of the sentence. `of_class`: on all images of the class in the run. `others`:
    on the images of the class that the sentence did not draw. Each counts a picture once. `difference`: the accuracy of
    `of_sentence` minus that of `others`, which are disjoint samples, with Newcombe's interval (1998) and `p_value`.
    """

    classifier: str
    of_sentence: Rate
    errors: int
    of_class: Rate
    others: Rate
    difference: float
    difference_low: float
    difference_high: float
    p_value: float
    mistaken_for: tuple[tuple[str, int], ...]


def class_of(sentence: str, classes: Sequence[str], chosen: str | None) -> str:
    """Returns the class that the sentence is about: `chosen`, else the only class that it names, in singular or plural.

    Where one name contains another, the longer counts. Raises ConfigError where the sentence names no class or several.
    """
    if chosen is not None:
        known = {normalise(name): name for name in classes}
        if normalise(chosen) not in known:
            raise ConfigError("--class", f"the run has no class {chosen!r}; {nearest(chosen, classes)}")
        return known[normalise(chosen)]
    text = normalise(sentence)
    spans = [
        (match.start(), match.end(), name)
        for name in classes
        for match in re.finditer(rf"(?<!\w){re.escape(normalise(name))}(?:e?s)?(?!\w)", text)
    ]
    whole = [s for s in spans if not any(o[0] <= s[0] and s[1] <= o[1] and o[1] - o[0] > s[1] - s[0] for o in spans)]
    named = list(dict.fromkeys(name for *_, name in whole))
    if len(named) == 1:
        return named[0]
    said = f"names several classes ({', '.join(named)})" if named else "names no class of the run"
    raise ConfigError("--class", f"{sentence!r} {said}; name one of {', '.join(classes)} with --class")


def images_of_class(captions: pa.Table, draws: pa.Table, target_class: str) -> set[str]:
    """Returns every image that was drawn for the class."""
    ids = captions.filter(pc.equal(captions["target_class"], target_class))["caption_id"].combine_chunks()
    return set(draws.filter(pc.is_in(draws["caption_id"], ids))["image_id"].to_pylist())


def answer(
    classifier: str,
    target_class: str,
    sentence_predictions: pa.Table,
    run: tuple[set[str], pa.Table],
    confidence: float,
    distinct: Distinct,
) -> SentenceAnswer:
    """Returns one classifier's results on a sentence.

    `sentence_predictions`: of the images of the sentence, each picture once. `run`: the class's images in the run, and
    the run's predictions. `distinct`: which images of both are the same picture.
    """
    drawn = answers_of(sentence_predictions, classifier).of(target_class)
    images, predictions = run
    known = answers_of(predictions, classifier).of(target_class)
    everything = {**drawn, **{i: known.get(i) for i in sorted(images) if i not in drawn}}
    kept = set(one_of_each_picture(list(everything), distinct))
    rate = _rate(drawn, target_class, confidence)
    others = _rate({i: everything[i] for i in kept - set(drawn)}, target_class, confidence)
    of_class = one_of_each_picture(sorted(images), distinct)
    counts = [rate.correct, others.correct], [rate.n, others.n]
    low, high = metrics.bias_score_interval(*counts, confidence)
    return SentenceAnswer(
        classifier=classifier,
        of_sentence=rate,
        errors=len(drawn) - rate.n,
        of_class=_rate({i: known.get(i) for i in of_class}, target_class, confidence),
        others=others,
        # Of two cells φ is the difference, its interval Newcombe's, its test of no difference that interval's.
        difference=float(metrics.bias_scores(*counts)[0]),
        difference_low=float(low[0]),
        difference_high=float(high[0]),
        p_value=float(metrics.bias_score_p_values(*counts)[0]),
        mistaken_for=_mistaken_for(drawn, target_class),
    )


def one_of_each_picture(images: Sequence[str], distinct: Distinct) -> list[str]:
    """Returns the first image of each picture."""
    pictures = distinct.pictures(ImageIds(pa.array(images, pa.large_string())))
    first: dict[int, str] = {}
    for picture, image in zip(pictures.tolist(), images, strict=True):
        first.setdefault(picture, image)
    return list(first.values())


def _mistaken_for(answers: Taken, target_class: str) -> tuple[tuple[str, int], ...]:
    wrong = Counter(name for name in answers.values() if name not in (None, target_class))
    return tuple(sorted(((str(name), n) for name, n in wrong.items()), key=lambda x: (-x[1], x[0]))[:MOST_MISTAKES])


def _rate(answers: Taken, target_class: str, confidence: float) -> Rate:
    names = [name for name in answers.values() if name is not None]
    correct = names.count(target_class)
    low, high = metrics.wilson_interval(correct, len(names), confidence)
    return Rate(len(names), correct, correct / len(names) if names else float("nan"), low, high)
