"""Predicts images: the classifier's answers, in its labels and in the task's classes.

It knows the label map; `answers` decides which answers are right. It does not know where the classifier runs.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.config import Right
from c2b_ray.errors import ConfigError, WeightsError, about_model, nearest
from c2b_ray.names import folded, normalise
from c2b_ray.roles import Classifier, Head
from c2b_ray.steps import encoded
from c2b_ray.tables import PREDICTIONS, content_ids

# Decides from logits what an image was taken for, and for which classes that answer is right.


FIVE = 5
SAME = 1e-6
"""Mean log-probabilities of classes of several labels that differ by less are equal: float32 logits carry no more."""
NO_ANSWER = "the classifier gave no answer (its logits are not numbers)"

BELOW = "below the threshold"
"""What an image was taken for, seen from a label that sigmoids do not give it."""
NO_CLASS = "none of the classes"
THRESHOLD = 0.5
"""The probability from which a label of its own is given, unless an audit says another."""

_NONE = float(np.log(np.finfo(np.float32).tiny)) + 1e-3  # what tables and ONNX files of probabilities have for 0
_LISTED = 3

Logits = NDArray[np.float64]


@dataclass(frozen=True)
class ClassAnswer:
    """One image's answer; `probabilities` are those of the classes, where they are wanted.

    Of labels that exclude each other, `label` is None where several labels are likeliest, `predicted_class` where the
    answer lies outside the classes. `answered`: the classes for which it counts by `top5`. `undecided`: why there is no
    single answer.

    Of labels each on its own, `answered` holds the classes that are given, `label` their names, or NO_CLASS, and
    `predicted_class` is BELOW, the answer to every other class; no probability is that of all of them.
    """

    label: str | None
    label_probability: float | None
    predicted_class: str | None
    class_probability: float | None
    answered: list[str] | None
    undecided: str | None
    probabilities: list[float] | None = None


@dataclass(frozen=True)
class Classes:
    """The task's classes and the positions of the labels that stand for each; no two classes share a label."""

    names: tuple[str, ...]
    labels: tuple[tuple[int, ...], ...]

    @property
    def of_label(self) -> dict[int, int]:
        return {label: number for number, positions in enumerate(self.labels) for label in positions}


def answers(
    logits: NDArray[np.floating], labels: Sequence[str], classes: Classes, rule: Right
) -> list[ClassAnswer | None]:
    """Returns an answer per row of `logits` (images, labels); None where they are not numbers (NaN or +inf)."""
    # −inf is a legal logit: a probability of 0.
    rows = np.asarray(logits, np.float64)
    sound = (rows.max(axis=1, initial=-np.inf) < np.inf).tolist()  # a maximum with NaN is NaN, which is not below
    of_label = classes.of_label
    if rule == "top1":
        return _decided(rows, sound, labels, classes)
    return [
        _answer(row, labels, classes, of_label, rule) if is_finite else None
        for row, is_finite in zip(rows, sound, strict=True)
    ]


def answers_at(
    logits: NDArray[np.floating], labels: Sequence[str], classes: Classes, cut: tuple[int, float]
) -> list[ClassAnswer | None]:
    """Returns the answers of a classifier of two labels that exclude each other, where one is given from a threshold.

    `cut`: the position of that label, and the probability from which it is the answer; the other label is the answer
    below it. A probability that is less by `SAME` reaches it: float32 logits carry no more. None as in `answers`.
    """
    rows, (position, threshold) = np.asarray(logits, np.float64), cut
    sound = (rows.max(axis=1, initial=-np.inf) < np.inf) & (rows.max(axis=1, initial=-np.inf) > -np.inf)
    share = _sigmoid(rows[:, position] - rows[:, 1 - position])
    first_given, of_label = share >= threshold - SAME, classes.of_label
    result: list[ClassAnswer | None] = []
    for good, first, p in zip(sound.tolist(), first_given.tolist(), share.tolist(), strict=True):
        at, probability = (position, p) if first else (1 - position, 1 - p)
        number = of_label.get(at)
        predicted = None if number is None else classes.names[number]
        answer = ClassAnswer(labels[at], probability, predicted, None if number is None else probability, None, None)
        result.append(answer if good else None)
    return result


def answers_of_each(
    logits: NDArray[np.floating], classes: Classes, thresholds: Sequence[float]
) -> list[ClassAnswer | None]:
    """Returns the answers of a classifier whose labels are each on its own: the classes whose probability, the sigmoid
    of the logit, reaches their threshold, one for each class. A class of several labels has the largest of their
    probabilities. None for a row that is not numbers."""
    rows = np.asarray(logits, np.float64)
    least = np.asarray(thresholds, np.float64) - SAME
    reached: list[list[bool]] = (class_probabilities(rows, classes, "sigmoid") - least >= 0).tolist()
    result: list[ClassAnswer | None] = []
    is_sound = [not np.isnan(row).any() for row in rows]
    for sound, classes_reached in zip(is_sound, reached, strict=True):
        names_given = [name for name, one in zip(classes.names, classes_reached, strict=True) if one]
        result.append(
            ClassAnswer(", ".join(names_given) or NO_CLASS, None, BELOW, None, names_given, None) if sound else None
        )
    return result


def _sigmoid(logits: Logits) -> Logits:
    result: Logits = 1 / (1 + np.exp(-np.clip(logits, -700, 700)))
    return result


def _decided(rows: Logits, sound: Sequence[bool], labels: Sequence[str], classes: Classes) -> list[ClassAnswer | None]:
    """Does the work of `_answer` by the rule `top1` for all rows at once; rows without a single likeliest label go one
    by one."""
    of_label, maxima = classes.of_label, rows.max(axis=1, initial=-np.inf)
    single = (((rows == maxima[:, None]).sum(axis=1) == 1) & (maxima > -np.inf)).tolist()
    likeliest = rows.argmax(axis=1).tolist() if len(labels) else []
    with np.errstate(all="ignore"):  # of rows that are no numbers
        log_sums = _log_sums(rows, maxima)
        share = np.exp(maxima - log_sums).tolist()
    result: list[ClassAnswer | None] = []
    for i, row in enumerate(rows):
        if not sound[i]:
            result.append(None)
        elif not single[i]:
            result.append(_answer(row, labels, classes, of_label, "top1"))
        elif (number := of_label.get(likeliest[i])) is None:
            result.append(ClassAnswer(labels[likeliest[i]], share[i], None, None, None, None))
        else:
            positions = classes.labels[number]
            probability = share[i] if len(positions) == 1 else float(np.exp(_log_mean(row, positions) - log_sums[i]))
            result.append(ClassAnswer(labels[likeliest[i]], share[i], classes.names[number], probability, None, None))
    return result


def class_probabilities(logits: NDArray[np.floating], classes: Classes, head: Head = "softmax") -> Logits:
    """Returns the probability of each class, float64 (images, classes): the sum of the softmax over its labels, or of
    labels each on its own the largest sigmoid.

    A row of logits that are not numbers is NaN. It does not depend on the rule for right answers.
    """
    rows = np.asarray(logits, np.float64)
    if head == "sigmoid":
        return np.stack(
            [_sigmoid(rows[:, list(labels_of_class)].max(axis=1)) for labels_of_class in classes.labels], axis=1
        )
    maxima = rows.max(axis=1, initial=-np.inf)
    with np.errstate(all="ignore"):  # of rows that are no numbers
        shares = np.exp(rows - maxima[:, None])
        shares /= shares.sum(axis=1, keepdims=True)
    return np.stack([shares[:, list(positions)].sum(axis=1) for positions in classes.labels], axis=1)


def _answer(
    row: Logits, labels: Sequence[str], classes: Classes, of_label: Mapping[int, int], rule: Right
) -> ClassAnswer:
    certain, tied = _likeliest(row, 1)
    if not certain and not tied:
        return ClassAnswer(None, None, None, None, [] if rule == "top5" else None, "no label has any probability")
    log_sum = float(_log_sums(row[None], row[None].max(axis=1))[0])
    label = labels[certain[0]] if certain else None
    top_classes, undecided = None, None
    if rule == "among_classes":
        predicted, undecided = _likeliest_class(row, log_sum, classes)
    else:
        top = _counted(certain, tied, 1, of_label)
        predicted = top[0] if top else None
        if rule == "top5":
            top_classes = [classes.names[number] for number in _counted(*_likeliest(row, FIVE), FIVE, of_label)]
        if label is None and predicted is None and not top_classes:
            undecided = _tie([labels[position] for position in tied], "label")
    return ClassAnswer(
        label,
        float(np.exp(row.max() - log_sum)),
        None if predicted is None else classes.names[predicted],
        None if predicted is None else float(np.exp(_log_mean(row, classes.labels[predicted]) - log_sum)),
        top_classes,
        undecided,
    )


def _log_sums(rows: Logits, maxima: Logits) -> Logits:
    """Returns the logarithm of the sum of exp of each row, whose largest values are `maxima`."""
    sums: Logits = maxima + np.log(np.exp(rows - maxima[:, None]).sum(axis=1))  # a fifth of the time of logaddexp
    return sums


def _likeliest(row: Logits, k: int) -> tuple[list[int], list[int]]:
    """Returns the labels that are certainly among the k likeliest, and those that tie for the last ranks."""
    possible = np.flatnonzero(row > -np.inf)
    if len(possible) <= k:
        return possible.tolist(), []
    last = np.partition(row, -k)[-k]
    certain, tied = np.flatnonzero(row > last).tolist(), np.flatnonzero(row == last).tolist()
    return (certain + tied, []) if len(certain) + len(tied) == k else (certain, tied)


def _counted(certain: Sequence[int], tied: Sequence[int], k: int, of_label: Mapping[int, int]) -> list[int]:
    """Returns the classes with a label among the k likeliest, however ties at the last rank are broken."""
    counted = {of_label[position] for position in certain if position in of_label}
    free = k - len(certain)
    tied_labels = Counter(of_label[position] for position in tied if position in of_label)
    return sorted(counted | {number for number, n_tied in tied_labels.items() if len(tied) - n_tied < free})


def _likeliest_class(row: Logits, log_sum: float, classes: Classes) -> tuple[int | None, str | None]:
    means = np.array([_log_mean(row, positions) for positions in classes.labels])
    highest = means.max()
    if highest == -np.inf:
        return None, "no class has any probability"
    grouped = any(len(positions) > 1 for positions in classes.labels)
    equal = np.flatnonzero(means >= highest - (SAME if grouped else 0)).tolist()
    if len(equal) == 1:
        return equal[0], None
    if highest - log_sum <= _NONE:
        return None, "no class has any probability"
    return None, _tie([classes.names[number] for number in equal], "class")


def _log_mean(row: Logits, positions: Sequence[int]) -> float:
    """Returns the logarithm of the mean of exp over a class's labels; −inf where none has any probability."""
    return float(np.logaddexp.reduce(row[list(positions)]) - np.log(len(positions)))


def _tie(names: Sequence[str], noun: str) -> str:
    plural = "classes" if noun == "class" else f"{noun}s"
    suffix = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{len(names)} {plural} are equally likely: {', '.join(names[:_LISTED])}{suffix}"


_UNNAMED = re.compile(r"label_\d+")
NAME_LABELS = (
    "the classifier does not name its labels: add ?labels=FILE to its spec, one name a line in the order of the outputs"
)
"""What to do about labels that nothing names."""
_NOTHING = ClassAnswer(None, None, None, None, None, None)
LabelMap = Mapping[str, Sequence[int | str]]


@dataclass(frozen=True)
class Classification:
    """What a classifier decides on each image: its name and revision, the task's classes, the labels that stand for
    each class, the rule for right answers, the names of all labels, and whether the probabilities of all classes are
    kept. `head`: what the labels are to each other. `thresholds`: of labels each on its own, the probability from which
    each class is given. `cut`: of two labels that exclude each other, the position of one and the probability from
    which it is the answer; None: the likelier one is."""

    classifier: str
    revision: str
    classes: tuple[str, ...]
    labels_of_class: tuple[tuple[int, ...], ...]
    right: Right = "top1"
    labels: tuple[str, ...] = ()
    probabilities: bool = False
    head: Head = "softmax"
    thresholds: tuple[float, ...] = ()
    cut: tuple[int, float] | None = None

    @property
    def class_labels(self) -> Classes:
        return Classes(self.classes, self.labels_of_class)

    def answers(self, logits: NDArray[np.floating]) -> list[ClassAnswer | None]:
        """Returns the answer of each row of logits, (images, labels); None where they are not numbers."""
        if self.head == "sigmoid":
            return answers_of_each(logits, self.class_labels, self.thresholds)
        if self.cut is not None:
            return answers_at(logits, self.labels, self.class_labels, self.cut)
        return answers(logits, self.labels, self.class_labels, self.right)

    @property
    def rule(self) -> str | None:
        """When an answer is right, after "when", where `right` does not say it."""
        if self.head == "sigmoid":
            alike = len(set(self.thresholds)) == 1
            pairs = zip(self.classes, self.thresholds, strict=True)
            least = f"{self.thresholds[0]:g}" if alike else ", ".join(f"{value:g} for {name}" for name, value in pairs)
            return (
                f"the class is given: its own probability, a sigmoid, reaches {least}, whatever else is given. "
                "Accuracy is then recall: the share of the images that show a class to which it is given"
            )
        if self.cut is not None:
            position, threshold = self.cut
            names = self.labels[position], self.labels[1 - position]
            return f"its label is the answer: {names[0]} from a probability of {threshold:g}, otherwise {names[1]}"
        return None

    def prediction_id(self, image_id: str) -> str:
        return self.prediction_ids([image_id])[0]

    def prediction_ids(self, image_ids: Sequence[str]) -> list[str]:
        """Returns the ids of the classifier's predictions, one per image."""
        labels = [list(group) for group in self.labels_of_class]
        settings: tuple[object, ...] = (self.classifier, self.revision, list(self.classes), labels, self.right)
        # Earlier releases' ids have nothing of what follows.
        settings += ("probabilities",) if self.probabilities else ()
        settings += () if self.head == "softmax" else (self.head, list(self.thresholds))
        settings += () if self.cut is None else ("threshold", *self.cut)
        return content_ids("predict", image_ids, *settings)


class Described(Protocol):
    """A classifier, or its description."""

    @property
    def labels(self) -> tuple[str, ...]: ...

    @property
    def revision(self) -> str: ...


Thresholds = float | Mapping[str, float]
"""One probability for all, or class → probability."""


def classification(
    spec: str,
    classifier: Described,
    classes: Sequence[str],
    label_map: LabelMap | None,
    right: Right = "top1",
    field: str = "classes",
    probabilities: bool = False,
    threshold: Thresholds | None = None,
    several: bool = False,
) -> Classification:
    """Returns the classification. `field` names the classes: a field of a config, or an option. `probabilities`:
    whether those of all classes are kept. `threshold`: the probability from which a label on its own is given (0.5), or
    of two labels that exclude each other the second, or the class that is named. `several`: whether labels may be each
    on its own: whoever calls it must ask about one class after the other.

    Raises ConfigError, which names a class that no label maps to, a label that the classifier does not have or that two
    classes share, or a rule for right answers or threshold that makes no sense for such labels.
    """
    labels = classifier.labels
    head: Head = getattr(classifier, "head", "softmax")
    if head == "sigmoid" and not several:
        raise ConfigError(
            "classifier",
            f"{spec} scores each label on its own (sigmoids), and this needs labels that exclude each other; `c2b "
            "audit` of labelled images takes it",
        )
    if len(labels) < 2 and head != "sigmoid":
        raise ConfigError(
            "classifier",
            f"{spec} has one label, {''.join(labels)!r}, so that every answer would be right; give it an output for "
            "each of two labels or more: of a single sigmoid p, 1 − p and p; or add ?head=sigmoid, where it is the "
            "score of that label against all else",
        )
    if head == "sigmoid" and right != "top1":
        raise ConfigError("right", f"{right} ranks labels that exclude each other, and those of {spec} do not")
    index: dict[str, list[int]] = defaultdict(list)
    for i, text in enumerate(labels):
        index[normalise(text)].append(i)
    entries = (
        None
        if label_map is None
        else {name: _entry(label_map, keys, name) for name, keys in _spelt(label_map, classes)}
    )
    groups = tuple(_labels_of(name, index, entries, spec, field) for name in classes)
    _refuse_shared(groups, classes, labels, field if label_map is None else _map_field(field))
    if right == "among_classes" and len(classes) < 2:
        raise ConfigError(
            "right", f"among_classes would count every answer as {classes[0]!r}, the only class; use top1"
        )
    if right == "top5" and len(labels) <= FIVE:
        raise ConfigError("right", f"{spec} has {len(labels)} labels, so that any of five is always right; use top1")
    made = Classification(spec, classifier.revision, tuple(classes), groups, right, tuple(labels), probabilities)
    if head == "sigmoid":
        return replace(made, head=head, thresholds=_thresholds(THRESHOLD if threshold is None else threshold, classes))
    return made if threshold is None else replace(made, cut=_cut(threshold, made))


def _thresholds(threshold: Thresholds, classes: Sequence[str]) -> tuple[float, ...]:
    """Returns the threshold of each class: a mapping's, or `THRESHOLD` for a class that it does not name."""
    if not isinstance(threshold, Mapping):
        return (float(threshold),) * len(classes)
    by_name = _by_class(threshold, classes)
    return tuple(by_name.get(name, THRESHOLD) for name in classes)


def _cut(threshold: Thresholds, question: Classification) -> tuple[int, float]:
    """Returns the position of the label that a threshold is of, and the threshold. Raises ConfigError unless the
    classifier has two labels, and for thresholds of both."""
    if len(question.labels) != 2:
        raise ConfigError(
            "threshold",
            f"{question.classifier} has {len(question.labels)} labels that exclude each other, of which the likeliest "
            "is the answer; a threshold is for two labels, or for labels each on its own (?head=sigmoid)",
        )
    if question.right != "top1":
        raise ConfigError(
            "right", f"{question.right} takes the likelier of two labels, and `threshold` does not; use top1"
        )
    if not isinstance(threshold, Mapping):
        return 1, float(threshold)
    by_name = _by_class(threshold, question.classes)
    if len(by_name) != 1:
        raise ConfigError("threshold", "of two labels that exclude each other, give the threshold of one class")
    ((name, value),) = by_name.items()
    labels = question.labels_of_class[question.classes.index(name)]
    if len(labels) != 1:
        raise ConfigError("threshold", f"every label stands for {name!r}, so that it is always the answer")
    return labels[0], value


def _by_class(threshold: Mapping[str, float], classes: Sequence[str]) -> dict[str, float]:
    names = {normalise(name): name for name in classes}
    for name in threshold:
        if normalise(name) not in names:
            raise ConfigError("threshold", f"{name!r} is none of the classes; {nearest(name, classes)}")
    return {names[normalise(name)]: float(value) for name, value in threshold.items()}


def _refuse_shared(groups: Sequence[Sequence[int]], classes: Sequence[str], labels: Sequence[str], field: str) -> None:
    owner: dict[int, str] = {}
    for name, group in zip(classes, groups, strict=True):
        for label in group:
            if owner.setdefault(label, name) != name:
                raise ConfigError(
                    field,
                    f"{owner[label]!r} and {name!r} share the label {labels[label]!r} (index {label}), so that one "
                    "answer would be right for both; give it to one of them",
                )


def _spelt(label_map: LabelMap, classes: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields each class with the keys of the label map that are the same name."""
    keys: dict[str, list[str]] = defaultdict(list)
    for key in label_map:
        keys[normalise(key)].append(key)
    yield from ((name, keys[normalise(name)]) for name in classes)


def _entry(label_map: LabelMap, keys: Sequence[str], name: str) -> Sequence[int | str]:
    """Returns the labels of a class. Raises ConfigError where two keys of the map are spelt like it."""
    matches = [key for key in keys if folded(key) == folded(name)]
    if len(matches or keys) > 1:
        examples = " and ".join(map(repr, (matches or keys)[:2]))
        raise ConfigError("label_map", f"{examples} are the same name; keep one entry for the class {name!r}")
    return label_map[(matches or keys)[0]] if keys else []


def _map_field(field: str) -> str:
    """Returns the name of the field or option that gives a label map, where `field` names the classes."""
    return "--label-map" if field.startswith("--") else "label_map"


def _labels_of(
    name: str, index: Mapping[str, Sequence[int]], label_map: LabelMap | None, spec: str, field: str
) -> tuple[int, ...]:
    """Returns the positions of the labels that stand for a class. `index`: label, as names are compared → positions.

    Where labels are numbers, as in tables of predictions, a number names one and is no position: they may lack some.
    """
    if label_map is None:
        if normalise(name) not in index:
            hint = NAME_LABELS if is_unnamed(index) else nearest(normalise(name), index)
            raise ConfigError(field, f"no label of {spec} is {name!r}; {hint} (or give `{_map_field(field)}`)")
        return (_only(index[normalise(name)], name, name, spec),)
    entry = label_map.get(name)
    if not entry:
        raise ConfigError("label_map", f"no label maps to the class {name!r}; give it at least one label")
    result, size, numbered = [], sum(map(len, index.values())), are_numbers(index)
    for label in entry:
        if isinstance(label, bool) or not isinstance(label, int | str):
            raise ConfigError(f"label_map.{name}", f"{label!r} is neither a label's name nor its index")
        key = str(label) if numbered else label
        positions = [key] if isinstance(key, int) else index.get(normalise(key), [])
        if not positions or not 0 <= positions[0] < size:
            hint = nearest(key, index) if isinstance(key, str) else f"it has labels 0 to {size - 1}"
            raise ConfigError(f"label_map.{name}", f"{spec} has no label {label!r}; {hint}")
        result.append(_only(positions, label, name, spec))
    return tuple(dict.fromkeys(result))


def is_unnamed(labels: Iterable[str]) -> bool:
    """Returns whether these are the names of outputs that nothing names: label_0, label_1, …, as names are compared or
    not."""
    return all(_UNNAMED.fullmatch(label.replace(" ", "_")) for label in labels)


def are_numbers(labels: Iterable[str]) -> bool:
    """Returns whether labels are the numbers of classes, as they are written."""
    return all(label.isdecimal() and str(int(label)) == label for label in labels)


def _only(positions: Sequence[int], label: int | str, name: str, spec: str) -> int:
    """Returns the position of a label. Raises ConfigError where several outputs have it: ImageNet has two
    called crane."""
    if len(positions) > 1:
        outputs = ", ".join(map(str, positions))
        raise ConfigError(
            f"label_map.{name}",
            f"{len(positions)} labels of {spec} are {label!r}, at {outputs}; name those that are meant by their "
            f"indices, such as {name}: [{positions[0]}]",
        )
    return positions[0]


@dataclass(frozen=True)
class LoadedClassifier:
    """A classifier with its classification. Raises WeightsError where the classification was made for another
    revision."""

    classifier: Classifier
    classification: Classification

    def __post_init__(self) -> None:
        check_revision(self.classification.classifier, self.classifier.revision, self.classification.revision)


def check_revision(name: str, loaded: str, described: str) -> None:
    """Raises WeightsError where a loaded model differs from the described one: ids, labels and reports would be
    wrong."""
    if loaded != described:
        raise WeightsError(
            f"{name}: the model that was loaded (revision {loaded}) is not the one that the audit began with "
            f"({described}): its files changed meanwhile, or differ between nodes; put the same files on every node "
            "and run the audit again"
        )


def predict_all(images: pa.Table, classifiers: Sequence[LoadedClassifier]) -> pa.Table:
    """Returns the answers of several classifiers: a table of `tables.PREDICTIONS`. Each image is decoded once.

    `images` has `prediction_id` besides the columns of `tables.IMAGES`: for each image the list of its wanted
    predictions, each by one of the classifiers. `steps.prepared` may have put pixels in the place of `bytes`.
    """
    decoded = _Images.of(images)
    wanted = [set(row) for row in images["prediction_id"].to_pylist()]
    tables = []
    for classifier in classifiers:
        ids = classifier.classification.prediction_ids(decoded.ids)
        rows = [row for row, prediction in enumerate(ids) if prediction in wanted[row]]
        if rows:
            tables.append(
                _predictions(
                    decoded, rows, [ids[row] for row in rows], classifier.classifier, classifier.classification
                )
            )
    return pa.concat_tables(tables) if tables else PREDICTIONS.empty_table()


def predict(images: pa.Table, classifier: Classifier, classification: Classification) -> pa.Table:
    """Returns a table of `tables.PREDICTIONS`, a row per row of `images` (`tables.IMAGES`).

    Images that cannot be decoded and logits that are not numbers become errors of their rows.
    """
    decoded = _Images.of(images)
    ids = classification.prediction_ids(decoded.ids)
    return _predictions(decoded, range(images.num_rows), ids, classifier, classification)


@dataclass(frozen=True)
class _Images:
    """Images that are decoded once for all classifiers."""

    ids: list[str]
    keys: list[str]
    files: encoded.DecodedOnce
    errors: list[str | None]

    @staticmethod
    def of(images: pa.Table) -> _Images:
        errors = images["error"].to_pylist()
        ids, keys = images["image_id"].to_pylist(), images["key"].to_pylist()
        return _Images(ids, keys, encoded.DecodedOnce.of(images), errors)


def _predictions(
    images: _Images,
    rows: Sequence[int],
    prediction_ids: Sequence[str],
    classifier: Classifier,
    classification: Classification,
) -> pa.Table:
    """Returns a classifier's answers to these rows of the images."""
    with about_model(classification.classifier):
        logits, decoding_errors = images.files.logits(rows, [images.keys[row] for row in rows], classifier)
    errors = [images.errors[row] or new for row, new in zip(rows, decoding_errors, strict=True)]
    usable = [i for i, error in enumerate(errors) if error is None]
    results = [_NOTHING] * len(rows)
    if usable:
        usable_logits = logits if len(usable) == len(logits) else logits[usable]
        for i, answer in zip(usable, classification.answers(usable_logits), strict=True):
            if answer is None:
                errors[i] = NO_ANSWER
            else:
                results[i] = answer
        if classification.probabilities:
            shares = class_probabilities(usable_logits, classification.class_labels, classification.head)
            for i, row in zip(usable, shares.tolist(), strict=True):
                if errors[i] is None:
                    results[i] = replace(results[i], probabilities=row)
    of_answer = {name: [getattr(answer, name) for answer in results] for name in vars(_NOTHING)}
    columns: dict[str, Sequence[object]] = {
        "prediction_id": prediction_ids,
        "image_id": [images.ids[row] for row in rows],
        "classifier": [classification.classifier] * len(rows),
        "revision": [classification.revision] * len(rows),
        **of_answer,
        "error": errors,
    }
    return pa.table({name: columns[name] for name in PREDICTIONS.names}, PREDICTIONS)
