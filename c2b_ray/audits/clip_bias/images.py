"""A dataset as the run uses it: the images that every model embedded, with their captions, attributes and views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from c2b_ray.audits.clip_bias.captioned import CaptionedTable
from c2b_ray.audits.clip_bias.config import ClipBiasConfig, Dataset, Groups
from c2b_ray.audits.clip_bias.embedding import Embedding, Encoder, Files, usable
from c2b_ray.audits.clip_bias.steps.measure import Attribute, ImageSubset, named_views, views_of
from c2b_ray.audits.clip_bias.steps.retrieval import Gallery, Vectors, alike_of, copies_of
from c2b_ray.audits.kit.session import Steps
from c2b_ray.errors import ConfigError
from c2b_ray.stats import Ints
from c2b_ray.stats.clustering import kmeans, matched_groups
from c2b_ray.tables import content_ids, seed_of
from c2b_ray.tables.clip_bias import CLUSTERS, GROUP_EXAMPLES

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


def opened(
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
            {"dataset": data.images.name, "key": key, "group": group}
            for key, group in zip(data.images.keys, group_of.tolist(), strict=True)
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
