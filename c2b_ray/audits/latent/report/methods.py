"""How methods compare over a run's problems: mean cosines, the share of problems led, verdicts (Li & Xu 2021, Table 1).

Intervals are Student's over problems; wins over another method are counted on the problems that both searched. Knows
rows of directions; knows nothing of pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from c2b_ray.report import words

METHODS = {
    "consistent": "consistent change (ours)",
    "total-variation": "total variation (Li & Xu)",
    "paper": "Li & Xu’s code, its settings",
    "signed-penalty": "total variation, Eq. 4 as printed",
    "no-penalty": "total variation, no penalty",
    "hessian-penalty": "total variation, Hessian penalty",
    "no-penalty+hessian": "total variation, Hessian penalty alone",
    "axes": "axes of the latent space",
    "hessian": "Hessian penalty’s directions",
    "random": "a random direction",
}


@dataclass(frozen=True)
class MethodRow:
    name: str
    problems: str
    cos_bias: str
    cos_target: str
    delta: str
    interval: str
    leading: str
    findings: str


def method_rows(rows: Sequence[Mapping[str, Any]]) -> tuple[MethodRow, ...]:
    """One row a method, of the first directions of problems with a known biased attribute; () where there is none."""
    first = [row for row in rows if row["rank"] == 0]
    judged = [row for row in first if row["delta_cos"] is not None]
    if not judged:
        return ()
    best: dict[str, float] = {}
    for row in judged:
        best[row["problem"]] = max(best.get(row["problem"], -2.0), row["delta_cos"])
    result = []
    for method in dict.fromkeys(row["method"] for row in first):
        of_method = [row for row in judged if row["method"] == method]
        searched = [row for row in first if row["method"] == method]
        findings = sum(row["verdict"] == "found" for row in searched)
        if of_method:
            result.append(_row(method, of_method, best, f"{words.count(findings)} of {words.count(len(searched))}"))
    return tuple(result)


def target_of(row: Mapping[str, Any]) -> str:
    """Returns the target, with the known attributes that directions avoid: searches of one target may differ in them
    alone."""
    known = ", ".join(row["known"] or ())
    return f"{row['target']} (known: {known})" if known else str(row["target"])


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and Student's 95 % limits, NaN limits for one value."""
    array = np.asarray(values, np.float64)
    if len(array) < 2:
        return float(array.mean()), float("nan"), float("nan")
    reach = stats.t.ppf(0.975, len(array) - 1) * array.std(ddof=1) / np.sqrt(len(array))
    return float(array.mean()), float(array.mean() - reach), float(array.mean() + reach)


def _row(method: str, rows: Sequence[Mapping[str, Any]], best: Mapping[str, float], findings: str) -> MethodRow:
    mean, low, high = mean_interval([row["delta_cos"] for row in rows])
    leads = sum(row["delta_cos"] >= best[row["problem"]] for row in rows)
    return MethodRow(
        METHODS.get(method, method),
        words.count(len(rows)),
        _mean_and_deviation([row["cos_bias"] for row in rows]),
        _mean_and_deviation([row["cos_target"] for row in rows]),
        words.signed(mean),
        words.signed_range(low, high),
        words.percent(leads / len(rows)),
        findings,
    )


def _mean_and_deviation(values: Sequence[float]) -> str:
    return f"{np.mean(values):.2f} ± {np.std(values):.2f}"
