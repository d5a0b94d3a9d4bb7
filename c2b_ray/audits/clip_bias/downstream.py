"""Biases of systems that were built on the CLIP models: KL of VQA accuracy and of CIDEr, bias amplification, LIC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from c2b_ray.audits.clip_bias.images import Images
from c2b_ray.audits.clip_bias.lic import Guesses, measure_leakage
from c2b_ray.audits.clip_bias.pretraining import chance_of
from c2b_ray.audits.clip_bias.results import read_captions, read_vqa
from c2b_ray.config.clip_bias import ClipBiasConfig, Downstream
from c2b_ray.metrics import Floats
from c2b_ray.metrics.amplification_chance import amplification
from c2b_ray.metrics.cider import cider
from c2b_ray.steps.clip_bias.answers import AnsweredQuestion, constant, filtered, scores_of
from c2b_ray.steps.clip_bias.attributes import Attribute, View
from c2b_ray.steps.clip_bias.measure import measure_disparity, seeded
from c2b_ray.steps.clip_bias.rows import DOWNSTREAM, BiasRow, Key, Measured
from c2b_ray.steps.clip_bias.words import words_of


@dataclass(frozen=True)
class Built:
    """A block of results: its name in the config, its section, and the dataset that it is about."""

    name: str
    block: Downstream
    images: Images
    config: ClipBiasConfig

    def key(self, metric: str, attribute: Attribute, view: View) -> Key:
        return Key(self.name, metric, attribute.name, view.view, view.group, DOWNSTREAM)


def measure_downstream(measured: Measured, built: Built, guesses: Guesses) -> None:
    """Adds the rows of one block of results."""
    if built.block.vqa is not None:
        _measure_vqa(measured, built)
    else:
        _measure_captions(measured, built, guesses)


def _measure_vqa(measured: Measured, built: Built) -> None:
    questions, notes = read_vqa(built.name, built.block, built.images)
    same = constant(questions)
    measured.notes += notes
    measured.notes += [f"{built.name}: {model} predicts {said!r} to every question" for model, said in same.items()]
    scores = {model: scores_of(some, len(built.images.rows)) for model, some in questions.items()}
    chance = chance_of(built.config)
    for view in built.images.views:
        for attribute in built.images.attributes:
            key = built.key("kl_vqa_accuracy", attribute, view)
            measure_disparity(measured, key, scores, (attribute, view), chance, built.images.copies)
    for attribute in built.images.attributes:
        _measure_amplification(measured, built, attribute, questions)


def _measure_amplification(
    measured: Measured, built: Built, attribute: Attribute, questions: Mapping[str, list[AnsweredQuestion]]
) -> None:
    view, config = built.images.views[0], built.config
    key = built.key("dba", attribute, view)
    answered = np.unique([one.image for one in next(iter(questions.values()))])
    members = answered[attribute.codes[answered] >= 0]
    if (problem := attribute.problem(members)) is not None:
        measured.unknown(questions, key, len(members), problem)
        return
    for model, some in questions.items():
        considered = filtered(some, attribute, view.members, config.answers, built.images.copies)
        answers = considered.answers
        lost = [value for at, value in enumerate(attribute.values) if at not in answers.attributes]
        if len(attribute.values) - len(lost) < 2:
            why = "no question is left without answers that are binary or numbers"
            if considered.words:
                why += f" about images with the {attribute.name} {lost[0]!r}"
            measured.unknown([model], key, considered.images, why)
            continue
        chance = seeded(chance_of(config), key.dataset, key.attribute, key.metric)
        result = amplification(answers, chance, config.amplification)
        remarks = [] if len(np.unique(answers.predicted)) > 1 else ["constant predictions"]
        if lost:
            remarks.append(
                f"of the mean over values of {attribute.name}, {', '.join(lost)} is left out: no question is left"
            )
        row = BiasRow(
            model, key, result.value, result.low, result.high, considered.images, result.expected,
            result.p_value, rule=config.amplification, note="; ".join(remarks) or None, replicates=result.replicates,
        )  # fmt: skip
        measured.biases.append(row)


def _measure_captions(measured: Measured, built: Built, guesses: Guesses) -> None:
    captions, notes = read_captions(built.name, built.block, built.images)
    measured.notes += notes
    for model, some in captions.items():
        if len(set(some.values())) == 1:
            measured.notes.append(f"{built.name}: {model} gives every image the same caption")
    scores = {model: _cider(some, built.images) for model, some in captions.items()}
    chance = chance_of(built.config)
    for view in built.images.views:
        for attribute in built.images.attributes:
            key = built.key("kl_cider", attribute, view)
            measure_disparity(measured, key, scores, (attribute, view), chance, built.images.copies)
    for attribute in built.images.attributes:
        key = built.key("lic", attribute, built.images.views[0])
        measure_leakage(measured, replace(guesses, images=built.images), key, attribute, captions)


def _cider(captions: Mapping[int, str], images: Images) -> tuple[Floats, Floats]:
    """Returns the CIDEr of each image that has references, and 1 for it. Document frequencies are those of all these
    references."""
    references = images.captions or []
    held = [image for image in captions if references[image]]
    totals, counts = np.zeros(len(images.rows)), np.zeros(len(images.rows))
    if held:
        scored = cider(
            [words_of(captions[image]) for image in held],
            [[words_of(text) for text in references[image]] for image in held],
        )
        totals[held], counts[held] = scored, 1.0
    return totals, counts
