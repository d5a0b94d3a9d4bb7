"""Compares two classifiers by their failures, B against A, on captions and baselines that both were measured on.

It composes runs, the comparing step, gates and a page, and knows no formulas. It needs neither Ray nor a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.audits import gate as gates
from c2b_ray.audits.failures.report.comparison import PAGES
from c2b_ray.audits.failures.report.facts import Facts, classifiers_in, cluster_of, read_facts
from c2b_ray.audits.failures.report.labels import at_baseline
from c2b_ray.audits.failures.report.rows import BASELINE, CONFIRMATION, FAILURE
from c2b_ray.audits.failures.run import FailuresRun
from c2b_ray.audits.kit.comparison import Comparison, compared_names, differing, refuse
from c2b_ray.audits.kit.models import one_of
from c2b_ray.errors import Argument, RunError
from c2b_ray.stats.intervals import benjamini_hochberg
from c2b_ray.stats.rates import RateEstimate, Trials, rate_difference_p_values, rate_difference_ratios, rate_differences
from c2b_ray.stats.scores import Floats
from c2b_ray.tables.failures import FAILURES_COMPARISON, ComparisonRow

# Compares hypotheses of two classifiers: which captions fail more often for B than for A.


Side = Mapping[str, Any]
KEY = ("label", "target", "caption", "generator")
_NOTHING: Mapping[str, Any] = {"failures": 0, "draws": 0, "rate": None, "q_value": None, "verdict": None, "doubts": []}


def compared_hypotheses(a: Iterable[Mapping[str, Any]], b: Iterable[Mapping[str, Any]], alpha: float) -> pa.Table:
    """Returns a table of `tables.failures.FAILURES_COMPARISON`: changed rows first, the largest difference first.

    `a`, `b`: rows with `KEY`, `failures`, `draws`, `rate`, `q_value`, `verdict`, `doubts`: hypotheses of confirmation
    and baselines of one classifier each. Both may rest on the same images: p-values and limits hold however the
    failures of the two are correlated. q is computed over all rows that both have (Benjamini & Hochberg 1995); a row is
    worse or better where it is at most alpha and nothing is in doubt.
    """
    sides_a, sides_b = _by_key(a), _by_key(b)
    keys = list(dict.fromkeys([*sides_a, *sides_b]))
    pairs = [(sides_a.get(key, _NOTHING), sides_b.get(key, _NOTHING)) for key in keys]
    trials_a, trials_b = _trials([side_a for side_a, _ in pairs]), _trials([side_b for _, side_b in pairs])
    differences, p_values = (
        rate_differences(trials_a, trials_b, 1 - alpha),
        rate_difference_p_values(trials_a, trials_b),
    )
    ratios = rate_difference_ratios(trials_a, trials_b, 1 - alpha)
    in_both = (trials_a.draws > 0) & (trials_b.draws > 0)
    q_values = benjamini_hochberg(np.where(in_both, p_values, np.nan))
    numbers = _Numbers(differences, ratios, p_values, q_values, in_both)
    rows = [numbers.row(i, key, pair, alpha) for i, (key, pair) in enumerate(zip(keys, pairs, strict=True))]
    rows.sort(key=lambda row: (row["change"] == "undetermined", -abs(row["difference"] or 0.0)))
    return pa.Table.from_pylist(rows, FAILURES_COMPARISON)


@dataclass(frozen=True)
class _Numbers:
    """The numbers of all pairs. `both`: pairs in which both sides have draws; nothing is known about other pairs."""

    differences: RateEstimate
    ratios: RateEstimate
    p_values: Floats
    q_values: Floats
    both: NDArray[np.bool_]

    def row(self, at: int, key: tuple[Any, ...], sides: tuple[Side, Side], alpha: float) -> ComparisonRow:
        (a, b), (label, target, caption, generator) = sides, key
        doubts = list(dict.fromkeys([*a["doubts"], *b["doubts"]]))
        changed = self.both[at] and not doubts and self.q_values[at] <= alpha
        return {
            "label": label,
            "target": target,
            "caption": caption,
            "generator": generator,
            "failures_a": a["failures"],
            "failures_b": b["failures"],
            "draws_a": a["draws"],
            "draws_b": b["draws"],
            "rate_a": a["rate"],
            "rate_b": b["rate"],
            "verdict_a": a["verdict"],
            "verdict_b": b["verdict"],
            "difference": self._known(self.differences.value, at),
            "difference_low": self._known(self.differences.low, at),
            "difference_high": self._known(self.differences.high, at),
            "ratio": self._known(self.ratios.value, at),
            "ratio_low": self._known(self.ratios.low, at),
            "ratio_high": self._known(self.ratios.high, at),
            "p_value": self._known(self.p_values, at),
            "q_value": self._known(self.q_values, at),
            "change": "undetermined" if not changed else "worse" if self.differences.value[at] > 0 else "better",
            "doubts": doubts,
        }

    def _known(self, values: Floats, i: int) -> float | None:
        return float(values[i]) if self.both[i] else None


def _by_key(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, ...], Mapping[str, Any]]:
    """Returns the rows by `KEY`; for a caption that was also drawn for a person, the row with the most draws."""
    return {tuple(row[name] for name in KEY): row for row in sorted(rows, key=lambda row: int(row["draws"]))}


def _trials(rows: list[Mapping[str, Any]]) -> Trials:
    return Trials.of([row["failures"] for row in rows], [row["draws"] for row in rows])


# Gates on a run of `c2b failures`: `failure`, `fly/bee/*:failure`, `rate>0.01`, `fly/*:rate_low>0.01`.


ANY = "any label"
ALL = "all labels/all targets/all captions"


def findings(run: FailuresRun, classifier: str | None = None) -> list[gates.GateCell]:
    """Returns the captions of all classifiers of the run, or of one, and how many fail. Hypotheses with doubts are in
    doubt."""
    rows = measured(run)
    if classifier is not None:
        chosen_classifier = one_of(classifiers_of(run), classifier, Argument.CLASSIFIER, run.path)
        rows = [row for row in rows if row["classifier"] == chosen_classifier]
    return [*map(_cell, rows), *_numbers(rows)]


def classifiers_of(run: FailuresRun) -> list[str]:
    return classifiers_in(run.config, *(run.read(table, ["classifier"]) for table in ("hypotheses", "rounds")))


def measured(run: FailuresRun) -> list[Mapping[str, Any]]:
    """Returns each hypothesis of confirmation and each baseline: its key, `verdict`, counts, rates and `doubts`."""
    return [*(row for row in run.hypotheses.to_pylist() if row["stage"] == CONFIRMATION), *_baselines(read_facts(run))]


def _cell(row: Mapping[str, Any]) -> gates.GateCell:
    values = {**row, "n": row["draws"], "doubt": "; ".join(row["doubts"]) or None}
    return gates.GateCell(row["classifier"], f"{row['label']}/{row['target'] or ANY}/{row['caption']}", values)


def _numbers(rows: Sequence[Mapping[str, Any]]) -> Iterator[gates.GateCell]:
    """Counts the findings of each classifier. A caption counts once, whatever the wrong labels are."""
    for classifier in dict.fromkeys(row["classifier"] for row in rows):
        own_rows = [row for row in rows if row["classifier"] == classifier]
        confirmed = {(row["label"], row["caption"]) for row in own_rows if row["verdict"] == FAILURE}
        values = {"findings": len(confirmed), "n": sum(row["draws"] for row in own_rows)}
        yield gates.GateCell(classifier, ALL, values)


def _baselines(facts: Facts) -> Iterator[Mapping[str, Any]]:
    for label, baseline in facts.baselines.items():
        for classifier in facts.names:
            _, counts = at_baseline(facts, label, classifier)
            estimate = facts.rate(counts.failures, counts.draws)
            yield {
                "classifier": classifier,
                "generator": ", ".join(facts.primary),
                "label": label,
                "target": None,
                "caption": baseline.text,
                "verdict": BASELINE,
                "doubts": [],
                "q_value": None,
                "draws": counts.draws,
                "failures": counts.failures,
                "rate": float(estimate.value),
                "rate_low": float(estimate.low),
                "rate_high": float(estimate.high),
            }


SAME = ("rule", "confidence", "true_below", "hierarchy", "alpha")
"""Settings without which a failure, or a finding, means something else."""


def compare(
    run_a: FailuresRun, run_b: FailuresRun, classifier_a: str | None = None, classifier_b: str | None = None
) -> Comparison:
    """Compares two classifiers by their failures: B against A, from two runs or from one.

    `classifier_a`, `classifier_b`: names; needed where a run has several classifiers.

    ConfigError where a name is missing or unknown; RunError for runs whose failure rules differ, that share no caption
    and no baseline, or whose images come in clusters.
    """
    for run in (run_a, run_b):
        if cluster := cluster_of(run.config):
            raise RunError(
                f"{run.path}: its images come in clusters ({cluster}), and a comparison of failure rates takes images "
                "as independent: compare the two with `c2b audit` on the same table with the same `cluster`, which "
                "pairs their answers"
            )
    a, b = compared_names((run_a, run_b), (classifier_a, classifier_b), classifiers_of, _check_settings)
    alpha = run_a.config.alpha
    cells = compared_hypotheses(_rows(run_a, a), _rows(run_b, b), alpha)
    if cells["difference"].null_count == cells.num_rows:
        raise RunError(
            f"{run_a.path} and {run_b.path} have no caption or baseline of one generator in common; run c2b failures "
            "for both classifiers at once, or give both configs the same labels, generator and `captions`"
        )
    return Comparison(
        (run_a.path, run_b.path), (a, b), alpha, cells, PAGES, [_gated(b, row) for row in cells.to_pylist()]
    )


def _gated(classifier: str, row: Mapping[str, Any]) -> gates.GateCell:
    """`verdict`, `rate` and `q_value` are B's."""
    pairs = min(row["draws_a"], row["draws_b"])
    values = {**row, "n": row["draws_b"], "pairs": pairs, "doubt": "; ".join(row["doubts"]) or None}
    values |= {"verdict": row["verdict_b"], "rate": row["rate_b"]}
    return gates.GateCell(classifier, f"{row['label']}/{row['target'] or ANY}/{row['caption']}", values)


def _rows(run: FailuresRun, classifier: str) -> list[Mapping[str, Any]]:
    return [row for row in measured(run) if row["classifier"] == classifier]


def _check_settings(run_a: FailuresRun, run_b: FailuresRun) -> None:
    why = (
        "a failure of one is none of the other's: run c2b failures for both classifiers with the same settings, "
        "or in one run"
    )
    refuse(run_a, run_b, differing(run_a, run_b, SAME), why)
