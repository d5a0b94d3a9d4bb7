"""Gates on a run of `c2b failures`: `failure`, `fly/bee/*:failure`, `rate>0.01`, `fly/*:rate_low>0.01`.

A cell is label/target/caption of a classifier: each hypothesis of confirmation, and each label's baseline, whose
verdict is `baseline` and whose target is `any label`. It composes runs and gates, and knows no formulas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from c2b_ray.audits.kit.classifiers import one_of
from c2b_ray.metrics.rates import failure_rates
from c2b_ray.report.failures.facts import Facts
from c2b_ray.report.failures.labels import at_baseline
from c2b_ray.report.failures.report import read_facts
from c2b_ray.report.failures.rows import BASELINE, CONFIRMATION
from c2b_ray.steps import gate as gates
from c2b_ray.store.failures_run import FailuresRun

ANY = "any label"


def check(
    run: FailuresRun, fail_on: Sequence[str], classifier: str | None = None, allow_unchecked: bool = False
) -> list[gates.Check]:
    """Gates on all classifiers of the run, or on one. What a hypothesis's doubts are about is not checked.

    A gate that could be checked on nothing fails, unless `allow_unchecked`.
    """
    cells = [*_captions(run), *_baselines(read_facts(run))]
    if classifier is not None:
        known = list(dict.fromkeys(cell.classifier for cell in cells))
        chosen = one_of(known, classifier, "--classifier", run.path)
        cells = [cell for cell in cells if cell.classifier == chosen]
    return gates.check(fail_on, cells, allow_unchecked)


def _captions(run: FailuresRun) -> Iterator[gates.GateCell]:
    for row in run.hypotheses.to_pylist():
        if row["stage"] == CONFIRMATION:
            values = {**row, "n": row["draws"], "doubt": "; ".join(row["doubts"]) or None}
            name = f"{row['label']}/{ANY if row['target'] is None else row['target']}/{row['caption']}"
            yield gates.GateCell(row["classifier"], name, values)


def _baselines(facts: Facts) -> Iterator[gates.GateCell]:
    for label, baseline in facts.baselines.items():
        for classifier in facts.names:
            _, counts = at_baseline(facts, label, classifier)
            estimate = failure_rates(counts.failures, counts.draws, facts.confidence)
            values = {
                "verdict": BASELINE,
                "n": counts.draws,
                "draws": counts.draws,
                "failures": counts.failures,
                "rate": float(estimate.value),
                "rate_low": float(estimate.low),
                "rate_high": float(estimate.high),
            }
            yield gates.GateCell(classifier, f"{label}/{ANY}/{baseline.text}", values)
