"""The datasets of a run: their tables of images and captions, embedded by every model and divided into views."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.clip_bias.config import ClipBiasConfig, Dataset, Groups
from c2b_ray.audits.clip_bias.run import ClipBiasRun
from c2b_ray.audits.clip_bias.steps.measure import (
    Attribute,
    Gallery,
    ImageSubset,
    Vectors,
    alike_of,
    copies_of,
    embed_images,
    embed_texts,
    named_views,
    views_of,
)
from c2b_ray.audits.kit.session import Steps
from c2b_ray.engine.images import CLASSIFY, FETCH, OnProgress, of_revision
from c2b_ray.engine.stage import Rows, Runner, StageConfig
from c2b_ray.errors import ConfigError, SourceError, nearest
from c2b_ray.roles import TextImageEncoder
from c2b_ray.stats import Ints
from c2b_ray.stats.clustering import kmeans, matched_groups
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.storage.labelled_rows import open_rows
from c2b_ray.storage.parts import absent, digests, opened, writing
from c2b_ray.tables import content_id, content_ids, seed_of
from c2b_ray.tables.clip_bias import CLIP_EMBEDDINGS, CLUSTERS, GROUP_EXAMPLES

# Tables of images with captions and attributes, one row per image; and tables of models' outputs for these images.


class CaptionedTable:
    """The table at `location`. Raises SourceError if it cannot be read or is empty; ConfigError for a missing column.

    `field`: the config's field that names the table. `columns`: the table's names for `image`, `caption` and `key`, if
    they differ. `attributes`: the columns that are attributes.
    """

    def __init__(self, location: str, field: str, columns: Mapping[str, str], attributes: Sequence[str]) -> None:
        self.location, self.attributes = location, tuple(attributes)
        self._field, self._columns = field, dict(columns)
        self._rows = open_rows(location, f"{field}.table")
        header = self._rows.schema.names
        for attribute in attributes:
            if attribute not in header:
                hint = nearest(attribute, header)
                raise ConfigError(f"{field}.attributes", f"{location} has no column {attribute!r}; {hint}")
        if "image" not in self._columns and "image" not in header:
            raise ConfigError(
                f"{field}.table",
                f"{location} has no column 'image' ({nearest('image', header)}); expected `image` (a path relative to "
                f"the table, or bytes), or {field}.columns to say what it is called",
            )
        caption = self._columns.get("caption", "caption")
        if "caption" in self._columns and caption not in header:
            raise ConfigError(
                f"{field}.columns", f"caption: {location} has no column {caption!r}; {nearest(caption, header)}"
            )
        self._caption = caption if caption in header else None
        image_columns: dict[str, str] = {
            name: self._columns[name] for name in ("image", "key") if name in self._columns
        }
        # Images are read as from a labelled table, whose class is not used here.
        self._images = LabelledTable(location, f"{field}.table", {**image_columns, "target_class": attributes[0]})
        self._refuse_repeats()

    def __reduce__(self) -> tuple[type[CaptionedTable], tuple[str, str, dict[str, str], tuple[str, ...]]]:
        return CaptionedTable, (self.location, self._field, self._columns, self.attributes)

    def __len__(self) -> int:
        return len(self._images)

    @cached_property
    def keys(self) -> list[str]:
        """The name of each image: its key, its path, or its row if the table contains the bytes."""
        names: list[str] = self._images.keys.to_pylist()
        return names

    @cached_property
    def captions(self) -> list[list[str]] | None:
        """The captions of each image, without blank ones; None if the table has no captions.

        Raises ConfigError where texts look like lists but are not JSON, such as those that pandas writes into a CSV.
        """
        if self._caption is None:
            return None
        values = self._rows.columns([self._caption])[self._caption].to_pylist()
        if all(_looks_like_a_list(value) for value in values if _text(value) is not None):
            values = [self._listed(row, value) for row, value in enumerate(values)]
        return [_texts(value) for value in values]

    def _listed(self, row: int, value: object) -> object:
        if not isinstance(value, str) or not value.strip():
            return value
        try:
            texts = json.loads(value)
        except ValueError as error:
            raise ConfigError(
                f"{self._field}.table",
                f"{self.location}, row {row}: the captions {value[:60]!r} are no JSON list ({error}); write one, such "
                'as ["a dog", "a brown dog"], or a Parquet table',
            ) from error
        return texts

    def check_column(self, name: str, field: str) -> None:
        """Raises ConfigError for `field` if the table lacks the column."""
        if name not in self._rows.schema.names:
            raise ConfigError(
                field, f"{self.location} has no column {name!r}; {nearest(name, self._rows.schema.names)}"
            )

    def values(self, attribute: str) -> list[str | None]:
        """Returns an attribute's value for each image as text; None where it is missing."""
        return [_text(value) for value in self._rows.columns([attribute])[attribute].to_pylist()]

    def fetch(self, rows: Sequence[int]) -> pa.Table:
        """Returns the columns `key`, `bytes`, `error` of these rows, in their order."""
        return self._images.fetch(rows)

    def _refuse_repeats(self) -> None:
        twice = [name for name, count in Counter(self.keys).items() if count > 1]
        if twice:
            raise SourceError(
                f"{self.location}: the image {twice[0]!r} occurs in two rows; keep one row per image, with a list of "
                "its captions if it has several"
            )


def read_results(location: str, field: str, columns: Sequence[str], optional: Sequence[str] = ()) -> pa.Table:
    """Returns the columns of a table of results, and those of `optional` that exist. Raises ConfigError for a missing
    one."""
    rows = open_rows(location, field)
    column_names = rows.schema.names
    if missing := [name for name in columns if name not in column_names]:
        raise ConfigError(field, f"{location} has no column {missing[0]!r}; expected {', '.join(columns)}")
    table = rows.columns([*columns, *(name for name in optional if name in column_names)])
    if table["image"].null_count:
        raise ConfigError(field, f"{location}: {table['image'].null_count} row(s) name no image")
    return table.set_column(table.schema.get_field_index("image"), "image", pc.cast(table["image"], pa.string()))


def _looks_like_a_list(value: object) -> bool:
    return isinstance(value, str) and value.strip().startswith("[") and value.strip().endswith("]")


def _texts(value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [text for item in values if (text := _text(item)) is not None]


def _text(value: object) -> str | None:
    if value is None or (isinstance(value, float) and value != value):
        return None
    return " ".join(str(value).split()) or None


# Embeds a dataset's images and texts by every model: once, in a stage; afterwards embeddings are read from the run.


FETCHED_AT_ONCE = 256
READ_AT_ONCE = 4096
TEXTS_AT_ONCE = 2048
IMAGES = replace(CLASSIFY, schema=CLIP_EMBEDDINGS, stage="embed", rows_per_file=2048)
TEXTS = StageConfig(CLIP_EMBEDDINGS, stage="embed", rows_per_file=4096)
LEAST_USABLE = 0.5


@dataclass(frozen=True)
class Files:
    """A table's images, and the hash of each one's bytes as they are now; None where they cannot be read."""

    table: CaptionedTable
    contents: list[str | None]


@dataclass(frozen=True)
class Encoder:
    """A model of the run: how the stage loads it, and its expected revision."""

    name: str
    spec: str
    revision: str
    factory: Callable[[], TextImageEncoder]

    def image_ids(self, files: Files) -> list[str]:
        keys_and_contents = [
            list(key_and_content) for key_and_content in zip(files.table.keys, files.contents, strict=True)
        ]
        return content_ids("clip-bias image", keys_and_contents, self.revision)

    def text_ids(self, texts: Sequence[str]) -> list[str]:
        return content_ids("clip-bias text", list(texts), self.revision)


@dataclass(frozen=True)
class Embedding:
    """Makes and keeps embeddings. `earlier`: a run whose embeddings are copied where it has them."""

    run: ClipBiasRun
    runner: Runner
    earlier: ClipBiasRun | None = None

    def files(self, table: CaptionedTable) -> Files:
        """Reads every image, since a file may have been replaced under its name after the run embedded it."""
        pieces = [range(start, min(start + READ_AT_ONCE, len(table))) for start in range(0, len(table), READ_AT_ONCE)]
        contents = self.runner.call_each([partial(_contents, table, rows) for rows in pieces], FETCH)
        return Files(table, [content for piece in contents for content in piece])

    def embed(self, encoder: Encoder, files: Files, on_progress: OnProgress) -> None:
        """Embeds the images that the run does not hold yet."""
        load = partial(of_revision, encoder.factory, encoder.revision, encoder.spec)
        images, out = encoder.image_ids(files), self.run.location("embeddings")
        ids = pa.table({"embedding_id": images, "row": pa.array(range(len(images)), pa.int64())})
        rows = replace(
            Rows.of(ids, FETCHED_AT_ONCE),
            expand=partial(_fetched, table=files.table),
            ids=lambda: iter([pa.array(images)]),
        )
        config = replace(IMAGES, total=len(ids))
        self.run.begin_writing()
        self._take_over(images)
        self.runner.run(rows, embed_images, load, out, id_column="embedding_id", config=config, on_progress=on_progress)

    def embed_texts(self, encoder: Encoder, texts: Sequence[str], on_progress: OnProgress) -> None:
        """Embeds the texts that the run does not hold yet."""
        load = partial(of_revision, encoder.factory, encoder.revision, encoder.spec)
        distinct, out = list(dict.fromkeys(texts)), self.run.location("embeddings")
        if not distinct:
            return
        self.run.begin_writing()
        self._take_over(encoder.text_ids(distinct))
        texts_wanted = pa.table({"embedding_id": encoder.text_ids(distinct), "text": distinct})
        config = replace(TEXTS, total=len(texts_wanted))
        self.runner.run(
            Rows.of(texts_wanted, TEXTS_AT_ONCE), embed_texts, load, out, id_column="embedding_id", config=config,
            on_progress=on_progress,
        )  # fmt: skip

    def _take_over(self, ids: Sequence[str]) -> None:
        """Copies from the earlier run the embeddings of these ids that this run lacks. An id contains the model's
        revision."""
        if self.earlier is None:
            return
        marks = np.unique(digests(pa.array(ids, pa.string())))
        source = opened(self.earlier.location("embeddings"))
        with writing(self.run.location("embeddings")) as parts:
            ids_here = parts.census("embedding_id").ids
            for name in source.names():
                table = source.read(name)
                of_ids = ~absent(table["embedding_id"], marks) & absent(table["embedding_id"], ids_here)
                is_wanted = of_ids & np.asarray(table["error"].is_null())
                if is_wanted.any():
                    parts.write(table.filter(pa.array(is_wanted)), "embedding_id")

    def read(self, ids: Sequence[str]) -> tuple[Vectors, list[str | None]]:
        """Returns embeddings by id, float32 (ids, dimension), and for each id why there is none; its row is then NaN.

        Parts that hold none of the ids are not read beyond their ids.
        """
        marks = np.unique(digests(pa.array(ids, pa.string())))
        parts = opened(self.run.location("embeddings"))
        tables = []
        for name in parts.names():
            ids_of_part = parts.read(name, ("embedding_id",))["embedding_id"]
            if not absent(ids_of_part, marks).all():
                table = parts.read(name)
                tables.append(table.filter(pa.array(~absent(table["embedding_id"], marks))))
        embeddings = pa.concat_tables(tables) if tables else CLIP_EMBEDDINGS.empty_table()
        positions = pc.index_in(pa.array(ids, pa.string()), embeddings["embedding_id"].combine_chunks())
        if positions.null_count:
            raise SourceError(
                f"{self.run.path}/embeddings lacks {positions.null_count:,} rows; delete it and run again"
            )
        rows = embeddings.take(positions)
        errors: list[str | None] = rows["error"].to_pylist()
        vectors = rows["embedding"].combine_chunks()
        is_usable = np.array([error is None for error in errors], bool)
        flat = vectors.filter(pa.array(is_usable)).flatten().to_numpy(zero_copy_only=False)
        width = len(flat) // max(int(is_usable.sum()), 1)
        result = np.full((len(ids), width), np.nan, np.float32)
        result[is_usable] = flat.reshape(int(is_usable.sum()), width)
        return result, errors


def usable(table: CaptionedTable, errors: dict[str, list[str | None]]) -> tuple[list[int], str | None]:
    """Returns the rows that every model embedded, and a note on the others. Raises SourceError where fewer than half of
    the rows are usable."""
    rows = [row for row in range(len(table)) if all(of_model[row] is None for of_model in errors.values())]
    left_out = len(table) - len(rows)
    if not left_out:
        return rows, None
    reason = next(error for of_model in errors.values() for error in of_model if error is not None)
    if len(rows) < LEAST_USABLE * len(table):
        raise SourceError(f"{table.location}: {left_out:,} of {len(table):,} images cannot be used; such as: {reason}")
    return (
        rows,
        f"{left_out:,} of {len(table):,} images of {table.location} are left out for all models; such as: {reason}",
    )


def _fetched(ids: pa.Table, table: CaptionedTable) -> Iterator[pa.Table]:
    images = table.fetch(ids["row"].to_pylist())
    yield images.append_column("embedding_id", ids["embedding_id"])


def _contents(table: CaptionedTable, rows: range) -> list[str | None]:
    return [
        None if data is None else content_id(data)
        for start in range(0, len(rows), FETCHED_AT_ONCE)
        for data in table.fetch(rows[start : start + FETCHED_AT_ONCE])["bytes"].to_pylist()
    ]


EXAMPLES, MOST_BYTES = 8, 4 * 2**20


@dataclass(frozen=True)
class Images:
    """`rows`: the rows of the table that every model embedded, in an order that follows from their keys (`_by_key`);
    all other fields describe these, in their order.

    `copies`: for each image, the number of the first image that is the same picture.
    """

    name: str
    config: Dataset
    table: CaptionedTable
    rows: list[int]
    captions: list[list[str]] | None
    attributes: tuple[Attribute, ...]
    views: tuple[ImageSubset, ...]
    copies: Ints

    @property
    def copied(self) -> int:
        """The number of images that are copies of others."""
        return int((self.copies != np.arange(len(self.copies))).sum())

    @property
    def keys(self) -> list[str]:
        return [self.table.keys[row] for row in self.rows]

    @property
    def gallery(self) -> Gallery | None:
        return None if self.captions is None else Gallery.of(self.captions)


@dataclass(frozen=True)
class EmbeddedDataset:
    """A dataset, and the embeddings of its images."""

    images: Images
    files: Files
    embedding: Embedding

    def vectors(self, encoder: Encoder) -> Vectors:
        vectors, _ = self.embedding.read(encoder.image_ids(self.files))
        return vectors[self.images.rows]

    def texts(self, encoder: Encoder, texts: list[str]) -> Vectors:
        return self.embedding.read(encoder.text_ids(texts))[0]


def open_table(name: str, config: Dataset) -> CaptionedTable:
    return CaptionedTable(config.table, f"datasets.{name}", config.columns, config.attributes)


def embedded_dataset(
    name: str, config: ClipBiasConfig, encoders: Mapping[str, Encoder], embedding: Embedding, steps: Steps
) -> tuple[EmbeddedDataset, list[str]]:
    """Returns the dataset, embedded and divided into views, and notes for people."""
    dataset = config.datasets[name]
    table = open_table(name, dataset)
    gallery = None if table.captions is None else Gallery.of(table.captions)
    texts = [*(gallery.texts if gallery is not None else ()), *dataset.texts]
    with steps.step(f"read {name}"):
        files = embedding.files(table)
    errors, copies_by_model = {}, []
    for model, encoder in encoders.items():
        with steps.step(f"embed {name}", images_per_row=1) as on_progress:
            embedding.embed(encoder, files, on_progress)
        with steps.step(f"embed texts of {name}", images_per_row=0) as on_progress:  # texts do not count as images
            embedding.embed_texts(encoder, texts, on_progress)
        vectors, errors[model] = embedding.read(encoder.image_ids(files))
        copies_by_model.append(alike_of(vectors))
    rows, note = usable(table, errors)
    rows = _by_key(table, rows)
    captions = None if table.captions is None else [table.captions[row] for row in rows]
    attributes = tuple(
        Attribute.of(attribute, [column[row] for row in rows])
        for attribute, column in ((attribute, table.values(attribute)) for attribute in dataset.attributes)
    )
    copies = copies_of(np.stack(copies_by_model)[:, rows])
    images = Images(name, dataset, table, rows, captions, attributes, (ImageSubset.everything(len(rows)),), copies)
    with steps.step(f"group {name}"):
        if config.groups.column is None:
            views = views_of(len(rows), _groups(EmbeddedDataset(images, files, embedding), config, encoders))
        else:
            views = named_views(len(rows), _by_column(images, config.groups))
    images = replace(images, views=tuple(views))
    return EmbeddedDataset(images, files, embedding), [
        text for text in (note, _without_captions(images), _about_copies(images)) if text
    ]


def _by_key(table: CaptionedTable, rows: list[int]) -> list[int]:
    """The rows in an order that depends on the images' keys alone. What is equally near is taken in the order of rows:
    in a table sorted by gender, a model that sees no difference would rank one gender first."""
    order = content_ids("clip-bias order", table.keys)
    return sorted(rows, key=order.__getitem__)


def _without_captions(images: Images) -> str | None:
    if images.captions is not None:
        return None
    return f"{images.table.location} has no column 'caption', so recall is not measured on {images.name}"


def _about_copies(images: Images) -> str | None:
    if not images.copied:
        return None
    return (
        f"{images.copied:,} of {len(images.rows):,} images of {images.table.location} have the embedding of "
        "another one: they count in every rate and share, but as one picture's evidence; LIC keeps them in one fold"
    )


def _groups(data: EmbeddedDataset, config: ClipBiasConfig, encoders: Mapping[str, Encoder]) -> list[Ints]:
    """Returns the images of each matched group. Raises ConfigError where there are more clusters than images."""
    k, name = config.groups.k, data.images.name
    if k == 1:
        return []
    if len(data.images.rows) < k:
        raise ConfigError("groups.k", f"{k} clusters of the {len(data.images.rows):,} images of {name}; lower it")
    labels = [
        kmeans(data.vectors(encoder), k, seed_of("clip-bias k-means", config.seed, name))
        for encoder in encoders.values()
    ]
    matched = matched_groups(np.stack(labels), config.groups.least, config.groups.reuse)
    return [group.members for group in matched]


def _by_column(images: Images, groups: Groups) -> dict[str, Ints]:
    """Returns the images of each value of a column that enough images have."""
    assert groups.column is not None
    column = Attribute.of(groups.column, [images.table.values(groups.column)[row] for row in images.rows])
    members = {value: np.flatnonzero(column.codes == number) for number, value in enumerate(column.values)}
    return {
        value: images_of_value for value, images_of_value in members.items() if len(images_of_value) >= groups.least
    }


def cluster_table(datasets: list[EmbeddedDataset]) -> pa.Table:
    rows = []
    for data in datasets:
        group_of = np.full(len(data.images.rows), None, object)
        for view in data.images.views[1:]:
            group_of[view.members] = view.group
        rows += [
            {"dataset": data.images.name, "key": key, "group": group, "content": data.files.contents[row]}
            for key, group, row in zip(data.images.keys, group_of.tolist(), data.images.rows, strict=True)
        ]
    return pa.Table.from_pylist(rows, CLUSTERS)


def example_table(datasets: list[EmbeddedDataset], seed: int) -> pa.Table:
    """Returns a few images of each group, drawn at random, to show people what a group contains (Ramos et al. 2025,
    Figure 2)."""
    rows = []
    for data in datasets:
        images, keys = data.images, data.images.keys
        for view in images.views[1:]:
            random = np.random.default_rng(seed_of("clip-bias examples", seed, images.name, view.group))
            examples = random.permutation(view.members)[:EXAMPLES].tolist()
            fetched = images.table.fetch([images.rows[i] for i in examples])
            for i, data_of in zip(examples, fetched["bytes"].to_pylist(), strict=True):
                captions = images.captions[i] if images.captions else []
                small = data_of is not None and len(data_of) <= MOST_BYTES
                rows.append(
                    {
                        "dataset": images.name,
                        "group": view.group,
                        "key": keys[i],
                        "caption": captions[0] if captions else None,
                        "bytes": data_of if small else None,
                    }
                )
    return pa.Table.from_pylist(rows, GROUP_EXAMPLES)
