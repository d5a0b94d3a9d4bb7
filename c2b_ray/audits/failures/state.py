"""The state that the parts of a run share: config, tables, models, and its labels in each label space."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.failures.config import FailuresConfig
from c2b_ray.audits.failures.discovery.candidates import Candidate, Hierarchy, Origin, table
from c2b_ray.audits.failures.discovery.rounds import AnswerRules, needs_parents, truths_by_label
from c2b_ray.audits.failures.discovery.rounds_stage import DiscoveryClassifier, RoundStage, describe_all
from c2b_ray.audits.failures.discovery.sentences import baseline, check_prompt, statements, usable
from c2b_ray.audits.failures.drawing import RoundDrawing, generated
from c2b_ray.audits.failures.run import FailuresRun
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.models import model_row, warn_of_assumptions
from c2b_ray.audits.kit.session import Steps
from c2b_ray.config.classifiers import Ancestry, read_hierarchy
from c2b_ray.engine.images import of_revision
from c2b_ray.engine.stage import Runner
from c2b_ray.errors import ConfigError
from c2b_ray.models import catalog
from c2b_ray.report import words
from c2b_ray.roles import Captioner, Description
from c2b_ray.steps.classify import classification
from c2b_ray.tables import content_id

# The labels of a run: in the classifiers' label spaces, in the hierarchy, and in baseline captions.


def with_labels(config: FailuresConfig) -> FailuresConfig:
    """Returns the config with its labels named, where it asks for all of them."""
    if config.labels:
        return config
    if isinstance(config.label_map, dict):
        return config.model_copy(update={"labels": list(config.label_map)})
    spec = next(iter(config.specs.values()))
    labels = list(dict.fromkeys(catalog.described("classifier", spec).labels))
    return config.model_copy(update={"labels": labels})


def ancestry_of(config: FailuresConfig) -> Ancestry | None:
    return None if config.hierarchy is None else read_hierarchy(config.hierarchy)


def decider(config: FailuresConfig, name: str, description: Description, ancestry: Ancestry | None) -> AnswerRules:
    """Returns what decides whether an answer of a classifier is a failure. ConfigError where the classifier lacks one
    of the run's labels, or where no answer could fail by the run's rule."""
    label_map = config.label_map if isinstance(config.label_map, dict) else None
    groups = classification(name, description, config.labels, label_map, field="labels").labels_of_class
    names = list(description.labels)
    for label, positions in zip(config.labels, groups, strict=True):
        for position in positions:
            names[position] = label
    hierarchy = None if ancestry is None else Hierarchy(ancestry, description.labels)
    outputs = dict(zip(config.labels, groups, strict=True))
    truths = truths_by_label(config.rule, outputs, len(names), None if hierarchy is None else hierarchy.kin)
    _check_targets(config, name, names)
    return AnswerRules(
        name, description.revision, tuple(names), truths, config.rule, config.confidence, config.true_below
    )


def _check_targets(config: FailuresConfig, classifier: str, names: Sequence[str]) -> None:
    for label, targets in (config.targets or {}).items():
        for target in targets:
            if target not in names:
                raise ConfigError(f"targets.{label}", f"{classifier} has no label {target!r}")
            if target == label:
                raise ConfigError(f"targets.{label}", "a label taken for itself is no failure")


def discovery_classifiers(config: FailuresConfig, models: Backend) -> tuple[DiscoveryClassifier, ...]:
    """The classifiers of a run, in the order of its config."""
    ancestry = ancestry_of(config)
    return tuple(
        DiscoveryClassifier(
            models.classifier(spec), decider(config, name, models.describe("classifier", spec), ancestry)
        )
        for name, spec in config.specs.items()
    )


def noted_classifiers(config: FailuresConfig, models: Backend, steps: Steps) -> dict[str, dict[str, Any]]:
    """Returns the manifest's entries of a run's classifiers, and warns of their assumed settings."""
    descriptions = {name: models.describe("classifier", spec) for name, spec in config.specs.items()}
    ancestry = ancestry_of(config) if needs_parents(config.rule) else None
    for name, description in descriptions.items():
        warn_of_assumptions(steps, name, description)
        if ancestry is not None:
            _warn_of_meanings(config, name, description, ancestry, steps)
    return {f"classifier {name}": model_row(spec, descriptions[name]) for name, spec in config.specs.items()}


def _warn_of_meanings(
    config: FailuresConfig, name: str, description: Description, ancestry: Ancestry, steps: Steps
) -> None:
    """Warns of labels that a rule takes for relatives by a meaning of their names that may not be meant."""
    label_map = config.label_map if isinstance(config.label_map, dict) else None
    groups = classification(name, description, config.labels, label_map, field="labels").labels_of_class
    positions = {position for group in groups for position in group}
    pairs = Hierarchy(ancestry, description.labels).by_rarer_meanings(positions)
    if pairs:
        one, other, parent = pairs[0]
        steps.warn(
            f"{name}: {words.plural(len(pairs), 'pair')} of labels share a parent only by a rarer meaning of a name, "
            f"such as {one!r} and {other!r} ({parent}): one taken for the other is no failure by {config.rule}. Where "
            "that is not meant, give `hierarchy` a YAML file of label: parent"
        )


def baselines(config: FailuresConfig) -> dict[str, Candidate]:
    """Returns the baseline caption of each label. ConfigError where the hierarchy lacks one of them."""
    check_prompt(config.prompt)
    ancestry = ancestry_of(config)
    hierarchy = None if ancestry is None else Hierarchy(ancestry)
    label_map = config.label_map if isinstance(config.label_map, dict) else {}
    return {
        label: Candidate(
            label, baseline(config.prompt, label, _parent(hierarchy, label, label_map.get(label, []))), (), "baseline"
        )
        for label in config.labels
    }


def _parent(hierarchy: Hierarchy | None, label: str, stand_for_it: Sequence[int | str]) -> str | None:
    """Returns the word that follows a label in its prompt. For a user's label ("cat") it is the common parent of the
    classifier's labels that it maps to. ConfigError where the hierarchy has neither."""
    if hierarchy is None:
        return None
    if label in hierarchy or not stand_for_it:
        return hierarchy.parent_name(label)
    parents = {hierarchy.parent_name(name) for name in stand_for_it if isinstance(name, str) and name in hierarchy}
    return parents.pop() if len(parents) == 1 else None


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
    classifiers = discovery_classifiers(config, models)
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
