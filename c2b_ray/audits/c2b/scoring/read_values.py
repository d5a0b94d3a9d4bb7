"""Corrects scores of attributes whose values a model read off the images, for its errors.

It joins counts with the model's calibration; `stats.read_values` has the estimation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from c2b_ray.audits.c2b.scoring.judge import CALIBRATED, VERIFIER, Estimate
from c2b_ray.audits.c2b.verification.verified import doubt
from c2b_ray.stats.read_values import read_accuracies
from c2b_ray.stats.scores import Floats, Ints
from c2b_ray.steps.cells import CellGroup, GroupName


class ReadValues:
    """The attributes that a model read. `questions`: of `tables.PROPOSALS`, all values that it was asked about;
    `calibration`: of `tables.CALIBRATION`, without rows where it was not calibrated."""

    def __init__(self, questions: pa.Table, calibration: pa.Table) -> None:
        self._values: dict[GroupName, list[str]] = {
            GroupName(row["target_class"], row["attribute"]): row["bias_classes"] for row in questions.to_pylist()
        }
        self._counts: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
        for row in calibration.to_pylist():
            self._counts[row["attribute"]][row["value"], row["answer"]] = row["images"]

    def correct(self, estimate: Estimate, group: CellGroup, correct: Ints, total: Ints, confidence: float) -> None:
        """Corrects an estimate where its attribute was read and the reader was calibrated on all values; says on what
        it rests. `correct`, `total`: right answers and answers by value."""
        if group.name not in self._values:
            return
        absent = [value for value in self._values[group.name] if value not in group.values]
        values = [*group.values, *absent]
        calibration = self._calibration(group.attribute, values)
        estimate.basis = VERIFIER
        if (calibration.sum(axis=1) == 0).any():
            return
        none = np.zeros(len(absent), np.int64)  # images may show a value that the reader never named
        right, wrong = np.append(correct, none), np.append(total - correct, none)
        read = read_accuracies(right, wrong, calibration, confidence)
        of_group = slice(0, len(group.values))
        estimate.basis = CALIBRATED
        estimate.accuracy, estimate.effective = read.accuracy[of_group], read.effective[of_group]
        estimate.covariance, estimate.from_verifier = (
            read.covariance[of_group, of_group],
            read.from_reader[of_group, of_group],
        )
        names = ("shown", "shown_low", "shown_high", "sensitivity", "specificity")
        columns = {name: getattr(read, name)[of_group] for name in names}
        estimate.columns |= columns
        estimate.doubts = [
            "; ".join(_doubts(columns, i, group)) or None if total[i] else None for i in range(len(group.values))
        ]

    def _calibration(self, attribute: str, values: Sequence[str]) -> Floats:
        counts = self._counts.get(attribute, {})
        return np.array([[counts.get((value, answer), 0.0) for answer in values] for value in values], np.float64)


def _doubts(columns: dict[str, Floats], i: int, group: CellGroup) -> list[str]:
    row = {name: float(values[i]) for name, values in columns.items()}
    fields = {"target_class": group.target_class, "bias_class": group.values[i], "class_shown": float("nan")}
    return doubt(row | fields, class_skill=1.0)
