"""Compares a dataset and a reference in the features of one network: how far apart they are, and which images are
neighbours.

    images → features (a stage each) → moments and samples → FID, KID
                                     → nearest reference images of each failure

FID and KID as torch-fidelity defines them: covariances with ddof = 1, KID over 100 subsets of 1,000. Features stay on
disk; a part of them at a time is in memory, and a sample of either side for KID.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.commands.dataset import evaluate_rows as sources
from c2b_ray.metrics.distances import frechet_distance, kernel_distance
from c2b_ray.metrics.moments import Moments, Sample, needed_for_covariance
from c2b_ray.pipelines.images import CLASSIFY, OnProgress
from c2b_ray.pipelines.stage import Rows
from c2b_ray.schemas import content_id
from c2b_ray.schemas.evaluation import FEATURES, NEIGHBOURS
from c2b_ray.steps.features import FeatureExtractor, extract, matrix
from c2b_ray.steps.neighbours import agreement, nearest
from c2b_ray.store.failure_dataset import FailureDataset
from c2b_ray.store.parts import opened

SAMPLED = 10_000
"""The most images of either side among which KID draws its subsets."""
CUSTOMARY = 10_000
"""The number of images from which on FID's bias is commonly considered small (Heusel et al. 2017)."""
QUERIES_AT_ONCE, NEAREST = 2_000, 10

Load = Callable[[], FeatureExtractor]


@dataclass(frozen=True)
class Compared:
    """`fid`: None where a set is too small for it; `why` says how many images it needs. `kid`: may be negative.
    `images`, `reference_images`: with features. `agreement`: the labels of neighbours, as shares of failures."""

    features: str
    revision: str
    dimension: int
    images: int
    reference_images: int
    fid: float | None
    kid: float
    why: tuple[str, ...]
    neighbours: pa.Table
    agreement: dict[str, float]
    is_inception: bool


@dataclass
class _Side:
    """The features of one side, summarised."""

    moments: Moments
    sample: Sample


def compare(
    models: Backend,
    sides: tuple[FailureDataset, sources.Reference],
    extractor: Load,
    out: str,
    neighbours: int,
    on_progress: OnProgress,
) -> Compared:
    """`neighbours`: the number of failures, chosen by a hash of their ids, whose nearest reference images are
    searched."""
    known = models.runner.call(partial(_described, extractor), CLASSIFY)
    data, reference = sides
    keep = partial(sources.to_extract, extractor=known[1])
    outputs = [f"{out}/features/{known[1]}/{name}" for name in (data.id, reference.revision)]
    for rows, output in zip((sources.dataset_rows(data, keep), reference.rows(keep)), outputs, strict=True):
        _extract(models, rows, extractor, output, on_progress)
    built, compared = (_side(_sound(output)) for output in outputs)
    is_inception = known[0].startswith("Inception")
    why = _too_few(built, compared, known[0], is_inception)
    fid = None
    if min(built.moments.count, compared.moments.count) >= needed_for_covariance(len(built.moments.mean)):
        a, b = built.moments, compared.moments
        fid = frechet_distance(a.mean, a.covariance, b.mean, b.covariance)
    table = _neighbours(outputs, neighbours)
    return Compared(
        features=known[0],
        revision=known[1],
        dimension=len(built.moments.mean),
        images=built.moments.count,
        reference_images=compared.moments.count,
        fid=fid,
        kid=kernel_distance(built.sample.rows, compared.sample.rows),
        why=tuple(why),
        neighbours=table,
        agreement=agreement(table, reference.meant),
        is_inception=is_inception,
    )


def _described(extractor: Load) -> tuple[str, str]:
    loaded = extractor()
    return loaded.name, loaded.revision


def _extract(models: Backend, rows: Rows, extractor: Load, out: str, on_progress: OnProgress) -> None:
    config = replace(CLASSIFY, schema=FEATURES, total=rows.total)
    models.runner.run(rows, extract, extractor, out, id_column="feature_id", config=config, on_progress=on_progress)


def _sound(location: str) -> Iterator[pa.Table]:
    """Yields the features of each part, without the images that have none."""
    parts = opened(location)
    for name in parts.names():
        table = parts.read(name)
        table = table.filter(pc.is_null(table["error"]))
        if table.num_rows:
            yield table


def _side(parts: Iterator[pa.Table]) -> _Side:
    side = _Side(Moments(1), Sample(SAMPLED, 1))
    for part in parts:
        vectors = matrix(part)
        if not side.moments.count:
            side = _Side(Moments(vectors.shape[1]), Sample(SAMPLED, vectors.shape[1]))
        side.moments.add(vectors)
        side.sample.add(vectors, _marks(part))
    return side


def _marks(part: pa.Table) -> NDArray[np.uint64]:
    return np.array([int(content_id("sample", key)[:16], 16) for key in part["feature_id"].to_pylist()], np.uint64)


def _too_few(dataset: _Side, reference: _Side, features: str, is_inception: bool) -> list[str]:
    fid, kid = ("FID", "KID") if is_inception else ("the Fréchet distance", "the kernel distance")
    needed = needed_for_covariance(len(dataset.moments.mean))
    sentences = []
    for name, side in (("dataset", dataset), ("reference", reference)):
        count = side.moments.count
        if count < needed:
            sentences.append(
                f"The {name} has {count:,} images with features, and {fid} needs {needed:,} at least: fewer than one "
                f"more than the {needed - 1:,} dimensions of {features} have a singular covariance. "
                f"{_begun(kid)} needs 2."
            )
        if count > SAMPLED:
            sentences.append(
                f"{_begun(kid)} draws its subsets among {SAMPLED:,} of the {count:,} images of the {name}."
            )
        elif needed <= count < CUSTOMARY:
            sentences.append(
                f"The {name} has {count:,} images with features: {fid} of fewer than {CUSTOMARY:,} is biased upwards, "
                f"and can be compared only with {fid} from as many. {_begun(kid)} is unbiased."
            )
    return sentences


def _begun(text: str) -> str:
    return text[0].upper() + text[1:]


def _neighbours(outputs: list[str], most: int) -> pa.Table:
    chosen: pa.Table = FEATURES.empty_table()
    for part in _sound(outputs[0]):
        together = pa.concat_tables([chosen, part])
        order = np.argsort(_marks(together), kind="stable")[:most]
        chosen = together.take(np.sort(order))
    starts = range(0, chosen.num_rows, QUERIES_AT_ONCE)
    tables = [nearest(chosen.slice(start, QUERIES_AT_ONCE), _sound(outputs[1]), NEAREST) for start in starts]
    return pa.concat_tables([NEIGHBOURS.empty_table(), *tables])
