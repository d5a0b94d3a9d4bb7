"""Computes failure rates, transfer and error consistency from answers to a dataset, each with an interval over
captions.

It holds for each image a digest of its id, its caption, and a byte per classifier: some forty bytes for thirty
classifiers. Rows are read a part at a time, in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.metrics.transfer import clustered_consistency, clustered_rate
from c2b_ray.schemas.evaluation import CONSISTENCY, FAILURE_RATES
from c2b_ray.store.digests import Digests, digests

RULES = {"top1": 1, "top3": 3}
MOST_CLUSTERS = 4096  # captions are joined at random beyond that: intervals stay right and memory bounded
_LAST = 255


@dataclass
class Answers:
    """`ids`: sorted digests. `cluster` of each, from 0. `ranks` (images, classifiers): of the true label, from 1, 0 for
    no answer. `built` (images, classifiers of the build): whether each failed during the build. `captions`: their
    number, of which the clusters are as many at most."""

    ids: Digests
    cluster: NDArray[np.int64]
    ranks: NDArray[np.uint8]
    built: NDArray[np.bool_]
    captions: int
    clusters: int

    @staticmethod
    def of(
        ids: Iterable[pa.Array | pa.ChunkedArray],
        captions: NDArray[np.int64],
        built: NDArray[np.bool_],
        classifiers: int,
        most: int = MOST_CLUSTERS,
    ) -> Answers:
        """`captions`: the number of each image's caption. `most`: clusters."""
        marks = np.concatenate([np.zeros(0, "S12"), *(digests(part) for part in ids)])
        order = np.argsort(marks, kind="stable")
        distinct, cluster = np.unique(captions, return_inverse=True)
        ranks = np.zeros((len(marks), classifiers), np.uint8)
        clusters = min(len(distinct), most)
        return Answers(marks[order], (cluster % max(most, 1))[order], ranks, built[order], len(distinct), clusters)

    def add(self, part: pa.Table, classifiers: Sequence[str]) -> None:
        """Adds a part of `schemas.CHECKED`. Answers of classifiers that are not in `classifiers` are ignored."""
        marks = digests(part["image_id"])
        at = np.minimum(np.searchsorted(self.ids, marks), max(len(self.ids) - 1, 0))
        known = np.array([name in classifiers for name in part["classifier"].to_pylist()], bool)
        known &= self.ids[at] == marks
        columns = np.array(
            [classifiers.index(n) if n in classifiers else 0 for n in part["classifier"].to_pylist()], np.int64
        )
        ranks = np.minimum(part["rank"].fill_null(0).to_numpy(), _LAST).astype(np.uint8)
        self.ranks[at[known], columns[known]] = ranks[known]


def rates(
    of: str, answers: Answers, classifiers: Sequence[str], rows: NDArray[np.bool_] | None = None
) -> list[dict[str, Any]]:
    """Returns a row of `schemas.FAILURE_RATES` for each classifier and rule. `rows`: of the images; None: all."""
    chosen = np.ones(len(answers.ids), bool) if rows is None else rows
    result = []
    for rule, k in RULES.items():
        for column, name in enumerate(classifiers):
            ranks = answers.ranks[:, column]
            answered, wrong = chosen & (ranks > 0), chosen & (ranks > k)
            totals, failures = _by_cluster(answers, answered), _by_cluster(answers, wrong)
            estimate = clustered_rate(failures, totals)
            result.append(
                {
                    "of": of,
                    "classifier": name,
                    "rule": rule,
                    "images": int(answered.sum()),
                    "captions": int((totals > 0).sum()) if answers.captions == answers.clusters else answers.captions,
                    "failures": int(wrong.sum()),
                    "unanswered": int((chosen & (ranks == 0)).sum()),
                    "rate": float(estimate.value),
                    "rate_low": float(estimate.low),
                    "rate_high": float(estimate.high),
                }
            )
    return result


def transfers(answers: Answers, classifiers: Sequence[str], built: Sequence[str]) -> pa.Table:
    """Returns `schemas.FAILURE_RATES` of all images, and of the failures of each classifier.

    The failures of a classifier of the build are those during the build, by the dataset's rule; those of other
    classifiers follow from the rule of each row.
    """
    rows = rates("dataset", answers, classifiers)
    for column, name in enumerate(built):
        rows += rates(f"failures of {name}", answers, classifiers, answers.built[:, column])
    for column, name in enumerate(classifiers):
        if name in built:
            continue
        for rule, k in RULES.items():
            failed = answers.ranks[:, column] > k
            rows += [r for r in rates(f"failures of {name}", answers, classifiers, failed) if r["rule"] == rule]
    return pa.Table.from_pylist(rows, FAILURE_RATES)


def consistencies(of: str, answers: Answers, classifiers: Sequence[str]) -> pa.Table:
    """Returns `schemas.CONSISTENCY` of all pairs, each once, and of each classifier with itself."""
    rows = []
    for rule, k in RULES.items():
        for a, first in enumerate(classifiers):
            for b, second in enumerate(classifiers[a:], a):
                both = (answers.ranks[:, a] > 0) & (answers.ranks[:, b] > 0)
                wrong_a, wrong_b = both & (answers.ranks[:, a] > k), both & (answers.ranks[:, b] > k)
                counts = [_by_cluster(answers, of) for of in (wrong_a, wrong_b, wrong_a & wrong_b, both)]
                kappa = clustered_consistency(counts[0], counts[1], counts[2], counts[3])
                row = {"of": of, "classifier_a": first, "classifier_b": second, "rule": rule, "images": int(both.sum())}
                limits = {"kappa": kappa.value, "kappa_low": kappa.low, "kappa_high": kappa.high}
                rows.append(row | {name: float(value) for name, value in limits.items()})
    return pa.Table.from_pylist(rows, CONSISTENCY)


def changed_answers(answers: Answers, classifiers: Sequence[str], built: Sequence[str]) -> dict[str, int]:
    """Returns, for each classifier of the build that answers again, the images that it failed then and has right now by
    top-1."""
    return {
        name: int((answers.built[:, built.index(name)] & (answers.ranks[:, column] == 1)).sum())
        for column, name in enumerate(classifiers)
        if name in built
    }


def _by_cluster(answers: Answers, rows: NDArray[np.bool_]) -> NDArray[np.int64]:
    return np.bincount(answers.cluster[rows], minlength=answers.clusters or 1)
