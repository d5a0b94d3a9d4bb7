"""verifications → what a cell's images really show: repeats left out, counts by shown value, reasons for doubt.

It joins the verifier's answers and their calibration with the classifier's; the estimation is
`metrics.misclassification`'s, and which cells there are is `score`'s.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray import metrics
from c2b_ray.metrics.levels import deviations
from c2b_ray.metrics.misclassification import Corrected, corrected
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.steps.verify import CLASS, self_assessed

LEAST_SHOWN = 0.5
"""The estimated share of a cell's images that must show its bias class for a verdict."""

LEAST_OF_CLASS = 0.8
"""The estimated share that must show the target class."""

LEAST_SKILL = 0.3
"""Youden's index (sensitivity + specificity − 1) that a verifier must have on a bias class and on the target class."""

LEAST_OVERLAP = 0.5
"""How much of a comparison must remain within another attribute's values for these to explain a difference away."""

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Group = tuple[str, str]
"""Target class and attribute."""
Levels = tuple[float, float]
"""τ and α."""


class Verified:
    """What is known of the images of a run: `verifications` and `calibration` are tables of those schemas.

    `distinct`: which images are one picture; without it, none is a repeat of another. Values of attributes without
    calibration count on the verifier's own certainty.
    """

    def __init__(self, verifications: pa.Table, calibration: pa.Table, distinct: Distinct | None = None) -> None:
        rows = verifications.select(["image_id", "target_class", "class_shown", "attributes", "values"]).to_pylist()
        self._class = {(row["image_id"], row["target_class"]): row["class_shown"] for row in rows}
        self._values = {
            (row["image_id"], row["target_class"]): dict(zip(row["attributes"], row["values"], strict=True))
            for row in rows
        }
        self._distinct = distinct
        self._calibration: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
        checked = set(zip(calibration["attribute"].to_pylist(), calibration["value"].to_pylist(), strict=True))
        own = [
            row for row in self_assessed(verifications).to_pylist() if (row["attribute"], row["value"]) not in checked
        ]
        for row in [*calibration.to_pylist(), *own]:
            self._calibration[row["attribute"]][row["value"], row["answer"]] = row["images"]

    def sorted_by_value(
        self, group: Group, cells: Mapping[str, set[str]], order: Mapping[str, int] | None = None
    ) -> dict[str, set[str]]:
        """All images of a group, distinct ones, each under the value that the verifier says it shows."""
        target, attribute = group
        found: dict[str, set[str]] = {value: set() for value in cells}
        images = set().union(*cells.values())
        for image in images if self._distinct is None else self._distinct.distinct(images, order):
            value = self._values.get((image, target), {}).get(attribute)
            if value in found:
                found[value].add(image)
        return found

    def values_shown(self, image: str, target: str) -> Mapping[str, str | None]:
        """What the verifier says that an image shows, by attribute; empty where it does not say that of the class."""
        shown = self._class.get((image, target))
        return self._values.get((image, target), {}) if shown in (target, None) else {}

    def calibration_of(self, attribute: str, values: Sequence[str]) -> Floats:
        """Images known to show each of these values (rows), by which of them the verifier said."""
        return self._known(attribute, values)

    def correct(
        self, group: Group, cells: Mapping[str, set[str]], answers: Mapping[str, str | None], levels: Levels
    ) -> Corrected | None:
        """The group's scores, corrected; None where the verifier named no value of any of its images."""
        target, attribute = group
        place = {value: i for i, value in enumerate(cells)}
        counts, counted = np.zeros((2, len(cells), len(cells))), set()
        for row, images in enumerate(cells.values()):
            for image in images:
                value = self._values.get((image, target), {}).get(attribute)
                answer = answers.get(image)
                if answer is not None and value in place:
                    counts[int(answer != target), row, place[value]] += 1
                    counted.add(image)
        if not counts.any():
            return None
        known = self._known(attribute, list(cells))
        copies = counts.sum() / len(counted)
        return corrected(counts[0], counts[1], known, levels[0], 1 - levels[1], copies)

    def explained(
        self,
        group: Group,
        cells: Mapping[str, set[str]],
        answers: Mapping[str, str | None],
        phi: Floats,
        levels: Levels,
    ) -> dict[str, str]:
        """The bias classes whose difference to the others vanishes among images alike in another attribute, and why.

        Images found by their captions differ in more than what was asked for. Compared within the other attribute's
        shown values, φ (corrected, in the order of `cells`) must fall to τ or below, by more than τ and by more than
        chance makes it fall in one of all other attributes with probability α. An attribute that leaves less than half
        of the comparison, such as another word for the same, explains nothing: grouping deals with it.
        """
        (target, attribute), (tau, alpha) = group, levels
        seen = [
            (place, self._values[image, target], answers[image] == target)
            for place, images in enumerate(self.sorted_by_value(group, cells).values())
            for image in images
            if answers.get(image) is not None
        ]
        others = sorted({name for _, values, _ in seen for name in values} - {attribute})
        z = deviations(1 - alpha / max(1, len(others)))
        found: dict[str, str] = {}
        for other in others:
            at = metrics.stratified_differences(*_by_value(seen, len(cells), other))
            # The verifier's errors shrink both differences, but not the corrected score: in its terms.
            scale = np.maximum(1.0, np.abs(np.divide(phi, at.plain, out=np.ones(len(phi)), where=at.plain != 0)))
            left, gone = np.sign(phi) * at.alike * scale, np.abs(at.plain - at.alike)
            vanished = (np.abs(phi) > tau) & (left <= tau) & (gone * scale > tau) & (gone > z * at.noise)
            for place, value in enumerate(cells):
                if vanished[place] and at.overlap[place] >= LEAST_OVERLAP:
                    differences = f"{at.plain[place]:+.2f} on the images of {value!r}, {at.alike[place]:+.2f} on images"
                    found.setdefault(value, f"explained by {other}: {differences} alike in {other}")
        return found

    def of_class(self, target: str, images: set[str]) -> float:
        """The estimated share of images that show the target class (Rogan & Gladen); NaN where nothing was seen."""
        seen = [self._class[image, target] for image in images if self._class.get((image, target)) is not None]
        if not seen:
            return float("nan")
        share = sum(name == target for name in seen) / len(seen)
        return float(metrics.rogan_gladen(share, *self._class_rates(target)))

    def class_skill(self, target: str) -> float:
        """Youden's index of the verifier on the target class; 1 where it was not calibrated on classes."""
        return sum(self._class_rates(target)) - 1

    def _class_rates(self, target: str) -> tuple[float, float]:
        """Sensitivity and specificity."""
        known = self._calibration.get(CLASS, {})
        own = [(answer == target, n) for (value, answer), n in known.items() if value == target]
        others = [(answer != target, n) for (value, answer), n in known.items() if value != target]
        return _rate(own), _rate(others)

    def _known(self, attribute: str, values: Sequence[str]) -> Floats:
        known = self._calibration.get(attribute, {})
        return np.array([[known.get((value, answer), 0.0) for answer in values] for value in values])


def _by_value(seen: Sequence[tuple[int, Mapping[str, str | None], bool]], cells: int, attribute: str) -> Counts:
    """Right answers and images of every cell by the value that they show of another attribute, where they show one."""
    values = sorted({value for _, shown, _ in seen if (value := shown.get(attribute)) is not None})
    counts = np.zeros((2, cells, len(values)), np.int64)
    for place, shown, right in seen:
        value = shown.get(attribute)
        if value is not None:
            counts[:, place, values.index(value)] += (right, True)
    return counts


def _rate(outcomes: Sequence[tuple[bool, float]]) -> float:
    whole = sum(n for _, n in outcomes)
    return sum(n for right, n in outcomes if right) / whole if whole else 1.0


def columns(found: Corrected) -> dict[str, Floats]:
    """The columns of `schemas.SCORES` that a correction replaces or adds."""
    return {
        "accuracy": found.accuracy,
        "accuracy_low": found.accuracy_low,
        "accuracy_high": found.accuracy_high,
        "phi": found.phi,
        "phi_low": found.phi_low,
        "phi_high": found.phi_high,
        "p_value": found.p_value,
        "shown": np.diag(found.shown),
        "shown_low": found.shown_low,
        "shown_high": found.shown_high,
        "sensitivity": found.sensitivity,
        "specificity": found.specificity,
        "effective": found.effective,
    }


def doubt(row: Mapping[str, Any], class_skill: float) -> str | None:
    """Why the images of a cell cannot be trusted, whatever was counted on them; None where they can."""
    if class_skill < LEAST_SKILL:
        target = row["target_class"]
        return f"the verifier cannot tell a {target} from the other classes (Youden's index {class_skill:.2f})"
    if row["class_shown"] < LEAST_OF_CLASS:
        return f"only {row['class_shown']:.0%} of the images show a {row['target_class']}"
    if row["sensitivity"] + row["specificity"] - 1 < LEAST_SKILL:
        return (
            f"the verifier cannot tell {row['bias_class']!r} from the other values "
            f"(sensitivity {row['sensitivity']:.2f}, specificity {row['specificity']:.2f})"
        )
    if row["shown"] < LEAST_SHOWN:
        limits = f"{row['shown_low']:.0%} to {row['shown_high']:.0%}"
        return f"only {row['shown']:.0%} ({limits}) of the images show {row['bias_class']!r}"
    return None
