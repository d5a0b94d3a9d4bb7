"""Biases of systems that were built on the CLIP models: their answers as read from tables, and measures of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.clip_bias.config import ClipBiasConfig, Downstream
from c2b_ray.audits.clip_bias.datasets import Images, read_results
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
from c2b_ray.errors import ConfigError, nearest
from c2b_ray.names import normalise
from c2b_ray.roles import GroupGuesser
from c2b_ray.stats import Floats, Ints
from c2b_ray.stats.amplification import AmplificationAnswers, amplification
from c2b_ray.stats.retrieval import cider
from c2b_ray.storage.parts import read_stage
from c2b_ray.tables import seed_of
from c2b_ray.tables.clip_bias import CLIP_GUESSES

# Reads the answers of models that were built on the CLIP models, and joins them with their dataset: the same images
# and questions for all of them.


# Answers to questions about images: which are right, and which of them bias amplification considers.


BINARY = frozenset({"yes", "no", "true", "false"})
_NUMBER_WORDS = frozenset(
    ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "none"]
)
_NUMBER = re.compile(r"[-+]?[\d.,:/%]+")


@dataclass(frozen=True)
class AnsweredQuestion:
    """A question about an image: `image` is its number in the dataset, `answer` the truth; both answers normalised."""

    image: int
    answer: str
    prediction: str
    accuracy: float


def answered_question(image: int, answer: str, prediction: str, accuracy: float | None) -> AnsweredQuestion:
    """`accuracy`: as in the table; None: 1 where the two answers are equal except for case and spaces."""
    true, predicted = normalise(answer), normalise(prediction)
    return AnsweredQuestion(image, true, predicted, float(true == predicted) if accuracy is None else accuracy)


def scores_of(questions: Sequence[AnsweredQuestion], images: int) -> tuple[Floats, Floats]:
    """Returns the sum of accuracies and the number of questions of each image, (images,) each."""
    totals, counts = np.zeros(images), np.zeros(images)
    for question in questions:
        totals[question.image] += question.accuracy
        counts[question.image] += 1
    return totals, counts


def open_ended(answer: str) -> bool:
    """Returns whether an answer is neither binary nor a number."""
    return answer not in BINARY and answer not in _NUMBER_WORDS and _NUMBER.fullmatch(answer) is None


def vocabulary(questions: Sequence[AnsweredQuestion], most: int) -> list[str]:
    """Returns the `most` most frequent open-ended true answers, ties in alphabetical order."""
    counts = Counter(question.answer for question in questions if open_ended(question.answer))
    return [answer for answer, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most]]


@dataclass(frozen=True)
class Considered:
    """The questions that bias amplification considers, about so many `images`; `words`: the vocabulary."""

    answers: AmplificationAnswers
    words: list[str]
    images: int


def filtered(
    questions: Sequence[AnsweredQuestion],
    attribute: Attribute,
    members: Ints,
    most: int,
    copies: Ints | None = None,
) -> Considered:
    """Returns, as numbers, the questions about `members` with a value of the attribute and a true answer of the
    vocabulary.

    Ramos et al. 2025, section 3.3: samples with answers that are binary, numerical, or outside the 50 most frequent are
    removed. A prediction outside the vocabulary is kept as -1, none of the considered answers. `copies`: for each
    image, the number of the first that is the same picture; the questions about these are as those about one image.
    """
    inside = set(members.tolist())
    in_group = [question for question in questions if question.image in inside and attribute.codes[question.image] >= 0]
    words = vocabulary(in_group, most)
    numbers = {word: number for number, word in enumerate(words)}
    in_vocabulary = [question for question in in_group if question.answer in numbers]
    codes = np.array([attribute.codes[question.image] for question in in_vocabulary], np.int64)
    pictures = [
        (question.image if copies is None else int(copies[question.image]), attribute.codes[question.image])
        for question in in_vocabulary
    ]
    number_of = {picture: number for number, picture in enumerate(dict.fromkeys(pictures))}
    answers = AmplificationAnswers(
        np.array([number_of[picture] for picture in pictures], np.int64),
        codes,
        np.array([numbers[question.answer] for question in in_vocabulary], np.int64),
        np.array([numbers.get(question.prediction, -1) for question in in_vocabulary], np.int64),
        len(attribute.values),
        len(words),
    )
    return Considered(answers, words, len({question.image for question in in_vocabulary}))


def constant(questions: Mapping[str, Sequence[AnsweredQuestion]]) -> dict[str, str]:
    """Returns the models that predict the same answer to every question → that answer."""
    predictions = {
        model: {question.prediction for question in answered_questions}
        for model, answered_questions in questions.items()
    }
    return {model: next(iter(distinct)) for model, distinct in predictions.items() if len(distinct) == 1}


Item = tuple[str, str]
"""An image, and the question about it; "" for a caption."""


class ResultRow(TypedDict, total=False):
    """A row of a table of results as it is read. Its values may have any type, because users write these tables."""

    image: object
    question: object
    answer: object
    prediction: object
    accuracy: object
    caption: object


ResultRows = dict[str, dict[Item, ResultRow]]
"""Model → item → its row."""


@dataclass(frozen=True)
class Results:
    """`rows`: all models have the same items. `notes`: what was left out."""

    rows: ResultRows
    notes: list[str]


def read_vqa(name: str, block: Downstream, images: Images) -> tuple[dict[str, list[AnsweredQuestion]], list[str]]:
    """Returns by model the questions that all models answered, and notes for people. Raises ConfigError as `_joined`
    does."""
    field = f"downstream.{name}.vqa"
    tables = {
        model: read_results(path, f"{field}.{model}", ("image", "question", "answer", "prediction"), ("accuracy",))
        for model, path in (block.vqa or {}).items()
    }
    results = _joined(field, tables, images, True)
    number = {key: i for i, key in enumerate(images.keys)}
    by_model = {
        model: [
            answered_question(
                number[image], _text(row["answer"]), _text(row["prediction"]), _accuracy(row, f"{field}.{model}")
            )
            for (image, _), row in rows.items()
        ]
        for model, rows in results.rows.items()
    }
    return by_model, [*results.notes, *_other_truths(field, results)]


def read_captions(name: str, block: Downstream, images: Images) -> tuple[dict[str, dict[int, str]], list[str]]:
    """Returns by model the captions of the images that all models captioned (number of the image → caption), and notes.

    Raises ConfigError as `_joined` does, or where the dataset has no captions to compare with.
    """
    field = f"downstream.{name}.captions"
    if images.captions is None:
        raise ConfigError(field, f"{images.table.location} has no captions to compare these with; name its `caption`")
    tables = {
        model: read_results(path, f"{field}.{model}", ("image", "caption"))
        for model, path in (block.captions or {}).items()
    }
    results = _joined(field, tables, images, False)
    number = {key: i for i, key in enumerate(images.keys)}
    return {
        model: {number[image]: _text(row["caption"]) for (image, _), row in rows.items()}
        for model, rows in results.rows.items()
    }, results.notes


def _joined(field: str, tables: Mapping[str, pa.Table], images: Images, with_questions: bool) -> Results:
    """Returns the items that all models have, and notes on the others.

    Raises ConfigError for a table that names images which the dataset does not have, or one of them twice, and where
    models have no image in common.
    """
    known_keys, usable = set(images.table.keys), set(images.keys)
    rows: ResultRows = {}
    for model, answers in tables.items():
        read: list[ResultRow] = answers.to_pylist()
        items = [((str(row["image"]), _text(row["question"]) if with_questions else ""), row) for row in read]
        _refuse(f"{field}.{model}", [item for item, _ in items], known_keys, images.table.location)
        rows[model] = {item: row for item, row in items if item[0] in usable}
    common = set.intersection(*(set(of_model) for of_model in rows.values()))
    if not common:
        raise ConfigError(field, f"the tables of {', '.join(tables)} have no image in common: nothing compares them")
    notes = []
    for model, of_model in rows.items():
        if left_out := len(of_model) - len(common):
            noun = "questions" if with_questions else "images"
            notes.append(
                f"{field}.{model}: {left_out} of {len(of_model)} {noun} are left out, as other models did not have them"
            )
    order = [item for item in next(iter(rows.values())) if item in common]
    return Results({model: {item: of_model[item] for item in order} for model, of_model in rows.items()}, notes)


def _other_truths(field: str, results: Results) -> list[str]:
    """Returns notes on questions whose true answer differs from the first model's table: such a comparison is
    unfair."""
    (first, rows), *further = results.rows.items()
    notes = []
    for model, of_model in further:
        differ = [item for item, row in of_model.items() if _truth(row) != _truth(rows[item])]
        if differ:
            image, question = differ[0]
            notes.append(
                f"{field}.{model}: {len(differ):,} of {len(of_model):,} questions have another true answer than in the "
                f"table of {first}, such as {question!r} of {image!r}"
            )
    return notes


def _truth(row: ResultRow) -> str:
    return normalise(_text(row["answer"]))


def _refuse(field: str, items: Iterable[Item], known_keys: set[str], dataset: str) -> None:
    counts = Counter(items)
    for image, text in counts:
        if image not in known_keys:
            raise ConfigError(field, f"{dataset} has no image {image!r}; {nearest(image, list(known_keys)[:5000])}")
        if counts[image, text] > 1:
            description = f"the question {text!r} of {image!r}" if text else f"the image {image!r}"
            raise ConfigError(field, f"{description} stands in {counts[image, text]} rows; give it one")


def _accuracy(row: ResultRow, field: str) -> float | None:
    value = row.get("accuracy")
    if value is None or value != value:
        return None
    try:
        number = float(str(value))
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise ConfigError(field, f"accuracy {value!r} of {row['image']!r}: expected a number in 0 to 1")
    return number


def _text(value: object) -> str:
    return "" if value is None else " ".join(str(value).split())


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
