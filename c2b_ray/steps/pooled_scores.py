"""estimates → what all classes share: φ of an attribute's values over the whole task.

An effect that every class shows a little of is one effect; no class alone may have the images to establish it. It knows
accuracies and doubts; the weights and tests are `metrics.pooled`'s.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray import metrics
from c2b_ray.schemas import POOLED
from c2b_ray.steps.judge import EVIDENCE_OF_VALUES, MOST_SHARED, Estimate, Levels
from c2b_ray.steps.propose import normalise

LEAST_CLASSES = 2


def pooled(estimates: Sequence[Estimate], levels: Levels) -> pa.Table:
    """A table of `schemas.POOLED`: a row per classifier, attribute and value that `LEAST_CLASSES` classes or more have
    in common with another value.

    Values of all classes go by their normalised names. Cells in doubt are left out: a class takes part with those that
    can be trusted. The false discovery rate is controlled over all rows of all classifiers. `none` needs what it needs
    in a cell: values that are known to differ, on images that they do not share.
    """
    groups: dict[tuple[str, str], list[Estimate]] = defaultdict(list)
    for estimate in estimates:
        groups[estimate.classifier, normalise(estimate.attribute)].append(estimate)
    rows = [row for group in groups.values() for row in _rows(group, levels)]
    q = metrics.benjamini_hochberg([row["p_value"] for row in rows])
    none_p = np.where([row["may_be_none"] for row in rows], [row["none_p_value"] for row in rows], np.nan)
    none_q = metrics.benjamini_hochberg(none_p)
    verdicts = metrics.verdicts([row["phi"] for row in rows], q, none_q, levels.tau, levels.alpha)
    for row, q_value, verdict in zip(rows, q.tolist(), verdicts, strict=True):
        row |= {"q_value": q_value, "verdict": verdict}
    return pa.Table.from_pylist(rows, POOLED)


def _rows(estimates: Sequence[Estimate], levels: Levels) -> list[dict[str, Any]]:
    values = list(dict.fromkeys(normalise(value) for estimate in estimates for value in estimate.values))
    accuracy, images, right, seen = (np.full((len(estimates), len(values)), fill) for fill in (np.nan, 0.0, 0.0, 0.0))
    shared = np.zeros_like(images)
    for c, estimate in enumerate(estimates):
        for i, value in enumerate(estimate.values):
            j = values.index(normalise(value))
            right[c, j], seen[c, j] = (estimate.columns[name][i] for name in ("correct", "n"))
            shared[c, j] = estimate.shared[i]
            if estimate.doubts[i] is None:
                accuracy[c, j], images[c, j] = estimate.accuracy[i], estimate.effective[i]
    test = metrics.pooled_bias_scores(accuracy, images, levels.tau, 1 - levels.alpha)
    differ = all(estimate.basis in EVIDENCE_OF_VALUES for estimate in estimates) and bool((shared <= MOST_SHARED).all())
    return [
        {
            "classifier": estimates[0].classifier,
            "attribute": estimates[0].attribute,
            "bias_class": value,
            "classes": int(test.classes[j]),
            "n": int(seen[:, j].sum()),
            "correct": int(right[:, j].sum()),
            "accuracy": float(test.accuracy[j]),
            "phi": float(test.phi[j]),
            "phi_low": float(test.low[j]),
            "phi_high": float(test.high[j]),
            "p_value": float(test.p_value[j]),
            "none_p_value": float(test.none_p_value[j]),
            "may_be_none": differ,
        }
        for j, value in enumerate(values)
        if test.classes[j] >= LEAST_CLASSES
    ]
