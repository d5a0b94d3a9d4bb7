"""Two stages: scores on a few images of every cell, then on further images of the attributes whose φ looks large.

It decides which attributes get further images and joins both scores; it does not know where images come from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import ceil
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray import stats
from c2b_ray.audits.c2b.scoring.judge import TOO_FEW, ScoreRow, deviations_between
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.errors import ConfigError
from c2b_ray.names import normalise
from c2b_ray.stats.roots import deviations
from c2b_ray.stats.sample_size import TwoStages, Variation, least_found
from c2b_ray.steps.cells import ATTRIBUTE, CellKey, GroupName, of_kind
from c2b_ray.steps.duplicates import Gallery
from c2b_ray.tables import DRAWS, SCORES, content_id

FINDINGS = ("for", "against")


def selected(scores: pa.Table, least: float, level: float = -1.0) -> set[GroupName]:
    """Returns the (target class, attribute) pairs that get further images: those in which any value, for any
    classifier, has |φ| ≥ `least`, a finding, or a p-value of at most `level`.

    φ compares the values of an attribute, and classifiers share images: so all values of an attribute get them.
    """
    rows = scores.select(["target_class", "attribute", "phi", "p_value", "verdict"]).to_pylist()
    return {
        GroupName(row["target_class"], row["attribute"])
        for row in rows
        if abs(row["phi"]) >= least
        or row["verdict"] in FINDINGS
        or (row["p_value"] is not None and row["p_value"] <= level)
    }


def cells_to_draw(captions: pa.Table, groups: Collection[GroupName], fresh: int) -> dict[CellKey, int]:
    """Returns the number of fresh images of every cell of these attributes."""
    return {(row["proposal_id"], row["bias_class"]): fresh for row in captions_of(captions, groups).to_pylist()}


def captions_of(captions: pa.Table, groups: Collection[GroupName]) -> pa.Table:
    """Returns the captions of these (target class, attribute) pairs, without intersections."""
    single = of_kind(captions, ATTRIBUTE)
    pairs = zip(single["target_class"].to_pylist(), single["attribute"].to_pylist(), strict=True)
    return single.filter(pa.array([pair in groups for pair in pairs], pa.bool_()))


def in_two_stages(
    scores: pa.Table,
    fresh: pa.Table,
    groups: Collection[GroupName],
    least: float,
    per_cell: int,
    thresholds: Thresholds,
) -> pa.Table:
    """Returns the result of both stages: of the selected attributes the rows of `fresh`, of all others those of the
    first stage.

    `scores`, `fresh`: tables of `tables.SCORES`, the second computed on the second stage's images, and of these
    `groups` at least: its rows are its family of tests. A group that was not selected makes no finding; it can show
    `none`. Every row gets `detectable`, the smallest |φ| that the design finds four times in five, if no other value of
    the attribute differs; null where nothing is known, or no |φ| is found so often. `per_cell`: the images of a cell
    that the second stage tests.
    """
    rows, of_fresh = scores.to_pylist(), fresh.to_pylist()
    by_name = {_name(row): row for row in of_fresh}
    findings = sum(row["verdict"] in FINDINGS for row in of_fresh)
    # One more finding would have to pass this step of Benjamini and Hochberg's ladder.
    level = thresholds.alpha * min(1.0, (findings + 1) / max(1, len(of_fresh)))
    varies = {_name(row): of_row for row, of_row in zip(rows, _variations(rows, thresholds), strict=True)}
    # The second stage has more images, and estimates the variation of φ better.
    varies |= {_name(row): of_row for row, of_row in zip(of_fresh, _variations(of_fresh, thresholds), strict=True)}
    # Fewer where a source, such as an index, had no more.
    tested = [min(per_cell, max(1, by_name[_name(row)]["n"])) if _group(row) in groups else per_cell for row in rows]
    design = TwoStages(([max(row["n"], 1) for row in rows], tested), least, thresholds.tau, level)
    smallest = least_found(Variation(*np.array([varies[_name(row)] for row in rows]).reshape(-1, 4).T), design)
    joined = []
    for row, detectable in zip(rows, smallest.tolist(), strict=True):
        result = row
        if _group(row) in groups:
            result = by_name[_name(row)]
        elif (row["undetermined_because"] or "").startswith(TOO_FEW):  # more images would not remove other reasons
            because = f"no value of its attribute had |φ| ≥ {least:g} at the screening, so it drew no further images"
            result = row | {"undetermined_because": because}
        joined.append(result | {"detectable": None if np.isnan(detectable) else detectable})
    return pa.Table.from_pylist(joined, SCORES)


def _name(row: ScoreRow) -> tuple[str, str, str, str]:
    return row["classifier"], row["target_class"], row["attribute"], row["bias_class"]


def _group(row: ScoreRow) -> GroupName:
    return GroupName(row["target_class"], row["attribute"])


def _variations(rows: Sequence[ScoreRow], thresholds: Thresholds) -> list[tuple[float, ...]]:
    """Returns what φ of every row of one stage varies by, the fields of a `Variation`.

    The variance of φ follows from the width of its interval. The captions' part of it is the same in both stages, which
    draw from the same captions; the rest, which includes the verifier's errors, shrinks with the number of images.
    """
    groups = groupby(rows, key=lambda row: _name(row)[:3])
    parts = [_variation(list(of_group), _width(rows, thresholds)) for _, of_group in groups]
    return [tuple(of_row) for of_group in parts for of_row in of_group.tolist()]


def _width(rows: Sequence[ScoreRow], thresholds: Thresholds) -> dict[bool, float]:
    """Returns how many standard deviations wide the intervals of findings are (True), and all others. Limits of
    findings are wider, because these were selected."""
    findings = sum(row["verdict"] in FINDINGS for row in rows)
    tests = int(np.isfinite(np.array([row["q_value"] for row in rows], np.float64)).sum())
    of_findings = stats.selected_confidence(findings, max(tests, findings), thresholds.alpha)
    return {True: 2 * deviations(of_findings), False: 2 * deviations(thresholds.confidence)}


def _variation(rows: Sequence[ScoreRow], width: Mapping[bool, float]) -> stats.Floats:
    """Returns (rows, 4) for the rows of one attribute."""
    n, correct, accuracy, phi, low, high = (
        np.array([row[name] for row in rows], np.float64)
        for name in ("n", "correct", "accuracy", "phi", "phi_low", "phi_high")
    )
    rate = (correct + 0.5) / (n + 1)
    answers = n * stats.bias_score_deviations(np.sqrt(rate * (1 - rate)), n) ** 2  # one of each value
    captions = deviations_between(rows) ** 2
    total_variance = ((high - low) / [width[row["verdict"] in FINDINGS] for row in rows]) ** 2
    without_captions = np.maximum(total_variance - captions, answers / np.maximum(n, 1))
    parts = (
        np.clip(accuracy - phi, 0, 1),
        np.maximum(answers - rate * (1 - rate), 0),
        np.divide(n * without_captions, answers, out=np.full(len(rows), np.nan), where=answers > 0),
        np.divide(captions, answers, out=np.full(len(rows), np.nan), where=answers > 0),
    )
    return np.stack(parts, axis=1)


# Selects the images that a cell draws from its captions' pools.


ACCEPTED, NEAREST = "accepted", "nearest"
FIRST_LOOK = 2.0
"""The first look takes this many times the images that a caption is to draw; each further look doubles the number."""

Rows = NDArray[np.int64]


class VerifiedCandidates(Protocol):
    """The images that were looked at, and what is known about them."""

    def looked_at(self, image: str, caption: str) -> bool: ...

    def accepts(self, image: str, caption: str) -> bool:
        """Returns whether an image that was looked at shows what the caption says."""
        ...

    def fingerprint(self, image: str) -> bytes | None: ...


class Draws(Protocol):
    """Rows of `tables.DRAWS`: a table, or an object that makes them in batches."""

    @property
    def num_rows(self) -> int: ...

    def to_batches(self) -> Iterable[pa.RecordBatch]: ...

    def equals(self, other: Any) -> bool: ...


@dataclass(frozen=True)
class Selection:
    """The result of a selection.

    `drawn`: rank is the position among the caption's drawn images. `looked`: all rows of pools that were looked at,
    rank the position in the order of looking. `missing`: rows of images that must be looked at before more can be
    drawn.
    """

    drawn: Draws
    looked: Draws
    missing: Draws


@dataclass(frozen=True)
class _CellPools:
    """The captions of a cell, and the rows of each caption's pool in the order in which they are looked at."""

    captions: tuple[str, ...]
    pools: tuple[Rows, ...]

    @property
    def longest(self) -> int:
        return max(map(len, self.pools), default=0)

    def __iter__(self) -> Iterator[tuple[str, Rows]]:
        return zip(self.captions, self.pools, strict=True)


@dataclass(frozen=True)
class _Task:
    """A cell, the number of images that it should draw, and the images that it must not draw."""

    cell: _CellPools
    target: int
    excluded: frozenset[str]


@dataclass
class _PoolRows:
    """Rows of the pool by purpose, with their ranks."""

    drawn: list[tuple[int, int]] = field(default_factory=list)
    looked: list[tuple[int, int]] = field(default_factory=list)
    missing: list[tuple[int, int]] = field(default_factory=list)


def cells_of(captions: pa.Table) -> dict[CellKey, list[str]]:
    """Returns the caption ids of every cell, in their order. A caption that repeats another of its cell word for word
    is left out: it would draw the same images."""
    result: dict[CellKey, dict[str, str]] = {}
    columns = ("proposal_id", "bias_class", "text", "caption_id")
    for proposal, value, text, caption in zip(*(captions[name].to_pylist() for name in columns), strict=True):
        result.setdefault((proposal, value), {}).setdefault(normalise(text), caption)
    return {key: list(of_text.values()) for key, of_text in result.items()}


def shares(cells: Mapping[CellKey, Sequence[str]], targets: Mapping[CellKey, int]) -> dict[str, int]:
    """Returns for every caption how many of its cell's images it draws, where captions do not share images; 0 where
    its cell has no target."""
    return {
        caption: targets.get(key, 0) // len(caption_ids) + (number < targets.get(key, 0) % len(caption_ids))
        for key, caption_ids in cells.items()
        for number, caption in enumerate(caption_ids)
    }


def check_captions(captions: pa.Table) -> None:
    """Raises ConfigError where two values of an attribute have the same caption: they would draw the same images."""
    of_text: dict[tuple[str, str], str] = {}
    for row in of_kind(captions, ATTRIBUTE).to_pylist():
        other = of_text.setdefault((row["proposal_id"], normalise(row["text"])), row["bias_class"])
        if other != row["bias_class"]:
            values = f"the values {other!r} and {row['bias_class']!r} of class {row['target_class']!r}"
            raise ConfigError(
                f"attributes.{row['attribute']}",
                f"{values} have the same caption, {row['text']!r}, and would draw the same images; name values that a "
                "caption tells apart",
            )


class _Unseen:
    """Knows nothing about any image, and reports none as missing."""

    def looked_at(self, image: str, caption: str) -> bool:
        return True

    def accepts(self, image: str, caption: str) -> bool:
        return True

    def fingerprint(self, image: str) -> bytes | None:
        return None


class CellPools:
    """The pools of all cells of an audit.

    `nearest`: of `tables.DRAWS`, the pool of each caption, rank 0 the nearest. `by`: ACCEPTED or NEAREST. `shuffled`:
    whether images are looked at in random order, which follows from `seed` and each image's id only: an image has the
    same rank for all captions, so that looking at it once serves many cells.
    """

    def __init__(self, captions: pa.Table, nearest: pa.Table, by: str, seed: int, shuffled: bool = True) -> None:
        check_captions(captions)
        self._captions, self._rows, self._by, self._seed = captions, nearest, by, seed
        images = nearest["image_id"].combine_chunks().dictionary_encode()
        names = images.dictionary.to_pylist()
        self._images = images.indices.to_numpy()
        self._names: Sequence[str] = names
        order = nearest["rank"].to_numpy()
        if shuffled:
            keys = np.array([content_id("look", image, seed) for image in names], dtype="S20")
            order = np.argsort(np.argsort(keys))[self._images]
        owners = nearest["caption_id"].combine_chunks().dictionary_encode()
        sorted_rows = np.lexsort((order, owners.indices.to_numpy()))
        ends = np.cumsum(np.bincount(owners.indices.to_numpy(), minlength=len(owners.dictionary)))
        pools = dict(zip(owners.dictionary.to_pylist(), np.split(sorted_rows, ends[:-1]), strict=False))
        nothing = np.zeros(0, np.int64)
        self._cells = {
            key: _CellPools(tuple(caption_ids), tuple(pools.get(caption, nothing) for caption in caption_ids))
            for key, caption_ids in cells_of(captions).items()
        }

    def fixed(self, most: int) -> CellPools:
        """Returns pools of the images that each cell would draw at most, to be looked at in random order: a budget that
        ends early has then seen a random sample of them."""
        selection = self.select(dict.fromkeys(self._cells, most), _Unseen())
        return CellPools(self._captions, selection.drawn, self._by, self._seed)

    def select(
        self, targets: Mapping[CellKey, int], seen: VerifiedCandidates, excluded: Collection[str] = ()
    ) -> Selection:
        """Selects distinct images for the cells, at most `targets` of each, given what is known so far.

        Captions of a cell take turns, each drawing its next image; one that has none left leaves its turns to the
        others. A larger target begins with the same images: a cell whose target grows keeps its draws. `excluded`:
        images that must not be drawn.
        """
        result, left_out = _PoolRows(), frozenset(excluded)
        fill = self._accepted if self._by == ACCEPTED else self._nearest
        for key, cell in self._cells.items():
            if targets.get(key, 0) > 0:
                fill(_Task(cell, targets[key], left_out), seen, result)
        return Selection(self._table(result.drawn), self._table(result.looked), self._table(result.missing))

    def _accepted(self, task: _Task, seen: VerifiedCandidates, rows: _PoolRows) -> None:
        depth = ceil(FIRST_LOOK * task.target / len(task.cell.captions))
        while True:
            looked_at, missing = [], []
            for caption, pool in task.cell:
                for position, row in enumerate(pool[:depth].tolist()):
                    if (image := self._name(row)) not in task.excluded:
                        looked_at.append((row, position))
                        if not seen.looked_at(image, caption):
                            missing.append((row, position))
            accepted = [] if missing else self._by_turns(task, depth, seen)
            if missing or len(accepted) == task.target or depth >= task.cell.longest:
                break
            depth *= 2
        rows.looked += looked_at
        rows.missing += missing
        rows.drawn += [(row, rank) for row, rank, _ in accepted]

    def _nearest(self, task: _Task, seen: VerifiedCandidates, rows: _PoolRows) -> None:
        """Selects the nearest. Images count as distinct until they are fetched; copies are then dropped and the next
        images drawn."""
        for row, rank, caption in self._by_turns(task, task.cell.longest, seen):
            rows.drawn.append((row, rank))
            rows.looked.append((row, rank))
            if not seen.looked_at(self._name(row), caption):
                rows.missing.append((row, rank))

    def _by_turns(self, task: _Task, depth: int, seen: VerifiedCandidates) -> list[tuple[int, int, str]]:
        """Returns row, rank and caption of the images that a cell's captions draw in turn, each image and each picture
        once."""
        images_taken, pictures = set(task.excluded), Gallery()

        def of(caption: str, pool: Rows) -> Iterator[int]:
            for row in pool[:depth].tolist():
                image = self._name(row)
                if image in images_taken or (self._by == ACCEPTED and not seen.accepts(image, caption)):
                    continue
                images_taken.add(image)
                if pictures.add(seen.fingerprint(image)):
                    yield row

        result: list[tuple[int, int, str]] = []
        turns = [(caption, of(caption, pool)) for caption, pool in task.cell]
        rank = 0
        while turns and len(result) < task.target:
            going = []
            for caption, turn in turns:
                row = next(turn, None) if len(result) < task.target else None
                if row is not None:
                    result.append((row, rank, caption))
                    going.append((caption, turn))
            turns, rank = going, rank + 1
        return result

    def _name(self, row: int) -> str:
        return self._names[int(self._images[row])]

    def _table(self, rows: list[tuple[int, int]]) -> pa.Table:
        table = self._rows.take(pa.array([row for row, _ in rows], pa.int64()))
        ranks = pa.array([rank for _, rank in rows], pa.int32())
        return table.set_column(DRAWS.get_field_index("rank"), DRAWS.field("rank"), ranks)
