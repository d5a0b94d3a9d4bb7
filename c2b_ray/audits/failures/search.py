"""Discovery: finds captions that may make a classifier fail, from failures of the baseline, on its own seeds.

baselines → failures → descriptions → sets of sentences → captions, drawn → shorter captions → hypotheses
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from c2b_ray.audits.failures.confirmation import TEST_SHARE
from c2b_ray.audits.failures.discovery.candidates import written
from c2b_ray.audits.failures.discovery.clusters import Sentences, mine
from c2b_ray.audits.failures.discovery.race import baseline_share, expected_draws
from c2b_ray.audits.failures.discovery.rounds import SAMPLE
from c2b_ray.audits.failures.drawing import DISCOVERY, SEARCH, WantedDraws
from c2b_ray.audits.failures.refinement import (
    RemainingDraws,
    background,
    baseline_rate,
    combined,
    describe_at_once,
    described,
    rate,
    rewrite,
    screen,
    seen,
    shorten,
)
from c2b_ray.audits.failures.state import FailuresState, Hypothesis, Kind

BASELINE_SHARE = 0.75
"""Of the draws of discovery. What fails in none of them is never looked for; captions take few draws to be worth a
test."""
CHUNKS = (0.1, 0.3, 0.6)
SAMPLED = 100
MINED, WHOLE, CONFIRMED = 4, 2, 3
"""Sets of sentences, and descriptions of clusters or single images, that are drawn of each kind; captions of each that
are confirmed."""
UNUSED_SHARE = 0.4
"""If captions leave more than this share of their draws unused, most of the rest go to the baselines."""
SEVERAL = 4
"""From this many failures of a kind on, what they have in common is drawn first; below, a whole description."""
SEEN = 3
"""Once a kind's first caption has this many failures, its other captions are drawn."""
DRAWS_OF_CONFIG = 1_000
"""The most draws of each caption of the config before its most frequent wrong label is chosen."""
FEWEST = 2
"""The fewest failures of a caption that is confirmed because it fails more often than the baseline."""
SURPRISE = 0.2
"""One failure is enough if even a single one is less likely than this at the least rate that is worth finding."""


def discover(work: FailuresState, draws: int) -> list[Hypothesis]:
    """Returns the hypotheses to confirm, found with this many draws.

    Where captions use few of the draws meant for them, most of the rest go to the baselines, whose rarer failures are
    then examined too.
    """
    at_baseline = int(draws * BASELINE_SHARE)
    draw_baselines(work, at_baseline)
    budget = RemainingDraws(draws - sum(work.drawing.spent.values()))
    budget_at_start = budget.left
    configured = _of_the_config(work, budget)
    hypotheses = _tried(work, budget, at_baseline)
    if budget.left > UNUSED_SHARE * budget_at_start and not work.config.captions:
        additional = int(budget.left * BASELINE_SHARE)
        budget.take(additional)
        draws_per_label = additional // len(work.baselines)
        wanted_draws = [
            WantedDraws(caption, DISCOVERY, SEARCH, draws_per_label, examples=2) for caption in work.baselines.values()
        ]
        work.drawing.draw(wanted_draws, work.steps, "draw more of the baselines")
        hypotheses += _tried(work, budget, at_baseline + additional)
    return [*configured, *affordable(work, chosen(work, hypotheses), (work.config.budget.draws - draws) * TEST_SHARE)]


def _tried(work: FailuresState, budget: RemainingDraws, at_baseline: int) -> list[Hypothesis]:
    """Draws captions that the baselines' failures suggest, then shorter forms and other wordings of them."""
    kinds = kinds_of(work)
    most = max(at_baseline // len(work.baselines) // 2, 1)
    describe_at_once(work, [(kind, work.baselines[kind.label]) for kind in kinds], work.baselines)
    clusters = combined(work, kinds)
    by_kind = [_hypotheses(work, kind, sets) for kind, sets in zip(kinds, clusters, strict=True)]
    surest = [_surest(work, group) for group in by_kind if group]
    screen(work, surest, budget, most, SEEN)
    first = [hypothesis for group in by_kind for hypothesis in group]
    screen(work, first, budget, most)
    shorter = shorten(work, promising(work, first), budget, most)
    reworded = rewrite(work, promising(work, [*first, *shorter]), budget, most)
    return [*first, *shorter, *reworded]


def _surest(work: FailuresState, group: Sequence[Hypothesis]) -> Hypothesis:
    """Returns the caption of a kind to draw first.

    For a rare failure only one caption may be affordable, and a whole description is the safest: it holds whatever made
    its image fail, unless the captioner was wrong about it. Where there are several failures, what they have in common
    is safer, because a captioner's mistake is not shared.
    """
    kind = group[0].kind
    if len(described(work, kind, work.baselines[kind.label])) >= SEVERAL:
        return group[0]
    return max(group, key=lambda hypothesis: len(hypothesis.caption.sentences))


def draw_baselines(work: FailuresState, draws: int) -> None:
    """Draws the baseline of each label, in equal parts, and keeps a random sample of its images."""
    draws_per_label = max(draws // len(work.baselines), 1)
    sampled = min(SAMPLED, max(draws_per_label // 10, 1))
    captions = list(work.baselines.values())
    if work.describing is not None or work.config.verifier is not None:
        wanted_draws = [WantedDraws(caption, DISCOVERY, SAMPLE, sampled) for caption in captions]
        work.drawing.draw(wanted_draws, work.steps, "draw a sample of each label")
        draws_per_label = max(draws_per_label - sampled, 1)
    for number, share in enumerate(CHUNKS):
        chunk = (
            draws_per_label - sum(int(draws_per_label * other) for other in CHUNKS[:-1])
            if share == CHUNKS[-1]
            else int(draws_per_label * share)
        )
        wanted_draws = [WantedDraws(caption, DISCOVERY, SEARCH, chunk, examples=2) for caption in captions]
        work.drawing.draw(wanted_draws, work.steps, f"draw baselines, part {number + 1} of {len(CHUNKS)}")


def kinds_of(work: FailuresState) -> list[Kind]:
    """Returns the wrong labels given to baseline images, most frequent first, and then any failure."""
    kinds = []
    for decider in work.drawing.deciders:
        for label, caption in work.baselines.items():
            counts = work.drawing.counts(caption, decider.classifier, DISCOVERY, SEARCH)
            configured = (work.config.targets or {}).get(label)
            targets = configured or [
                name for name, _ in sorted(counts.taken_for.items(), key=lambda item: (-item[1], item[0]))
            ]
            kinds += [Kind(decider.classifier, label, target) for target in targets]
            if counts.failures and configured is None:
                kinds.append(Kind(decider.classifier, label, None))
    return kinds


def _of_the_config(work: FailuresState, budget: RemainingDraws) -> list[Hypothesis]:
    """Returns the config's own captions, which are confirmed whatever discovery shows: for any failure, and for the
    most frequent wrong label."""
    captions = [work.register(written(text, work.config.labels, "file", "captions")) for text in work.config.captions]
    names = [decider.classifier for decider in work.drawing.deciders]
    of_any = [Hypothesis(Kind(name, caption.label, None), caption) for caption in captions for name in names]
    screen(work, of_any, budget, DRAWS_OF_CONFIG)
    result = []
    for hypothesis in of_any:
        counts = work.drawing.counts(hypothesis.caption, hypothesis.kind.classifier, DISCOVERY, SEARCH)
        labels = (work.config.targets or {}).get(hypothesis.kind.label) or [
            name for name, _ in counts.taken_for.most_common(1)
        ]
        result += [
            hypothesis,
            *(replace(hypothesis, kind=replace(hypothesis.kind, target=target)) for target in labels),
        ]
    return result


def _hypotheses(work: FailuresState, kind: Kind, clusters: Sequence[Sentences]) -> list[Hypothesis]:
    """Returns captions that failures of a kind suggest: what the failures have in common, and the best descriptions of
    clusters of them; whole descriptions where no model scores captions."""
    if work.describing is None:
        return []
    base = work.baselines[kind.label]
    failures = described(work, kind, base)
    common = mine(failures, background(work, kind.label), MINED)
    sets: dict[frozenset[str], Sentences] = {}  # in another order they say the same
    for sentence_set in [*(mined.sentences for mined in common), *list(clusters or failures)[:WHOLE]]:
        sets.setdefault(frozenset(sentence_set), sentence_set)
    captions = [work.caption(kind.label, sentences, "cluster") for sentences in sets.values() if sentences]
    return [Hypothesis(kind, caption) for caption in dict.fromkeys(captions)]


def promising(work: FailuresState, hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Returns the hypotheses that failed often enough on the seeds of discovery."""
    return [hypothesis for hypothesis in hypotheses if _is_promising(work, hypothesis)]


def _is_promising(work: FailuresState, hypothesis: Hypothesis) -> bool:
    failures, draws = seen(work, hypothesis)
    least = work.config.smallest_ratio * baseline_rate(work, hypothesis.kind)
    if not failures or failures <= draws * least:
        return False
    return failures >= FEWEST or 1 - math.exp(-draws * least) < SURPRISE


def chosen(work: FailuresState, hypotheses: Sequence[Hypothesis]) -> list[list[Hypothesis]]:
    """Returns for each kind the captions to confirm: the shortest whose rate may equal the highest, then those with the
    highest lower limits.

    The highest of many rates is the highest by chance too, so a rate is given its own error besides.
    """
    by_kind: dict[Kind, list[Hypothesis]] = {}
    for hypothesis in promising(work, hypotheses):
        by_kind.setdefault(hypothesis.kind, []).append(hypothesis)
    result = []
    for group in by_kind.values():
        once = list(dict.fromkeys(group))
        once.sort(
            key=lambda hypothesis: (
                -_certain(work, hypothesis),
                len(hypothesis.caption.sentences),
                hypothesis.caption.text,
            )
        )
        candidates = [hypothesis for hypothesis in once if _possible(work, hypothesis) >= _certain(work, once[0])]
        shortest = min(candidates, key=lambda hypothesis: len(hypothesis.caption.sentences))
        result.append(list(dict.fromkeys([shortest, *once]))[:CONFIRMED])
    return result


def affordable(work: FailuresState, groups: Sequence[Sequence[Hypothesis]], draws: float) -> list[Hypothesis]:
    """Returns the first caption of each kind, and further ones while the draws of the test are likely to decide all of
    them.

    More hypotheses would leave all undecided: each takes draws, and raises the evidence that the others need.
    """
    result = [group[0] for group in groups]
    further = sorted(
        ((rank, hypothesis) for group in groups for rank, hypothesis in enumerate(group[1:])), key=lambda pair: pair[0]
    )
    for _, hypothesis in further:
        if _to_decide(work, [*result, hypothesis]) > draws:
            break
        result.append(hypothesis)
    return result


def _to_decide(work: FailuresState, hypotheses: Sequence[Hypothesis]) -> float:
    """Returns how many draws a test of all hypotheses takes, baselines included, if the rates are as seen."""
    rates, bases = (
        [rate(work, hypothesis) for hypothesis in hypotheses],
        [baseline_rate(work, hypothesis.kind) for hypothesis in hypotheses],
    )
    share = baseline_share(len({hypothesis.caption for hypothesis in hypotheses}))
    draws_needed = expected_draws(
        rates, bases, share, len(hypotheses) / work.config.alpha, worth=work.config.smallest_ratio
    )
    of_caption: dict[str, float] = {}
    of_label: dict[str, float] = {}
    for hypothesis, count in zip(hypotheses, draws_needed.tolist(), strict=True):
        of_caption[hypothesis.caption.caption_id] = max(of_caption.get(hypothesis.caption.caption_id, 0.0), count)
        of_label[hypothesis.kind.label] = max(of_label.get(hypothesis.kind.label, 0.0), count * share)
    return sum(of_caption.values()) + sum(of_label.values())


def _certain(work: FailuresState, hypothesis: Hypothesis) -> float:
    """Returns a lower limit of the rate: one standard error below the estimate."""
    failures, draws = seen(work, hypothesis)
    return max(failures - failures**0.5, 0.1) / draws if draws else 0.0


def _possible(work: FailuresState, hypothesis: Hypothesis) -> float:
    """Returns an upper limit of the rate: one standard error above the estimate."""
    failures, draws = seen(work, hypothesis)
    return (failures + failures**0.5) / draws if draws else 0.0
