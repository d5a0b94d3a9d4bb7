"""Confirmation: tests hypotheses against their baselines on fresh seeds, then measures all rates on further seeds.

    hypotheses → test, until e-BH has decided or the draws end → measure, with draws fixed in advance → a table

Draws of discovery take no part in it; they only set how many draws the test begins with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray.audits.failures.discovery.candidates import Candidate
from c2b_ray.audits.failures.discovery.race import Race, RaceTerms, measure_draws, next_draws
from c2b_ray.audits.failures.discovery.rounds_stage import RoundStage
from c2b_ray.audits.failures.drawing import (
    CONFIRMATION,
    DISCOVERY,
    MEASURE,
    SEARCH,
    TEST,
    Counts,
    GeneratorSource,
    IndexSource,
    RoundDrawing,
    WantedDraws,
    generated,
    indexed,
)
from c2b_ray.audits.failures.labelled import Output, answers_to, rows_of, without_copies
from c2b_ray.audits.failures.refinement import baseline_rate, rate, seen
from c2b_ray.audits.failures.state import FailuresState, Hypothesis
from c2b_ray.errors import ConfigError
from c2b_ray.stats.rates import Trials, failure_rates, mann_whitney, rate_ratios
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.tables import HYPOTHESES, TRANSFERS, seed_of
from c2b_ray.tables.failures import HypothesisRow, TransferRow

TEST_SHARE = 0.8
"""Of the draws of confirmation; the others measure."""
LEAST_MEASURED = 200


class Confirmation:
    """The hypotheses of a run, in a fixed order, with the captions and labels that they share."""

    def __init__(self, work: FailuresState, hypotheses: Sequence[Hypothesis], share: float = 1.0) -> None:
        """`share`: the share of the run's alpha that these hypotheses have to themselves."""
        self._work, self._share = work, share
        self.hypotheses = list(dict.fromkeys(hypotheses))
        self.captions = list(dict.fromkeys(hypothesis.caption for hypothesis in self.hypotheses))
        self.labels = list(dict.fromkeys(hypothesis.kind.label for hypothesis in self.hypotheses))
        caption = [self.captions.index(hypothesis.caption) for hypothesis in self.hypotheses]
        label = [self.labels.index(hypothesis.kind.label) for hypothesis in self.hypotheses]
        expected = [
            rate(work, hypothesis) / baseline_rate(work, hypothesis.kind) or math.nan for hypothesis in self.hypotheses
        ]
        terms = RaceTerms(alpha=work.config.alpha * share, worth=work.config.smallest_ratio)
        self.race = Race.start(caption, label, terms, expected)

    def test(self, draws: int) -> None:
        """Draws captions and their baselines until every hypothesis is decided or the draws end."""
        remaining = draws
        while self.hypotheses:
            plan = next_draws(self.race, remaining)
            if not plan.total:
                return
            counts_before = self._counts(TEST)
            remaining -= plan.total
            self._draw(plan.captions.tolist(), plan.baselines.tolist(), TEST, "draw on fresh seeds, to confirm")
            counts_after = self._counts(TEST)
            if np.array_equal(counts_before[:, 1::2], counts_after[:, 1::2]):  # no image of them could be used
                return
            self.race = self.race.after(*(counts_after - counts_before).T)

    def measure(self, draws: int) -> None:
        """Draws each caption often enough to know its rate; the number is fixed before the first of these draws.

        Each caption gets a few draws. The rest goes to the findings, whose rates may be rare, and to their baselines.
        """
        if not self.hypotheses:
            return
        least = self._least(draws)
        remaining = draws - least * self._arms
        plan = measure_draws(self.race, remaining, remaining)
        captions, baselines = np.maximum(plan.captions, least), np.maximum(plan.baselines, least)
        self._draw(captions.tolist(), baselines.tolist(), MEASURE, "draw on fresh seeds, to measure rates")

    def spare(self, draws: int) -> int:
        """Returns how many of these draws measuring does not need; 0 where no hypothesis is open that they might
        decide."""
        if not (self.race.verdicts == "open").any():
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
        return [
            hypothesis
            for hypothesis, verdict in zip(self.hypotheses, self.race.verdicts, strict=True)
            if verdict == "failure"
        ]

    def table(self) -> pa.Table:
        """Returns the rows of `tables.HYPOTHESES` for the stage confirmation."""
        verdicts, q_values = self.race.verdicts.tolist(), self.race.q_values.tolist()
        e_values = self.race.evidence.e_values.tolist()
        rows = []
        for hypothesis, verdict, e, q in zip(self.hypotheses, verdicts, e_values, q_values, strict=True):
            evidence = {
                "e_value": e,
                "p_value": min(1.0, 1 / e) if e > 0 else 1.0,
                "q_value": min(1.0, q / self._share),
            }
            verdict = {"failure": "failure", "hopeless": "not_shown"}.get(verdict, "undetermined")
            rows.append(row(self._work, hypothesis, CONFIRMATION, (MEASURE,)) | evidence | {"verdict": verdict})
        return pa.Table.from_pylist(rows, HYPOTHESES)

    def _draw(self, captions: list[int], baselines: list[int], part: str, step_name: str) -> None:
        work = self._work
        wanted_draws = [
            WantedDraws(caption, CONFIRMATION, part, draws)
            for caption, draws in (
                *zip([work.baselines[label] for label in self.labels], baselines, strict=True),
                *zip(self.captions, captions, strict=True),
            )
            if draws
        ]
        work.drawing.draw(wanted_draws, work.steps, step_name)

    def _counts(self, part: str) -> np.ndarray[Any, Any]:
        """For each hypothesis: failures and draws of its caption, failures and draws of its baseline."""
        rows = []
        for hypothesis in self.hypotheses:
            sides = (hypothesis.caption, self._work.baselines[hypothesis.kind.label])
            counts = [self._work.drawing.counts(side, hypothesis.kind.classifier, CONFIRMATION, part) for side in sides]
            rows.append([number for side in counts for number in (side.towards(hypothesis.kind.target), side.draws)])
        return np.array(rows, np.int64).reshape(-1, 4)


def row(work: FailuresState, hypothesis: Hypothesis, stage: str, parts: Sequence[str]) -> HypothesisRow:
    """Returns what these parts of a stage show of a hypothesis: counts, rates and intervals, but no evidence."""
    counts, baseline_counts = (
        _sum_counts(work, hypothesis, caption, stage, parts)
        for caption in (hypothesis.caption, work.baselines[hypothesis.kind.label])
    )
    target, confidence = hypothesis.kind.target, 1 - work.config.alpha
    failures, base_failures = counts.towards(target), baseline_counts.towards(target)
    ratios = rate_ratios(
        Trials.of([failures], [counts.draws]), Trials.of([base_failures], [baseline_counts.draws]), confidence
    )
    rate, rate_low, rate_high = (float(side[0]) for side in failure_rates([failures], [counts.draws], confidence))
    ratio, ratio_low, ratio_high = (float(side[0]) for side in ratios)
    spent = sum(
        work.drawing.counts(hypothesis.caption, hypothesis.kind.classifier, stage, part).draws
        for part in (SEARCH, TEST, MEASURE)
    )
    return {
        "classifier": hypothesis.kind.classifier,
        "generator": work.drawing.source,
        "rule": work.config.rule,
        "label": hypothesis.kind.label,
        "target": target,
        "caption": hypothesis.caption.text,
        "parent_caption": None
        if hypothesis.caption.parent is None
        else work.candidates[hypothesis.caption.parent].text,
        "stage": stage,
        "draws": counts.draws,
        "failures": failures,
        "any_failures": counts.failures,
        "rate": rate,
        "rate_low": rate_low,
        "rate_high": rate_high,
        "baseline_rate": base_failures / baseline_counts.draws if baseline_counts.draws else math.nan,
        "ratio": ratio,
        "ratio_low": ratio_low,
        "ratio_high": ratio_high,
        "verdict": "undetermined",
        "caption_id": hypothesis.caption.caption_id,
        "origin": hypothesis.caption.origin,
        "baseline_draws": baseline_counts.draws,
        "baseline_failures": base_failures,
        "spent": spent,
        "doubts": [work.doubts[hypothesis.kind.label]] if hypothesis.kind.label in work.doubts else [],
    }


def discovered(work: FailuresState, hypotheses: Sequence[Hypothesis]) -> pa.Table:
    """Returns rows of `tables.HYPOTHESES` for the stage discovery: counts of all that was drawn, without a verdict."""
    once = dict.fromkeys(hypothesis for hypothesis in hypotheses if seen(work, hypothesis)[1])
    return pa.Table.from_pylist([row(work, hypothesis, DISCOVERY, (SEARCH,)) for hypothesis in once], HYPOTHESES)


def _sum_counts(
    work: FailuresState, hypothesis: Hypothesis, caption: Candidate, stage: str, parts: Sequence[str]
) -> Counts:
    total = Counts()
    for part in parts:
        total.add(work.drawing.counts(caption, hypothesis.kind.classifier, stage, part))
    return total


# Failure rates of real, labelled images, next to those of the baselines: rows of `tables.TRANSFERS`.


def transfer_rows(work: FailuresState) -> list[TransferRow]:
    """Returns a row per label and classifier; no rows without `labelled`."""
    if work.config.labelled is None:
        return []
    images = LabelledTable(work.config.labelled, "labelled")
    rows, answered = rows_of(images, work.config, ())
    if not rows:
        raise ConfigError("labelled", f"no row of {images.location} has one of the run's labels as its target_class")
    for sentence in images.left_out.sentences():
        work.steps.warn(sentence)
    with work.steps.step("find copies") as on_progress:
        rows, answered = without_copies(images, rows, answered, Output(work.run, work.models.runner, on_progress))
    classifiers = work.drawing.stage.classifiers
    with work.steps.step("classify labelled images") as on_progress:
        output = Output(work.run, work.models.runner, on_progress)
        answers = answers_to(images, rows, answered, classifiers, output)
    result: list[TransferRow] = []
    for label, caption in work.baselines.items():
        of_label = answered.of_label(label)
        for name, answered_mask in answers.known.items():
            counts = work.drawing.counts(caption, name, DISCOVERY, SEARCH)
            failures = int(np.sum(answers.failed[name] & answered_mask & of_label))
            result.append(
                {
                    "caption_id": caption.caption_id,
                    "label": label,
                    "target": None,
                    "source": images.location,
                    "classifier": name,
                    "draws": int(np.sum(answered_mask & of_label)),
                    "failures": failures,
                    "any_failures": failures,
                    "baseline_draws": counts.draws,
                    "baseline_failures": counts.failures,
                    "rates": [],
                    "baseline_rates": [],
                    "p_value": None,
                }
            )
    return result


# Tests the captions of findings elsewhere: with other classifiers, other generators, and the images of an index.


RUNS = "runs"


def generalise(work: FailuresState, findings: Sequence[Hypothesis]) -> None:
    """Writes `tables.TRANSFERS`. With a section `generalise`: runs of every source; without one: the other classifiers
    on the draws that measured the findings."""
    rows: list[TransferRow] = []
    if work.config.generalise is None:
        rows += [row for finding in findings for row in _rows(work, finding, work.drawing, MEASURE, is_elsewhere=False)]
    else:
        captions = list(
            dict.fromkeys(c for finding in findings for c in (work.baselines[finding.kind.label], finding.caption))
        )
        for drawing in _elsewhere(work, captions) if captions else ():
            rows += [row for finding in findings for row in _rows(work, finding, drawing, RUNS, is_elsewhere=True)]
    rows += transfer_rows(work)
    if rows or work.config.generalise is not None:
        work.run.write("transfers", pa.Table.from_pylist(rows, TRANSFERS))


def _elsewhere(work: FailuresState, captions: Sequence[Candidate]) -> Iterator[RoundDrawing]:
    """Draws the runs of these captions and returns every source, the run's own first."""
    section, models = work.config.generalise, work.models
    assert section is not None
    seed = seed_of("generalise", work.config.seed)
    sources: list[GeneratorSource | IndexSource] = [
        generated(spec, models, seed) for spec in dict.fromkeys((work.drawing.source, *section.generators))
    ]
    if section.index is not None:
        sources.append(indexed(section.index, captions, section.runs * section.images, models))
    for source in sources:
        classifiers = work.drawing.stage.classifiers
        stage = RoundStage(work.models.runner, source.load, classifiers, work.run.location("rounds"), seed)
        drawing = RoundDrawing(work.run, stage, source, work.drawing.deciders, section.images)
        wanted_draws = [WantedDraws(caption, CONFIRMATION, RUNS, section.runs * section.images) for caption in captions]
        drawing.draw(wanted_draws, work.steps, f"generalise: {source.name}")
        yield drawing


def _rows(
    work: FailuresState, finding: Hypothesis, drawing: RoundDrawing, part: str, is_elsewhere: bool
) -> Iterator[TransferRow]:
    """Returns a row per classifier; the finding's own classifier only where the images are new to it."""
    base = work.baselines[finding.kind.label]
    for decider in drawing.deciders:
        name, target = decider.classifier, finding.kind.target
        if name == finding.kind.classifier and not is_elsewhere:
            continue
        counts, baseline_counts = (
            drawing.counts(caption, name, CONFIRMATION, part) for caption in (finding.caption, base)
        )
        x, y = (
            drawing.rates(caption, name, part, target) if is_elsewhere else [] for caption in (finding.caption, base)
        )
        yield {
            "caption_id": finding.caption.caption_id,
            "label": finding.kind.label,
            "target": target,
            "source": drawing.source,
            "classifier": name,
            "draws": counts.draws,
            "failures": counts.towards(target),
            "any_failures": counts.failures,
            "baseline_draws": baseline_counts.draws,
            "baseline_failures": baseline_counts.towards(target),
            "rates": x,
            "baseline_rates": y,
            "p_value": mann_whitney(x, y).p_value if x and y else None,
        }
