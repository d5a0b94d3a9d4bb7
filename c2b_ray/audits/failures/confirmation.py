"""Confirmation: tests hypotheses against their baselines on fresh seeds, then measures all rates on further seeds.

    hypotheses → test, until e-BH has decided or the draws end → measure, with draws fixed in advance → a table

Draws of discovery take no part in it; they only set how many draws the test begins with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray.audits.failures.drawing import CONFIRMATION, DISCOVERY, MEASURE, SEARCH, TEST, Counts, Wanted
from c2b_ray.audits.failures.screening import baseline_rate, rate, seen
from c2b_ray.audits.failures.work import Hypothesis, Work
from c2b_ray.metrics.rates import Trials, failure_rates, rate_ratios
from c2b_ray.schemas import HYPOTHESES
from c2b_ray.schemas.failure_rows import HypothesisRow
from c2b_ray.steps.discovery.candidates import Candidate
from c2b_ray.steps.discovery.race import Race, RaceTerms, measure_draws, next_draws

TEST_SHARE = 0.8
"""Of the draws of confirmation; the others measure."""
LEAST_MEASURED = 200


class Confirmation:
    """The hypotheses of a run, in a fixed order, with the captions and labels that they share."""

    def __init__(self, work: Work, hypotheses: Sequence[Hypothesis], share: float = 1.0) -> None:
        """`share`: the share of the run's alpha that these hypotheses have to themselves."""
        self._work, self._share = work, share
        self.hypotheses = list(dict.fromkeys(hypotheses))
        self.captions = list(dict.fromkeys(one.caption for one in self.hypotheses))
        self.labels = list(dict.fromkeys(one.kind.label for one in self.hypotheses))
        caption = [self.captions.index(one.caption) for one in self.hypotheses]
        label = [self.labels.index(one.kind.label) for one in self.hypotheses]
        expected = [rate(work, one) / baseline_rate(work, one.kind) or math.nan for one in self.hypotheses]
        terms = RaceTerms(alpha=work.config.alpha * share, worth=work.config.smallest_ratio)
        self.race = Race.start(caption, label, terms, expected)

    def test(self, draws: int) -> None:
        """Draws captions and their baselines until every hypothesis is decided or the draws end."""
        left = draws
        while self.hypotheses:
            plan = next_draws(self.race, left)
            if not plan.total:
                return
            before = self._counts(TEST)
            left -= plan.total
            self._draw(plan.captions.tolist(), plan.baselines.tolist(), TEST, "draw on fresh seeds, to confirm")
            after = self._counts(TEST)
            if np.array_equal(before[:, 1::2], after[:, 1::2]):  # no image of them could be used
                return
            self.race = self.race.after(*(after - before).T)

    def measure(self, draws: int) -> None:
        """Draws each caption often enough to know its rate; the number is fixed before the first of these draws.

        Each caption gets a few draws. The rest goes to the findings, whose rates may be rare, and to their baselines.
        """
        if not self.hypotheses:
            return
        least = self._least(draws)
        left = draws - least * self._arms
        plan = measure_draws(self.race, left, left)
        captions, baselines = np.maximum(plan.captions, least), np.maximum(plan.baselines, least)
        self._draw(captions.tolist(), baselines.tolist(), MEASURE, "draw on fresh seeds, to measure rates")

    def spare(self, draws: int) -> int:
        """Returns how many of these draws measuring does not need; 0 where no hypothesis is open that they might
        decide."""
        if not (self.race.standing == "open").any():
            return 0
        needed = self._least(draws) * self._arms + measure_draws(self.race, draws).total
        return max(draws - needed, 0)

    @property
    def _arms(self) -> int:
        return len(self.captions) + len(self.labels)

    def _least(self, draws: int) -> int:
        return min(LEAST_MEASURED, draws // self._arms)

    @property
    def findings(self) -> list[Hypothesis]:
        """The hypotheses that are failures."""
        return [one for one, standing in zip(self.hypotheses, self.race.standing, strict=True) if standing == "failure"]

    def table(self) -> pa.Table:
        """Returns the rows of `schemas.HYPOTHESES` for the stage confirmation."""
        standing, q_values = self.race.standing.tolist(), self.race.q_values.tolist()
        e_values = self.race.evidence.e_values.tolist()
        rows = []
        for one, verdict, e, q in zip(self.hypotheses, standing, e_values, q_values, strict=True):
            known = {"e_value": e, "p_value": min(1.0, 1 / e) if e > 0 else 1.0, "q_value": min(1.0, q / self._share)}
            verdict = {"failure": "failure", "hopeless": "not_shown"}.get(verdict, "undetermined")
            rows.append(row(self._work, one, CONFIRMATION, (MEASURE,)) | known | {"verdict": verdict})
        return pa.Table.from_pylist(rows, HYPOTHESES)

    def _draw(self, captions: list[int], baselines: list[int], part: str, doing: str) -> None:
        work = self._work
        wanted = [
            Wanted(caption, CONFIRMATION, part, draws)
            for caption, draws in (
                *zip([work.baselines[label] for label in self.labels], baselines, strict=True),
                *zip(self.captions, captions, strict=True),
            )
            if draws
        ]
        work.drawing.draw(wanted, work.steps, doing)

    def _counts(self, part: str) -> np.ndarray[Any, Any]:
        """For each hypothesis: failures and draws of its caption, failures and draws of its baseline."""
        rows = []
        for one in self.hypotheses:
            sides = (one.caption, self._work.baselines[one.kind.label])
            counts = [self._work.drawing.counts(side, one.kind.classifier, CONFIRMATION, part) for side in sides]
            rows.append([number for side in counts for number in (side.towards(one.kind.target), side.draws)])
        return np.array(rows, np.int64).reshape(-1, 4)


def row(work: Work, one: Hypothesis, stage: str, parts: Sequence[str]) -> HypothesisRow:
    """Returns what these parts of a stage show of a hypothesis: counts, rates and intervals, but no evidence."""
    mine, base = (
        _together(work, one, caption, stage, parts) for caption in (one.caption, work.baselines[one.kind.label])
    )
    target, confidence = one.kind.target, 1 - work.config.alpha
    failures, base_failures = mine.towards(target), base.towards(target)
    ratios = rate_ratios(Trials.of([failures], [mine.draws]), Trials.of([base_failures], [base.draws]), confidence)
    rate, rate_low, rate_high = (float(side[0]) for side in failure_rates([failures], [mine.draws], confidence))
    ratio, ratio_low, ratio_high = (float(side[0]) for side in ratios)
    spent = sum(
        work.drawing.counts(one.caption, one.kind.classifier, stage, part).draws for part in (SEARCH, TEST, MEASURE)
    )
    return {
        "classifier": one.kind.classifier,
        "generator": work.drawing.source,
        "rule": work.config.rule,
        "label": one.kind.label,
        "target": target,
        "caption": one.caption.text,
        "parent_caption": _text(work, one.caption.parent),
        "stage": stage,
        "draws": mine.draws,
        "failures": failures,
        "any_failures": mine.failures,
        "rate": rate,
        "rate_low": rate_low,
        "rate_high": rate_high,
        "baseline_rate": base_failures / base.draws if base.draws else math.nan,
        "ratio": ratio,
        "ratio_low": ratio_low,
        "ratio_high": ratio_high,
        "verdict": "undetermined",
        "caption_id": one.caption.caption_id,
        "origin": one.caption.origin,
        "baseline_draws": base.draws,
        "baseline_failures": base_failures,
        "spent": spent,
        "doubts": [work.doubts[one.kind.label]] if one.kind.label in work.doubts else [],
    }


def discovered(work: Work, hypotheses: Sequence[Hypothesis]) -> pa.Table:
    """Returns rows of `schemas.HYPOTHESES` for the stage discovery: counts of all that was drawn, without a verdict."""
    once = dict.fromkeys(one for one in hypotheses if seen(work, one)[1])
    return pa.Table.from_pylist([row(work, one, DISCOVERY, (SEARCH,)) for one in once], HYPOTHESES)


def _together(work: Work, one: Hypothesis, caption: Candidate, stage: str, parts: Sequence[str]) -> Counts:
    total = Counts()
    for part in parts:
        total.add(work.drawing.counts(caption, one.kind.classifier, stage, part))
    return total


def _text(work: Work, caption_id: str | None) -> str | None:
    return None if caption_id is None else work.candidates[caption_id].text
