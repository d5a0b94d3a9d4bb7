"""The methods of an evaluation: audits, and baselines that ask a model about the same images."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray.audits.c2b.audit import audit
from c2b_ray.audits.c2b.run import CLASSIFIER, C2BRun, load_c2b_run
from c2b_ray.audits.evaluate.config import B2T, EvaluateConfig, KeywordBaseline
from c2b_ray.audits.evaluate.steps.matching import Keywords, audit_biases, keyword_biases
from c2b_ray.audits.evaluate.steps.outcomes import shown_table
from c2b_ray.audits.evaluate.steps.truth import TARGET, keyword_questions, once, pseudo_verdicts, vqa_table
from c2b_ray.audits.evaluate.truth import GroundTruth
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.session import Session, Steps
from c2b_ray.engine.images import CLASSIFY, VERIFY, ImageStages, OnProgress, RowsByImage, images_wanted, of_revision
from c2b_ray.engine.stage import Rows, Runner, StageConfig
from c2b_ray.errors import ConfigError
from c2b_ray.models.group_guessers import keywords, sentence
from c2b_ray.names import normalise
from c2b_ray.report.words import source_of
from c2b_ray.roles import Captioner, TextImageEncoder
from c2b_ray.steps import encoded
from c2b_ray.steps.decode import decode_batch
from c2b_ray.steps.fetch import Load, with_reading
from c2b_ray.steps.observe import WANTED, Checks, checks, wanted
from c2b_ray.storage.manifest import read_yaml
from c2b_ray.storage.parts import opened, read_stage
from c2b_ray.storage.run import finished
from c2b_ray.tables import content_id
from c2b_ray.tables.evaluate import SAID, SEEN, SHOWN, VQA

YAML = (".yaml", ".yml")


@dataclass(frozen=True)
class Method:
    """`biases`: of `tables.evaluate.BIASES`, for the evaluation's classifiers and classes."""

    name: str
    run: C2BRun
    biases: pa.Table

    @property
    def language_model(self) -> str | None:
        spec = self.run.manifest.get("models", {}).get("language_model", {}).get("spec")
        return None if spec is None else str(spec)


def method(name: str, config: EvaluateConfig, truth: GroundTruth, out: str, session: Session) -> Method:
    """Returns the method of that name; its audit runs if it has not yet."""
    source = config.methods[name]
    if isinstance(source, str) and not source.lower().endswith(YAML):
        run = load_c2b_run(finished(source))
    else:
        fields = _fields(name, source)
        run = audit(
            {
                "task": config.task,
                "classes": list(truth.classes),
                "tau": config.tau,
                "alpha": config.alpha,
                "seed": config.seed,
                **fields,
                "classifier": config.classifier,
                "right": config.right,
                "label_map": truth.run.manifest.get("config", {}).get("label_map"),
            },
            f"{out}/methods/{folder_name(name)}",
            session.via,
            session.listener,
            session.placement,
        )
    _check_run(name, config, truth, run)
    scores = _of_classes(run.scores, truth.classes)
    is_of_config = pc.is_in(scores["classifier"], pa.array(list(config.specs)))
    return Method(name, run, audit_biases(name, scores.filter(is_of_config)))


def _of_classes(scores: pa.Table, classes: Sequence[str]) -> pa.Table:
    """Returns the scores of these classes, with the names used here: an audit may have written Bus for bus."""
    names = {normalise(name): name for name in classes}
    class_names = pa.array([names.get(normalise(name)) for name in scores["target_class"].to_pylist()], pa.string())
    column = scores.schema.get_field_index("target_class")
    return scores.set_column(column, "target_class", class_names).filter(class_names.is_valid())


def folder_name(name: str) -> str:
    """Returns a directory's name that differs for each method, whatever the methods are called."""
    return f"{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')[:40] or 'method'}-{content_id(name)[:6]}"


def _fields(name: str, source: str | dict[str, Any]) -> dict[str, Any]:
    """Returns an audit's fields without those that the evaluation sets. Paths in a file are relative to that file."""
    if isinstance(source, dict):
        return source
    from pathlib import Path

    from c2b_ray.audits.evaluate.config import located_audit

    data = read_yaml(source)
    if not isinstance(data, dict):
        raise ConfigError(f"methods.{name}", "expected a mapping of an audit's fields", location=source)
    return located_audit(
        {field: value for field, value in data.items() if field not in ("classifier", "right", "label_map")},
        Path(source).parent,
    )


def _check_run(name: str, config: EvaluateConfig, truth: GroundTruth, run: C2BRun) -> None:
    """Raises ConfigError where a run has other classifiers, whatever they are called, or fewer classes: what it could
    not detect would count as missed."""
    classifiers_of_run = set(run.scores["classifier"].to_pylist())
    models = [audit_run.manifest.get("models", {}) for audit_run in (truth.run, run)]
    for classifier in config.specs:
        if classifier not in classifiers_of_run:
            raise ConfigError(
                f"methods.{name}",
                f"{run.path} has no scores of {classifier}; it has those of {', '.join(sorted(classifiers_of_run))}",
            )
        of_truth, of_run = (
            models_of_run.get(f"{CLASSIFIER}{classifier}", {}).get("revision") for models_of_run in models
        )
        if of_truth != of_run:
            raise ConfigError(
                f"methods.{name}",
                f"{run.path} calls another model {classifier}: its weights are not those that answer the ground truth",
            )
    audited = {normalise(target) for target in run.config.classes or run.scores["target_class"].to_pylist()}
    if missing := [target for target in truth.classes if normalise(target) not in audited]:
        raise ConfigError(
            f"methods.{name}", f"{run.path} did not audit {', '.join(missing[:5])}; leave that out of `classes`"
        )


# Asks questions about images: pseudo-labels of the ground truth (Tables 3 and 4), and whether the images that a
# method drew show what they were drawn for (App. F).


@dataclass
class QuestionTables:
    """Tables of `tables.evaluate.VQA` and of `SHOWN`, of each method."""

    vqa: list[pa.Table] = field(default_factory=lambda: [VQA.empty_table()])
    shown: list[pa.Table] = field(default_factory=lambda: [SHOWN.empty_table()])

    def tables(self) -> tuple[pa.Table, pa.Table]:
        return pa.concat_tables(self.vqa), pa.concat_tables(self.shown)


def ask(
    config: EvaluateConfig,
    truth: GroundTruth,
    methods: Sequence[Method],
    keywords: pa.Table | None,
    where: tuple[Backend, str, Steps],
) -> QuestionTables:
    """Asks about the ground truth's images everything that the methods propose, and about the images that they drew."""
    models, out, steps = where
    result = QuestionTables()
    if config.vqa is None:
        return result
    spec = config.vqa.model
    revision = models.describe("captioner", spec).revision
    questioner = _Asking(models, partial(of_revision, models.captioner(spec), revision, spec), out, steps)
    rows = once(truth.wanted(config.vqa.images, config.seed), truth.pictures)
    levels = (config.tau, config.alpha)
    for method in methods:
        questions = checks(spec, revision, truth.classes, method.run.captions)
        answers = questioner.of_truth(truth, rows.tolist(), questions, folder_name(method.name))
        verdicts = pseudo_verdicts(method.biases, answers, truth.row_of, truth.right, levels)
        result.vqa.append(vqa_table(method.name, verdicts))
        if config.vqa.drawn:
            result.shown.append(questioner.of_method(method, questions, config))
    if keywords is not None:
        questions = keyword_questions(spec, revision, keywords, truth.classes)
        answers = questioner.of_truth(truth, rows.tolist(), questions, folder_name(B2T))
        result.vqa.append(vqa_table(B2T, pseudo_verdicts(keywords, answers, truth.row_of, truth.right, levels)))
    return result


@dataclass(frozen=True)
class _Asking:
    models: Backend
    captioner: partial[Captioner]
    out: str
    steps: Steps

    def of_truth(self, truth: GroundTruth, rows: Sequence[int], questions: Checks, folder: str) -> pa.Table:
        images = {row: image for image, row in truth.row_of.items()}
        targets = truth.labels[TARGET].to_pylist()
        pairs = [(images[row], targets[row]) for row in rows]
        table = pa.Table.from_pylist(
            [{WANTED[0]: i, WANTED[1]: t, WANTED[2]: questions.verification_id(i, t)} for i, t in pairs],
            pa.schema([(name, pa.string()) for name in WANTED]),
        )
        return self._answers(truth.run, table, questions, f"{self.out}/pseudo_labels/{folder}")

    def of_method(self, method: Method, questions: Checks, config: EvaluateConfig) -> pa.Table:
        """Asks about the images drawn first for each caption."""
        assert config.vqa is not None
        draws = method.run.draws.filter(pc.less(method.run.draws["rank"], config.vqa.drawn))
        captions = method.run.captions
        captions = captions.filter(pc.is_in(captions["target_class"], pa.array(list(questions.classes.choices))))
        draws = draws.filter(pc.is_in(draws["caption_id"], captions["caption_id"].combine_chunks()))
        if method.run.config.images.sources == ("labelled",) or not draws.num_rows:
            return SHOWN.empty_table()  # what labelled images show is known
        table = wanted(captions, draws, questions)
        folder = f"{self.out}/drawn/{folder_name(method.name)}"
        answers = self._answers(method.run, table, questions, folder)
        return shown_table(method.name, captions, draws, answers, 1 - config.alpha)

    def _answers(self, run: C2BRun, table: pa.Table, questions: Checks, out: str) -> pa.Table:
        with self.steps.step("ask about images") as on_progress:
            images, source = run.location("images"), source_of(run.record.config)
            ImageStages(self.models.runner).verify(images, table, self.captioner, questions, out, on_progress, source)
        answers = read_stage(out)
        return answers.filter(pc.is_in(answers["verification_id"], table["verification_id"].combine_chunks()))


# Embeds the images of a run, and captions them by a captioner.


def look_id(image_id: str, label: str, purpose: str, revision: str) -> str:
    return content_id("look", image_id, label, purpose, revision)


def embed_seen(rows: pa.Table, encoder: TextImageEncoder) -> pa.Table:
    """Returns a table of `SEEN`. `rows`: `look_id`, `image_id`, `bytes`, `error`."""
    vectors, errors = encoded.embedded(rows, encoder)
    columns = {
        "look_id": rows["look_id"],
        "image_id": rows["image_id"],
        "vector": pa.array(vectors, SEEN.field("vector").type),
        "error": pa.array(errors, pa.string()),
    }
    return pa.table(columns, SEEN)


def describe_mistakes(rows: pa.Table, captioner: Captioner) -> pa.Table:
    """Returns a table of `SAID`. `rows`: as for `embed_seen`, and the `label` that the caption must name."""
    read_errors, labels = rows["error"].to_pylist(), rows["label"].to_pylist()
    pixels, undecoded = decode_batch(encoded.files_of(rows))
    decoded = [row for row, image in enumerate(pixels) if image is not None]
    replies = captioner.caption([image for image in pixels if image is not None], [labels[row] for row in decoded])
    reply_of_row = dict(zip(decoded, replies, strict=True))
    rows_of = [
        {
            "look_id": look,
            "image_id": image,
            "caption": reply_of_row[row].text if row in reply_of_row else None,
            "error": reply_of_row[row].error if row in reply_of_row else read_errors[row] or undecoded[row],
        }
        for row, (look, image) in enumerate(zip(rows["look_id"].to_pylist(), rows["image_id"].to_pylist(), strict=True))
    ]
    return pa.Table.from_pylist(rows_of, SAID)


EMBED: StageConfig = replace(CLASSIFY, schema=SEEN, stage="embed")
DESCRIBE: StageConfig = replace(VERIFY, schema=SAID)


@dataclass(frozen=True)
class Images:
    """A run's images: the directory of their parts, and the source of those whose bytes these do not hold."""

    parts: str
    source: Load | None


def embed_images(
    runner: Runner, images: Images, looks: pa.Table, encoder: Callable[[], TextImageEncoder], out: str, on: OnProgress
) -> None:
    """Writes the embeddings of the `looks` images (`image_id`, `look_id`), as parts of `SEEN`."""
    step, role = with_reading(embed_seen, encoder, images.source)
    rows, config = _rows(images.parts, looks), _of(EMBED, looks)
    runner.run(rows, step, role, out, id_column="look_id", config=config, on_progress=on)


def describe_images(
    runner: Runner, images: Images, looks: pa.Table, captioner: Callable[[], Captioner], out: str, on: OnProgress
) -> None:
    """Writes captions of the `looks` images (`image_id`, `look_id`, `label`), as parts of `SAID`."""
    step, role = with_reading(describe_mistakes, captioner, images.source)
    rows, config = _rows(images.parts, looks), _of(DESCRIBE, looks)
    runner.run(rows, step, role, out, id_column="look_id", config=config, on_progress=on)


def _of(config: StageConfig, looks: pa.Table) -> StageConfig:
    return replace(config, total=looks.num_rows)


def _rows(images: str, looks: pa.Table) -> Rows:
    parts = opened(images)
    blocks = [pa.table({"name": [name]}) for name in parts.names()]
    expand = partial(images_wanted, parts=parts, wanted=RowsByImage.by_image(looks))
    ids = looks["look_id"]
    return Rows(blocks, expand, looks.num_rows, lambda: iter([ids]))


# B2T (Bias-to-Text, Kim et al. 2024) on the ground truth's images: captions of mistakes → keywords → CLIP scores.


Floats = NDArray[np.float32]
_TEXTS = 256


@dataclass(frozen=True)
class GroundTruthReadings:
    """The ground truth's images, looked at by models. The results are below `out`, and no image is looked at twice."""

    truth: GroundTruth
    models: Backend
    out: str
    steps: Steps

    @property
    def _images(self) -> Images:
        run = self.truth.run
        return Images(run.location("images"), source_of(run.record.config))

    def vectors(self, encoder: str) -> Floats:
        """Returns a unit vector per row of the ground truth, NaN where there is none."""
        description = self.models.describe("encoder", encoder)
        rows = self.truth.wanted(None, 0)
        looks = self._wanted(rows, "embed", description.revision)
        folder = f"{self.out}/embeddings"
        with self.steps.step("embed the ground truth") as on:
            factory = partial(of_revision, self.models.encoder(encoder), description.revision, encoder)
            embed_images(self.models.runner, self._images, looks, factory, folder, on)
        stored = read_stage(folder).to_pylist()
        of_image = {row["look_id"]: row["vector"] for row in stored}
        result = np.full((self.truth.labels.num_rows, description.dimension), np.nan, np.float32)
        for row, look in zip(rows.tolist(), looks["look_id"].to_pylist(), strict=True):
            if of_image.get(look) is not None:
                result[row] = of_image[look]
        return result

    def captions(self, captioner: str) -> dict[int, str]:
        """Returns row → the captioner's caption, for the images that any classifier answered wrong."""
        wrong = [np.flatnonzero(is_answered & ~ok) for ok, is_answered in self.truth.right.values()]
        rows = np.intersect1d(np.concatenate(wrong), self.truth.wanted(None, 0))
        revision = self.models.describe("captioner", captioner).revision
        looks_wanted, folder = self._wanted(rows, "describe", revision), f"{self.out}/captions"
        with self.steps.step("describe mistakes") as on:
            factory = partial(of_revision, self.models.captioner(captioner), revision, captioner)
            describe_images(self.models.runner, self._images, looks_wanted, factory, folder, on)
        caption_of_look = {row["look_id"]: row["caption"] for row in read_stage(folder).to_pylist()}
        looks = zip(rows.tolist(), looks_wanted["look_id"].to_pylist(), strict=True)
        return {row: caption_of_look[look] for row, look in looks if caption_of_look.get(look)}

    def _wanted(self, rows: NDArray[np.int64], purpose: str, revision: str) -> pa.Table:
        names = {row: image for image, row in self.truth.row_of.items()}
        labels = self.truth.labels[TARGET].to_pylist()
        images = [names[row] for row in rows.tolist()]
        targets = [labels[row] for row in rows.tolist()]
        looks = [look_id(image, label, purpose, revision) for image, label in zip(images, targets, strict=True)]
        text = pa.string()
        return pa.table(
            {"image_id": pa.array(images, text), "label": pa.array(targets, text), "look_id": pa.array(looks, text)}
        )


def keyword_baseline(config: KeywordBaseline, looking: GroundTruthReadings, alpha: float) -> pa.Table:
    """Returns the biases of B2T, of `tables.evaluate.BIASES`."""
    captions, vectors = looking.captions(config.captioner), looking.vectors(config.encoder)
    with looking.steps.step("keywords of mistakes"):
        mistakes = list(_keywords(config, looking.truth, captions))
        texts = sorted({keyword for _, _, words, _, _ in mistakes for keyword in words})
        encoder = looking.models.text_encoder(config.encoder)
        prompts = [config.template.replace("{keyword}", text) for text in texts]
        rows = [encoder.encode_texts(prompts[start : start + _TEXTS]) for start in range(0, len(prompts), _TEXTS)]
        number_of = {text: number for number, text in enumerate(texts)}
        embedded = np.concatenate(rows) if rows else np.zeros((0, vectors.shape[1]), np.float32)
        groups: list[Keywords] = []
        has_vector = np.asarray(np.isfinite(vectors).all(axis=1), bool)
        for classifier, target, words, wrong, right in mistakes:
            wrong, right = (once(rows[has_vector[rows]], looking.truth.pictures) for rows in (wrong, right))
            of_words = embedded[[number_of[word] for word in words]].T
            groups.append(Keywords(classifier, target, words, vectors[wrong] @ of_words, vectors[right] @ of_words))
        return keyword_biases(B2T, groups, config.tau, alpha)


Mistakes = tuple[str, str, tuple[str, ...], NDArray[np.int64], NDArray[np.int64]]


def _keywords(config: KeywordBaseline, truth: GroundTruth, captions: dict[int, str]) -> Iterator[Mistakes]:
    """Yields classifier, class, keywords of its mistakes, and the rows that were answered wrong, and right; only where
    both exist."""
    targets = np.array(truth.labels[TARGET].to_pylist(), object)
    for classifier, (ok, is_answered) in truth.right.items():
        for target in truth.classes:
            inside = (targets == target) & is_answered
            wrong, right = np.flatnonzero(inside & ~ok), np.flatnonzero(inside & ok)
            text = " ".join(sentence(captions[row]) for row in wrong.tolist() if row in captions)
            words = tuple(dict.fromkeys(keywords(text, config.words, config.keywords)))
            if words and len(right):
                yield classifier, target, words, wrong, right
