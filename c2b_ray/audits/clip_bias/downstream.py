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
        held = read_stage(out, ["guess_id", "scores"])
        held = held.filter(pc.is_in(held["guess_id"], rows["guess_id"].combine_chunks()))  # others' are many
        return {row["guess_id"]: np.array(row["scores"], np.float64) for row in held.to_pylist()}


def measure_leakage(
    measured: MeasuredModels,
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
    for model, said in captions.items():
        known = vocabulary_of(list(said.values()))
        ours = {image: masked(text, mask) for image, text in said.items() if attribute.codes[image] >= 0}
        theirs = {image: [masked(text, mask, known) for text in references[image]] for image in ours}
        theirs = {image: [text for text in some if not says_nothing(text)] for image, some in theirs.items()}
        held = [image for image, text in ours.items() if not says_nothing(text) and theirs[image]]
        if lost := len(ours) - len(held):
            measured.notes.append(
                f"{key.dataset}, {attribute.name}: {lost:,} of {len(ours):,} images are left out of LIC of {model}: a "
                "caption of theirs has no words left after masking"
            )
        problem = attribute.problem(np.array(held, np.int64)) if held else "no caption has words left after masking"
        if problem is None and len(held) < LEAST_IMAGES:
            problem = f"{len(held):,} images with captions; LIC needs {LEAST_IMAGES:,}"
        if problem is not None:
            measured.unknown([model], key, len(held), problem)
            continue
        texts = ([ours[image] for image in held], [theirs[image] for image in held])
        measured.biases.append(_row(model, key, guesses, (attribute, held), texts))


def _row(
    model: str,
    key: Key,
    guesses: GroupGuesses,
    at: tuple[Attribute, list[int]],
    texts: tuple[list[str], list[list[str]]],
) -> BiasRow:
    (attribute, held), (ours, theirs), settings = at, texts, guesses.config.leakage
    groups = tuple(attribute.codes[held].tolist())
    assert guesses.images is not None
    copies = tuple(guesses.images.copies[held].tolist()) if guesses.images.copied else ()

    def both_of(draw: int, swap: bool) -> tuple[GuessingTask, GuessingTask]:
        seed = seed_of("clip-bias lic", guesses.config.seed, key.dataset, key.attribute, draw, swap)
        chosen = [some[(seed + row) % len(some)] for row, some in enumerate(theirs)]
        moved = np.random.default_rng(seed).random(len(ours)) < 0.5 if swap else np.zeros(len(ours), bool)
        sides = zip(ours, chosen, moved.tolist(), strict=True)
        one, other = zip(*((b, a) if change else (a, b) for a, b, change in sides), strict=True)
        fixed = (groups, len(attribute.values), settings.folds, seed, settings.guesser, copies)
        return GuessingTask(one, *fixed), GuessingTask(other, *fixed)

    draws = [both_of(draw, swap=False) for draw in range(settings.seeds)]
    swaps = [both_of(draw, swap=True) for draw in range(settings.swaps)]
    made = guesses.made([one for both in (*draws, *swaps) for one in both])
    scores, people = (np.stack([made[both[side].guess_id] for both in draws]) for side in (0, 1))
    null = np.array([made[a.guess_id].mean() - made[b.guess_id].mean() for a, b in swaps])
    leak = leak_of(scores, people, null, 1 - guesses.config.alpha)
    notes = ["constant captions"] if len(set(ours)) == 1 else []
    notes += _rare(attribute, guesses.images.copies[held], attribute.codes[held], settings.folds)
    note = "; ".join(notes) or None
    return BiasRow(model, key, leak.value, leak.low, leak.high, len(held), 0.0, leak.p_value, note=note)


def _rare(attribute: Attribute, copies: Ints, codes: Ints, folds: int) -> list[str]:
    """Returns a note on values with fewer different images than folds: guessers have next to nothing to learn them
    from, so that LIC is near 0 whatever captions say of these values."""
    counts = [len(np.unique(copies[codes == number])) for number in range(len(attribute.values))]
    few = [f"{value!r} ({count})" for value, count in zip(attribute.values, counts, strict=True) if count < folds]
    return [f"says nothing of {', '.join(few)}: fewer images than folds"] if few else []


@dataclass(frozen=True)
class ResultBlock:
    """A block of results: its name in the config, its section, and the dataset that it is about."""

    name: str
    block: Downstream
    images: Images
    config: ClipBiasConfig

    def key(self, metric: str, attribute: Attribute, view: ImageSubset) -> Key:
        return Key(self.name, metric, attribute.name, view.view, view.group, DOWNSTREAM)


def measure_downstream(measured: MeasuredModels, built: ResultBlock, guesses: GroupGuesses) -> None:
    """Adds the rows of one block of results."""
    if built.block.vqa is not None:
        _measure_vqa(measured, built)
    else:
        _measure_captions(measured, built, guesses)


def _measure_vqa(measured: MeasuredModels, built: ResultBlock) -> None:
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
    measured: MeasuredModels, built: ResultBlock, attribute: Attribute, questions: Mapping[str, list[AnsweredQuestion]]
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


def _measure_captions(measured: MeasuredModels, built: ResultBlock, guesses: GroupGuesses) -> None:
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
