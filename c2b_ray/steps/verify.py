"""images → verifications: does an image show what its caption says, as a captioner sees it, and how far to trust that.

An image drawn for a class is asked which class it shows and, for each attribute that is tested on that class, which
value. It knows what is asked and how answers are counted; the estimation is `metrics.misclassification`'s.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.names import normalise
from c2b_ray.roles import Answer, Captioner, Question
from c2b_ray.schemas import CALIBRATION, VERIFICATIONS, content_id
from c2b_ray.steps import encoded
from c2b_ray.steps.draw import ImageSource, Rows
from c2b_ray.steps.intersect import is_pair

CLASS = "target_class"
"""Stands for the attribute's name where the class itself is asked for; no attribute is called so."""

CALIBRATED_ON = 150
"""Images of a calibration table that are looked at for each value of an attribute, and for each class."""

OTHER = "something else"
"""What shows none of the task's classes: an answer beside the classes, and images of a calibration. Without it a
verifier that must name a class names one for whatever an index holds, and a mug is taken for a bus."""

THING = "a photo of a thing"
"""What OTHER says to models that compare images with texts: by "a photo of something else", the world's CLIP model lost
up to a third of a class's own images."""

LIKELIER = 3.0
"""How many times likelier than a class OTHER must be. Of 3,000 scenes, five of whose ten classes were the task's, the
world's CLIP model kept 92, 99 and 99.7 % of a class's own images (in fog 91, 98, 100) at 1, 3 and 9, and took 0.2, 2
and 8 % of the others for one: a hundredth of an index is much beside a class's own images."""

WANTED = ("image_id", "target_class", "verification_id")

_BATCH = 64


@dataclass(frozen=True)
class Checks:
    """What a verifier is asked: its spec and revision, and, by target class, which attributes with which values.

    `classes`: the question after the class, the same for all images, with `OTHER` as last choice.
    """

    verifier: str
    revision: str
    classes: Question
    attributes: Mapping[str, Mapping[str, Question]]

    def verification_id(self, image_id: str, target_class: str) -> str:
        asked = [self.classes.choices, *self._texts(target_class)]
        return content_id("verify", image_id, target_class, self.verifier, self.revision, asked)

    def _texts(self, target_class: str) -> list[object]:
        return [
            [name, question.choices, question.texts] for name, question in self.attributes.get(target_class, {}).items()
        ]


def checks(verifier: str, revision: str, classes: Sequence[str], captions: pa.Table) -> Checks:
    """The questions of an audit: values are told apart by the first caption of each, which differ in nothing else."""
    attributes: dict[str, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for row in captions.to_pylist():
        if is_pair(row["proposal_id"]):
            continue
        attributes[row["target_class"]][row["attribute"]].setdefault(row["bias_class"], row["text"])
    asked = {
        target: {
            name: Question(f"Which {name} does the picture of a {target} show?", tuple(texts), _distinct(texts))
            for name, texts in groups.items()
            if len(texts) > 1
        }
        for target, groups in attributes.items()
    }
    others = {} if OTHER in map(normalise, classes) else {OTHER: THING}
    said = {name: f"a photo of a {name}" for name in classes} | others
    return Checks(verifier, revision, Question("What does the picture show?", tuple(said), tuple(said.values())), asked)


def _distinct(texts: Mapping[str, str]) -> tuple[str, ...] | None:
    """The captions; None where two values have the same one, which tells nothing apart."""
    result = tuple(texts.values())
    return result if len(set(result)) == len(result) else None


def wanted(captions: pa.Table, draws: pa.Table, asked: Checks) -> pa.Table:
    """`image_id`, `target_class` and `verification_id` of every image and class that it was drawn for, once.

    Images of intersections are asked the same: their two values are those of the class's attributes.
    """
    target = dict(zip(captions["caption_id"].to_pylist(), captions["target_class"].to_pylist(), strict=True))
    pairs = dict.fromkeys(
        (image, target[caption])
        for image, caption in zip(draws["image_id"].to_pylist(), draws["caption_id"].to_pylist(), strict=True)
    )
    rows = [
        {"image_id": image, "target_class": name, "verification_id": asked.verification_id(image, name)}
        for image, name in pairs
    ]
    return pa.Table.from_pylist(rows, pa.schema([(name, pa.string()) for name in WANTED]))


def verify(images: pa.Table, captioner: Captioner, asked: Checks) -> pa.Table:
    """A table of `schemas.VERIFICATIONS`, a row per row of `images` (`schemas.IMAGES` and the columns of `wanted`).

    An image that cannot be decoded, or whose class nobody can tell, is an error of its row; a value that the captioner
    does not name is null.
    """
    known_errors, targets = images["error"].to_pylist(), images["target_class"].to_pylist()
    files = [None if error else data for data, error in zip(images["bytes"].to_pylist(), known_errors, strict=True)]
    questions = [[asked.classes, *asked.attributes.get(target, {}).values()] for target in targets]
    answers, undecoded = encoded.answers(files, questions, captioner)
    errors = [known or new for known, new in zip(known_errors, undecoded, strict=True)]
    rows = []
    for i, image_id in enumerate(images["image_id"].to_pylist()):
        names = list(asked.attributes.get(targets[i], {}))
        of_image = answers[i] if errors[i] is None else []
        which = _weighed(of_image[0], asked.classes) if of_image else Answer(None, error=errors[i])
        values = of_image[1:] or [Answer(None)] * len(names)
        rows.append(
            {
                "verification_id": asked.verification_id(image_id, targets[i]),
                "image_id": image_id,
                "target_class": targets[i],
                "revision": asked.revision,
                "class_shown": which.choice,
                "class_certainty": _certainty(which),
                "attributes": names,
                "values": [answer.choice for answer in values],
                "certainties": [_certainty(answer) for answer in values],
                "error": which.error,
            }
        )
    return pa.Table.from_pylist(rows, VERIFICATIONS)


def _weighed(answer: Answer, question: Question) -> Answer:
    """An answer to the question after the class, where the model says how likely each choice is: OTHER is one only
    where it is so many times LIKELIER."""
    if answer.choice is None or answer.probabilities is None or question.choices[-1] != OTHER:
        return answer
    weighed = [*answer.probabilities[:-1], answer.probabilities[-1] / LIKELIER]
    likely = tuple(p / sum(weighed) for p in weighed)
    return Answer(question.choices[likely.index(max(likely))], likely)


def _certainty(answer: Answer) -> float | None:
    return max(answer.probabilities) if answer.choice is not None and answer.probabilities else None


def check_calibration(labels: pa.Table, classes: Sequence[str]) -> None:
    """ConfigError where no row of a calibration table is of the audit's classes."""
    if not set(_labels(labels, "target_class").tolist()) & {normalise(name) for name in classes}:
        raise ConfigError("verification.calibration", "none of its rows has a target_class of this audit's classes")


def calibrate(labels: pa.Table, source: ImageSource, captioner: Captioner, asked: Checks, seed: int) -> pa.Table:
    """How often the verifier says what, on images of known content: a table of `schemas.CALIBRATION`.

    labels: `target_class` and a column per attribute, a row per image of `source`. Attributes without a column, and
    values that no image has, are left out: `verified` counts on the verifier's own certainty there. A null is no
    label. Images of classes that the audit does not have show what the verifier says of something else. SourceError
    where none of the images can be read.
    """
    counts: dict[tuple[str, str, str], float] = defaultdict(float)
    targets = _labels(labels, "target_class")
    random = np.random.default_rng(seed)
    jobs: list[tuple[int, str, str, Question]] = []
    known = {name: targets == normalise(name) for name in asked.classes.choices}
    # Whatever is called otherwise than the task's classes is something else, be that its name or not.
    own = [here for name, here in known.items() if name != OTHER]
    known[OTHER] = np.array([target is not None for target in targets], bool) & ~np.any(own, axis=0)
    for name, here in known.items():
        # What shows none of the classes may be taken for any, by one in hundreds: it takes as many to know.
        most = CALIBRATED_ON * (len(own) if name == OTHER else 1)
        jobs += [(row, CLASS, name, asked.classes) for row in _some(here, random, most)]
    having = Counter(attribute for groups in asked.attributes.values() for attribute in groups)
    for target, groups in asked.attributes.items():
        for attribute, question in groups.items():
            if attribute not in labels.column_names:
                continue
            column = _labels(labels, attribute)
            for value in question.choices:
                here = (targets == normalise(target)) & (column == normalise(value))
                share = max(1, CALIBRATED_ON // having[attribute])  # classes answer for an attribute together
                jobs += [(row, attribute, value, question) for row in _some(here, random, share)]
    for (_, attribute, value, _), answer in _asked_of(sorted(jobs, key=lambda job: job[0]), source, captioner):
        choice = _weighed(answer, asked.classes).choice if attribute == CLASS else answer.choice
        if choice is not None:
            counts[attribute, value, choice] += 1
    rows = [
        {"attribute": attribute, "value": value, "answer": answer, "images": n, "source": "table"}
        for (attribute, value, answer), n in sorted(counts.items())
    ]
    return pa.Table.from_pylist(rows, CALIBRATION)


def _labels(labels: pa.Table, name: str) -> NDArray[np.object_]:
    return np.array([None if v is None else normalise(str(v)) for v in labels[name].to_pylist()], dtype=object)


def _asked_of(
    jobs: Sequence[tuple[int, str, str, Question]], source: ImageSource, captioner: Captioner
) -> Iterator[tuple[tuple[int, str, str, Question], Answer]]:
    """Every job (sorted by row) that has a picture, with its answer; each row's picture is fetched once.

    SourceError where none has: nothing would have been learnt, and nothing said.
    """
    first, readable = "", False
    for start in range(0, len(jobs), _BATCH):
        part = jobs[start : start + _BATCH]
        rows = sorted({row for row, *_ in part})
        result = source.fetch(rows)
        questions = [[question for row, *_, question in part if row == own] for own in rows]
        answers, errors = encoded.answers(result["bytes"].to_pylist(), questions, captioner)
        given = result["error"].to_pylist() if "error" in result.column_names else errors
        said = [one or other for one, other in zip(given, errors, strict=True)]
        first = first or next(
            (f"{key}: {why}" for key, why in zip(result["key"].to_pylist(), said, strict=True) if why), ""
        )
        of_row = {row: iter(own) for row, own, error in zip(rows, answers, errors, strict=True) if error is None}
        readable = readable or bool(of_row)
        yield from ((job, next(of_row[job[0]])) for job in part if job[0] in of_row)
    if jobs and not readable:
        raise SourceError(
            f"verification.calibration: none of the table's images can be read (the first is {first}); a path in its "
            "column `image` is relative to the table"
        )


def _some(here: NDArray[np.bool_], random: np.random.Generator, most: int = CALIBRATED_ON) -> Rows:
    rows = np.flatnonzero(here)
    return np.sort(random.permutation(rows)[:most])
