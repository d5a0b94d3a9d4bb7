"""Sentences that describe failing images, and draws of captions with them that may fail more often."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from c2b_ray.audits.failures.discovery.candidates import Candidate, rewrite_request, rewrites, without_adjectives
from c2b_ray.audits.failures.discovery.clusters import MOST_REFERENCE, Background, Sentences, combine_all
from c2b_ray.audits.failures.drawing import DISCOVERY, ENOUGH, SEARCH, Counts, WantedDraws
from c2b_ray.audits.failures.run import FailuresRun
from c2b_ray.audits.failures.state import FailuresState, Hypothesis, Kind
from c2b_ray.audits.kit.models import language_model_row
from c2b_ray.audits.kit.session import Steps
from c2b_ray.engine.images import of_revision
from c2b_ray.engine.stage import Runner
from c2b_ray.names import mentions
from c2b_ray.roles import Captioner, ChatReply, TextImageEncoder
from c2b_ray.storage.parts import writing
from c2b_ray.tables import DESCRIPTIONS, content_id

# What failing images show, and what a label's ordinary images show: sentences of the captioner.


# Finds clusters of failures and the sentences that describe each best. The result is written once; a resumed run
# reads it.


_IMAGES, _SENTENCES = pa.list_(pa.binary()), pa.list_(pa.list_(pa.string()))
_AT_ONCE = 32  # groups at once: the driver holds their images twice


@dataclass(frozen=True)
class FailureGroup:
    """Failures of one kind: their encoded images, the sentences about each, and ordinary images of the label."""

    prompt: str
    images: Sequence[bytes]
    sentences: Sequence[Sentences]
    reference: Sequence[bytes]


@dataclass(frozen=True)
class Combining:
    """Combines sentences by a captioner, and by an encoder where there is one. `revisions`: of these models."""

    run: FailuresRun
    runner: Runner
    captioner: Callable[[], Captioner]
    encoder: Callable[[], TextImageEncoder] | None
    revisions: Sequence[str]
    steps: Steps

    def sentences(self, groups: Sequence[FailureGroup]) -> list[list[Sentences]]:
        """Returns for each group the sentences of its clusters, largest cluster first; [] where no model scores
        captions."""
        ids = [self._id(group) for group in groups]
        stored = self._known()
        missing = {group_id: group for group_id, group in zip(ids, groups, strict=True) if group_id not in stored}
        for start in range(0, len(missing), _AT_ONCE):
            self._combine(dict(list(missing.items())[start : start + _AT_ONCE]))
        stored = self._known()
        return [stored[group_id] for group_id in ids]

    def _combine(self, groups: Mapping[str, FailureGroup]) -> None:
        self.run.begin_writing()
        rows = pa.table(
            {
                "combination_id": list(groups),
                "prompt": [group.prompt for group in groups.values()],
                "images": pa.array([list(group.images) for group in groups.values()], _IMAGES),
                "sentences": pa.array([list(map(list, group.sentences)) for group in groups.values()], _SENTENCES),
                "reference": pa.array([list(group.reference) for group in groups.values()], _IMAGES),
            }
        )
        with self.steps.step("combine sentences") as on_progress:
            out = self.run.location("combinations")
            combine_all(self.runner, rows, self.captioner, self.encoder, out, on_progress)

    def _id(self, group: FailureGroup) -> str:
        parts = [
            group.prompt,
            [list(sentences) for sentences in group.sentences],
            *group.images,
            "reference",
            *group.reference,
        ]
        return content_id("combine", list(self.revisions), *parts)

    def _known(self) -> dict[str, list[Sentences]]:
        rows = self.run.read("combinations").to_pylist()
        return {
            row["combination_id"]: [tuple(cluster["sentences"]) for cluster in row["clusters"] if cluster["sentences"]]
            for row in rows
        }


def describe_at_once(
    work: FailuresState, hypotheses: Iterable[tuple[Kind, Candidate]], labels: Iterable[str] = ()
) -> None:
    """Describes in one pass all images that `described` and `background` will need."""
    if work.describing is None:
        return
    images = [(kind.label, data) for kind, caption in hypotheses for data in _images(work, kind, caption)]
    for label in labels:
        images += [(label, sample_row["image"]) for sample_row in work.drawing.sample(work.baselines[label])]
    work.describing.sentences(images)


def described(work: FailuresState, kind: Kind, caption: Candidate) -> list[Sentences]:
    """Returns the sentences about the kept images of a caption's failures of this kind."""
    assert work.describing is not None
    return _without_sentences(
        work, kind, work.describing.sentences([(kind.label, data) for data in _images(work, kind, caption)])
    )


def combined(work: FailuresState, kinds: Sequence[Kind]) -> list[list[Sentences]]:
    """Returns for each kind the sentences that describe clusters of its baseline failures best; [] where none do."""
    combining = _combining(work)
    if combining is None:
        return [[] for _ in kinds]
    groups = []
    for kind in kinds:
        base = work.baselines[kind.label]
        right = [
            sample_row["image"] for sample_row in work.drawing.sample(base) if sample_row["predicted"] == kind.label
        ]
        groups.append(
            FailureGroup(base.text, _images(work, kind, base), described(work, kind, base), right[:MOST_REFERENCE])
        )
    return combining.sentences(groups)


def _combining(work: FailuresState) -> Combining | None:
    captioner, encoder = work.config.captioner, work.config.encoder
    if captioner is None:
        return None
    specs = [("captioner", captioner), *([("encoder", encoder)] if encoder else [])]
    revisions = [work.models.describe(role, spec).revision for role, spec in specs]
    loaded = work.models.encoder(encoder) if encoder else None
    says = partial(of_revision, work.models.captioner(captioner), revisions[0], captioner)
    return Combining(work.run, work.models.runner, says, loaded, revisions, work.steps)


def _images(work: FailuresState, kind: Kind, caption: Candidate) -> list[bytes]:
    examples = work.drawing.examples(caption, kind.classifier)
    return [example["image"] for example in examples if kind.target is None or example["predicted"] == kind.target][
        :ENOUGH
    ]


def _without_sentences(work: FailuresState, kind: Kind, descriptions: Sequence[Sentences]) -> list[Sentences]:
    """Leaves out sentences that name another label: "it looks like a bee" would ask the generator for bees."""
    other_labels = {*work.baselines, *([kind.target] if kind.target else [])} - {kind.label}
    assert work.describing is not None
    result = []
    for sentences_of_image in descriptions:
        leaks = {
            sentence for sentence in sentences_of_image if any(mentions(sentence, other) for other in other_labels)
        }
        for sentence in leaks:
            work.describing.drop(kind.label, sentence, "names_class")
        result.append(tuple(sentence for sentence in sentences_of_image if sentence not in leaks))
    return result


def background(work: FailuresState, label: str) -> Background:
    """Counts how often the captioner says each sentence of the label's sample, which holds failures and others."""
    assert work.describing is not None
    sample = work.drawing.sample(work.baselines[label])
    return Background(work.describing.sentences([(label, example["image"]) for example in sample]))


FIRST, GROWTH = 64, 3.0
GOAL = 6
"""Failures after which a rate is known well enough to go on with."""


@dataclass
class RemainingDraws:
    """The draws that are left."""

    left: int

    def take(self, draws: int) -> None:
        self.left -= draws


def baseline_rate(work: FailuresState, kind: Kind) -> float:
    """Returns the kind's rate among the label's baseline images of discovery; slightly above 0 where none failed."""
    counts = work.drawing.counts(work.baselines[kind.label], kind.classifier, DISCOVERY, SEARCH)
    return (counts.towards(kind.target) + 0.5) / (counts.draws + 1)


def seen(work: FailuresState, hypothesis: Hypothesis) -> tuple[int, int]:
    """Returns failures and draws of a hypothesis on the seeds of discovery."""
    counts: Counts = work.drawing.counts(hypothesis.caption, hypothesis.kind.classifier, DISCOVERY, SEARCH)
    return counts.towards(hypothesis.kind.target), counts.draws


def rate(work: FailuresState, hypothesis: Hypothesis) -> float:
    failures, draws = seen(work, hypothesis)
    return failures / draws if draws else 0.0


def screen(
    work: FailuresState, hypotheses: Sequence[Hypothesis], budget: RemainingDraws, most: int, goal: int = GOAL
) -> None:
    """Draws each caption until it has `goal` failures, looks hopeless, or has had `most` draws."""
    draw_while(work, hypotheses, budget, most, lambda hypothesis: _worth_more(work, hypothesis, goal))


def draw_while(
    work: FailuresState,
    hypotheses: Sequence[Hypothesis],
    budget: RemainingDraws,
    most: int,
    is_open: Callable[[Hypothesis], bool],
    after_each: Callable[[], None] = lambda: None,
) -> None:
    """Multiplies the draws of every caption with an open hypothesis, highest failure rate first, while draws are left.

    Calls `after_each` after each turn, before the next `is_open`.
    """
    by_caption: dict[str, list[Hypothesis]] = {}
    for hypothesis in hypotheses:
        by_caption.setdefault(hypothesis.caption.caption_id, []).append(hypothesis)
    while True:
        open_draws: list[tuple[float, WantedDraws]] = []
        for group in by_caption.values():
            draws = seen(work, group[0])[1]
            if draws < most and any(is_open(hypothesis) for hypothesis in group):
                additional = min(max(FIRST, int(draws * (GROWTH - 1))), most - draws)
                promise = max((seen(work, hypothesis)[0] + 0.5) / (draws + 1) for hypothesis in group)
                open_draws.append((promise, WantedDraws(group[0].caption, DISCOVERY, SEARCH, additional, examples=2)))
        affordable_draws = []
        for _, one_wanted in sorted(open_draws, key=lambda item: -item[0]):
            if one_wanted.draws <= budget.left:
                budget.take(one_wanted.draws)
                affordable_draws.append(one_wanted)
        if not affordable_draws:
            return
        work.drawing.draw(affordable_draws, work.steps, "draw captions that may fail")
        after_each()


def _worth_more(work: FailuresState, hypothesis: Hypothesis, goal: int) -> bool:
    failures, draws = seen(work, hypothesis)
    if failures >= goal:
        return False
    # If it failed as often as is searched for, so few failures would be rare.
    return draws * work.config.smallest_ratio * baseline_rate(work, hypothesis.kind) < failures + 3


# Other wordings of captions that fail: adjectives dropped by rule, and shorter captions by a language model.


MOST = 6
"""Wordings of one caption that are drawn."""


def rewrite(
    work: FailuresState, hypotheses: Sequence[Hypothesis], budget: RemainingDraws, most: int
) -> list[Hypothesis]:
    """Draws other wordings of the captions of each kind that failed most, and returns hypotheses on them."""
    best: dict[Kind, Hypothesis] = {}
    for hypothesis in hypotheses:
        if hypothesis.caption.sentences and (
            hypothesis.kind not in best or rate(work, hypothesis) > rate(work, best[hypothesis.kind])
        ):
            best[hypothesis.kind] = hypothesis
    replies = _replies(work, list(dict.fromkeys(hypothesis.caption for hypothesis in best.values())))
    result = []
    for hypothesis in best.values():
        wordings = without_adjectives(hypothesis.caption)
        if hypothesis.caption.caption_id in replies:
            wordings += rewrites(
                hypothesis.caption, replies[hypothesis.caption.caption_id], _others(work, hypothesis.caption)
            )[0]
        result += [Hypothesis(hypothesis.kind, work.register(wording)) for wording in wordings[:MOST]]
    screen(work, result, budget, most)
    return result


def _others(work: FailuresState, caption: Candidate) -> list[str]:
    """Returns the words that no wording may hold: the other labels that a failure can be."""
    return [label for label in work.baselines if label != caption.label]


def _replies(work: FailuresState, captions: Sequence[Candidate]) -> dict[str, ChatReply]:
    spec = work.config.language_model
    if spec is None or not captions:
        return {}
    row = language_model_row(work.models, spec)
    work.run.update({"models": {"language model": row}})
    ids = {content_id("shorten", row["revision"], caption.caption_id): caption for caption in captions}
    rows = work.run.read("descriptions").to_pylist()
    known_rows = {row["description_id"]: row for row in rows if row["description_id"] in ids}
    if missing := [reply_id for reply_id in ids if reply_id not in known_rows]:
        with work.steps.step("shorten captions by a language model"):
            requests = [rewrite_request(ids[reply_id], work.config.seed) for reply_id in missing]
            replies = work.models.language_model(spec).chat(requests)
        new = [
            {"description_id": one, "text": reply.text, "error": reply.error}
            for one, reply in zip(missing, replies, strict=True)
        ]
        work.run.begin_writing()
        with writing(work.run.location("descriptions")) as parts:
            parts.write(pa.Table.from_pylist(new, DESCRIPTIONS), "description_id")
        known_rows |= {row["description_id"]: row for row in new}
    return {
        ids[reply_id].caption_id: ChatReply(row["text"] or "", row["error"]) for reply_id, row in known_rows.items()
    }


# Finds out which sentences a failing caption needs: leaves out each in turn, on the seeds of discovery.


MISREAD = 0.08
"""How often a captioner is taken to be wrong about one thing."""
CLEAR = 2.5
"""Log odds that settle whether a sentence is needed."""
KEPT = 0.4
"""The least share of the rate that a shorter caption keeps."""
UNKNOWN = 0.3
"""How many other images show what a sentence says, where no description of them says it."""


@dataclass(frozen=True)
class SentenceRemoval:
    """A caption without one of its sentences."""

    whole: Hypothesis
    without: Hypothesis
    sentence: str


def shorten(
    work: FailuresState, hypotheses: Sequence[Hypothesis], budget: RemainingDraws, most: int
) -> list[Hypothesis]:
    """Draws shorter captions and returns hypotheses on them, also on those that fail less."""
    roots = _roots(work, hypotheses)
    trials = [trial for root in roots for trial in _trials(work, root)]
    odds = _Odds(work)
    by_id = {(trial.without.kind, trial.without.caption.caption_id): trial for trial in trials}

    def is_open(hypothesis: Hypothesis) -> bool:
        return abs(odds.not_needed(by_id[hypothesis.kind, hypothesis.caption.caption_id])) < CLEAR

    shortened = [trial.without for trial in trials]
    draw_while(work, shortened, budget, most, is_open, lambda: describe_at_once(work, _pairs(shortened)))
    shorter = []
    for root in roots:
        unneeded = {trial.sentence for trial in trials if trial.whole == root and odds.not_needed(trial) > 0}
        needed = tuple(sentence for sentence in root.caption.sentences if sentence not in unneeded)
        if needed and unneeded:
            shorter.append(_without(work, root, needed))
    screen(work, shorter, budget, most)
    equally_good = [trial.without for trial in trials if rate(work, trial.without) >= KEPT * rate(work, trial.whole)]
    return [*shorter, *equally_good]


def _pairs(hypotheses: Sequence[Hypothesis]) -> list[tuple[Kind, Candidate]]:
    return [(hypothesis.kind, hypothesis.caption) for hypothesis in hypotheses]


def _roots(work: FailuresState, hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Returns for each kind the caption of several sentences that failed most."""
    best: dict[Kind, Hypothesis] = {}
    for hypothesis in hypotheses:
        if len(hypothesis.caption.sentences) > 1 and (
            hypothesis.kind not in best or rate(work, hypothesis) > rate(work, best[hypothesis.kind])
        ):
            best[hypothesis.kind] = hypothesis
    return list(best.values())


def _trials(work: FailuresState, root: Hypothesis) -> list[SentenceRemoval]:
    sentences = root.caption.sentences
    return [
        SentenceRemoval(root, _without(work, root, sentences[:index] + sentences[index + 1 :]), sentence)
        for index, sentence in enumerate(sentences)
    ]


def _without(work: FailuresState, root: Hypothesis, sentences: tuple[str, ...]) -> Hypothesis:
    return Hypothesis(root.kind, work.caption(root.kind.label, sentences, "shorter", root.caption))


class _Odds:
    """The log odds that sentences are unnecessary."""

    def __init__(self, work: FailuresState) -> None:
        self._work = work
        self._backgrounds: dict[str, Background] = {}

    def not_needed(self, trial: SentenceRemoval) -> float:
        """Returns the log odds: above 0 where the counts, and what failures show, favour a caption without the
        sentence."""
        share = self._background(trial.whole.kind.label).share((trial.sentence,))
        is_common = share * 50 > 1
        usual = min(share, 0.95) if is_common else UNKNOWN
        failures, draws = seen(self._work, trial.without)
        expected = draws * rate(self._work, trial.whole)
        odds = failures * math.log(1 / usual) - expected * (1 - usual)
        if not is_common:
            return odds
        for sentences in described(self._work, trial.without.kind, trial.without.caption):
            has = trial.sentence in sentences
            odds += math.log(usual / (1 - MISREAD)) if has else math.log((1 - usual) / MISREAD)
        return odds

    def _background(self, label: str) -> Background:
        if label not in self._backgrounds:
            self._backgrounds[label] = background(self._work, label)
        return self._backgrounds[label]
