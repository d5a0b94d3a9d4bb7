"""Findings: those that say the same, as groups, and their size on images that did not select them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray import stats
from c2b_ray.audits.c2b.scoring.judge import ScoreRow
from c2b_ray.stats import bias_score_p_values, bias_scores
from c2b_ray.steps.answers import CellAnswers
from c2b_ray.steps.cells import CellImages, CellKey, CellName, GroupName, counts_by_source
from c2b_ray.steps.draw import GENERATE, RETRIEVE, Ints, counted
from c2b_ray.tables import AGREEMENT, SCORES

JACCARD = 0.5
ASSOCIATION = 0.7  # Cramer's V of two values among the images that both attributes know
SHARED = 0.5  # the least share of either attribute's images with a value of the other
OPPOSITE = {"for": "against", "against": "for"}


def grouped(scores: pa.Table, cells: CellImages, tau: float) -> pa.Table:
    """The scores with `group` and `group_reason`: findings of one classifier and class that say the same share a
    number, counted from 1 by the largest |φ| of a group, whose finding leads it and has no reason.

    Strongest first, a finding joins the group of the strongest one before it that explains it, else leads one:
      complement   it is the other value of an attribute of two
      mirror       its φ is within ±tau once the values that stand by themselves are left out: one by one, each time
                   the one with the largest |φ| among those left, as long as that is beyond tau
      same images  of another attribute, same verdict, and the Jaccard index of the two image sets is `JACCARD` or more;
                   or, where each attribute knows half of the other's images, Cramér's V of the two values is
                   `ASSOCIATION` or more. With the opposite verdict and a negative association: complements.
      same as      of another attribute, same verdict, and `same_as` of either names the other
    """
    rows = scores.to_pylist()
    findings = sorted((row for row in rows if row["verdict"] in OPPOSITE), key=strongest_first)
    members: dict[tuple[str, str], list[ScoreRow]] = defaultdict(list)
    values_of: dict[tuple[str, str, str], list[ScoreRow]] = defaultdict(list)
    for row in rows:
        values_of[_attribute_of(row)].append(row)
    overlaps, groups = ImageOverlaps(cells), 0
    for row in findings:
        before = members[row["classifier"], row["target_class"]]
        values = values_of[_attribute_of(row)]
        explained = next(((lead, why) for lead in before if (why := _reason(row, lead, values, overlaps, tau))), None)
        if explained is None:
            groups += 1
            row["group"] = groups
        else:
            row["group"], row["group_reason"] = explained[0]["group"], explained[1]
        before.append(row)
    return pa.Table.from_pylist(rows, SCORES)


def strongest_first(row: ScoreRow) -> tuple[float, float, str, str, str, str]:
    names = (row["classifier"], row["target_class"], row["attribute"], row["bias_class"])
    return (-round(abs(row["phi"]), 9), row["phi"], *names)  # of two equal ones, `against` first


def _attribute_of(row: ScoreRow) -> tuple[str, str, str]:
    return row["classifier"], row["target_class"], row["attribute"]


def _reason(
    row: ScoreRow, lead: ScoreRow, values: Sequence[ScoreRow], overlaps: ImageOverlaps, tau: float
) -> str | None:
    """Returns why `row` repeats the stronger `lead`; None where it does not."""
    if row["attribute"] == lead["attribute"]:
        return _mirror(row, lead, values, tau)
    return _same(row, lead) or _overlap(row, lead, overlaps)


def _mirror(row: ScoreRow, lead: ScoreRow, values: Sequence[ScoreRow], tau: float) -> str | None:
    if row["verdict"] != OPPOSITE[lead["verdict"]]:
        return None
    with_images = [cell for cell in values if cell["n"]]
    if len(with_images) == 2:
        return f"complement of {_name(lead)}"
    left_over = _left_over(with_images, tau)
    if not any(cell is row for cell in left_over) or any(cell is lead for cell in left_over):
        return None
    return f"mirrors {_name(lead)}: without what stands by itself φ is {_phi(row, left_over):+.2f}"


def _left_over(values: Sequence[ScoreRow], tau: float) -> list[ScoreRow]:
    """Returns the values of an attribute that differ from one another by at most tau, once the others are removed."""
    remaining = list(values)
    while len(remaining) > 1:
        farthest = min(
            remaining,
            key=lambda cell: (-round(abs(_phi(cell, remaining)), 9), _phi(cell, remaining), cell["bias_class"]),
        )
        if abs(_phi(farthest, remaining)) <= tau:
            return remaining
        # Where only two values are left and differ, none is left over.
        remaining = [cell for cell in remaining if cell is not farthest] if len(remaining) > 2 else []
    return remaining


def _phi(row: ScoreRow, cells: Sequence[ScoreRow]) -> float:
    if len(cells) < 2:
        return 0.0
    other_accuracies = [cell["accuracy"] for cell in cells if cell is not row]
    return float(row["accuracy"] - np.mean(other_accuracies))


def _same(row: ScoreRow, lead: ScoreRow) -> str | None:
    one_names_the_other = row.get("same_as") == _name(lead) or lead.get("same_as") == _name(row)
    if row["verdict"] != lead["verdict"] or not one_names_the_other:
        return None
    return f"cannot be told from {_name(lead)}: images of the one show the other"


def _overlap(row: ScoreRow, lead: ScoreRow, overlaps: ImageOverlaps) -> str | None:
    a, b = (
        CellName(score_row["target_class"], score_row["attribute"], score_row["bias_class"])
        for score_row in (row, lead)
    )
    same_verdict = row["verdict"] == lead["verdict"]
    share = overlaps.jaccard(a, b)
    if share is None:
        return None
    if same_verdict and share >= JACCARD:
        return f"mostly the same images as {_name(lead)} (Jaccard {share:.2f})"
    if (v := overlaps.association(a, b)) is None:
        return None
    if same_verdict and v >= ASSOCIATION:
        return f"goes with {_name(lead)} (Cramér’s V {v:.2f})"
    return f"complement of {_name(lead)} (Cramér’s V {-v:.2f})" if not same_verdict and v <= -ASSOCIATION else None


class ImageOverlaps:
    """Measures how far the images of two cells, and of their attributes, are the same."""

    def __init__(self, cells: CellImages) -> None:
        self._cells = cells
        self._known: dict[GroupName, Ints] = {}
        self._common: dict[tuple[GroupName, GroupName], Ints] = {}

    def jaccard(self, a: CellName, b: CellName) -> float | None:
        """Returns the Jaccard index of two cells' images; None where either has none."""
        images_of_a, images_of_b = self._images(a), self._images(b)
        if not len(images_of_a) or not len(images_of_b):
            return None
        shared_images = len(_common(images_of_a, images_of_b))
        return shared_images / (len(images_of_a) + len(images_of_b) - shared_images)

    def association(self, a: CellName, b: CellName) -> float | None:
        """Returns the signed Cramér's V of two yes-no values, among the images that both attributes know.

        None where those are too few of either attribute's images, or where all or none of them have a value.
        """
        groups = GroupName(*a[:2]), GroupName(*b[:2])
        known_images = self._known_to_both(*groups)
        n = len(known_images)
        if n < SHARED * max(len(self._known_to(group)) for group in groups):
            return None
        in_a, in_b = (_common(self._images(cell), known_images) for cell in (a, b))
        spread = len(in_a) * (n - len(in_a)) * len(in_b) * (n - len(in_b))
        return (n * len(_common(in_a, in_b)) - len(in_a) * len(in_b)) / spread**0.5 if spread else None

    def _images(self, cell: CellName) -> Ints:
        number = self._cells.number.get(cell)
        return np.zeros(0, np.int64) if number is None else self._cells.of_cell(number)

    def _known_to(self, group: GroupName) -> Ints:
        if group not in self._known:
            self._known[group], _ = counted(self._cells.image[self._cells.rows(self._cells.group_named[group].cells)])
        return self._known[group]

    def _known_to_both(self, first: GroupName, second: GroupName) -> Ints:
        if (first, second) not in self._common:
            self._common[first, second] = _common(self._known_to(first), self._known_to(second))
        return self._common[first, second]


def _common(first: Ints, second: Ints) -> Ints:
    """Returns the numbers that two ascending lists of distinct numbers share."""
    merged = np.sort(np.concatenate([first, second]))
    common: Ints = merged[1:][merged[1:] == merged[:-1]]
    return common


def _name(row: ScoreRow) -> str:
    return f"{row['attribute']}: {row['bias_class']}"


# Finds which findings are only seen through a stronger one's images.


LEFT = 0.5  # of a finding's φ


def explained(
    scores: pa.Table, answers: Mapping[str, CellAnswers], derived: AbstractSet[str], tau: float, alpha: float
) -> pa.Table:
    """Returns the scores, a finding that a stronger one explains in the group of that one, with the reason.

    `scores`: of right answers, with groups (`grouped`). `answers`: by classifier. `derived`: the derived attributes. Of
    two others one explains the other only where it goes with it: where the lead's φ, times by how much more of the
    finding's images than of its other values' are the lead's, is at least `LEFT` of its φ. Two columns that do not go
    together may have a cause each, and too few images to show it without the other's.

    Strongest first, a finding that leads a group joins that of the first lead before it, of another attribute of its
    class, without whose images its φ is at most `tau`, or has the other sign, or is at most `LEFT` of what it was and
    no longer established beyond `tau` at `alpha`: values that are read off images miss some of them, which carry on
    what the others showed. So do the findings of its attribute that mirror it. Verdicts, φ and the family of tests stay
    as they are.
    """
    rows = scores.to_pylist()
    leads: dict[tuple[str, str], list[ScoreRow]] = defaultdict(list)
    for row in sorted(rows, key=strongest_first):
        if row["verdict"] not in OPPOSITE or row["group_reason"] is not None:
            continue
        before = leads[row["classifier"], row["target_class"]]
        for lead in before:
            if lead["attribute"] == row["attribute"]:
                continue
            annotated = derived.isdisjoint({lead["attribute"], row["attribute"]})
            if annotated and not _goes_with(row, lead, answers[row["classifier"]].cells):
                continue
            without = _phi_without(row, lead, answers[row["classifier"]], tau)
            if without is None or _no_longer_found(row, *without, tau, alpha):
                _join(row, lead, rows, None if without is None else without[0])
                break
        else:
            before.append(row)
    return pa.Table.from_pylist(rows, SCORES)


def several_found(scores: pa.Table) -> bool:
    """Returns whether there are findings of two attributes, of which one may explain the other."""
    found = pc.is_in(scores["verdict"], pa.array(list(OPPOSITE)))
    return bool(pc.count_distinct(scores["attribute"].filter(found)).as_py() > 1)


def _goes_with(row: ScoreRow, lead: ScoreRow, cells: CellImages) -> bool:
    """Returns whether the lead's φ and the images that both cells hold make at least `LEFT` of the row's φ."""
    group = cells.group_named[GroupName(row["target_class"], row["attribute"])]
    of_lead = cells.of_cell(cells.number[CellName(lead["target_class"], lead["attribute"], lead["bias_class"])])
    rows = cells.rows(group.cells)
    place, size = cells.cell[rows] - group.cells.start, len(group.values)
    held = np.bincount(place[np.isin(cells.image[rows], of_lead)], minlength=size)
    more_of_them = bias_scores(held, np.bincount(place, minlength=size))[group.values.index(row["bias_class"])]
    return bool(lead["phi"] * more_of_them * np.sign(row["phi"]) >= LEFT * abs(row["phi"]))


def _no_longer_found(row: ScoreRow, phi: float, p_value: float, tau: float, alpha: float) -> bool:
    left = phi * np.sign(row["phi"])
    return bool(left <= tau or (left <= LEFT * abs(row["phi"]) and p_value > alpha))


def _phi_without(row: ScoreRow, lead: ScoreRow, answers: CellAnswers, tau: float) -> tuple[float, float] | None:
    """Returns the φ of a row on the images that are not in the lead's cell, and the p-value of its being beyond `tau`;
    None where no image is left, or nothing to compare with."""
    cells = answers.cells
    group = cells.group_named[GroupName(row["target_class"], row["attribute"])]
    images_of_lead = cells.of_cell(cells.number[CellName(lead["target_class"], lead["attribute"], lead["bias_class"])])
    group_rows = cells.rows(group.cells)
    is_counted = answers.answered[group_rows] & ~np.isin(cells.image[group_rows], images_of_lead)
    value_positions = (cells.cell[group_rows] - group.cells.start)[is_counted]
    size = len(group.values)
    right = np.bincount(value_positions[answers.right[group_rows][is_counted]], minlength=size)
    total, position = np.bincount(value_positions, minlength=size), group.values.index(row["bias_class"])
    phi = float(bias_scores(right, total)[position])
    return None if np.isnan(phi) else (phi, float(bias_score_p_values(right, total, tau)[position]))


def _join(row: ScoreRow, lead: ScoreRow, rows: Sequence[ScoreRow], phi: float | None) -> None:
    """Puts a finding, and those that are in its group, into the lead's."""
    effect = "no image is left" if phi is None else f"φ is {phi:+.2f}".replace("-", "−")
    row["group_reason"] = f"without the images of {lead['attribute']}: {lead['bias_class']} {effect}"
    former = row["group"]
    for other in rows:
        is_same_group = all(other[name] == row[name] for name in ("classifier", "target_class"))
        if is_same_group and other["group"] == former:
            other["group"] = lead["group"]


# Measures how large findings are on images that had no part in selecting them.


_NAMES = ("classifier", "target_class", "attribute", "bias_class")


def to_confirm(scores: pa.Table, captions: pa.Table, draws: pa.Table) -> dict[CellKey, int]:
    """Returns, for every cell of an attribute with a finding, the number of images that it drew (from the source that
    gave it most).

    φ compares the cells of an attribute, so all of them need fresh images.
    """
    columns = (scores[name].to_pylist() for name in ("target_class", "attribute", "verdict"))
    groups = {
        (target, attribute)
        for target, attribute, verdict in zip(*columns, strict=True)
        if verdict in ("for", "against")
    }
    cells = {
        (row["proposal_id"], row["bias_class"])
        for row in captions.to_pylist()
        if (row["target_class"], row["attribute"]) in groups
    }
    images_drawn = counts_by_source(captions, draws)
    return {cell: max(images.values()) for cell, images in images_drawn.items() if cell in cells}


def confirmed(scores: pa.Table, fresh: pa.Table) -> pa.Table:
    """Returns the scores with φ and its limits on fresh images; null where there are none.

    `fresh`: a table of `tables.SCORES`, computed only on the images drawn for confirmation.
    """
    fresh_rows = {tuple(row[name] for name in _NAMES): row for row in fresh.to_pylist()}
    rows = scores.to_pylist()
    for row in rows:
        fresh_score = fresh_rows.get(tuple(row[name] for name in _NAMES), {})
        for name in ("phi", "phi_low", "phi_high"):
            value = fresh_score.get(name)
            row[name.replace("phi", "phi_confirmed", 1)] = None if value is None or math.isnan(value) else value
    return pa.Table.from_pylist(rows, SCORES)


# Compares scores of two sources: do retrieved and generated images of a hypothesis say the same about a classifier?


NAMES = ("classifier", "target_class", "attribute", "bias_class")
FROM_SCORES = ("n", "phi", "phi_low", "phi_high")
MARGIN = 2.0
"""Two φ count as the same up to this many τ apart: each may be τ away from the truth that both measure."""


def agreement(retrieved: pa.Table, generated: pa.Table, tau: float, alpha: float) -> pa.Table:
    """Returns a table of `tables.AGREEMENT` from two tables of `tables.SCORES` of the same cells.

    A cell whose images are in doubt in either source is `undetermined` and not tested. Otherwise it is `different`
    where the test of |difference| ≤ τ is rejected (false discovery rate `alpha` over all classifiers' cells); `same`
    where its 1 − `alpha` interval lies within 2τ of 0; else `undetermined`. The interval combines those of the two φ,
    which rest on different images (MOVER, Zou & Donner 2008). The p-value matches the width of the interval: the
    probability, at a true difference of τ, of a difference at least as extreme on either side.
    """
    other = {tuple(row[name] for name in NAMES): row for row in generated.to_pylist()}
    rows = []
    for row in retrieved.to_pylist():
        twin = other.get(tuple(row[name] for name in NAMES))
        if twin is not None:
            rows.append(_compared(row, twin, tau, alpha))
    q = stats.benjamini_hochberg(np.array([row["p_value"] for row in rows], float))
    for row, q_value in zip(rows, q.tolist(), strict=True):
        row["q_value"] = q_value
        row["agreement"] = _verdict(row, tau, alpha)
    return pa.Table.from_pylist(rows, AGREEMENT)


def _compared(a: dict[str, float], b: dict[str, float], tau: float, alpha: float) -> dict[str, object]:
    difference = b["phi"] - a["phi"]
    below = np.hypot(b["phi"] - b["phi_low"], a["phi_high"] - a["phi"])
    above = np.hypot(b["phi_high"] - b["phi"], a["phi"] - a["phi_low"])
    towards = below if difference > 0 else above
    trusted = a["doubt"] is None and b["doubt"] is None
    return {
        **{name: a[name] for name in NAMES},
        **{f"{name}_{RETRIEVE}": a[name] for name in FROM_SCORES},
        **{f"{name}_{GENERATE}": b[name] for name in FROM_SCORES},
        "difference": difference,
        "difference_low": float(np.clip(difference - below, -2.0, 2.0)),
        "difference_high": float(np.clip(difference + above, -2.0, 2.0)),
        "p_value": stats.p_value_of_limit(difference, towards, 1 - alpha, tau) if trusted else float("nan"),
    }


def _verdict(row: dict[str, object], tau: float, alpha: float) -> str:
    difference, low, high, q = (float(row[n]) for n in ("difference", "difference_low", "difference_high", "q_value"))  # type: ignore[arg-type]
    if np.isnan(q):
        return "undetermined"
    if q <= alpha and abs(difference) > tau:
        return "different"
    if low >= -MARGIN * tau and high <= MARGIN * tau:
        return "same"
    return "undetermined"
