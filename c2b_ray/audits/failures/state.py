"""The state that the parts of a run share: its config, its tables, where its models are, and its captions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.failures.config import FailuresConfig
from c2b_ray.audits.failures.discovery.candidates import Candidate, Origin, table
from c2b_ray.audits.failures.discovery.rounds_stage import RoundStage, describe_all
from c2b_ray.audits.failures.discovery.sentences import statements, usable
from c2b_ray.audits.failures.drawing import RoundDrawing, generated
from c2b_ray.audits.failures.labels import baselines, contenders, noted_classifiers
from c2b_ray.audits.failures.run import FailuresRun
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.models import model_row, warn_of_assumptions
from c2b_ray.audits.kit.session import Steps
from c2b_ray.engine.images import of_revision
from c2b_ray.engine.stage import Runner
from c2b_ray.roles import Captioner
from c2b_ray.tables import content_id

# The captioner's descriptions of the images that rounds kept. Each is written once; a resumed run reads it.


Image = tuple[str, bytes]
"""Its label, and its encoded bytes."""


class Describing:
    """Sentences of images, by a captioner of this revision."""

    def __init__(
        self, run: FailuresRun, runner: Runner, captioner: Callable[[], Captioner], revision: str, steps: Steps
    ) -> None:
        self._run, self._runner, self._captioner, self._revision = run, runner, captioner, revision
        self._steps = steps
        self._known: dict[str, str | None] | None = None
        self._dropped: set[tuple[str, str, str]] = set()

    @property
    def dropped(self) -> dict[str, int]:
        """Counts by reason the sentences about a label's images that were not used in a caption."""
        return dict(sorted(Counter(reason for _, _, reason in self._dropped).items()))

    def drop(self, label: str, sentence: str, reason: str) -> None:
        self._dropped.add((label, sentence, reason))

    def sentences(self, images: Sequence[Image]) -> list[tuple[str, ...]]:
        """Returns the sentences about each image besides its label; () where the captioner said nothing usable."""
        ids = [content_id("describe", self._revision, label, data) for label, data in images]
        stored = self._read()
        missing = {
            description_id: image
            for description_id, image in zip(ids, images, strict=True)
            if description_id not in stored
        }
        if missing:
            self._run.begin_writing()
            rows = pa.table(
                {
                    "description_id": list(missing),
                    "label": [label for label, _ in missing.values()],
                    "image": pa.array([data for _, data in missing.values()], pa.binary()),
                }
            )
            with self._steps.step("describe failures") as on_progress:
                out = self._run.location("descriptions")
                describe_all(self._runner, rows, self._captioner, out, on_progress)
            self._known = None
            stored = self._read()
        texts = [stored[description_id] for description_id in ids]
        labels = [label for label, _ in images]
        return [
            () if text is None else self._usable(text, label_of_text)
            for text, label_of_text in zip(texts, labels, strict=True)
        ]

    def _read(self) -> dict[str, str | None]:
        if self._known is None:
            rows = self._run.read("descriptions", ["description_id", "text"])
            self._known = dict(zip(rows["description_id"].to_pylist(), rows["text"].to_pylist(), strict=True))
        return self._known

    def _usable(self, text: str, label: str) -> tuple[str, ...]:
        usable_sentences, unusable = usable(statements(text, label), label)
        for sentence in unusable:
            self.drop(label, sentence.sentence, sentence.reason)
        return tuple(usable_sentences)


@dataclass(frozen=True)
class FailuresState:
    """`baselines`: the baseline caption of each label. `candidates`: every caption, by its id, in order.
    `doubts`: label → why the generator is not to be trusted with it."""

    config: FailuresConfig
    run: FailuresRun
    models: Backend
    steps: Steps
    drawing: RoundDrawing
    describing: Describing | None
    baselines: Mapping[str, Candidate]
    candidates: dict[str, Candidate] = field(default_factory=dict)
    doubts: dict[str, str] = field(default_factory=dict)

    def caption(
        self, label: str, sentences: Sequence[str], origin: Origin, parent: Candidate | None = None
    ) -> Candidate:
        """Returns the caption made of the label's baseline and these sentences. The same text gives the same caption,
        whatever its origin."""
        base = self.baselines[label]
        return self.register(Candidate(label, base.prompt, tuple(sentences), origin, (parent or base).caption_id))

    def register(self, caption: Candidate) -> Candidate:
        return self.candidates.setdefault(caption.caption_id, caption)


@dataclass(frozen=True)
class Kind:
    """One sort of failures: of a classifier, on images of a label, with the answer `target`; None: with any wrong
    answer."""

    classifier: str
    label: str
    target: str | None


@dataclass(frozen=True)
class Hypothesis:
    """That failures of a kind are more frequent on a caption's images than on the baseline's."""

    kind: Kind
    caption: Candidate


# Starts a run, or a person's question to one: loads its models, prepares its draws and captions, and writes its
# results.


LEAST_ROUND, MOST_ROUND, ROUNDS_OF_A_RUN = 50, 2000, 400
PERSON = "person"


def start(config: FailuresConfig, run: FailuresRun, models: Backend, steps: Steps, seed: int) -> FailuresState:
    """Returns what the run works with: its models, which its manifest then names, and its first captions.

    `seed`: the seeds of the run's draws derive from it.
    """
    assert config.images.generate is not None
    source = generated(config.images.generate.model, models, seed)
    classifiers = contenders(config, models)
    recorded = noted_classifiers(config, models, steps)
    description = models.describe("image_generator", source.name)
    warn_of_assumptions(steps, source.name, description)
    run.update({"models": {"generator": model_row(source.name, description), **recorded}})
    stage = RoundStage(models.runner, source.load, classifiers, run.location("rounds"), seed)
    size = min(MOST_ROUND, max(LEAST_ROUND, config.budget.draws // ROUNDS_OF_A_RUN))
    drawing = RoundDrawing(
        run, stage, source, [classifier.decider for classifier in classifiers], size, config.budget.draws
    )
    work = FailuresState(
        config, run, models, steps, drawing, _describing(config, run, models, steps), baselines(config)
    )
    for caption in work.baselines.values():
        work.register(caption)
    return work


def _describing(config: FailuresConfig, run: FailuresRun, models: Backend, steps: Steps) -> Describing | None:
    if config.captioner is None:
        return None
    description = models.describe("captioner", config.captioner)
    revision = description.revision
    run.update({"models": {"captioner": model_row(config.captioner, description)}})
    warn_of_assumptions(steps, config.captioner, description)
    factory = partial(of_revision, models.captioner(config.captioner), revision, config.captioner)
    return Describing(run, models.runner, factory, revision, steps)


def write_candidates(work: FailuresState) -> None:
    """Writes the captions of the run and of the questions to it."""
    own_candidates = table(work.candidates.values())
    questions = of_persons(work.run.candidates)
    of_questions = questions.filter(
        pc.invert(pc.is_in(questions["caption_id"], own_candidates["caption_id"].combine_chunks()))
    )
    work.run.write("candidates", pa.concat_tables([own_candidates, of_questions]))


def write_hypotheses(run: FailuresRun, rows: pa.Table) -> None:
    """Writes the hypotheses of the run and of the questions to it."""
    run.write("hypotheses", pa.concat_tables([rows, of_persons(run.hypotheses)]))


def of_persons(rows: pa.Table) -> pa.Table:
    """Returns the rows that a person's questions made, of candidates or of hypotheses."""
    return rows.filter(pc.equal(rows["origin"], PERSON))
