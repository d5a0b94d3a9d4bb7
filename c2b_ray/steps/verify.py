"""Verifies images: does an image show what its caption says, according to a captioner, and how far to trust that.

For an image drawn for a class, the questions are which class it shows and, for each attribute that is tested on that
class, which value. It knows the questions and how answers are counted; `stats.noisy_labels` has the estimation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from c2b_ray.names import normalise
from c2b_ray.roles import Answer, Captioner, Question
from c2b_ray.steps import encoded
from c2b_ray.steps.cells import ATTRIBUTE, of_kind
from c2b_ray.tables import VERIFICATIONS, content_id

CLASS = "target_class"
"""Stands in for an attribute's name in questions about the class; no attribute has this name."""

OTHER = "something else"
"""The answer for images that show none of the task's classes, also in a calibration. Without it a verifier must name a
class for anything that an index holds, and a mug is taken for a bus."""

THING = "a photo of a thing"
"""The text of OTHER for models that compare images with texts: by "a photo of something else", the world's CLIP model
lost up to a third of a class's own images."""

LIKELIER = 3.0
"""How many times as likely as a class OTHER must be. Of 3,000 scenes, five of whose ten classes were the task's, the
world's CLIP model kept 92, 99 and 99.7 % of a class's own images (in fog 91, 98, 100) at 1, 3 and 9, and took 0.2, 2
and 8 % of the others for one: a hundredth of an index is much beside a class's own images."""

WANTED = ("image_id", "target_class", "verification_id")


@dataclass(frozen=True)
class Checks:
    """The questions to a verifier: its spec and revision, and, by target class, the attributes with their values.

    `classes`: the question about the class, the same for all images, with `OTHER` as last choice.
    """

    verifier: str
    revision: str
    classes: Question
    attributes: Mapping[str, Mapping[str, Question]]

    def verification_id(self, image_id: str, target_class: str) -> str:
        texts = [self.classes.choices, *self._texts(target_class)]
        return content_id("verify", image_id, target_class, self.verifier, self.revision, texts)

    def _texts(self, target_class: str) -> list[object]:
        return [
            [name, question.choices, question.texts] for name, question in self.attributes.get(target_class, {}).items()
        ]


def checks(verifier: str, revision: str, classes: Sequence[str], captions: pa.Table) -> Checks:
    """Returns the questions of an audit. The first caption of each value serves as its text: they differ only in the
    value."""
    attributes: dict[str, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for row in of_kind(captions, ATTRIBUTE).to_pylist():
        attributes[row["target_class"]][row["attribute"]].setdefault(row["bias_class"], row["text"])
    questions = {
        target: {
            name: Question(f"Which {name} does the picture of a {target} show?", tuple(texts), _distinct(texts))
            for name, texts in groups.items()
            if len(texts) > 1
        }
        for target, groups in attributes.items()
    }
    other_texts = {} if OTHER in map(normalise, classes) else {OTHER: THING}
    text_of_class = {name: f"a photo of a {name}" for name in classes} | other_texts
    return Checks(
        verifier,
        revision,
        Question("What does the picture show?", tuple(text_of_class), tuple(text_of_class.values())),
        questions,
    )


def _distinct(texts: Mapping[str, str]) -> tuple[str, ...] | None:
    """Returns the captions; None where two values have the same one, which distinguishes nothing."""
    result = tuple(texts.values())
    return result if len(set(result)) == len(result) else None


def wanted(captions: pa.Table, draws: pa.Table, checks: Checks) -> pa.Table:
    """Returns `image_id`, `target_class` and `verification_id` of every image and class that it was drawn for, once.

    Images of intersections get the same questions: their two values are those of the class's attributes.
    """
    target = dict(zip(captions["caption_id"].to_pylist(), captions["target_class"].to_pylist(), strict=True))
    pairs = dict.fromkeys(
        (image, target[caption])
        for image, caption in zip(draws["image_id"].to_pylist(), draws["caption_id"].to_pylist(), strict=True)
    )
    rows = [
        {"image_id": image, "target_class": name, "verification_id": checks.verification_id(image, name)}
        for image, name in pairs
    ]
    return pa.Table.from_pylist(rows, pa.schema([(name, pa.string()) for name in WANTED]))


def verify(images: pa.Table, captioner: Captioner, checks: Checks) -> pa.Table:
    """Returns a table of `tables.VERIFICATIONS`, a row per row of `images` (`tables.IMAGES` and the columns of
    `wanted`).

    An image that cannot be decoded, or whose class is unknown, is an error of its row; a value that the captioner does
    not name is null.
    """
    known_errors, targets = images["error"].to_pylist(), images["target_class"].to_pylist()
    questions = [[checks.classes, *checks.attributes.get(target, {}).values()] for target in targets]
    answers, decoding_errors = encoded.answers(encoded.files_of(images), questions, captioner)
    errors = [old_error or new for old_error, new in zip(known_errors, decoding_errors, strict=True)]
    rows = []
    for i, image_id in enumerate(images["image_id"].to_pylist()):
        names = list(checks.attributes.get(targets[i], {}))
        of_image = answers[i] if errors[i] is None else []
        class_answer = weighed(of_image[0], checks.classes) if of_image else Answer(None, error=errors[i])
        values = of_image[1:] or [Answer(None)] * len(names)
        rows.append(
            {
                "verification_id": checks.verification_id(image_id, targets[i]),
                "image_id": image_id,
                "target_class": targets[i],
                "revision": checks.revision,
                "class_shown": class_answer.choice,
                "class_certainty": _certainty(class_answer),
                "attributes": names,
                "values": [answer.choice for answer in values],
                "certainties": [_certainty(answer) for answer in values],
                "error": class_answer.error,
            }
        )
    return pa.Table.from_pylist(rows, VERIFICATIONS)


def weighed(answer: Answer, question: Question) -> Answer:
    """Reweighs an answer to the question about the class, where the model gives the probability of each choice: OTHER
    is chosen only where it is LIKELIER times as likely."""
    if answer.choice is None or answer.probabilities is None or question.choices[-1] != OTHER:
        return answer
    weighed = [*answer.probabilities[:-1], answer.probabilities[-1] / LIKELIER]
    likely = tuple(p / sum(weighed) for p in weighed)
    return Answer(question.choices[likely.index(max(likely))], likely)


def _certainty(answer: Answer) -> float | None:
    return max(answer.probabilities) if answer.choice is not None and answer.probabilities else None
