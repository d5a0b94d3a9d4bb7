"""Answers one question to a finished run: how often is the classifier right on images of this sentence?

    sentence → class, images → predictions → rate against the class's other images

It composes steps and models as an audit does, and changes nothing in the run.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray import stats
from c2b_ray.audits.c2b.classification import classifiers_of, one_of
from c2b_ray.audits.c2b.run import CLASSIFIER, C2BRun, load_c2b_run
from c2b_ray.audits.kit.backend import at_hand
from c2b_ray.audits.kit.loaders import Loaders
from c2b_ray.config.named import IMAGES as IMAGES_OF_QUESTION
from c2b_ray.config.named import LABELLED, QuestionConfig, draws_images
from c2b_ray.errors import Argument, ConfigError, RunError, naming, nearest
from c2b_ray.names import normalise
from c2b_ray.report import words
from c2b_ray.report.blocks import Galleries, Page, Paragraph, Section, spec
from c2b_ray.report.pictures import RIGHT, WRONG, Gallery, Picture, ThumbnailSet, thumbnails
from c2b_ray.report.redact import clean, names_of
from c2b_ray.steps.answers import UNDECIDED, Taken, answers_of, named_class
from c2b_ray.steps.classify import BELOW, classification, predict
from c2b_ray.steps.draw import ImageIds, fetch, generate, generated
from c2b_ray.steps.duplicates import DISTINCT_COLUMNS, Distinct
from c2b_ray.steps.retrieve import retrieve
from c2b_ray.storage import files
from c2b_ray.storage.run import Run, finished
from c2b_ray.tables import IMAGES, content_id
from c2b_ray.text import finite

# Computes how often the classifier is right on images of a sentence, compared with the class's other images.


MOST_MISTAKES = 3


@dataclass(frozen=True)
class Rate:
    """The number of answered images, how many are right, and the accuracy with its interval; NaN where there
    are none."""

    n: int
    correct: int
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True)
class SentenceAnswer:
    """One classifier's results on the images of a sentence.

    `of_sentence`: the rate on the images of the sentence. `of_class`: on all images of the class in the run. `others`:
    on the images of the class that the sentence did not draw. Each counts a picture once. `difference`: the accuracy of
    `of_sentence` minus that of `others`, which are disjoint samples, with Newcombe's interval (1998) and `p_value`.
    """

    classifier: str
    of_sentence: Rate
    errors: int
    of_class: Rate
    others: Rate
    difference: float
    difference_low: float
    difference_high: float
    p_value: float
    mistaken_for: tuple[tuple[str, int], ...]


def class_of(sentence: str, classes: Sequence[str], given_class: str | None) -> str:
    """Returns the class that the sentence is about: `given_class`, else the only class that it names, in singular or
    plural.

    Where one name contains another, the longer counts. Raises ConfigError where the sentence names no class or several.
    """
    if given_class is not None:
        by_form = {normalise(name): name for name in classes}
        if normalise(given_class) not in by_form:
            raise ConfigError(Argument.CLASS, f"the run has no class {given_class!r}; {nearest(given_class, classes)}")
        return by_form[normalise(given_class)]
    text = normalise(sentence)
    spans = [
        (match.start(), match.end(), name)
        for name in classes
        for match in re.finditer(rf"(?<!\w){re.escape(normalise(name))}(?:e?s)?(?!\w)", text)
    ]
    longest = [s for s in spans if not any(o[0] <= s[0] and s[1] <= o[1] and o[1] - o[0] > s[1] - s[0] for o in spans)]
    classes_named = list(dict.fromkeys(name for *_, name in longest))
    if len(classes_named) == 1:
        return classes_named[0]
    problem = f"names several classes ({', '.join(classes_named)})" if classes_named else "names no class of the run"
    remedy = naming(f"name one of {', '.join(classes)} with ", Argument.CLASS)
    raise ConfigError(Argument.CLASS, f"{sentence!r} {problem}", remedy=remedy)


def images_of_class(captions: pa.Table, draws: pa.Table, target_class: str) -> set[str]:
    """Returns every image that was drawn for the class."""
    ids = captions.filter(pc.equal(captions["target_class"], target_class))["caption_id"].combine_chunks()
    return set(draws.filter(pc.is_in(draws["caption_id"], ids))["image_id"].to_pylist())


def answer(
    classifier: str,
    target_class: str,
    sentence_predictions: pa.Table,
    run: tuple[set[str], pa.Table],
    confidence: float,
    distinct: Distinct,
) -> SentenceAnswer:
    """Returns one classifier's results on a sentence.

    `sentence_predictions`: of the images of the sentence, each picture once. `run`: the class's images in the run, and
    the run's predictions. `distinct`: which images of both are the same picture.
    """
    of_images = answers_of(sentence_predictions, classifier).of(target_class)
    images, predictions = run
    answers_of_run = answers_of(predictions, classifier).of(target_class)
    everything = {**of_images, **{i: answers_of_run.get(i) for i in sorted(images) if i not in of_images}}
    distinct_ids = set(one_of_each_picture(list(everything), distinct))
    rate = _rate(of_images, target_class, confidence)
    other_images = _rate({i: everything[i] for i in distinct_ids - set(of_images)}, target_class, confidence)
    of_class = one_of_each_picture(sorted(images), distinct)
    counts = [rate.correct, other_images.correct], [rate.n, other_images.n]
    low, high = stats.bias_score_interval(*counts, confidence)
    return SentenceAnswer(
        classifier=classifier,
        of_sentence=rate,
        errors=len(of_images) - rate.n,
        of_class=_rate({i: answers_of_run.get(i) for i in of_class}, target_class, confidence),
        others=other_images,
        # Of two cells φ is the difference, its interval Newcombe's, its test of no difference that interval's.
        difference=float(stats.bias_scores(*counts)[0]),
        difference_low=float(low[0]),
        difference_high=float(high[0]),
        p_value=float(stats.bias_score_p_values(*counts)[0]),
        mistaken_for=_mistaken_for(of_images, target_class),
    )


def one_of_each_picture(images: Sequence[str], distinct: Distinct) -> list[str]:
    """Returns the first image of each picture."""
    pictures = distinct.pictures(ImageIds(pa.array(images, pa.large_string())))
    first: dict[int, str] = {}
    for picture, image in zip(pictures.tolist(), images, strict=True):
        first.setdefault(picture, image)
    return list(first.values())


def _mistaken_for(answers: Taken, target_class: str) -> tuple[tuple[str, int], ...]:
    wrong = Counter(name for name in answers.values() if name not in (None, target_class, BELOW))
    return tuple(sorted(((str(name), n) for name, n in wrong.items()), key=lambda x: (-x[1], x[0]))[:MOST_MISTAKES])


def _rate(answers: Taken, target_class: str, confidence: float) -> Rate:
    names = [name for name in answers.values() if name is not None]
    correct = names.count(target_class)
    low, high = stats.wilson_interval(correct, len(names), confidence)
    return Rate(len(names), correct, correct / len(names) if names else float("nan"), low, high)


# One HTML page that answers a question to a run: the rates in sentences, and the images with the classifier's
# answers.


MOST_PICTURES = 48  # of each kind


TERMS = (
    "Intervals are {interval}: Wilson’s of an accuracy, Newcombe’s (1998) of a difference, whose p-value is of no "
    "difference. The difference is to the class’s images in the run that this sentence did not draw. Images found by "
    "caption are noisy labels: not each of them shows what the sentence says."
)


def answers_page(
    sentence: str,
    target_class: str,
    answers: Sequence[SentenceAnswer],
    tables: tuple[pa.Table, pa.Table],
    alpha: float,
    repeats: int = 0,
) -> Page:
    """`tables`: the images with their bytes, and all predictions; `repeats`: images that were left out."""
    images, predictions = tables
    pictures = {
        i: data for i, data in zip(*(images[c].to_pylist() for c in ("image_id", "bytes")), strict=True) if data
    }
    keys = dict(zip(*(images[c].to_pylist() for c in ("image_id", "key")), strict=True))
    thumbnail_set = ThumbnailSet(thumbnails(pictures), keys)
    names = names_of([answer.classifier for answer in answers])
    count = f"{words.plural(images.num_rows, 'image')} of {words.article(target_class)}{target_class}, best first."
    return Page(
        title=clean(sentence),
        suffix="classifier audit",
        kicker="Asked of a classifier audit",
        head=[Paragraph(" ".join([count, *left_out(repeats)]), "scale")],
        sections=(
            *(_section(item, target_class, predictions, thumbnail_set, names[item.classifier]) for item in answers),
            Section("How it was asked", [Paragraph(TERMS.format(interval=words.percent(1 - alpha)))]),
        ),
    )


def left_out(repeats: int) -> list[str]:
    """Returns a sentence about images of the sentence that were left out; [] if none were."""
    return [f"Left out: {words.plural(repeats, 'near-duplicate')} of other images of the sentence."] if repeats else []


def right_line(rate: Rate) -> str:
    """Returns a line with the number of right answers, the accuracy and its interval."""
    if not rate.n:
        return "No image has an answer."
    return (
        f"{words.count(rate.correct)} of {words.count(rate.n)} right: {words.percent(rate.accuracy)} "
        f"({words.percent_range(rate.low, rate.high)})"
    )


def lines(answer: SentenceAnswer, target_class: str) -> tuple[str, ...]:
    """Returns the known lines of an answer: the class's rate, the difference, the wrong answers, and the unanswered
    images."""
    sentences = []
    if answer.of_class.n:
        sentences.append(
            f"All of the run’s images of {words.article(target_class)}{target_class}: {right_line(answer.of_class)}."
        )
    if answer.difference == answer.difference:
        interval = words.signed_range(answer.difference_low, answer.difference_high)
        sentences.append(
            f"Difference to the {words.count(answer.others.n)} of them not drawn here: "
            f"{words.signed(answer.difference)} ({interval}), p {_p(answer.p_value)}."
        )
    if answer.mistaken_for:
        sentences.append(
            f"Most often taken for {words.listed([f'{name} ({words.count(n)})' for name, n in answer.mistaken_for])}."
        )
    if answer.errors:
        sentences.append(f"{words.plural(answer.errors, 'image')} could not be answered.")
    return tuple(sentences)


def _p(value: float) -> str:
    text = words.small_probability(value)
    return text if text.startswith("<") else f"= {text}"


def _section(
    answer: SentenceAnswer, target_class: str, predictions: pa.Table, thumbnail_set: ThumbnailSet, name: str
) -> Section:
    answers_of_classifier = predictions.filter(
        pc.and_(pc.equal(predictions["classifier"], answer.classifier), pc.is_null(predictions["error"]))
    ).to_pylist()
    answer_of_image = answers_of(predictions, answer.classifier).of(target_class)
    kinds: dict[bool, list[Mapping[str, Any]]] = {False: [], True: []}
    for row in (row for row in answers_of_classifier if answer_of_image[row["image_id"]] is not None):
        kinds[answer_of_image[row["image_id"]] == target_class].append(row)
    galleries = [_gallery(right, rows, thumbnail_set, name) for right, rows in kinds.items() if rows]
    sentences = [Paragraph(line) for line in lines(answer, target_class)]
    return Section(
        (spec(name),), [Paragraph(right_line(answer.of_sentence), "tally"), *sentences, Galleries(galleries, level=3)]
    )


def _gallery(right: bool, rows: Sequence[Mapping[str, Any]], thumbnail_set: ThumbnailSet, name: str) -> Gallery:
    kind, sign = ("right", RIGHT) if right else ("wrong", WRONG)
    pictured = rows[:MOST_PICTURES]
    return Gallery(
        verdict=kind,
        sign=sign,
        title=f"{kind.capitalize()}: {words.count(len(pictured))} of {words.count(len(rows))}",
        pictures=tuple(_picture(row, thumbnail_set, name, kind) for row in pictured),
    )


def _picture(row: Mapping[str, Any], thumbnail_set: ThumbnailSet, name: str, kind: str) -> Picture:
    predicted, probability = named_class(row["predicted_class"]), row["label_probability"]
    label = row["label"] or predicted or UNDECIDED
    probability_text = "" if probability is None else f"{probability:.2f}"
    return Picture(
        source=thumbnail_set.thumbnails.get(row["image_id"], ""),
        key=clean(thumbnail_set.keys.get(row["image_id"], "")),
        alt=f"{name} says {label}{f' with probability {probability_text}' if probability_text else ''}: {kind}.",
        label=label,
        probability=probability_text,
        stands_for="" if label.lower() == predicted.lower() else predicted,
        caption="",
    )


QuestionSample = Callable[[str, int], tuple[pa.Table, dict[str, str]]]
"""Draws n images of a caption, best first: a table of `tables.IMAGES`, and their source, for the record."""


@dataclass(frozen=True)
class AnswerSet:
    """The answer of each classifier, with its data. `images` is a table of `tables.IMAGES`, `predictions` one of
    `tables.PREDICTIONS`. `repeats`: how many images of the sentence were left out, near-duplicates of others of it."""

    run: C2BRun
    sentence: str
    target_class: str
    source: dict[str, str]
    alpha: float
    answers: tuple[SentenceAnswer, ...]
    images: pa.Table
    predictions: pa.Table
    repeats: int

    @property
    def id(self) -> str:
        classifiers = [answer.classifier for answer in self.answers]
        return content_id(
            "ask", self.sentence, self.target_class, self.source, classifiers, self.images["image_id"].to_pylist()
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the answer for programs: null where a number is not known."""
        keys = dict(zip(self.images["image_id"].to_pylist(), self.images["key"].to_pylist(), strict=True))
        columns = ["image_id", "classifier", "label", "label_probability", "predicted_class", "error"]
        rows = self.predictions.select(columns).to_pylist()
        document = {
            "run": self.run.path,
            "sentence": self.sentence,
            "target_class": self.target_class,
            "source": self.source,
            "repeats": self.repeats,
            "answers": [  # under the key that programs have read since the command exists
                {"asked" if name == "of_sentence" else name: value for name, value in asdict(item).items()}
                for item in self.answers
            ],
            "predictions": [{"key": keys[row["image_id"]], **row} for row in rows],
        }
        return dict(finite(document))

    def keep(self) -> str:
        """Writes the answer beside the run's tables, whole or not at all; returns the file's path."""
        path = self.run.location(f"asked/{self.id}.json")
        files.write_under(path, (json.dumps(self.to_json(), ensure_ascii=False, indent=2) + "\n").encode())
        return path

    def write_page(self, path: str | Path) -> None:
        tables = self.images, self.predictions
        page = answers_page(self.sentence, self.target_class, self.answers, tables, self.alpha, self.repeats)
        files.write_under(path, page.html().encode())


def ask(
    run: str | Path | Run,
    sentence: str,
    n: int = 50,
    classifier: str | None = None,
    target_class: str | None = None,
    index: str | None = None,
) -> AnswerSet:
    """Returns the answers of the run's classifiers, or of one of them, on `n` images of the sentence.

    `target_class`: by default the one that the sentence names. `index`: of the images, by default that of the run.
    Models answer from Ray Serve where it runs and serves them, otherwise in this process.

    Raises ConfigError where the class or the classifier is ambiguous, or where there is no index; RunError for an
    unfinished run, or where a classifier's weights are no longer those of the run.
    """
    loaded = load_c2b_run(finished(run))
    if not sentence.strip():
        raise ConfigError("", "ask with a sentence, such as 'a bus in the snow at night'")
    config = loaded.config
    target = class_of(sentence, config.classes, target_class)
    specs = classifiers_of(loaded) if classifier is None else [one_of(loaded, classifier, Argument.CLASSIFIER)]
    confidence = 1 - config.alpha
    with at_hand() as models:
        images, source = _draws(loaded, models, index)(sentence, n)
        answers, tables = [], []
        of_class = images_of_class(loaded.captions, loaded.draws, target)
        distinct = Distinct(
            pa.concat_tables([images.select(DISTINCT_COLUMNS), loaded.read("images", DISTINCT_COLUMNS)])
        )
        images_found = images.num_rows
        once = pa.array(one_of_each_picture(images["image_id"].to_pylist(), distinct), images["image_id"].type)
        images = images.filter(pc.is_in(images["image_id"], once))
        for spec in specs:
            predicted = _predictions(loaded, models, spec, images)
            tables.append(predicted)
            answers.append(answer(spec, target, predicted, (of_class, loaded.predictions), confidence, distinct))
    predictions, repeats = pa.concat_tables(tables), images_found - images.num_rows
    return AnswerSet(loaded, sentence, target, source, 1 - confidence, tuple(answers), images, predictions, repeats)


def _draws(run: C2BRun, models: Loaders, index: str | None) -> QuestionSample:
    """Returns a function that finds or makes images of a sentence: by the run's index, or its generator."""
    images, seed = run.config.images, run.config.seed
    path = index or images.index
    if path is not None:
        return lambda caption, n: _retrieved(caption, n, models, path)
    generator = images.generator
    if generator is not None:
        return lambda caption, n: _generated(caption, n, models, generator, seed)
    raise ConfigError(
        "--index",
        f"{run.path} is a run on labelled images, which holds none for a sentence of yours: name an "
        "index to look for them in (c2b index build makes one)",
    )


def _retrieved(caption: str, n: int, models: Loaders, path: str) -> tuple[pa.Table, dict[str, str]]:
    index = models.index(path)()
    captions = pa.table({"caption_id": ["sentence"], "text": [caption]})
    draws, found_images = retrieve(captions, models.encoder(index.encoder)(), index, n)
    images = fetch(found_images, index) if found_images.num_rows else IMAGES.empty_table()
    rows = {image_id: row for row, image_id in enumerate(images["image_id"].to_pylist())}
    nearest_first = images.take([rows[image_id] for image_id in draws["image_id"].to_pylist()])
    return nearest_first, {"source": "retrieve", "index": path, "revision": index.revision}


def _generated(caption: str, n: int, models: Loaders, spec: str, seed: int) -> tuple[pa.Table, dict[str, str]]:
    generator = models.image_generator(spec)()
    captions = pa.table({"caption_id": ["sentence"], "text": [caption]})
    _, planned_images = generated(captions, generator.revision, n, seed)
    return generate(planned_images, generator), {
        "source": "generate",
        "generator": spec,
        "revision": generator.revision,
    }


def _predictions(run: C2BRun, models: Loaders, name: str, images: pa.Table) -> pa.Table:
    config = run.config
    recorded = run.manifest.get("models", {}).get(f"{CLASSIFIER}{name}", {})
    classifier = models.classifier(recorded.get("spec", name))()
    label_map = config.label_map if isinstance(config.label_map, dict) else None
    question = classification(
        name, classifier, config.classes, label_map, config.right, threshold=config.threshold, several=True
    )
    earlier = recorded.get("revision")
    if earlier not in (None, question.revision):
        raise RunError(
            f"{name} has other weights now (revision {question.revision}) than in {run.path} ({earlier}), so the two "
            "cannot be held against each other: run its c2b audit again"
        )
    return predict(images, classifier, question)


# Questions as jobs of the shared endpoint (`audits.runs`).


PAGE = "report.html"


def check_question(run: C2BRun, question: QuestionConfig) -> None:
    """Raises ConfigError for a question that the run cannot answer. It loads no model."""
    if not draws_images(run.record.config):
        raise ConfigError("run", LABELLED)
    class_of(question.sentence, run.config.classes, question.target_class)
    if question.classifier is not None:
        one_of(run, question.classifier, Argument.CLASSIFIER)


def answer_question(
    run: C2BRun, question: QuestionConfig, out: str, via: str, listener: object
) -> tuple[dict[str, Any], int]:
    """Writes the page under `out`; returns the answer, and how many images classifiers answered about."""
    result = ask(run, question.sentence, question.n or IMAGES_OF_QUESTION, question.classifier, question.target_class)
    result.write_page(f"{out.rstrip('/')}/{PAGE}")
    printed = [
        line
        for classifier_answer in result.answers
        for line in (
            f"{classifier_answer.classifier}: {right_line(classifier_answer.of_sentence)}",
            *lines(classifier_answer, result.target_class),
        )
    ]
    return {**result.to_json(), "lines": [*printed, *left_out(result.repeats)]}, result.predictions.num_rows
