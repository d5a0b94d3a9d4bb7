"""Says which captions a search among generated images tried, and which failure rate of another it would have found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import combinations

from c2b_ray.audits.failures.confirmation import TEST_SHARE, Confirmation
from c2b_ray.audits.failures.discovery import FEWEST, SURPRISE
from c2b_ray.audits.failures.drawing import CONFIRMATION, DISCOVERY, SEARCH, TEST
from c2b_ray.audits.failures.failing import described
from c2b_ray.audits.failures.screening import FIRST, GOAL, GROWTH, baseline_rate
from c2b_ray.audits.failures.work import Kind, Work
from c2b_ray.steps.discovery.candidates import Candidate
from c2b_ray.steps.discovery.power import POWER, Confirming, Screening, least_caption_rate
from c2b_ray.store.failures_run import CaptionReach, CaptionSearch

SIZES = 3
"""Captions are counted by their sentences: one, two, three or more."""


def reach_of(work: Work, confirmation: Confirmation) -> CaptionSearch:
    """Returns what was tried for each classifier and label. The least rates are those of one more caption of a label,
    if it is proposed and drawn, with the label's share of the draws that this run had for its test."""
    config, labels = work.config, len(work.baselines)
    in_discovery = sum(count for (stage, _), count in work.drawing.spent.items() if stage == DISCOVERY)
    at_test = (config.budget.draws - in_discovery) * TEST_SHARE / labels
    tested = Confirming(
        at_test,
        (len(confirmation.hypotheses) + 1) / (len(confirmation.findings) + 1),
        config.alpha,
        config.smallest_ratio,
    )
    rows = [
        _of_label(work, confirmation, decider.classifier, label, tested)
        for decider in work.drawing.deciders
        for label in work.baselines
    ]
    return CaptionSearch(power=POWER, tested=len(confirmation.hypotheses), draws_of_label=int(at_test), labels=rows)


def _of_label(work: Work, confirmation: Confirmation, classifier: str, label: str, tested: Confirming) -> CaptionReach:
    base, any_failure = work.baselines[label], Kind(classifier, label, None)
    proposed = [one for one in work.candidates.values() if one.label == label and one.origin != "baseline"]
    screened = [one for one in proposed if work.drawing.counts(one, classifier, DISCOVERY, SEARCH).draws]
    confirmed = {
        one.caption.caption_id
        for one in confirmation.hypotheses
        if one.kind.classifier == classifier and work.drawing.counts(one.caption, classifier, CONFIRMATION, TEST).draws
    }
    images, usual = work.drawing.counts(base, classifier, DISCOVERY, SEARCH).draws, baseline_rate(work, any_failure)
    said = [] if work.describing is None else described(work, any_failure, base)
    pairs = _pairs(said)
    most = max(images // 2, 1)
    screening = Screening(most, FIRST, GROWTH, GOAL, FEWEST, SURPRISE)
    return CaptionReach(
        classifier=classifier,
        label=label,
        images=images,
        usual=usual,
        proposed=_by_size(proposed),
        screened=_by_size(screened),
        tested=_by_size(one for one in proposed if one.caption_id in confirmed),
        pairs=len(pairs),
        pairs_not_tried=len(pairs - _pairs(one.sentences for one in screened)),
        least=least_caption_rate(usual, screening, tested),
    )


def _by_size(captions: Iterable[Candidate]) -> list[int]:
    counts = Counter(min(max(len(one.sentences), 1), SIZES) for one in captions)
    return [counts[size] for size in range(1, SIZES + 1)]


def _pairs(several: Iterable[Iterable[str]]) -> set[tuple[str, str]]:
    """Returns every two sentences that stand together."""
    return {(a, b) for sentences in several for a, b in combinations(sorted(set(sentences)), 2)}
