"""Describes the models of a dataset before any of them is loaded: their revisions, labels, and problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from c2b_ray.audits.dataset.config import Captions, DatasetConfig
from c2b_ray.audits.dataset.shards.workers import (
    GeneratorThere,
    IndexThere,
    JudgeThere,
    ModelFactories,
    TableThere,
    VerifierThere,
)
from c2b_ray.audits.failures.discovery.candidates import Hierarchy
from c2b_ray.audits.failures.discovery.rounds import Truth, needs_parents, truths_by_label
from c2b_ray.audits.failures.discovery.sentences import finished, split
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.session import Steps
from c2b_ray.config.classifiers import read_hierarchy
from c2b_ray.engine.images import VERIFY
from c2b_ray.errors import ConfigError, ImageError, ServiceError, SourceError
from c2b_ray.names import mentions
from c2b_ray.report.redact import clean_setting
from c2b_ray.roles import Captioner, Description, LanguageModel, Pixels
from c2b_ray.steps.caption import caption
from c2b_ray.steps.classify import classification
from c2b_ray.steps.decode import decode
from c2b_ray.steps.draw import ImageSource
from c2b_ray.steps.labels import TARGET
from c2b_ray.steps.propose import propose
from c2b_ray.steps.retrieve import check_encoder
from c2b_ray.storage.labelled import LabelledTable

# Names models and files in a dataset's rows: as in its config, without their folders.


def names_in_rows(specs: Sequence[str]) -> list[str]:
    """Returns a name for each spec, path or user-chosen name, all different: `onnx:/models/a/net.onnx` is
    `onnx:net.onnx`.

    Where several would have the same name, the second is `onnx:net.onnx #2`.
    """
    counts: Counter[str] = Counter()
    names = []
    for spec in specs:
        short = clean_setting(spec)
        counts[short] += 1
        names.append(short if counts[short] == 1 else f"{short} #{counts[short]}")
    return names


def name_in_rows(spec: str) -> str:
    return names_in_rows([spec])[0]


TABLE_FIELD = "images.labelled.table"


def model_factories(config: DatasetConfig, labels: Sequence[str], models: Backend) -> ModelFactories:
    """Returns the models of a dataset. Raises ConfigError, which names what does not fit: a label that a classifier or
    the hierarchy lacks, a rule without a hierarchy."""
    specs = config.specs
    judges = tuple(
        _judge(config, (name, spec), labels, models)
        for name, spec in zip(names_in_rows(list(specs)), specs.values(), strict=True)
    )
    verifier = None
    if config.verify is not None:
        spec = config.verify.captioner
        revision = models.describe("captioner", spec).revision
        verifier = VerifierThere(name_in_rows(spec), revision, tuple(labels), models.captioner(spec))
    return ModelFactories(_sources(config, models), judges, verifier, config.rule, config.confidence, config.true_below)


def _sources(config: DatasetConfig, models: Backend) -> tuple[GeneratorThere | IndexThere | TableThere, ...]:
    images = config.images
    if images.labelled is not None:
        open_source = partial(open_table, images.labelled.table, dict(images.labelled.columns or {}))
        return (TableThere(name_in_rows(images.labelled.table), open_source().revision, open_source),)
    sources: list[GeneratorThere | IndexThere | TableThere] = [
        GeneratorThere(name, models.describe("image_generator", spec).revision, models.image_generator(spec))
        for name, spec in zip(names_in_rows(images.generators), images.generators, strict=True)
    ]
    if images.index is not None:
        description = models.describe("index", images.index)
        check_encoder(models.describe("encoder", description.encoder), description)
        encoder, index = models.encoder(description.encoder), models.index(images.index)
        sources.append(
            IndexThere(name_in_rows(images.index), description.revision, index, encoder, config.draws_per_caption)
        )
    return tuple(sources)


def open_table(location: str, columns: dict[str, str]) -> LabelledTable:
    return LabelledTable(location, TABLE_FIELD, columns)


def _judge(config: DatasetConfig, name_and_spec: tuple[str, str], labels: Sequence[str], models: Backend) -> JudgeThere:
    name, spec = name_and_spec
    description = models.describe("classifier", spec)
    truths = truths_of(config, name, description, labels)
    return JudgeThere(name, description.revision, description.labels, truths, models.classifier(spec))


def truths_of(config: DatasetConfig, name: str, description: Description, labels: Sequence[str]) -> dict[str, Truth]:
    """Returns each label's truth in a classifier's label space.

    Raises ConfigError where the classifier lacks a label, or where the rule could never fail.
    """
    label_map = config.label_map if isinstance(config.label_map, dict) else None
    field = "captions" if config.images.labelled is None else TABLE_FIELD
    groups = classification(name, description, labels, label_map, field=field).labels_of_class
    hierarchy = None
    if config.hierarchy is not None and needs_parents(config.rule):  # other rules may name one that lacks labels
        hierarchy = Hierarchy(read_hierarchy(config.hierarchy), description.labels)
    outputs = dict(zip(labels, groups, strict=True))
    kin = None if hierarchy is None else hierarchy.kin
    truths = truths_by_label(config.rule, outputs, len(description.labels), kin)
    if not truths:
        raise ConfigError("captions", f"no caption has a label that {name} could be asked about")
    return truths


# Captions that models write: a language model about labels, a captioner about images that are hard.


TASK = "recognise what a photo shows"
BATCH = 32
IMAGES_FIELD = "captions.images"


def by_language_model(config: Captions, model: LanguageModel, seed: int, steps: Steps) -> Iterator[tuple[str, str]]:
    """Yields (label, caption): `per_label` for each label, from the attributes that the model proposes for it, each
    value in turn."""
    labels = list(config.labels or ())
    proposals, _ = propose(TASK, labels, model, None, seed)
    values = dict.fromkeys(labels, 0)
    for row in proposals.to_pylist():
        values[row["target_class"]] += len(row["bias_classes"])
    if not any(values.values()):
        raise SourceError(f"{config.language_model} proposed nothing that captions could be about; name captions.file")
    most = max(-(-config.per_label // count) for count in values.values() if count)
    written, _ = caption(TASK, proposals, model, most, seed)
    proposed = proposals.to_pylist()
    order = {
        (row["proposal_id"], name): position for row in proposed for position, name in enumerate(row["bias_classes"])
    }
    # The first value of each attribute, then the second of each; and each value once before any comes again.
    rows = sorted(written.to_pylist(), key=lambda row: (row["number"], order[row["proposal_id"], row["bias_class"]]))
    for label in labels:
        texts = list(dict.fromkeys(row["text"] for row in rows if row["target_class"] == label))
        texts = [text for text in texts if mentions(text, label)][: config.per_label]
        if len(texts) < config.per_label:
            steps.warn(f"{config.language_model} wrote {len(texts):,} captions of {label!r}, of {config.per_label:,}")
        for text in texts:
            yield label, text


def by_captioner(config: Captions, models: Backend, steps: Steps) -> Iterator[tuple[str, str]]:
    """Yields (label, caption) for each image of a labelled table, as its captioner describes it."""
    assert config.images is not None
    assert config.captioner is not None
    factory, open_images = models.captioner(config.captioner), partial(LabelledTable, config.images, IMAGES_FIELD)
    captions, uncaptioned, unread = models.runner.call(
        partial(_captioned, factory, open_images, config.sentences), VERIFY
    )
    table = open_images()
    unlabelled = table.labels[TARGET].null_count
    for sentence in table.left_out.sentences():
        steps.warn(sentence)
    for count, problem in ((unlabelled, "no label"), (unread, "pictures that cannot be read")):
        if count:
            steps.warn(f"{count:,} of {len(table):,} rows of {config.images} have {problem}, and so no caption")
    if not captions:
        raise SourceError(f"{config.captioner} gave no image of {config.images} a caption that names its label")
    if uncaptioned:
        images = f"{uncaptioned:,} of {uncaptioned + len(captions):,} images of {config.images} that were read"
        steps.warn(f"{images} have no caption that names its label")
    yield from captions


def _captioned(
    factory: Callable[[], Captioner], open_images: Callable[[], LabelledTable], sentences: int
) -> tuple[list[tuple[str, str]], int, int]:
    """Returns the captions, how many images that were read have none, and how many could not be read."""
    table, captioner = open_images(), factory()
    labels = table.labels[TARGET].to_pylist()
    rows = [row for row, label in enumerate(labels) if label is not None]
    captions: list[tuple[str, str]] = []
    read = 0
    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH]
        pixels = _pixels(table, batch)
        usable = [(image, labels[row]) for image, row in zip(pixels, batch, strict=True) if image is not None]
        read += len(usable)
        replies = captioner.caption([image for image, _ in usable], [label for _, label in usable])
        if len(replies) != len(usable):
            raise ServiceError(f"the captioner captioned {len(usable)} images with {len(replies)} captions")
        for reply, (_, label) in zip(replies, usable, strict=True):
            text, parts = reply.text or "", split(reply.text or "")
            if len(parts) > sentences:
                text = " ".join(map(finished, parts[:sentences]))
            if mentions(text, label):
                captions.append((label, text))
    return captions, read - len(captions), len(rows) - read


def _pixels(table: ImageSource, rows: Sequence[int]) -> list[Pixels | None]:
    result: list[Pixels | None] = []
    for data in table.fetch(rows)["bytes"].to_pylist():
        try:
            result.append(None if data is None else decode(data))
        except ImageError:
            result.append(None)
    return result
