"""The images that a classifier is hardened with: the original training data, the dataset, and the held-out part of
both.

    clean (a folder, a table, or renders of the world) → train, test
    dataset                                            → train, test by `audits.dataset.steps.plan`

Images are decoded and resized once, as the classifier sees them, and kept as arrays: in memory, in an unlinked file on
the local disk, or, where even that would be too large, fetched again for each batch.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from c2b_ray.audits.dataset.steps.copies import PictureFingerprints, are_copies
from c2b_ray.audits.dataset.steps.plan import By, Split, split
from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.models.training import Pool, Trainable
from c2b_ray.steps.classify import LabelMap, classification
from c2b_ray.steps.decode import decode_batch
from c2b_ray.storage.failure_dataset import FailureDataset
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.tables import content_id
from c2b_ray.world.scenes import CLASSES, sample
from c2b_ray.world.truth import EVALUATION_SEEDS, render_all

WORLD = "world"
IN_MEMORY, ON_DISK = 2 * 2**30, 64 * 2**30  # bytes of a pool
_TEST_SHARE, _MOST_TEST = 0.1, 10_000
_AT_ONCE = 256


@dataclass(frozen=True)
class Images:
    """Clean images and the dataset, for training and held out. `clean_left_out`, `dataset_left_out`: training images
    that are not trained on, because they are copies of one that is measured on."""

    clean: Pool
    clean_test: Pool
    dataset: Pool
    dataset_test: Pool
    clean_left_out: int = 0
    dataset_left_out: int = 0


@dataclass(frozen=True)
class CleanImages:
    """`location`: a folder or table of labelled images, or `world:N` for N renders. `test`: another one with held-out
    images; None holds out a tenth."""

    location: str
    test: str | None = None

    @property
    def renders(self) -> int | None:
        """The number of scenes for `world:N`, else None. Raises ConfigError for an invalid number."""
        name, _, number = self.location.partition(":")
        if name != WORLD:
            return None
        if not number.isascii() or not number.isdigit() or int(number) < 100:
            raise ConfigError("--clean", f"{self.location!r}: expected world:N, N scenes of at least 100")
        return int(number)

    def labels(self) -> list[str]:
        if self.renders is not None:
            return list(CLASSES)
        tables = [LabelledTable(location, "--clean") for location in (self.location, self.test) if location]
        return sorted({label for table in tables for label in _labels_of(table) if label is not None})

    def revision(self) -> str:
        if self.renders is not None:
            return content_id(self.location)
        return content_id(
            *(LabelledTable(location, "--clean").revision for location in (self.location, self.test) if location)
        )


def outputs(model: Trainable, names: Sequence[str], label_map: LabelMap | None) -> dict[str, int]:
    """Returns label → its output, by the label map or by its name. Clean images and dataset may use different names for
    one output.

    Raises ConfigError for a label with no output or with several.
    """
    result = {}
    for name in names:
        mapped = label_map if label_map is not None and name in label_map else None
        group = classification(model.spec, model.known, [name], mapped, field="--classifier").labels_of_class[0]
        if len(group) > 1:
            raise ConfigError(
                f"label_map.{name}", f"{len(group)} outputs of {model.spec} stand for it; training needs one: name it"
            )
        result[name] = group[0]
    return result


def split_of(dataset: FailureDataset, by: By | None, share: float) -> tuple[NDArray[np.int64], Split]:
    """Returns the number of the caption of each row of the dataset, int64 (rows,) in its order, and which are held
    out."""
    ids: list[str] = []
    numbers: list[int] = []
    hashes: list[int] = []
    for table in dataset.tables([s.name for s in dataset.shards], ["image_id", "caption_number", "fingerprint"]):
        ids += table["image_id"].to_pylist()
        numbers += table["caption_number"].to_pylist()
        hashes += table["fingerprint"].to_pylist()
    try:
        captions = np.array(numbers, np.int64)
        return captions, split(ids, captions, np.array(hashes, np.uint64), by, share)
    except ValueError as error:
        raise SourceError(f"{dataset.location}: cannot be split for training and testing: {error}") from error


def images_of(
    model: Trainable,
    dataset: FailureDataset,
    held_out: NDArray[np.bool_],
    clean: CleanImages,
    number_of: Mapping[str, int],
) -> Images:
    """Returns all four pools. Raises SourceError where an image cannot be decoded: no training image may be missing.

    A dataset of a labelled table's failures holds images that are clean training images too. Those that are measured
    on, and their copies, are trained on nowhere.
    """
    side = model.prepare.shaped(np.zeros((8, 8, 3), np.uint8)).shape
    train, test = _clean_pools(model, clean, number_of, side)
    images = _array(len(held_out), side)
    labels = np.zeros(len(held_out), np.int64)
    row = 0
    for table in dataset.tables([shard.name for shard in dataset.shards], ["image", "label", "image_id"]):
        count = table.num_rows
        images[row : row + count] = _shaped(model, table["image"].to_pylist(), table["image_id"].to_pylist())
        labels[row : row + count] = [number_of[label] for label in table["label"].to_pylist()]
        row += count
    failures = _part(Pool(images, labels), ~held_out)
    return _apart(train, test, failures, _part(Pool(images, labels), held_out))


def _apart(clean: Pool, clean_test: Pool, dataset: Pool, dataset_test: Pool) -> Images:
    """Leaves out of each training pool the copies of images that are measured on, as the classifier sees them."""
    # Training mirrors images at random, so a mirrored copy shows the same.
    measured_on = PictureFingerprints.joined(
        _prints(pool, flip) for pool in (clean_test, dataset_test) for flip in (False, True)
    )
    new, is_unseen = (~are_copies(_prints(pool), measured_on) for pool in (clean, dataset))
    for is_kept, where in ((new, "clean training images"), (is_unseen, "failures to train on")):
        if not is_kept.any():
            raise SourceError(f"all {where} are images that accuracy is measured on; name other --clean images")
    clean_copies, failure_copies = int((~new).sum()), int((~is_unseen).sum())
    return Images(_part(clean, new), clean_test, _part(dataset, is_unseen), dataset_test, clean_copies, failure_copies)


def _prints(pool: Pool, mirrored: bool = False) -> PictureFingerprints:
    """Returns the prints of the images as the classifier sees them."""

    def images() -> Iterator[NDArray[np.uint8]]:
        for start in range(0, len(pool), _AT_ONCE):
            yield from pool.images[np.arange(start, min(start + _AT_ONCE, len(pool)))]

    return PictureFingerprints.of(np.ascontiguousarray(image[:, ::-1]) if mirrored else image for image in images())


def _part(pool: Pool, rows: NDArray[np.bool_]) -> Pool:
    """Returns some rows of a pool, without a copy."""
    if rows.all():
        return pool
    return Pool(cast(NDArray[np.uint8], _Rows(pool.images, np.flatnonzero(rows))), pool.labels[rows])


@dataclass(frozen=True)
class _Rows:
    """Some rows of an array, usable like an array: nothing is copied before it is read."""

    whole: Any
    rows: NDArray[np.int64]

    def __getitem__(self, picked: Any) -> NDArray[np.uint8]:
        result: NDArray[np.uint8] = self.whole[self.rows[picked]]
        return result


@dataclass(frozen=True)
class _Fetched:
    """Images of a table, fetched and decoded on every read."""

    shaped: Callable[[NDArray[np.int64]], NDArray[np.uint8]]

    def __getitem__(self, picked: Any) -> NDArray[np.uint8]:
        return self.shaped(np.atleast_1d(picked))


def _clean_pools(
    model: Trainable, clean: CleanImages, number_of: Mapping[str, int], side: tuple[int, ...]
) -> tuple[Pool, Pool]:
    if clean.renders is not None:
        count = clean.renders
        # Seeds apart from those of training data and of evaluations elsewhere.
        tests = min(max(count // 10, 1000), 5000)
        return _rendered(model, count, 7, number_of), _rendered(model, tests, EVALUATION_SEEDS + 7, number_of)
    table = LabelledTable(clean.location, "--clean")
    labels = _labels_of(table)
    has_label = np.array([label is not None for label in labels])
    if clean.test is not None:
        other = LabelledTable(clean.test, "--clean-test")
        test_has_label = np.array([label is not None for label in _labels_of(other)])
        return _pool(model, table, has_label, number_of, side), _pool(model, other, test_has_label, number_of, side)
    marks = np.array([hashlib.sha256(key.encode()).digest()[:8] for key in table.keys.to_pylist()])
    order = np.argsort(marks, kind="stable")
    is_test = np.zeros(len(labels), bool)
    is_test[order[: min(max(1, int(len(labels) * _TEST_SHARE)), _MOST_TEST)]] = True
    return _pool(model, table, has_label & ~is_test, number_of, side), _pool(
        model, table, has_label & is_test, number_of, side
    )


def _pool(
    model: Trainable,
    table: LabelledTable,
    is_kept: NDArray[np.bool_],
    number_of: Mapping[str, int],
    side: tuple[int, ...],
) -> Pool:
    rows = np.flatnonzero(is_kept)
    if not len(rows):
        raise SourceError(f"{table.location}: holds no image with a label to train or test on", location=table.location)
    names = _labels_of(table)
    labels = np.array([number_of[str(names[row])] for row in rows], np.int64)

    def shaped(indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        fetched = table.fetch(indices.tolist())
        return _shaped(model, fetched["bytes"].to_pylist(), fetched["key"].to_pylist())

    if len(rows) * int(np.prod(side)) > ON_DISK:
        return Pool(cast(NDArray[np.uint8], _Rows(_Fetched(shaped), rows)), labels)
    images = _array(len(rows), side)
    for start in range(0, len(rows), _AT_ONCE):
        images[start : start + _AT_ONCE] = shaped(rows[start : start + _AT_ONCE])
    return Pool(images, labels)


def _labels_of(table: LabelledTable) -> list[str | None]:
    labels: list[str | None] = table.labels["target_class"].to_pylist()
    return labels


def _rendered(model: Trainable, count: int, seed: int, number_of: Mapping[str, int]) -> Pool:
    scenes = sample(count, seed)
    images = [model.shaped(list(render_all(scenes[start : start + _AT_ONCE]))) for start in range(0, count, _AT_ONCE)]
    return Pool(np.concatenate(images), np.array([number_of[scene.target_class] for scene in scenes], np.int64))


def _shaped(model: Trainable, files: Sequence[bytes | None], names: Sequence[str]) -> NDArray[np.uint8]:
    images, errors = decode_batch(files)
    for name, error in zip(names, errors, strict=True):
        if error is not None:
            raise SourceError(f"{name}: {error}; an image that is trained on must be whole: remove it or mend it")
    return model.shaped([image for image in images if image is not None])


def _array(rows: int, side: tuple[int, ...]) -> NDArray[np.uint8]:
    size = rows * int(np.prod(side))
    if size <= IN_MEMORY:
        return np.zeros((rows, *side), np.uint8)
    file = tempfile.TemporaryFile(prefix="c2b-ray-")  # noqa: SIM115 (it lives as long as the array, and has no name)
    file.truncate(size)
    return np.memmap(file, np.uint8, "r+", shape=(rows, *side))
