"""Captions that models write: a language model about labels, a captioner about images that are hard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from c2b_ray.audits.kit.events import Steps
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.config.dataset import Captions
from c2b_ray.errors import ImageError, ServiceError, SourceError
from c2b_ray.names import mentions
from c2b_ray.pipelines.images import VERIFY
from c2b_ray.roles import Captioner, LanguageModel, Pixels
from c2b_ray.steps.caption import caption
from c2b_ray.steps.decode import decode
from c2b_ray.steps.discovery.sentences import finished, split
from c2b_ray.steps.draw import ImageSource
from c2b_ray.steps.labels import TARGET
from c2b_ray.steps.propose import propose
from c2b_ray.store.labelled import LabelledTable

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
    order = {(row["proposal_id"], name): at for row in proposed for at, name in enumerate(row["bias_classes"])}
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
    factory, opened = models.captioner(config.captioner), partial(LabelledTable, config.images, IMAGES_FIELD)
    said, without, unread = models.runner.call(partial(_captioned, factory, opened, config.sentences), VERIFY)
    table = opened()
    unlabelled = table.labels[TARGET].null_count
    for sentence in table.left_out.sentences():
        steps.warn(sentence)
    for count, what in ((unlabelled, "no label"), (unread, "pictures that cannot be read")):
        if count:
            steps.warn(f"{count:,} of {len(table):,} rows of {config.images} have {what}, and so no caption")
    if not said:
        raise SourceError(f"{config.captioner} gave no image of {config.images} a caption that names its label")
    if without:
        images = f"{without:,} of {without + len(said):,} images of {config.images} that were read"
        steps.warn(f"{images} have no caption that names its label")
    yield from said


def _captioned(
    factory: Callable[[], Captioner], opened: Callable[[], LabelledTable], sentences: int
) -> tuple[list[tuple[str, str]], int, int]:
    """Returns the captions, how many images that were read have none, and how many could not be read."""
    table, captioner = opened(), factory()
    labels = table.labels[TARGET].to_pylist()
    rows = [row for row, label in enumerate(labels) if label is not None]
    said: list[tuple[str, str]] = []
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
                said.append((label, text))
    return said, read - len(said), len(rows) - read


def _pixels(table: ImageSource, rows: Sequence[int]) -> list[Pixels | None]:
    result: list[Pixels | None] = []
    for data in table.fetch(rows)["bytes"].to_pylist():
        try:
            result.append(None if data is None else decode(data))
        except ImageError:
            result.append(None)
    return result
