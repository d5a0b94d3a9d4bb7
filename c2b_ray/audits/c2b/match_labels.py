"""Matches the classes of labelled images to the labels of a classifier, by their names.

    name          "bus" and "Bus"; one of the names of "tench, Tinca tinca"; an ImageNet synset's number, n01440764
    number        folders 0, 1, 2 … are positions among the labels
    spelling      "traffic-lights" and "traffic light", "grey" and "gray"
    kind          of ImageNet's labels all that WordNet puts below the name: "bird", "boat", "truck"
    synonym       two names of one synset of WordNet: "automobile" and "car"
    order         outputs without names, as many as there are classes: libraries that read folders number their
                  classes in the order of the sorted names. It is assumed, and a first look at the answers tests it

A class that has no label, or has several with equal right, is left unmatched, with the nearest labels: a guess would
count right answers as wrong. It knows names, neither images nor models.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from c2b_ray.config.classifiers import imagenet_kinds, read_hierarchy
from c2b_ray.names import normalise
from c2b_ray.steps.classify import is_unnamed
from c2b_ray.steps.synonyms import Words, key

IMAGENET = 1_000
_OF_THE_SPACE = 0.5
"""Labels are ImageNet's, in its order, if there are 1,000 and more than this share have a name of their position's."""
_HOW = ("name", "number", "spelling", "kind", "synonym")
"""The rules, the surest first."""
_NEAREST = 3


@dataclass(frozen=True)
class Match:
    """The labels that stand for a class, by their positions, and the rule that found them."""

    target_class: str
    labels: tuple[int, ...]
    how: str


@dataclass(frozen=True)
class Unmatched:
    """A class without a label of its own. `nearest`: labels with similar names, or those of equal right."""

    target_class: str
    why: str
    nearest: tuple[str, ...] = ()


@dataclass(frozen=True)
class LabelMatches:
    """`matches` and `unmatched` together are all classes. `assumed`: what was taken for granted about labels that the
    classifier does not name, else ""."""

    matches: tuple[Match, ...]
    unmatched: tuple[Unmatched, ...]
    assumed: str = ""
    shown: Mapping[int, str] = field(default_factory=dict)
    """Names for labels that the classifier does not name, by position."""

    @property
    def needs_map(self) -> bool:
        """Whether an audit needs a label map: not where each class is called like its one label."""
        return bool(self.assumed) or any(
            class_match.how != "name" or len(class_match.labels) > 1 for class_match in self.matches
        )

    def label_map(self, labels: Sequence[str]) -> dict[str, list[int | str]]:
        """Returns class → its labels, by name where it is unique among the labels and no number, else by position."""
        if is_unnamed(labels):
            return {class_match.target_class: list(class_match.labels) for class_match in self.matches}
        of_name: dict[str, int] = defaultdict(int)
        for label in labels:
            of_name[normalise(label)] += 1
        return {
            class_match.target_class: [
                labels[i] if of_name[normalise(labels[i])] == 1 and not _is_number(labels[i]) else i
                for i in class_match.labels
            ]
            for class_match in self.matches
        }


def match(classes: Sequence[str], labels: Sequence[str], in_order: Sequence[str] | None = None) -> LabelMatches:
    """Returns which labels stand for each class.

    `in_order`: the classes in the order of their numbers, where the table has these (a Hugging Face ClassLabel's, or
    whole numbers themselves); None: sorted by name, as libraries number folders. Only outputs without names are matched
    by it.
    """
    if not is_unnamed(labels):
        names = [_names_of(label) for label in labels]
        if _is_imagenet(labels):
            names = [
                [*label_names, *imagenet_names]
                for label_names, imagenet_names in zip(names, _imagenet_names(), strict=True)
            ]
            return _matched(classes, labels, names, imagenet=True)
        return _matched(classes, labels, names)
    if len(labels) == IMAGENET:
        space = _imagenet_names()
        result = _matched(classes, [label_names[0] for label_names in space], space, imagenet=True)
        if len(labels) != len(classes) or len(result.matches) > len(classes) / 2:
            assumed = "the classifier does not name its 1,000 outputs: they are taken to be ImageNet's, in its order"
            return replace(result, assumed=assumed, shown=dict(enumerate(label_names[0] for label_names in space)))
    if len(labels) == len(classes):
        numbered = list(in_order) if in_order is not None else sorted(classes)
        why = "the order of the table's class numbers" if in_order is not None else "the order of the sorted names"
        matches = tuple(Match(name, (i,), "order") for i, name in enumerate(numbered))
        assumed = f"the classifier does not name its {len(labels):,} outputs: they are taken to be in {why}"
        return LabelMatches(matches, (), assumed, dict(enumerate(numbered)))
    why = f"the classifier does not name its {len(labels):,} outputs"
    return LabelMatches((), tuple(Unmatched(name, why) for name in classes))


def _matched(
    classes: Sequence[str], labels: Sequence[str], names: Sequence[Sequence[str]], imagenet: bool = False
) -> LabelMatches:
    by_class: dict[str, Match] = {}
    unmatched: dict[str, Unmatched] = {}
    rules = _rules(classes, names, imagenet)
    of_whole_label = _positions((i, [label]) for i, label in enumerate(labels))
    for name in classes:
        for rule in _HOW:
            positions = rules[rule](name)
            if rule == "name" and len(of_whole_label.get(normalise(name), ())) == 1:  # "crane" before "crane, bird"
                positions = of_whole_label[normalise(name)]
            if len(positions) == 1 or (positions and rule == "kind"):
                by_class[name] = Match(name, tuple(positions), rule)
                break
            if positions:
                listed = tuple(f"{labels[i]} (index {i})" for i in positions[:_NEAREST])
                unmatched[name] = Unmatched(name, f"{len(positions)} labels are called so", listed)
                break
        else:
            unmatched[name] = Unmatched(name, "no label is called so", _nearest(name, names))
    matches, ambiguous = _apart(by_class, labels)
    reasons = [ambiguous.get(name) or unmatched.get(name) for name in classes]
    return LabelMatches(matches, tuple(left_over for left_over in reasons if left_over is not None))


def _rules(
    classes: Sequence[str], names: Sequence[Sequence[str]], imagenet: bool
) -> dict[str, Callable[[str], list[int]]]:
    """Returns the rules, each from a class to positions of labels."""
    by_name = _positions(enumerate(names))
    by_key: dict[Words, set[int]] = defaultdict(set)
    for i, label_names in enumerate(names):
        for name in label_names:
            by_key[key(name)].add(i)
    numbered = all(map(_is_number, classes)) and not any(
        _is_number(name) for label_names in names for name in label_names
    )
    kinds = imagenet_kinds()
    below = {normalise(name): list(kind.positions) for kind in kinds for name in kind.names} if imagenet else {}
    groups: dict[str, set[str]] = defaultdict(set)
    for kind in kinds:
        for name in kind.names:
            groups[normalise(name)] |= set(map(normalise, kind.names))

    def of_number(name: str) -> list[int]:
        return [int(name)] if numbered and int(name) < len(names) else []

    def of_synonym(name: str) -> list[int]:
        synonyms = groups.get(normalise(name), set()) - {normalise(name)}
        return sorted({i for other in synonyms for i in by_name.get(other, ())})

    return {
        "name": lambda name: by_name.get(normalise(name), []),
        "number": of_number,
        "spelling": lambda name: sorted(by_key.get(key(name), ())) if key(name) else [],
        "synonym": of_synonym,
        "kind": lambda name: below.get(normalise(name)) or below.get(" ".join(key(name)), []),
    }


def _positions(names_by_position: Iterable[tuple[int, Iterable[str]]]) -> dict[str, list[int]]:
    result: dict[str, list[int]] = defaultdict(list)
    for i, names in names_by_position:
        for name in dict.fromkeys(map(normalise, names)):
            result[name].append(i)
    return result


def _apart(by_class: Mapping[str, Match], labels: Sequence[str]) -> tuple[tuple[Match, ...], dict[str, Unmatched]]:
    """Gives each label to one class: to that of the surest rule, then to that with the fewest labels."""
    owner: dict[int, str] = {}
    order = sorted(by_class.values(), key=lambda class_match: (_HOW.index(class_match.how), len(class_match.labels)))
    with_labels: dict[str, Match] = {}
    without_labels: dict[str, Unmatched] = {}
    for class_match in order:
        free_labels = tuple(i for i in class_match.labels if i not in owner)
        owner.update(dict.fromkeys(free_labels, class_match.target_class))
        if free_labels:
            with_labels[class_match.target_class] = replace(class_match, labels=free_labels)
        else:
            label = class_match.labels[0]
            why = f"its label {labels[label]!r} stands for the class {owner[label]!r}"
            without_labels[class_match.target_class] = Unmatched(class_match.target_class, why)
    return tuple(with_labels[name] for name in by_class if name in with_labels), without_labels


def _nearest(name: str, names: Sequence[Sequence[str]]) -> tuple[str, ...]:
    forms = dict.fromkeys(normalise(text) for label_names in names for text in label_names)
    return tuple(get_close_matches(normalise(name), forms, n=_NEAREST, cutoff=0.6))


def _names_of(label: str) -> list[str]:
    return [label, *(part for part in label.split(",") if "," in label and part.strip())]


def _imagenet_names() -> list[list[str]]:
    """Returns the names of each of ImageNet's classes in their order, the synset's number last."""
    return [list(entry.names) for entry in read_hierarchy("imagenet").entries]


def _is_imagenet(labels: Sequence[str]) -> bool:
    if len(labels) != IMAGENET:
        return False
    pairs = zip(labels, _imagenet_names(), strict=True)
    equal_names = sum(
        not {*map(normalise, _names_of(label))}.isdisjoint(map(normalise, names)) for label, names in pairs
    )
    return equal_names > _OF_THE_SPACE * len(labels)


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()
