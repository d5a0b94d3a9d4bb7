"""Decides which verdicts are settled, at any number of looks: the rule of a sequential budget.

It forms rounds, one image of every cell of an attribute, in the order of drawing, and knows which group still needs
images. A round that was looked at never changes, whatever is drawn later: only then may evidence be looked at
repeatedly. `stats.sequential` has the evidence; the caller provides the images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil, inf
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray import stats
from c2b_ray.audits.c2b.scoring.judge import TOO_FEW, UNLIKELY, ScoreRow, can_be_clear, deviations_between
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.c2b.verification.verified import LEAST_SHOWN, NOTHING, CellObservations, VerifiedImages
from c2b_ray.stats.sequential import Evidence, joined
from c2b_ray.steps.answers import CellAnswers, answers_of
from c2b_ray.steps.cells import CellGroup, CellImages, GroupName, captions_of_draws, images_of_cells
from c2b_ray.steps.draw import Ints, numbered
from c2b_ray.steps.duplicates import Distinct, Gallery
from c2b_ray.tables import SCORES

SURE_OF_DOUBT = 100
"""With this many images of a cell, a doubt about them is final: with fewer it may be chance."""

UNLIKELY_BELOW = 0.05
"""A cell is given up where the chance of a verdict, with all that is left of the budget, is smaller."""


@dataclass(frozen=True)
class Goal:
    """What a budget is to reach, and with how much.

    `more`: returns how many more images each cell of a group of so many cells, with so many images each, could get if
    all that is left were spent on the group. `none`: whether `none` is worth images; otherwise findings alone are.
    """

    more: Callable[[int, int], int]
    none: bool = True


@dataclass(frozen=True)
class LookEvidence:
    """One classifier's evidence so far on every cell, in the order of the captions' cells."""

    groups: tuple[tuple[GroupName, tuple[str, ...]], ...]
    outcomes: tuple[stats.Floats, ...]
    """For each group, right (1) or wrong (0), of shape (rounds, cells)."""
    evidence: Evidence
    low: stats.Floats
    high: stats.Floats


def evidence_of(
    captions: pa.Table,
    draws: pa.Table,
    predictions: pa.Table,
    classifiers: Sequence[str],
    thresholds: Thresholds,
    verified: VerifiedImages | None = None,
    distinct: Distinct | None = None,
) -> list[tuple[str, LookEvidence]]:
    """Returns each classifier with its evidence so far. Verified images count for the value that they show;
    near-duplicates once, at the rank of the first."""
    cells = images_of_cells(captions, draws)
    order = order_of_drawing(cells, captions, draws)
    observations = None if verified is None else verified.of(cells)
    rounds = [
        _images_by_cell(cells, group, order, distinct)
        if observations is None
        else _images_by_value_shown(observations, group, order)
        for group in cells.groups
    ]
    groups = tuple((group.name, group.values) for group in cells.groups)
    return [(name, _look(groups, rounds, answers_of(predictions, name).to(cells), thresholds)) for name in classifiers]


def _look(
    groups: tuple[tuple[GroupName, tuple[str, ...]], ...],
    rounds: Sequence[Sequence[Ints]],
    answers: CellAnswers,
    thresholds: Thresholds,
) -> LookEvidence:
    outcomes = [_outcomes(of_group, answers) for of_group in rounds]
    limits = [stats.confidence_sequence(of_group, thresholds.confidence) for of_group in outcomes]
    low, high = (_concatenated([pair[i] for pair in limits]) for i in (0, 1))
    evidence = joined([stats.sequential_evidence(of_group, thresholds.tau) for of_group in outcomes])
    return LookEvidence(groups, tuple(outcomes), evidence, low, high)


def settled(
    scores: pa.Table, looks: Sequence[tuple[str, LookEvidence]], thresholds: Thresholds, goal: Goal | None = None
) -> pa.Table:
    """Returns scores whose limits, p-values and verdicts remain valid under repeated looks.

    p = 1/e. Limits of φ are the hull of the score's limits and of the confidence sequence. The images that would settle
    a verdict are those that this evidence needs, more than a test of a fixed number. Cells in doubt stay undetermined
    and are not tested. Evidence is gathered image by image, as the verifier sorts them, and ignores both its errors and
    the variation between captions: so a verdict also requires that the score by itself agrees, and `none` that the
    images of the values are known to differ. Groups of findings, which rested on the score's verdicts, are removed:
    `grouped` forms them again. With a `goal`, a cell says so where a verdict is unlikely with all that is left of the
    budget: the budget gives it up (futility; the forecast decides where images go, never a verdict).
    """
    rows = scores.to_pylist()
    by_name = {(row["classifier"], row["target_class"], row["attribute"], row["bias_class"]): row for row in rows}
    for classifier, evidence in looks:
        of_classifier = [by_name[classifier, *group, value] for group, values in evidence.groups for value in values]
        _fill_images_to_settle(of_classifier, evidence, thresholds, goal)
    return pa.Table.from_pylist(rows, SCORES)


def _fill_images_to_settle(
    rows: Sequence[ScoreRow], look: LookEvidence, thresholds: Thresholds, goal: Goal | None
) -> None:
    """Rewrites the rows of one classifier, in the look's order."""
    tau, alpha = thresholds
    trusted = np.array([row["doubt"] is None for row in rows], dtype=bool)
    p = np.where(trusted, stats.sequential_p_values(look.evidence), np.nan)
    verdicts = stats.sequential_verdicts(look.evidence, tau, alpha, trusted)
    # One more finding would have to pass this step of Benjamini and Hochberg's ladder.
    step = alpha * min(1.0, (1 + sum(v in ("for", "against") for v in verdicts)) / max(1, int(trusted.sum())))
    rounds_needed = _concatenated([stats.rounds_to_settle(of_group, tau, alpha, step) for of_group in look.outcomes])
    rounds = [len(of_group) for of_group in look.outcomes for _ in range(of_group.shape[1])]
    columns = (p, stats.benjamini_hochberg(p), look.low, look.high, verdicts, rounds_needed, rounds)
    for row, p_value, q_value, low, high, verdict, more_rounds, past_rounds in zip(rows, *columns, strict=True):
        borne_out = _says(row, verdict, tau, alpha)
        agreed = verdict if borne_out and (verdict != "none" or can_be_clear(row)) else "undetermined"
        row |= {"verdict": agreed, "p_value": p_value, "q_value": q_value, "group": None, "group_reason": None}
        row["phi_low"], row["phi_high"] = min(row["phi_low"], low), max(row["phi_high"], high)
        still_open = agreed == "undetermined" and row["doubt"] is None and more_rounds > 0
        still_open = still_open and (abs(row["phi"]) > tau or can_be_clear(row))
        because = row["undetermined_because"] or TOO_FEW
        row["undetermined_because"] = because if agreed == "undetermined" else None
        # A round takes one image that shows the value: some images drawn for it do not.
        row["images_to_settle"] = ceil(more_rounds * max(1.0, row["n"] / past_rounds)) if still_open else None
    if goal is not None:
        _give_up(rows, look, thresholds, step, goal)


def _give_up(rows: Sequence[ScoreRow], look: LookEvidence, thresholds: Thresholds, step: float, goal: Goal) -> None:
    """Gives up the cells for which a verdict is unlikely with all that is left of the budget."""
    start = 0
    for outcomes in look.outcomes:
        rounds, cells = outcomes.shape
        of_group = rows[start : start + cells]
        start += cells
        images = max(row["n"] for row in of_group)
        additional = goal.more(cells, images)
        if additional < 1 or not rounds:
            continue
        in_all, between = rounds + rounds * additional // images, deviations_between(of_group)
        bias, none = stats.chances_to_settle(outcomes, in_all, *thresholds, step, between)
        for row, of_bias, of_none in zip(of_group, bias.tolist(), none.tolist(), strict=True):
            chance = of_bias + (of_none if goal.none and can_be_clear(row) else 0.0)
            if row["verdict"] == "undetermined" and row["doubt"] is None and chance < UNLIKELY_BELOW:
                row["images_to_settle"] = None
                row["undetermined_because"] = (
                    f"{UNLIKELY}: with {additional:,} more images of each value, all that the budget and "
                    f"`images_per_caption` leave it, the chance of {'a verdict' if goal.none else 'a finding'} was "
                    f"below {UNLIKELY_BELOW:.0%}"
                )


def _says(row: ScoreRow, verdict: str, tau: float, alpha: float) -> bool:
    """Returns whether the score of a row, for its number of images, agrees with a verdict."""
    if verdict == "none":
        return bool(-tau <= row["phi_low"] and row["phi_high"] <= tau)
    return bool(row["p_value"] <= alpha and (row["phi"] > 0) == (verdict == "for"))


def open_groups(scores: pa.Table) -> dict[GroupName, float]:
    """Returns the (target class, attribute) pairs that more images may settle, for any classifier, and how many more of
    each value are likely to settle the next cell; infinite where that is not known.

    A cell is open while it is undetermined, unless it was given up, or a doubt based on `SURE_OF_DOUBT` or more images
    explains it. A group is closed if such a cell's images do not show its value: rounds of one image of each value
    cannot then be formed.
    """
    groups: dict[GroupName, float] = {}
    names = ("classifier", "target_class", "attribute")
    columns = ("verdict", "doubt", "n", "shown", "undetermined_because", "images_to_settle")
    rows = scores.select([*names, *columns]).to_pylist()
    for (_, *group), cells in groupby(rows, key=lambda row: tuple(row[name] for name in names)):
        open_cells = [
            cell
            for cell in cells
            if cell["verdict"] == "undetermined" and not (cell["undetermined_because"] or "").startswith(UNLIKELY)
        ]
        doubted_cells = [cell for cell in open_cells if cell["doubt"] is not None and cell["n"] >= SURE_OF_DOUBT]
        not_shown = any(not (cell["shown"] or 0.0) >= LEAST_SHOWN for cell in doubted_cells)
        if len(open_cells) > len(doubted_cells) and not not_shown:
            name = GroupName(*group)
            images_needed = [cell["images_to_settle"] - cell["n"] for cell in open_cells if cell["images_to_settle"]]
            groups[name] = min(groups.get(name, inf), max(1, min(images_needed, default=inf)))
    return groups


def _concatenated(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate([*parts, np.zeros(0)])


def order_of_drawing(cells: CellImages, captions: pa.Table, draws: pa.Table) -> Ints:
    """Returns for every row of `cells` when the cell drew the image: 0 is its first.

    The order of a cell does not depend on the ranks that other cells give an image. The captions of a cell take turns,
    in the order of the captions, and its sources draw side by side: so what a cell draws under a larger grant comes
    after its earlier draws, and rounds that were looked at stay unchanged.
    """
    cell, image, source = _sorted_draws(cells, captions, draws)
    # A source whose captions run out reaches higher ranks with as many images: so images are counted, not ranks.
    first = _first_of_each(cell, source, image)
    cell, image, source = cell[first], image[first], source[first]
    number = _number_within(cell, source)
    order = np.lexsort((source, number, cell))
    cell, image = cell[order], image[order]
    first = _first_of_each(cell, image)
    cell, image = cell[first], image[first]
    number = _number_within(cell)
    order_of_row: Ints = number[np.lexsort((image, cell))]
    return order_of_row


def _sorted_draws(cells: CellImages, captions: pa.Table, draws: pa.Table) -> tuple[Ints, Ints, Ints]:
    """Returns cell, image and source of each draw of a cell, in the order in which each source of a cell draws."""
    caption = captions_of_draws(captions, draws)
    cell = np.append(cells.cells_of(captions), -1)[caption]
    rows = np.flatnonzero(cell >= 0)
    caption, cell = caption[rows], cell[rows]
    image = cells.ids.numbers(draws["image_id"])[rows].astype(np.int64)
    names, sources = numbered(draws["source"])
    source = np.argsort(np.argsort(names.to_pylist()))[sources[rows]] if len(names) else sources
    alphabetical = np.empty(len(cells.ids), np.int64)
    alphabetical[cells.ids.alphabetical(np.arange(len(cells.ids)))] = np.arange(len(cells.ids))
    rank = draws["rank"].to_numpy()[rows]
    order = np.lexsort((alphabetical[image], caption, rank, source, cell))
    return cell[order], image[order], source[order]


def _first_of_each(*keys: Ints) -> Ints:
    """Returns the positions at which a combination of keys occurs first, in ascending order."""
    order = np.lexsort((np.arange(len(keys[0])), *keys))
    new = np.zeros(len(order), bool)
    new[:1] = True
    for key in keys:
        new[1:] |= key[order][1:] != key[order][:-1]
    return np.sort(order[new])


def _number_within(*keys: Ints) -> Ints:
    """Returns how many adjacent rows with the same keys come before each row."""
    new = np.zeros(len(keys[0]), bool)
    new[:1] = True
    for key in keys:
        new[1:] |= key[1:] != key[:-1]
    starts = np.flatnonzero(new)
    return np.arange(len(new)) - np.repeat(starts, np.diff(np.append(starts, len(new))))


def _images_by_cell(cells: CellImages, group: CellGroup, order: Ints, distinct: Distinct | None) -> list[Ints]:
    """Returns the rows of each cell's images in the order of drawing, without copies of earlier ones."""
    by_cell = []
    for cell in range(group.cells.start, group.cells.stop):
        rows = np.arange(*cells.starts[cell : cell + 2])
        rows = rows[np.argsort(order[rows])]
        by_cell.append(_new_pictures(rows, cells, distinct))
    return by_cell


def _images_by_value_shown(seen: CellObservations, group: CellGroup, order: Ints) -> list[Ints]:
    """Returns the rows of a group's images in which the verifier sees its class and each of its values, without copies
    of earlier ones.

    They are in the order in which any of its cells drew them, the cells in turn.
    """
    rows = np.arange(len(order))[seen.cells.rows(group.cells)]
    rows = rows[np.lexsort((seen.cells.cell[rows], order[rows]))]
    rows = rows[_first_of_each(seen.cells.image[rows])]
    rows = _new_pictures(rows, seen.cells, seen.verified.distinct)
    values_shown = seen.verified.verifier_answers.values(group.attribute, seen.row[rows])
    rows, values_shown = (array[seen.shows_class(seen.row[rows], group.target_class)] for array in (rows, values_shown))
    words = [seen.verified.verifier_answers.number(value) for value in group.values]
    return [rows[(values_shown == word) & (values_shown != NOTHING)] for word in words]


def _new_pictures(rows: Ints, cells: CellImages, distinct: Distinct | None) -> Ints:
    """Returns the rows whose images are no copy of an earlier one's, so that the selection does not depend on later
    images."""
    if distinct is None:
        return rows
    gallery, new = Gallery(), np.ones(len(rows), dtype=bool)
    repeated_rows = np.flatnonzero(distinct.repeated(cells.ids, cells.image[rows]))
    marks = distinct.fingerprints(cells.ids, cells.image[rows[repeated_rows]])
    new[repeated_rows] = [gallery.add(mark) for mark in marks]
    return rows[new]


def _outcomes(rows_of_cells: Sequence[Ints], answers: CellAnswers) -> stats.Floats:
    """Returns right (1) or wrong (0) of shape (rounds, cells): each cell's answered images, in their order."""
    columns = [answers.right[rows[answers.answered[rows]]].astype(np.float64) for rows in rows_of_cells]
    rounds = min(map(len, columns), default=0)
    return np.array([column[:rounds] for column in columns]).T.reshape(rounds, len(columns))
