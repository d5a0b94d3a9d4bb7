"""captions → images: the nearest of each caption in an index, new ones from a generator, or rows of a labelled table.

It says which images belong to which caption and what their ids are; the bytes are fetched afterwards, in batches,
where they are needed. It does not know where encoder, index and table live.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image

from c2b_ray.errors import ImageError, ServiceError, SourceError
from c2b_ray.image_check import checked_image
from c2b_ray.names import normalise
from c2b_ray.roles import GeneratedImage, GenerationRequest, ImageGenerator, Pixels
from c2b_ray.schemas import CAPTIONS, DRAWS, IMAGES, PROPOSALS, content_id, seed_of
from c2b_ray.steps.decode import decode
from c2b_ray.steps.duplicates import fingerprint
from c2b_ray.steps.intersect import ATTRIBUTE, Pair, bias_class
from c2b_ray.steps.labels import TARGET, check_classes, chosen, compared
from c2b_ray.steps.thresholds import Limit

RETRIEVE, GENERATE, LABELLED = "retrieve", "generate", "labelled"
IDS_AT_ONCE = 16_384
Rows = NDArray[np.int64]


class ImageSource(Protocol):
    """Where bytes are fetched from by row: an index, or a labelled table."""

    @property
    def revision(self) -> str: ...

    def fetch(self, ids: Sequence[int]) -> pa.Table:
        """Columns `key`, `bytes` and, where bytes can be missing, `error`; a row per id, in their order."""
        ...


def image_id(revision: str, row: int) -> str:
    return content_id("image", revision, row)


def draws_of(
    caption_ids: pa.Array, rows: Rows, revision: str, ranks: Rows, similarity: pa.Array, source: str
) -> pa.Table:
    distinct, places = np.unique(rows, return_inverse=True)
    columns = [
        caption_ids,
        _image_ids(distinct, revision).take(pa.array(places.reshape(-1))),
        pa.array(ranks, pa.int32()),
        similarity,
        pa.repeat(source, len(rows)),
    ]
    return pa.Table.from_arrays(columns, schema=DRAWS)


def wanted(rows: Rows, revision: str) -> pa.Table:
    """`image_id` and `row`, each image once, in the order of the rows: what `fetch` is given."""
    unique = np.unique(rows)
    return pa.table({"image_id": _image_ids(unique, revision), "row": pa.array(unique, pa.int64())})


def _image_ids(rows: Rows, revision: str) -> pa.Array:
    """The ids of many rows, made a few at a time: as Python's they take four times the memory."""
    parts = [
        pa.array([image_id(revision, row) for row in rows[start : start + IDS_AT_ONCE].tolist()], pa.string())
        for start in range(0, len(rows), IDS_AT_ONCE)
    ]
    return pa.concat_arrays(parts) if parts else pa.array([], pa.string())


def generated(captions: pa.Table, revision: str, n: int, seed: int) -> tuple[pa.Table, pa.Table]:
    """n images of each caption, still to be made: a table of `schemas.DRAWS`, and one of what to generate.

    The second has `image_id`, `prompt` and `seed`. An image's seed follows from its caption, its number and `seed`
    alone; its id from those and the generator's revision. The first n of more are these n.
    """
    rows = [
        (caption, text, number, seed_of("generate", caption, number, seed))
        for caption, text in zip(captions["caption_id"].to_pylist(), captions["text"].to_pylist(), strict=True)
        for number in range(n)
    ]
    ids = pa.array([content_id("generated", revision, text, row_seed) for _, text, _, row_seed in rows], pa.string())
    draws = [
        pa.array([caption for caption, *_ in rows], pa.string()),
        ids,
        pa.array([number for *_, number, _ in rows], pa.int32()),
        _no_numbers(len(rows)),
        pa.array([GENERATE] * len(rows), pa.string()),
    ]
    prompts, seeds = pa.array([row[1] for row in rows], pa.string()), pa.array([row[3] for row in rows], pa.int64())
    wanted = pa.table({"image_id": ids, "prompt": prompts, "seed": seeds})
    return pa.Table.from_arrays(draws, schema=DRAWS), wanted


def generate(batch: pa.Table, generator: ImageGenerator) -> pa.Table:
    """The images of a batch of what `generated` asks for, as PNG: a table of `schemas.IMAGES`.

    What cannot be used is an error of its row; ServiceError for another number of images than was asked for.
    """
    prompts, seeds = batch["prompt"].to_pylist(), batch["seed"].to_pylist()
    requests = [GenerationRequest(prompt, seed) for prompt, seed in zip(prompts, seeds, strict=True)]
    made = [checked(image) for image in generator.generate(requests)]
    if len(made) != len(requests):
        raise ServiceError(f"the generator answered {len(requests)} prompts with {len(made)} images; one each is due")
    keys = pa.array([f"{request.prompt} (seed {request.seed})" for request in requests], pa.string())
    encoded = [None if image.pixels is None else png(image.pixels) for image in made]
    marks = [None if image.pixels is None else fingerprint(image.pixels) for image in made]
    return _images(batch["image_id"], keys, encoded, marks, [image.error for image in made])


def _images(
    ids: pa.ChunkedArray,
    keys: pa.Array,
    encoded: Sequence[bytes | None],
    fingerprints: Sequence[bytes | None],
    errors: Sequence[str | None],
) -> pa.Table:
    """A table of `schemas.IMAGES`. Bytes that are no picture are not kept: a run holds no other files."""
    kept = [data if mark is not None else None for data, mark in zip(encoded, fingerprints, strict=True)]
    columns = {
        "image_id": ids,
        "key": keys,
        "bytes": pa.array(kept, pa.binary()),
        "content": pa.array([None if data is None else content_id(data) for data in encoded], pa.string()),
        "fingerprint": pa.array(fingerprints, pa.binary()),
        "error": pa.array(errors, pa.string()),
    }
    return pa.table(columns).cast(IMAGES)


def checked(image: GeneratedImage) -> GeneratedImage:
    if image.error is not None:
        return GeneratedImage(None, image.error)
    if image.pixels is None:
        return GeneratedImage(None, "the generator gave neither an image nor a reason")
    return checked_image(image.pixels, None)


def png(pixels: Pixels) -> bytes:
    data = BytesIO()
    Image.fromarray(pixels).save(data, "PNG")
    return data.getvalue()


def fetch(batch: pa.Table, source: ImageSource) -> pa.Table:
    """The images of a batch of `wanted` rows: a table of `schemas.IMAGES`."""
    images = source.fetch(batch["row"].to_pylist())
    encoded = images["bytes"].to_pylist()
    fetch_errors = images["error"].to_pylist() if "error" in images.column_names else [None] * len(encoded)
    seen = [_looked_at(data, error) for data, error in zip(encoded, fetch_errors, strict=True)]
    return _images(batch["image_id"], images["key"], encoded, [mark for mark, _ in seen], [error for _, error in seen])


def _looked_at(data: bytes | None, error: str | None) -> tuple[bytes | None, str | None]:
    """The fingerprint of an image, or why it is no picture. Pixels are let go one by one: a batch would be large."""
    if error is not None:
        return None, error
    try:
        if data is None:
            raise ImageError("no bytes")
        return fingerprint(decode(data)), None
    except ImageError as reason:
        return None, str(reason)


def labelled(
    labels: pa.Table,
    revision: str,
    classes: Sequence[str],
    attributes: Mapping[str, Sequence[str]] | None,
    limit: Limit,
) -> tuple[pa.Table, pa.Table, pa.Table, pa.Table]:
    """Proposals, captions, draws and the images to fetch, from a table of labels.

    `labels`: `target_class` and a string column per attribute, a row per image; nulls belong to no cell.
    `attributes`: which columns, and which of their values; where None, all that can be (`labels.no_attribute`).
    `limit`: of the images of each cell.
    """
    attributes = chosen(labels, attributes)
    check_classes(labels, classes)
    targets = compared(labels, TARGET)
    proposals, captions, draws, all_rows = [], [], [], []
    for target_class in classes:
        of_class = targets == normalise(target_class)
        for attribute, values in attributes.items():
            column = compared(labels, attribute)
            present = [v for v in values if (of_class & (column == normalise(v))).any()]
            if len(present) < 2:
                continue
            proposal = _proposal(target_class, attribute, present)
            proposals.append(proposal)
            for value in present:
                caption_id = content_id("labelled", proposal["proposal_id"], value)
                rows = _limited(np.flatnonzero(of_class & (column == normalise(value))), limit, caption_id)
                captions.append(_caption(caption_id, proposal, value))
                all_rows.append(rows)
                draws.append(_of_table(caption_id, rows, revision))
    if not captions:
        raise SourceError("the labelled table has no class with two or more values of an attribute: nothing to compare")
    return (
        pa.Table.from_pylist(proposals, PROPOSALS),
        pa.Table.from_pylist(captions, CAPTIONS),
        pa.concat_tables(draws),
        wanted(np.concatenate(all_rows), revision),
    )


def labelled_pairs(
    labels: pa.Table, revision: str, pairs: Sequence[Pair], limit: Limit
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Captions, draws and the images to fetch of every cell of the pairs; a cell that no row has gets a caption alone.

    Arguments as for `labelled`, whose proposals the pairs are of.
    """
    targets = compared(labels, TARGET)
    columns = {name: compared(labels, name) for pair in pairs for name in (pair.a["attribute"], pair.b["attribute"])}
    captions, draws, all_rows = [], [DRAWS.empty_table()], [np.zeros(0, np.int64)]
    for pair in pairs:
        of_class = targets == normalise(pair.target_class)
        a, b = columns[pair.a["attribute"]], columns[pair.b["attribute"]]
        for x, y in pair.cells():
            value = bias_class(x, y)
            caption_id = content_id("labelled", pair.proposal_id, value)
            rows = _limited(np.flatnonzero(of_class & (a == normalise(x)) & (b == normalise(y))), limit, caption_id)
            captions.append(_caption(caption_id, pair.as_proposal(), value))
            all_rows.append(rows)
            draws.append(_of_table(caption_id, rows, revision))
    return pa.Table.from_pylist(captions, CAPTIONS), pa.concat_tables(draws), wanted(np.concatenate(all_rows), revision)


def _of_table(caption_id: str, rows: Rows, revision: str) -> pa.Table:
    """Draws of a labelled table's rows for one caption."""
    count = len(rows)
    return draws_of(pa.repeat(caption_id, count), rows, revision, np.arange(count), _no_numbers(count), LABELLED)


def lacking(proposals: pa.Table, classes: Sequence[str], chosen: Mapping[str, Sequence[str]]) -> list[str]:
    """Of the chosen attributes and values, what some class has no image of: it is not compared there, in words."""
    of_class: dict[tuple[str, str], list[str]] = {
        (row["target_class"], row["attribute"]): row["bias_classes"] for row in proposals.to_pylist()
    }
    said = []
    for attribute, values in chosen.items():
        for name in classes:
            present = of_class.get((name, attribute), [])
            absent = [value for value in values if value not in present]
            if not present:
                said.append(f"{attribute} of {name}: fewer than two values have images, so nothing is compared")
            elif absent:
                said.append(f"{attribute} of {name}: no image shows {', '.join(map(repr, absent))}")
    return said


def together(first: pa.Table, second: pa.Table, revision: str) -> pa.Table:
    """The images to fetch of both, each once."""
    return wanted(np.concatenate([table["row"].to_numpy() for table in (first, second)]), revision)


def _no_numbers(n: int) -> pa.Array:
    return pa.nulls(n, pa.float32())


def _limited(rows: Rows, limit: Limit, caption_id: str) -> Rows:
    most, seed = limit
    if most is None or len(rows) <= most:
        return rows
    chosen = np.random.default_rng(seed_of("labelled", caption_id, seed)).permutation(rows)[:most]
    return np.sort(chosen)


def _proposal(target_class: str, attribute: str, values: list[str]) -> dict[str, object]:
    return {
        "proposal_id": content_id("labelled", target_class, attribute, values),
        "target_class": target_class,
        "attribute": attribute,
        "bias_classes": values,
        "source": "user",
        "merged_from": [attribute],
        "merged": [],
    }


def _caption(caption_id: str, proposal: Mapping[str, object], value: str) -> dict[str, object]:
    return {
        "caption_id": caption_id,
        "proposal_id": proposal["proposal_id"],
        "kind": proposal.get("kind", ATTRIBUTE),
        "target_class": proposal["target_class"],
        "attribute": proposal["attribute"],
        "bias_class": value,
        "number": 0,
        "text": f"{proposal['target_class']}, {proposal['attribute']}: {value}",
    }
