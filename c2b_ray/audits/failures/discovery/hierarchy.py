"""A hierarchy applied to a classifier's labels: which labels share a parent, and what a prompt calls a label's kind.

A label may have several parents, and a name may belong to several things ("crane"): then all their parents are the
label's, so that an answer that may be related is never counted as unrelated. It knows names, not where they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from c2b_ray.config.hierarchy import Ancestry, Entry
from c2b_ray.errors import ConfigError, nearest
from c2b_ray.names import normalise
from c2b_ray.steps.classify import NAME_LABELS, is_unnamed

_IN_ORDER = 0.5
"""A label space is the hierarchy's own if it has as many labels, and more than this share of them match by position."""


class Hierarchy:
    """Labels are compared as names are everywhere. "tench, Tinca tinca" is the entry that has both names, else the one
    with the first.

    `label_space`: the labels of a classifier in their order. Where it is the hierarchy's own label space (ImageNet-1k),
    each label is identified by its position, so that its two cranes are distinguished.
    """

    def __init__(self, ancestry: Ancestry, label_space: Sequence[str] = ()) -> None:
        self._ancestry, self._labels = ancestry, tuple(label_space)

    @staticmethod
    def of(parents: Mapping[str, Sequence[str]]) -> Hierarchy:
        """Returns a hierarchy from label → its parents."""
        entries = (
            Entry((name,), tuple(map(normalise, above)), above[0] if above else None) for name, above in parents.items()
        )
        return Hierarchy(Ancestry("the hierarchy", tuple(entries)))

    def __contains__(self, label: str) -> bool:
        return bool(self._entries(label))

    def check(self, labels: Iterable[str]) -> None:
        """Raises ConfigError for the field `hierarchy` where it lacks a label."""
        missing = [label for label in labels if label not in self]
        if missing:
            more = f", nor {len(missing) - 1} more" if len(missing) > 1 else ""
            known = [name for entry in self._ancestry.entries for name in entry.names[:1]]
            problem = f"{self._ancestry.source} has no label {missing[0]!r}{more}"
            hint = NAME_LABELS if is_unnamed(missing[:1]) else nearest(normalise(missing[0]), known)
            raise ConfigError("hierarchy", f"{problem}; {hint}")

    def parents(self, label: str) -> frozenset[str]:
        """Returns the names of a label's parents; empty for a label without one. Raises ConfigError for an unknown
        label."""
        self.check([label])
        return frozenset(parent for entry in self._entries(label) for parent in entry.parents)

    def shares_parent(self, a: str, b: str) -> bool:
        """Returns whether two labels have a parent in common. A label without a parent shares none, even with
        itself."""
        return not self.parents(a).isdisjoint(self.parents(b))

    def parent_name(self, label: str) -> str | None:
        """Returns the text behind the label in a prompt, "insect" in "fly (insect)"; None for a label without a parent.

        For a name of several things, it is that of the most common meaning. Raises ConfigError for an unknown label.
        """
        self.check([label])
        return next((entry.shown for entry in self._entries(label) if entry.shown), None)

    def kin(self, positions: Sequence[int]) -> NDArray[np.bool_]:
        """Returns bool (labels of the label space,): which share a parent with one of the labels at `positions`.

        Raises ConfigError where the hierarchy lacks any label of the space: an image taken for it would count as a
        failure.
        """
        above = frozenset().union(*(self._parents_of_space[position] for position in positions))
        return np.array([not above.isdisjoint(parents) for parents in self._parents_of_space], bool)

    @cached_property
    def _parents_of_space(self) -> list[frozenset[str]]:
        self.check(self._labels)
        return [
            frozenset(parent for entry in self._entries_at(position) for parent in entry.parents)
            for position in range(len(self._labels))
        ]

    def _entries_at(self, position: int) -> list[Entry]:
        return [self._ancestry.entries[position]] if self._in_order else self._entries(self._labels[position])

    @cached_property
    def _in_order(self) -> bool:
        entries = self._ancestry.entries
        if not self._ancestry.ordered or len(entries) != len(self._labels):
            return False
        pairs = zip(self._labels, entries, strict=True)
        same = sum(not _names(label).isdisjoint(map(normalise, entry.names)) for label, entry in pairs)
        return same > _IN_ORDER * len(entries)

    def _entries(self, label: str) -> list[Entry]:
        """Returns the possible meanings of the label, the most common one first; [] where nothing has its name."""
        whole = self._numbers(label)
        if not whole and "," in label:
            parts = [set(self._numbers(part)) for part in label.split(",")]
            whole = sorted(set.intersection(*parts)) or self._numbers(label.partition(",")[0])
        if not whole and self._in_order:
            whole = [position for position, name in enumerate(self._labels) if normalise(name) == normalise(label)]
        return [self._ancestry.entries[number] for number in whole]

    def _numbers(self, name: str) -> list[int]:
        numbers = self._by_name.get(normalise(name), [])
        first = self._ancestry.commonest.get(normalise(name))
        entries = self._ancestry.entries
        return sorted(numbers, key=lambda n: (n != first, normalise(entries[n].names[0]) != normalise(name)))

    @cached_property
    def _by_name(self) -> dict[str, list[int]]:
        result: dict[str, list[int]] = {}
        for number, entry in enumerate(self._ancestry.entries):
            for name in dict.fromkeys(map(normalise, entry.names)):
                result.setdefault(name, []).append(number)
        return result


def _names(label: str) -> set[str]:
    return {normalise(label), *map(normalise, label.split(","))}
