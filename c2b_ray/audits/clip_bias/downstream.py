"""Biases of systems that were built on the CLIP models: KL of VQA accuracy and of CIDEr, bias amplification, LIC."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow.compute as pc

from c2b_ray.audits.clip_bias.answers import AnsweredQuestion, constant, filtered, read_captions, read_vqa, scores_of
from c2b_ray.audits.clip_bias.config import ClipBiasConfig, Downstream
from c2b_ray.audits.clip_bias.images import Images
from c2b_ray.audits.clip_bias.measurement import chance_of
from c2b_ray.audits.clip_bias.run import ClipBiasRun
from c2b_ray.audits.clip_bias.steps.leakage import (
    GuessingTask,
    guess,
    leak_of,
    mask_of,
    masked,
    says_nothing,
    table,
    vocabulary_of,
    words_of,
)
from c2b_ray.audits.clip_bias.steps.measure import (
    DOWNSTREAM,
    Attribute,
    BiasRow,
    ImageSubset,
    Key,
    MeasuredModels,
    measure_disparity,
    seeded,
)
from c2b_ray.engine.images import OnProgress
from c2b_ray.engine.placement import Placement
from c2b_ray.engine.stage import Rows, Runner, StageConfig
from c2b_ray.roles import GroupGuesser
from c2b_ray.stats import Floats, Ints
from c2b_ray.stats.amplification import amplification
from c2b_ray.stats.retrieval import cider
from c2b_ray.storage.parts import read_stage
from c2b_ray.tables import seed_of
from c2b_ray.tables.clip_bias import CLIP_GUESSES

# LIC of captioners: the texts that attributes are guessed from, and rows of the resulting scores.


STAGE = StageConfig(CLIP_GUESSES, placement=Placement(batch=1), rows_per_file=64)
LEAST_IMAGES = 20


@dataclass(frozen=True)
class GroupGuesses:
    """Makes and keeps guesses: by which model, and about which images."""

    run: ClipBiasRun
    runner: Runner
    load: Callable[[], GroupGuesser]
    config: ClipBiasConfig
    on_progress: OnProgress
    images: Images | None = None

    def made(self, wanted: list[GuessingTask]) -> dict[str, Floats]:
        """Returns the scores of each text, by guess."""
        rows, out = table(wanted), self.run.location("guesses")
        self.run.begin_writing()
        self.runner.run(
            Rows.of(rows, 1), guess, self.load, out,
            id_column="guess_id", config=STAGE, on_progress=self.on_progress,
        )  # fmt: skip
        stored = read_stage(out, ["guess_id", "scores"])
        stored = stored.filter(pc.is_in(stored["guess_id"], rows["guess_id"].combine_chunks()))  # of many texts
        return {row["guess_id"]: np.array(row["scores"], np.float64) for row in stored.to_pylist()}


def measure_leakage(
    measurements: MeasuredModels,
    guesses: GroupGuesses,
    key: Key,
    attribute: Attribute,
    captions: Mapping[str, Mapping[int, str]],
) -> None:
    """Adds a row per captioner: its leakage minus that of people's captions of the same images.

    Attributes are guessed from one human caption per image in each draw of folds, and draws differ: from all five
    captions the guesser would learn from five times as much text as from the captioner's.
    """
    assert guesses.images is not None
    references = guesses.images.captions or []
    mask = mask_of(attribute.values, guesses.images.config.mask.get(attribute.name, ()))
    for model, model_captions in captions.items():
        vocabulary = vocabulary_of(list(model_captions.values()))
        model_texts = {
            image: masked(text, mask) for image, text in model_captions.items() if attribute.codes[image] >= 0
        }
        people_texts = {image: [masked(text, mask, vocabulary) for text in references[image]] for image in model_texts}
        people_texts = {
            image: [text for text in texts_of_image if not says_nothing(text)]
            for image, texts_of_image in people_texts.items()
        }
        usable = [image for image, text in model_texts.items() if not says_nothing(text) and people_texts[image]]
        if left_out := len(model_texts) - len(usable):
            measurements.notes.append(
                f"{key.dataset}, {attribute.name}: {left_out:,} of {len(model_texts):,} images are left out of LIC of "
                f"{model}: a caption of theirs has no words left after masking"
            )
        problem = attribute.problem(np.array(usable, np.int64)) if usable else "no caption has words left after masking"
        if problem is None and len(usable) < LEAST_IMAGES:
            problem = f"{len(usable):,} images with captions; LIC needs {LEAST_IMAGES:,}"
        if problem is not None:
            measurements.unknown([model], key, len(usable), problem)
            continue
        texts = ([model_texts[image] for image in usable], [people_texts[image] for image in usable])
        measurements.biases.append(_row(model, key, guesses, (attribute, usable), texts))


def _row(
    model: str,
    key: Key,
    guesses: GroupGuesses,
    attribute_images: tuple[Attribute, list[int]],
    texts: tuple[list[str], list[list[str]]],
) -> BiasRow:
    (attribute, image_rows), (model_texts, people_texts), settings = attribute_images, texts, guesses.config.leakage
    groups = tuple(attribute.codes[image_rows].tolist())
    assert guesses.images is not None
    copies = tuple(guesses.images.copies[image_rows].tolist()) if guesses.images.copied else ()

    def both_of(draw: int, swap: bool) -> tuple[GuessingTask, GuessingTask]:
        seed = seed_of("clip-bias lic", guesses.config.seed, key.dataset, key.attribute, draw, swap)
        people = [references[(seed + row) % len(references)] for row, references in enumerate(people_texts)]
        moved = np.random.default_rng(seed).random(len(model_texts)) < 0.5 if swap else np.zeros(len(model_texts), bool)
        sides = zip(model_texts, people, moved.tolist(), strict=True)
        first_texts, second_texts = zip(*((b, a) if change else (a, b) for a, b, change in sides), strict=True)
        fixed = (groups, len(attribute.values), settings.folds, seed, settings.guesser, copies)
        return GuessingTask(first_texts, *fixed), GuessingTask(second_texts, *fixed)

    draws = [both_of(draw, swap=False) for draw in range(settings.seeds)]
    swaps = [both_of(draw, swap=True) for draw in range(settings.swaps)]
    scores_of_guess = guesses.made([guessing_task for pair in (*draws, *swaps) for guessing_task in pair])
    scores, people = (np.stack([scores_of_guess[pair[side].guess_id] for pair in draws]) for side in (0, 1))
    null = np.array([scores_of_guess[a.guess_id].mean() - scores_of_guess[b.guess_id].mean() for a, b in swaps])
    leak = leak_of(scores, people, null, 1 - guesses.config.alpha)
    notes = ["constant captions"] if len(set(model_texts)) == 1 else []
    notes += _rare(attribute, guesses.images.copies[image_rows], attribute.codes[image_rows], settings.folds)
    note = "; ".join(notes) or None
    return BiasRow(model, key, leak.value, leak.low, leak.high, len(image_rows), 0.0, leak.p_value, note=note)


def _rare(attribute: Attribute, copies: Ints, codes: Ints, folds: int) -> list[str]:
    """Returns a note on values with fewer different images than folds: guessers have next to nothing to learn them
    from, so that LIC is near 0 whatever captions say of these values."""
    counts = [len(np.unique(copies[codes == number])) for number in range(len(attribute.values))]
    rare = [f"{value!r} ({count})" for value, count in zip(attribute.values, counts, strict=True) if count < folds]
    return [f"says nothing of {', '.join(rare)}: fewer images than folds"] if rare else []


@dataclass(frozen=True)
class ResultBlock:
    """A block of results: its name in the config, its section, and the dataset that it is about."""

    name: str
    block: Downstream
    images: Images
    config: ClipBiasConfig

    def key(self, metric: str, attribute: Attribute, view: ImageSubset) -> Key:
        return Key(self.name, metric, attribute.name, view.view, view.group, DOWNSTREAM)


def measure_downstream(measurements: MeasuredModels, result_block: ResultBlock, guesses: GroupGuesses) -> None:
    """Adds the rows of one block of results."""
    if result_block.block.vqa is not None:
        _measure_vqa(measurements, result_block)
    else:
        _measure_captions(measurements, result_block, guesses)


def _measure_vqa(measurements: MeasuredModels, result_block: ResultBlock) -> None:
    questions, notes = read_vqa(result_block.name, result_block.block, result_block.images)
    constant_answers = constant(questions)
    measurements.notes += notes
    measurements.notes += [
        f"{result_block.name}: {model} predicts {answer!r} to every question"
        for model, answer in constant_answers.items()
    ]
    scores = {model: scores_of(of_model, len(result_block.images.rows)) for model, of_model in questions.items()}
    chance = chance_of(result_block.config)
    for view in result_block.images.views:
        for attribute in result_block.images.attributes:
            key = result_block.key("kl_vqa_accuracy", attribute, view)
            measure_disparity(measurements, key, scores, (attribute, view), chance, result_block.images.copies)
    for attribute in result_block.images.attributes:
        _measure_amplification(measurements, result_block, attribute, questions)


def _measure_amplification(
    measurements: MeasuredModels,
    result_block: ResultBlock,
    attribute: Attribute,
    questions: Mapping[str, list[AnsweredQuestion]],
) -> None:
    view, config = result_block.images.views[0], result_block.config
    key = result_block.key("dba", attribute, view)
    answered = np.unique([question.image for question in next(iter(questions.values()))])
    members = answered[attribute.codes[answered] >= 0]
    if (problem := attribute.problem(members)) is not None:
        measurements.unknown(questions, key, len(members), problem)
        return
    for model, of_model in questions.items():
        considered = filtered(of_model, attribute, view.members, config.answers, result_block.images.copies)
        answers = considered.answers
        left_out = [value for i, value in enumerate(attribute.values) if i not in answers.attributes]
        if len(attribute.values) - len(left_out) < 2:
            why = "no question is left without answers that are binary or numbers"
            if considered.words:
                why += f" about images with the {attribute.name} {left_out[0]!r}"
            measurements.unknown([model], key, considered.images, why)
            continue
        chance = seeded(chance_of(config), key.dataset, key.attribute, key.metric)
        result = amplification(answers, chance, config.amplification)
        remarks = [] if len(np.unique(answers.predicted)) > 1 else ["constant predictions"]
        if left_out:
            remarks.append(
                f"of the mean over values of {attribute.name}, {', '.join(left_out)} is left out: no question is left"
            )
        row = BiasRow(
            model, key, result.value, result.low, result.high, considered.images, result.expected,
            result.p_value, rule=config.amplification, note="; ".join(remarks) or None, replicates=result.replicates,
        )  # fmt: skip
        measurements.biases.append(row)


def _measure_captions(measurements: MeasuredModels, result_block: ResultBlock, guesses: GroupGuesses) -> None:
    captions, notes = read_captions(result_block.name, result_block.block, result_block.images)
    measurements.notes += notes
    for model, of_model in captions.items():
        if len(set(of_model.values())) == 1:
            measurements.notes.append(f"{result_block.name}: {model} gives every image the same caption")
    scores = {model: _cider(of_model, result_block.images) for model, of_model in captions.items()}
    chance = chance_of(result_block.config)
    for view in result_block.images.views:
        for attribute in result_block.images.attributes:
            key = result_block.key("kl_cider", attribute, view)
            measure_disparity(measurements, key, scores, (attribute, view), chance, result_block.images.copies)
    for attribute in result_block.images.attributes:
        key = result_block.key("lic", attribute, result_block.images.views[0])
        measure_leakage(measurements, replace(guesses, images=result_block.images), key, attribute, captions)


def _cider(captions: Mapping[int, str], images: Images) -> tuple[Floats, Floats]:
    """Returns the CIDEr of each image that has references, and 1 for it. Document frequencies are those of all these
    references."""
    references = images.captions or []
    with_references = [image for image in captions if references[image]]
    totals, counts = np.zeros(len(images.rows)), np.zeros(len(images.rows))
    if with_references:
        scored = cider(
            [words_of(captions[image]) for image in with_references],
            [[words_of(text) for text in references[image]] for image in with_references],
        )
        totals[with_references], counts[with_references] = scored, 1.0
    return totals, counts
