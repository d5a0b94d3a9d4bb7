"""The hypotheses of a run as typed rows: a caption, a classifier, the target of failures, and the numbers.

Knows the tables of `tables.failures`; null or missing numbers become NaN. Knows nothing of pages.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pyarrow as pa

DISCOVERY, CONFIRMATION = "discovery", "confirmation"
FAILURE, NOT_SHOWN, UNDETERMINED = "failure", "not_shown", "undetermined"
BASELINE = "baseline"
MEASURE = "measure"


@dataclass(frozen=True)
class Hypothesis:
    """A row of `tables.HYPOTHESES`. `sentences`: what stands behind the baseline's prompt; empty where the caption is
    a text of its own. `target`: None for any failure."""

    classifier: str
    generator: str
    label: str
    target: str | None
    caption: str
    caption_id: str
    parent_caption: str | None
    origin: str
    stage: str
    sentences: tuple[str, ...]
    draws: int
    failures: int
    any_failures: int
    rate: float
    rate_low: float
    rate_high: float
    baseline_rate: float
    ratio: float
    ratio_low: float
    ratio_high: float
    p_value: float
    e_value: float
    q_value: float
    verdict: str
    baseline_draws: int
    baseline_failures: int
    spent: int
    doubts: tuple[str, ...]
    clusters: int | None = None

    @property
    def confirmed(self) -> bool:
        return self.verdict == FAILURE

    @property
    def excess(self) -> float:
        """Returns a lower bound on how much more often the caption fails than the baseline, by which findings are
        ordered."""
        low, baseline = (0.0 if value != value else value for value in (self.rate_low, self.baseline_rate))
        return low - baseline

    @property
    def length(self) -> int:
        """Returns the number of words that the caption adds to the baseline's."""
        return len(" ".join(self.sentences or (self.caption,)).split())


_NUMBERS = tuple(field.name for field in fields(Hypothesis) if field.type == "float")


@dataclass(frozen=True)
class Baseline:
    """A label's baseline caption."""

    caption_id: str
    text: str


def hypotheses_of(table: pa.Table, candidates: pa.Table, stage: str = CONFIRMATION) -> list[Hypothesis]:
    """Returns the stage's hypotheses except those about the baseline itself, in the table's order."""
    sentences = dict(zip(*(candidates[name].to_pylist() for name in ("caption_id", "sentences")), strict=True))
    return [
        _hypothesis(row, tuple(sentences.get(row["caption_id"]) or ()))
        for row in table.to_pylist()
        if row["stage"] == stage and row["origin"] != BASELINE
    ]


def baselines_of(candidates: pa.Table) -> dict[str, Baseline]:
    """Returns the baseline caption of each label."""
    return {
        row["label"]: Baseline(row["caption_id"], row["text"])
        for row in candidates.to_pylist()
        if row["origin"] == BASELINE
    }


def _hypothesis(row: Mapping[str, Any], sentences: tuple[str, ...]) -> Hypothesis:
    numbers = {name: float("nan") if row[name] is None else float(row[name]) for name in _NUMBERS}
    plain = {name: row[name] for name in Hypothesis.__dataclass_fields__ if name in row and name not in _NUMBERS}
    return Hypothesis(**{**plain, **numbers, "sentences": sentences, "doubts": tuple(row["doubts"] or ())})


# Totals over rounds: for each caption, classifier, generator and stage the draws, failures and wrong answers.


COLUMNS = [
    "caption_id", "stage", "part", "generator", "classifier", "first", "draws", "unusable", "reasons", "failures",
    "predicted", "counts", "seconds",
]  # fmt: skip
UNDECIDED = "no single label"


def share(part: int, whole: int) -> float:
    """Returns part / whole; NaN where `whole` is 0."""
    return part / whole if whole else math.nan


@dataclass
class Tally:
    """A total. `taken`: the number of failures by wrong answer; failures without a single likeliest label are
    `UNDECIDED`."""

    draws: int = 0
    failures: int = 0
    taken: Counter[str] = field(default_factory=Counter)

    def towards(self, target: str | None) -> int:
        return self.failures if target is None else self.taken[target]

    def add(self, row: Mapping[str, Any]) -> None:
        by_label = dict(zip(row["predicted"], row["counts"], strict=True))
        self.draws += row["draws"]
        self.failures += row["failures"]
        self.taken.update(by_label)
        if undecided := row["failures"] - sum(by_label.values()):
            self.taken[UNDECIDED] += undecided


@dataclass(frozen=True)
class DrawnImages:
    """Images drawn of a stage and part, each counted once for all classifiers; `reasons`: why some were unusable."""

    images: int
    unusable: int
    seconds: float
    reasons: tuple[str, ...]


NOTHING = DrawnImages(0, 0, 0.0, ())

TallyKey = tuple[str, str, str]


@dataclass(frozen=True)
class Tallies:
    """By (caption, classifier, generator)."""

    confirmed: Mapping[TallyKey, Tally]
    discovered: Mapping[TallyKey, Tally]
    efforts: Mapping[tuple[str, str], DrawnImages]

    def of(self, caption_id: str, classifier: str, generator: str) -> Tally:
        """Returns the tally of confirmation; an empty one where a caption was not drawn there."""
        return self.confirmed.get((caption_id, classifier, generator), Tally())


def tallies_of(rounds: pa.Table, counted: Collection[str] | None = None) -> Tallies:
    """`rounds`: of `COLUMNS`; `counted`: captions whose images count as effort, by default all."""
    measured: dict[TallyKey, Tally] = {}
    confirmed: dict[TallyKey, Tally] = {}
    discovered: dict[TallyKey, Tally] = {}
    effort_of_images: dict[tuple[str, str, str, str, int], DrawnImages] = {}
    for row in _rows(rounds):
        key = row["caption_id"], row["classifier"], row["generator"]
        (confirmed if row["stage"] == CONFIRMATION else discovered).setdefault(key, Tally()).add(row)
        if row["part"] == MEASURE:
            measured.setdefault(key, Tally()).add(row)
        if counted is None or row["caption_id"] in counted:
            images = row["stage"], row["part"], row["caption_id"], row["generator"], row["first"]
            effort_of_images[images] = _larger(effort_of_images.get(images, NOTHING), _effort(row))
    return Tallies({**confirmed, **measured}, discovered, _efforts(effort_of_images))


def _rows(rounds: pa.Table) -> Iterable[Mapping[str, Any]]:
    for batch in rounds.select(COLUMNS).to_batches(max_chunksize=10_000):
        yield from batch.to_pylist()


def _effort(row: Mapping[str, Any]) -> DrawnImages:
    return DrawnImages(row["draws"] + row["unusable"], row["unusable"], row["seconds"], tuple(row["reasons"]))


def _larger(a: DrawnImages, b: DrawnImages) -> DrawnImages:
    """Returns the larger of two efforts on the same images, as classifiers differ in the images that they can use."""
    reasons = tuple(dict.fromkeys((*a.reasons, *b.reasons)))
    return DrawnImages(max(a.images, b.images), max(a.unusable, b.unusable), max(a.seconds, b.seconds), reasons)


def _efforts(
    effort_of_images: Mapping[tuple[str, str, str, str, int], DrawnImages],
) -> dict[tuple[str, str], DrawnImages]:
    efforts: dict[tuple[str, str], DrawnImages] = {}
    for (stage, part, *_), effort in effort_of_images.items():
        so_far = efforts.get((stage, part), NOTHING)
        efforts[stage, part] = DrawnImages(
            so_far.images + effort.images,
            so_far.unusable + effort.unusable,
            so_far.seconds + effort.seconds,
            tuple(dict.fromkeys((*so_far.reasons, *effort.reasons))),
        )
    return efforts


# Groups confirmed captions with the same meaning: a finding is shown once, by its shortest caption, with the others
# beneath it.


MORE = 2.0  # times as often as the shorter caption, to be a finding of its own
_REWRITTEN = "language_model"

Key = tuple[str, str, str, str | None]


@dataclass(frozen=True)
class Finding:
    """`alike`: confirmed captions that say the same in more or other words, the strongest first, those where any
    failure counts last; `anyhow`: the lead's caption where any failure counts, if the lead is towards one label and
    that is confirmed too."""

    lead: Hypothesis
    alike: tuple[Hypothesis, ...] = ()
    anyhow: Hypothesis | None = None

    @property
    def captions(self) -> tuple[Hypothesis, ...]:
        return (self.lead, *self.alike)

    @property
    def confirmed(self) -> tuple[Hypothesis, ...]:
        return (*self.captions, *([self.anyhow] if self.anyhow else []))


def findings_of(hypotheses: Sequence[Hypothesis]) -> list[Finding]:
    """Returns the confirmed failures as findings, those with the largest excess over the baseline first."""
    confirmed = [hypothesis for hypothesis in hypotheses if hypothesis.confirmed]
    towards = {_where(hypothesis): hypothesis for hypothesis in confirmed if hypothesis.target is not None}
    groups: dict[Key, list[Hypothesis]] = {}
    for hypothesis in confirmed:
        if hypothesis.target is not None or _where(hypothesis) not in towards:
            groups.setdefault(
                (hypothesis.classifier, hypothesis.generator, hypothesis.label, hypothesis.target), []
            ).append(hypothesis)
    any_failure_of = {_where(hypothesis): hypothesis for hypothesis in confirmed if hypothesis.target is None}
    findings = [finding for group in groups.values() for finding in _folded(group)]
    findings = [
        Finding(
            folded_finding.lead,
            folded_finding.alike,
            any_failure_of.get(_where(folded_finding.lead)) if folded_finding.lead.target is not None else None,
        )
        for folded_finding in findings
    ]
    findings = _without_repeats(findings)
    return sorted(
        findings,
        key=lambda folded_finding: (
            -folded_finding.lead.excess,
            folded_finding.lead.caption,
            folded_finding.lead.classifier,
        ),
    )


def _without_repeats(findings: Sequence[Finding]) -> list[Finding]:
    """A finding of any failure joins one towards a label that says the same and fails as often."""
    result = [finding for finding in findings if finding.lead.target is not None]
    for finding in (candidate for candidate in findings if candidate.lead.target is None):
        i = next((i for i, candidate in enumerate(result) if _repeats(candidate.lead, finding.lead)), None)
        if i is None:
            result.append(finding)
        else:
            result[i] = replace(result[i], alike=(*result[i].alike, *finding.captions))
    return result


def _repeats(towards: Hypothesis, any_failure: Hypothesis) -> bool:
    is_same_place = (towards.classifier, towards.generator, towards.label) == (
        any_failure.classifier,
        any_failure.generator,
        any_failure.label,
    )
    rate = towards.any_failures / towards.draws if towards.draws else 0.0
    return is_same_place and towards.target is not None and says_the_same(replace(towards, rate=rate), any_failure)


def _where(hypothesis: Hypothesis) -> tuple[str, str, str]:
    return hypothesis.classifier, hypothesis.generator, hypothesis.caption_id


def _folded(group: Sequence[Hypothesis]) -> list[Finding]:
    leads: list[tuple[Hypothesis, list[Hypothesis]]] = []
    for hypothesis in sorted(group, key=lambda candidate: (candidate.length, -candidate.excess, candidate.caption)):
        same = next((similar for lead, similar in leads if says_the_same(lead, hypothesis)), None)
        if same is None:
            leads.append((hypothesis, []))
        else:
            same.append(hypothesis)
    return [Finding(lead, tuple(sorted(similar, key=lambda candidate: -candidate.excess))) for lead, similar in leads]


def says_the_same(shorter: Hypothesis, longer: Hypothesis) -> bool:
    """Tells whether the longer caption includes the meaning of the shorter one and does not fail far more often."""
    if longer.rate_low > MORE * shorter.rate:
        return False
    if _REWRITTEN in (longer.origin, shorter.origin) and (
        longer.parent_caption == shorter.caption or shorter.parent_caption == longer.caption
    ):
        return True
    return bool(shorter.sentences) and all(
        any(_contains(sentence, part) for sentence in longer.sentences) for part in shorter.sentences
    )


def _contains(sentence: str, part: str) -> bool:
    """Tells whether `part` results from dropping inner words of `sentence`, keeping its first and last word."""
    words, part_words = (text.lower().rstrip(". ").split() for text in (sentence, part))
    if not part_words or not words or words[0] != part_words[0] or words[-1] != part_words[-1]:
        return False
    remaining = iter(words)
    return all(word in remaining for word in part_words)
