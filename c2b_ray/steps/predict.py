"""images → predictions: what the classifier answers, in its own labels and in the task's classes.

It knows the label map and how probabilities are averaged; it does not know where the classifier runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.errors import ConfigError, nearest
from c2b_ray.roles import Classifier, Floats
from c2b_ray.schemas import PREDICTIONS, content_id
from c2b_ray.steps.decode import decode_batch
from c2b_ray.steps.propose import normalise

LabelMap = Mapping[str, Sequence[int | str]]


@dataclass(frozen=True)
class Question:
    """What is asked of a classifier: its spec and revision, the task's classes, and the labels that stand for each."""

    classifier: str
    revision: str
    classes: tuple[str, ...]
    labels_of_class: tuple[tuple[int, ...], ...]

    def prediction_id(self, image_id: str) -> str:
        labels = [list(group) for group in self.labels_of_class]
        return content_id("predict", image_id, self.classifier, self.revision, list(self.classes), labels)


def question(spec: str, classifier: Classifier, classes: Sequence[str], label_map: LabelMap | None) -> Question:
    """ConfigError names a class that no label maps to, or a label that the classifier does not have."""
    labels = classifier.labels
    groups = tuple(_labels_of(name, labels, label_map, spec) for name in classes)
    return Question(spec, classifier.revision, tuple(classes), groups)


def _labels_of(name: str, labels: Sequence[str], label_map: LabelMap | None, spec: str) -> tuple[int, ...]:
    index: dict[str, list[int]] = defaultdict(list)
    for i, own in enumerate(labels):
        index[normalise(own)].append(i)
    if label_map is None:
        if normalise(name) not in index:
            raise ConfigError(
                "classes",
                f"no label of {spec} is {name!r}; {nearest(normalise(name), index)} (or give `label_map`)",
            )
        return (_only(index[normalise(name)], name, name, spec),)
    chosen = label_map.get(name)
    if not chosen:
        raise ConfigError("label_map", f"no label maps to the class {name!r}; give it at least one label")
    found = []
    for label in chosen:
        positions = [label] if isinstance(label, int) else index.get(normalise(label), [])
        if not positions or not 0 <= positions[0] < len(labels):
            known = nearest(str(label), index) if isinstance(label, str) else f"it has labels 0 to {len(labels) - 1}"
            raise ConfigError(f"label_map.{name}", f"{spec} has no label {label!r}; {known}")
        found.append(_only(positions, label, name, spec))
    return tuple(found)


def _only(positions: Sequence[int], label: int | str, name: str, spec: str) -> int:
    """The position of a label. ConfigError where several outputs have it: ImageNet has two called crane."""
    if len(positions) > 1:
        listed = ", ".join(map(str, positions))
        raise ConfigError(
            f"label_map.{name}",
            f"{len(positions)} labels of {spec} are {label!r}, at {listed}; name those that are meant by their "
            f"indices, such as {name}: [{positions[0]}]",
        )
    return positions[0]


def predict(images: pa.Table, classifier: Classifier, asked: Question) -> pa.Table:
    """A table of `schemas.PREDICTIONS`, a row per row of `images` (`schemas.IMAGES`).

    Images that cannot be decoded and logits that are not numbers become errors of their rows.
    """
    pixels, errors = decode_batch(images["bytes"].to_pylist())
    errors = [given or found for given, found in zip(images["error"].to_pylist(), errors, strict=True)]
    keys = images["key"].to_pylist()
    good = [i for i, error in enumerate(errors) if error is None]
    answers: dict[int, tuple[str, float, str, float]] = {}
    if good:
        logits = classifier.logits([pixels[i] for i in good], [keys[i] for i in good])  # type: ignore[misc]
        for i, answer in zip(good, _answers(logits, classifier.labels, asked), strict=True):
            if answer is None:
                errors[i] = "the classifier gave no answer (its logits are not numbers)"
            else:
                answers[i] = answer
    ids = images["image_id"].to_pylist()
    rows = []
    for i, image_id in enumerate(ids):
        label, label_probability, predicted, probability = answers.get(i, (None, None, None, None))
        rows.append(
            {
                "prediction_id": asked.prediction_id(image_id),
                "image_id": image_id,
                "classifier": asked.classifier,
                "revision": asked.revision,
                "label": label,
                "label_probability": label_probability,
                "predicted_class": predicted,
                "class_probability": probability,
                "error": errors[i],
            }
        )
    return pa.Table.from_pylist(rows, PREDICTIONS)


def class_probabilities(logits: Floats, asked: Question) -> NDArray[np.float64]:
    """Softmax over the labels, then the mean over each class's labels: float64 (images, classes)."""
    shifted = logits.astype(np.float64)
    shifted = np.exp(shifted - shifted.max(axis=1, keepdims=True))
    shares = shifted / shifted.sum(axis=1, keepdims=True)
    return np.stack([shares[:, list(group)].mean(axis=1) for group in asked.labels_of_class], axis=1)


def _answers(logits: Floats, labels: Sequence[str], asked: Question) -> list[tuple[str, float, str, float] | None]:
    # −inf is a legal logit (a probability of 0 in a table of predictions); NaN, +inf, and a row of −inf alone are not.
    sound = ~np.isnan(logits).any(axis=1) & np.isfinite(logits.max(axis=1, initial=-np.inf))
    safe = np.where(sound[:, None], logits, 0)
    classes = class_probabilities(safe, asked)
    shifted = np.exp(safe - safe.max(axis=1, keepdims=True))
    shares = shifted / shifted.sum(axis=1, keepdims=True)
    top, best = shares.argmax(axis=1), classes.argmax(axis=1)
    return [
        (labels[top[i]], float(shares[i, top[i]]), asked.classes[best[i]], float(classes[i, best[i]]))
        if sound[i]
        else None
        for i in range(len(logits))
    ]
