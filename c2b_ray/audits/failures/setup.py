"""Whether a run's answers to its labels' bare prompts, or to labelled images, show that a classifier was set up
wrongly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from c2b_ray.audits.failures.config import FailuresConfig
from c2b_ray.audits.failures.discovery.rounds_stage import DiscoveryClassifier
from c2b_ray.audits.failures.discovery.value_sets import LabelledAnswers as AnsweredImages
from c2b_ray.audits.failures.labelled_claims import ClaimAnswers
from c2b_ray.audits.failures.run import FailuresRun
from c2b_ray.audits.failures.state import FailuresState
from c2b_ray.audits.kit.session import Steps
from c2b_ray.steps.classify import Classification
from c2b_ray.steps.setup import detected, sentences, setup_finding
from c2b_ray.steps.setup_maps import LabelledAnswers, positions

Count = tuple[str, str, str | None, bool, int]
"""The classifier, the images' label, the label that it answered (None: no single one), whether that is a failure, and
of how many images."""

MOST_IMAGES = 20_000


def note_setup(
    config: FailuresConfig,
    run: FailuresRun,
    classifiers: Iterable[DiscoveryClassifier],
    counts: Sequence[Count],
    steps: Steps,
) -> None:
    """Writes what the answers show into the run's manifest, as `setup`, and warns of it."""
    labelled = config.images.labelled is not None
    findings = []
    for classifier in classifiers:
        rules = classifier.decider
        groups = tuple(tuple(np.flatnonzero(truth.members).tolist()) for truth in rules.truths.values())
        question = Classification(rules.classifier, rules.revision, tuple(rules.truths), groups, labels=rules.names)
        answered = _answers_of_counts(
            question, [count for count in counts if count[0] == question.classifier], config.seed
        )
        is_table = config.specs[question.classifier].startswith("table:")
        findings += [
            setup_finding(kind, question, labelled, is_table) for kind in detected(question, answered, is_table)
        ]
    run.update({"setup": findings})
    for finding in findings:
        steps.warn(sentences(finding, len(config.specs) > 1))


def of_baselines(work: FailuresState) -> list[Count]:
    """Returns the answers to the images of the labels' bare prompts."""
    label_of = {caption.caption_id: label for label, caption in work.baselines.items()}
    rows = work.run.read("rounds", ["caption_id", "classifier", "draws", "failures", "predicted", "counts"])
    result: list[Count] = []
    for row in rows.to_pylist():
        label = label_of.get(row["caption_id"])
        if label is None:
            continue
        name, failures = row["classifier"], row["failures"]
        result.append((name, label, label, False, row["draws"] - failures))
        result += [
            (name, label, answer, True, count) for answer, count in zip(row["predicted"], row["counts"], strict=True)
        ]
        result.append((name, label, None, True, failures - sum(row["counts"])))
    return result


def of_images(answered: AnsweredImages, answers: ClaimAnswers) -> list[Count]:
    """Returns the answers to labelled images, one of each picture."""
    once = answered.once(np.ones(len(answered.labels), bool))
    return [
        (name, str(answered.labels[row]), answers.predicted[name][row], bool(answers.failed[name][row]), 1)
        for name, is_answered in answers.known.items()
        for row in np.flatnonzero(once & is_answered).tolist()
    ]


def _answers_of_counts(question: Classification, counts: Sequence[Count], seed: int) -> LabelledAnswers:
    position_of, number = positions(question.labels), {name: i for i, name in enumerate(question.classes)}
    truth, answer, times = [], [], []
    for _, label, answer_given, fails, count in counts:
        own_label = question.labels_of_class[number[label]][0]
        truth.append(number[label])
        answer.append(
            position_of.get(answer_given, -1) if fails and answer_given is not None else -1 if fails else own_label
        )
        times.append(count)
    rows = np.repeat(np.arange(len(times)), times)
    rows = np.random.default_rng(seed).permutation(rows)[:MOST_IMAGES]
    return LabelledAnswers(np.array(truth, np.int64)[rows], np.array(answer, np.int64)[rows])
