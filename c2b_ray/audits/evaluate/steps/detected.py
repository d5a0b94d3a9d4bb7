"""The biases that methods detect: the scores of an audit, and the keywords of B2T. It knows tables and numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray import stats
from c2b_ray.audits.evaluate.steps.matching import keyword_wording, wording
from c2b_ray.tables.evaluate import BIASES

KEYWORD = "keyword"
LEAST_TESTED = 5
"""Images, wrong and right, from which on a keyword's score is tested: of fewer, Welch's test is no test."""
TESTED = {"for": 1, "against": -1}


@dataclass(frozen=True)
class Bias:
    """A row of `tables.evaluate.BIASES`."""

    source: str
    classifier: str
    target_class: str
    attribute: str
    value: str
    wordings: tuple[str, ...]
    negated: bool
    n: int
    score: float | None
    p_value: float | None
    q_value: float | None
    paper: int
    tested: int


def audit_biases(method: str, scores: pa.Table) -> pa.Table:
    """Returns a table of `BIASES`, a row per row of `tables.SCORES`, including those that are no bias."""
    rows = []
    for row in scores.to_pylist():
        worded = wording(row["attribute"], row["bias_class"])
        rows.append(
            Bias(
                source=method,
                classifier=row["classifier"],
                target_class=row["target_class"],
                attribute=row["attribute"],
                value=row["bias_class"],
                wordings=worded.texts,
                negated=worded.negated,
                n=row["n"],
                score=row["phi"],
                p_value=row["p_value"],
                q_value=row["q_value"],
                paper=int(row["paper_verdict"]),
                tested=TESTED.get(row["verdict"], 0),
            )
        )
    return _table(rows)


@dataclass(frozen=True)
class Keywords:
    """The keywords of one classifier's mistakes on one class. `wrong`, `right`: cosines, (images, keywords)."""

    classifier: str
    target_class: str
    keywords: tuple[str, ...]
    wrong: NDArray[np.float32]
    right: NDArray[np.float32]


def keyword_biases(method: str, groups: Iterable[Keywords], tau: float, alpha: float) -> pa.Table:
    """Returns a table of `BIASES`: a keyword that is frequent among mistakes is a bias against what it names.

    `score`: the CLIP score. `paper`: −1 where it is above τ, 1 where it is below −τ, in points (cosine × 100).
    `tested`: the same where, in addition, Welch's test finds a difference (false discovery rate α over all keywords),
    with five images of either side or more.
    """
    rows: list[Bias] = []
    for group in groups:
        result = stats.keyword_scores(group.wrong, group.right)
        is_tested = min(len(group.wrong), len(group.right)) >= LEAST_TESTED
        for keyword, score, p in zip(group.keywords, result.score.tolist(), result.p_value.tolist(), strict=True):
            worded = keyword_wording(keyword)
            rows.append(
                Bias(
                    source=method,
                    classifier=group.classifier,
                    target_class=group.target_class,
                    attribute=KEYWORD,
                    value=keyword,
                    wordings=worded.texts,
                    negated=worded.negated,
                    n=len(group.wrong),
                    score=score,
                    p_value=p if is_tested else float("nan"),
                    q_value=None,  # of all keywords together
                    paper=0 if np.isnan(score) else int(score < -tau) - int(score > tau),
                    tested=0,
                )
            )
    q = stats.benjamini_hochberg(np.array([row.p_value for row in rows], float))
    return _table(
        replace(row, q_value=adjusted, tested=row.paper if adjusted <= alpha else 0)
        for row, adjusted in zip(rows, q.tolist(), strict=True)
    )


def _table(rows: Iterable[Bias]) -> pa.Table:
    return pa.Table.from_pylist(list(map(vars, rows)), BIASES)
