"""The parts of an evaluation: failure rates, transfer and consistency, and distances between dataset and reference.

Copies of an image of the reference are no more evidence than the image itself, so that they count once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray.audits.dataset import evaluation_rows as sources
from c2b_ray.audits.dataset.evaluation_rows import Reference, agreement, nearest
from c2b_ray.audits.failures.discovery.rounds_stage import read_pictures
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.engine.images import CLASSIFY, OnProgress
from c2b_ray.stats.distances import (
    Moments,
    Sample,
    clustered_consistency,
    clustered_rate,
    frechet_distance,
    kernel_distance,
    needed_for_covariance,
)
from c2b_ray.steps.draw import ImageIds, Ints, distinct_count, wide
from c2b_ray.steps.duplicates import DISTINCT_COLUMNS, Distinct
from c2b_ray.steps.retrieve import FeatureExtractor, extract, matrix
from c2b_ray.storage.failure_dataset import FailureDataset
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.storage.parts import Digests, digests, opened
from c2b_ray.tables import content_id
from c2b_ray.tables.dataset import CONSISTENCY, FAILURE_RATES, FEATURES, NEIGHBOURS


class Pictures:
    """The pictures of a reference. `images`: a table with COLUMNS."""

    def __init__(self, images: pa.Table) -> None:
        self._distinct = Distinct(images)
        self.copies = images.num_rows - distinct_count(self.of([images["image_id"]]))

    def of(self, ids: Iterable[pa.ChunkedArray]) -> Ints:
        """Returns a number for the picture of each of these images, the same for copies."""
        all_ids = pa.chunked_array([chunk for column in ids for chunk in wide(column).chunks], pa.large_string())
        return self._distinct.pictures(ImageIds(all_ids.combine_chunks()))


def pictures_of(models: Backend, reference: Reference, out: str, on_progress: OnProgress) -> Pictures:
    """Looks at all images of the reference; what is known of them is kept in parts under `out`."""
    rows = range(len(reference.table))
    location = f"{out}/pictures/{reference.revision}"
    source = partial(_unchanged, reference.table)
    table = pa.table({"image_id": reference.ids(rows), "row": pa.array(rows, pa.int64())})
    read_pictures(models.runner, table, source, location, on_progress)
    parts = opened(location)
    return Pictures(pa.concat_tables([parts.read(name).select(DISTINCT_COLUMNS) for name in parts.names()]))


def _unchanged(table: LabelledTable) -> LabelledTable:
    return table


# Computes failure rates, transfer and error consistency from answers to a dataset, each with an interval over
# captions.


RULES = {"top1": 1, "top3": 3}
MOST_CLUSTERS = 4096  # beyond that captions are joined at random: intervals stay valid and memory bounded
_LAST = 255


@dataclass
class EvaluationAnswers:
    """`ids`: sorted digests. `cluster` of each, from 0. `ranks` (images, classifiers): of the true label, from 1, 0 for
    no answer. `built` (images, classifiers of the build): whether each failed during the build. `captions`: their
    number, of which the clusters are as many at most."""

    ids: Digests
    cluster: NDArray[np.int64]
    ranks: NDArray[np.uint8]
    built: NDArray[np.bool_]
    captions: int
    clusters: int

    @staticmethod
    def of(
        ids: Iterable[pa.Array | pa.ChunkedArray],
        captions: NDArray[np.int64],
        built: NDArray[np.bool_],
        classifiers: int,
        most: int = MOST_CLUSTERS,
    ) -> EvaluationAnswers:
        """`captions`: the number of each image's caption. `most`: clusters."""
        marks = np.concatenate([np.zeros(0, "S12"), *(digests(part) for part in ids)])
        order = np.argsort(marks, kind="stable")
        distinct, cluster = np.unique(captions, return_inverse=True)
        ranks = np.zeros((len(marks), classifiers), np.uint8)
        clusters = min(len(distinct), most)
        return EvaluationAnswers(
            marks[order], (cluster % max(most, 1))[order], ranks, built[order], len(distinct), clusters
        )

    def add(self, part: pa.Table, classifiers: Sequence[str]) -> None:
        """Adds a part of `tables.dataset.CHECKED`. Answers of classifiers that are not in `classifiers` are ignored."""
        marks = digests(part["image_id"])
        rows = np.minimum(np.searchsorted(self.ids, marks), max(len(self.ids) - 1, 0))
        is_known = np.array([name in classifiers for name in part["classifier"].to_pylist()], bool)
        is_known &= self.ids[rows] == marks
        columns = np.array(
            [classifiers.index(n) if n in classifiers else 0 for n in part["classifier"].to_pylist()], np.int64
        )
        ranks = np.minimum(part["rank"].fill_null(0).to_numpy(), _LAST).astype(np.uint8)
        self.ranks[rows[is_known], columns[is_known]] = ranks[is_known]


def rates(
    part: str, answers: EvaluationAnswers, classifiers: Sequence[str], rows: NDArray[np.bool_] | None = None
) -> list[dict[str, Any]]:
    """Returns a row of `tables.dataset.FAILURE_RATES` for each classifier and rule. `rows`: of the images; None for
    all."""
    is_chosen = np.ones(len(answers.ids), bool) if rows is None else rows
    result = []
    for rule, k in RULES.items():
        for column, name in enumerate(classifiers):
            ranks = answers.ranks[:, column]
            answered, wrong = is_chosen & (ranks > 0), is_chosen & (ranks > k)
            totals, failures = _by_cluster(answers, answered), _by_cluster(answers, wrong)
            estimate = clustered_rate(failures, totals)
            result.append(
                {
                    "of": part,
                    "classifier": name,
                    "rule": rule,
                    "images": int(answered.sum()),
                    "captions": int((totals > 0).sum()) if answers.captions == answers.clusters else answers.captions,
                    "failures": int(wrong.sum()),
                    "unanswered": int((is_chosen & (ranks == 0)).sum()),
                    "rate": float(estimate.value),
                    "rate_low": float(estimate.low),
                    "rate_high": float(estimate.high),
                }
            )
    return result


def transfers(answers: EvaluationAnswers, classifiers: Sequence[str], built: Sequence[str]) -> pa.Table:
    """Returns `tables.dataset.FAILURE_RATES` of all images, and of the failures of each classifier.

    The failures of a classifier of the build are those during the build, by the dataset's rule; those of other
    classifiers follow from the rule of each row.
    """
    rows = rates("dataset", answers, classifiers)
    for column, name in enumerate(built):
        rows += rates(f"failures of {name}", answers, classifiers, answers.built[:, column])
    for column, name in enumerate(classifiers):
        if name in built:
            continue
        for rule, k in RULES.items():
            failed = answers.ranks[:, column] > k
            rows += [r for r in rates(f"failures of {name}", answers, classifiers, failed) if r["rule"] == rule]
    return pa.Table.from_pylist(rows, FAILURE_RATES)


def consistencies(part: str, answers: EvaluationAnswers, classifiers: Sequence[str]) -> pa.Table:
    """Returns `tables.dataset.CONSISTENCY` of all pairs, each once, and of each classifier with itself."""
    rows = []
    for rule, k in RULES.items():
        for a, first in enumerate(classifiers):
            for b, second in enumerate(classifiers[a:], a):
                both_answered = (answers.ranks[:, a] > 0) & (answers.ranks[:, b] > 0)
                wrong_a, wrong_b = both_answered & (answers.ranks[:, a] > k), both_answered & (answers.ranks[:, b] > k)
                counts = [
                    _by_cluster(answers, outcome) for outcome in (wrong_a, wrong_b, wrong_a & wrong_b, both_answered)
                ]
                kappa = clustered_consistency(counts[0], counts[1], counts[2], counts[3])
                row = {
                    "of": part,
                    "classifier_a": first,
                    "classifier_b": second,
                    "rule": rule,
                    "images": int(both_answered.sum()),
                }
                limits = {"kappa": kappa.value, "kappa_low": kappa.low, "kappa_high": kappa.high}
                rows.append(row | {name: float(value) for name, value in limits.items()})
    return pa.Table.from_pylist(rows, CONSISTENCY)


def changed_answers(answers: EvaluationAnswers, classifiers: Sequence[str], built: Sequence[str]) -> dict[str, int]:
    """Returns, for each classifier of the build that answers again, the images that it failed then and has right now by
    top-1."""
    return {
        name: int((answers.built[:, built.index(name)] & (answers.ranks[:, column] == 1)).sum())
        for column, name in enumerate(classifiers)
        if name in built
    }


def _by_cluster(answers: EvaluationAnswers, rows: NDArray[np.bool_]) -> NDArray[np.int64]:
    return np.bincount(answers.cluster[rows], minlength=answers.clusters or 1)


# Compares a dataset and a reference in the features of one network: how far apart they are, and which images are
# neighbours.


SAMPLED = 10_000
"""The most images of either side among which KID draws its subsets."""
CUSTOMARY = 10_000
"""The number of images from which on FID's bias is commonly considered small (Heusel et al. 2017)."""
QUERIES_AT_ONCE, NEAREST = 2_000, 10

Load = Callable[[], FeatureExtractor]


@dataclass(frozen=True)
class ImageSetDistances:
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
) -> ImageSetDistances:
    """`neighbours`: the number of failures, chosen by a hash of their ids, whose nearest reference images are
    searched."""
    description = models.runner.call(partial(_described, extractor), CLASSIFY)
    data, reference = sides
    keep = partial(sources.to_extract, extractor=description[1])
    outputs = [f"{out}/features/{description[1]}/{name}" for name in (data.id, reference.revision)]
    for rows, output in zip((sources.dataset_rows(data, keep), reference.rows(keep)), outputs, strict=True):
        config = replace(CLASSIFY, schema=FEATURES, total=rows.total)
        models.runner.run(
            rows, extract, extractor, output, id_column="feature_id", config=config, on_progress=on_progress
        )
    dataset_side, compared = (_side(_sound(output)) for output in outputs)
    is_inception = description[0].startswith("Inception")
    why = _too_few(dataset_side, compared, description[0], is_inception)
    fid = None
    if min(dataset_side.moments.count, compared.moments.count) >= needed_for_covariance(len(dataset_side.moments.mean)):
        a, b = dataset_side.moments, compared.moments
        fid = frechet_distance(a.mean, a.covariance, b.mean, b.covariance)
    table = _neighbours(outputs, neighbours)
    return ImageSetDistances(
        features=description[0],
        revision=description[1],
        dimension=len(dataset_side.moments.mean),
        images=dataset_side.moments.count,
        reference_images=compared.moments.count,
        fid=fid,
        kid=kernel_distance(dataset_side.sample.rows, compared.sample.rows),
        why=tuple(why),
        neighbours=table,
        agreement=agreement(table, reference.meant),
        is_inception=is_inception,
    )


def _described(extractor: Load) -> tuple[str, str]:
    loaded = extractor()
    return loaded.name, loaded.revision


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
    images_needed = needed_for_covariance(len(dataset.moments.mean))
    sentences = []
    for name, side in (("dataset", dataset), ("reference", reference)):
        count = side.moments.count
        if count < images_needed:
            sentences.append(
                f"The {name} has {count:,} images with features, and {fid} needs {images_needed:,} at least: fewer "
                f"than one more than the {images_needed - 1:,} dimensions of {features} have a singular covariance. "
                f"{_begun(kid)} needs 2."
            )
        if count > SAMPLED:
            sentences.append(
                f"{_begun(kid)} draws its subsets among {SAMPLED:,} of the {count:,} images of the {name}."
            )
        elif images_needed <= count < CUSTOMARY:
            sentences.append(
                f"The {name} has {count:,} images with features: {fid} of fewer than {CUSTOMARY:,} is biased upwards, "
                f"and can be compared only with {fid} from as many. {_begun(kid)} is unbiased."
            )
    return sentences


def _begun(text: str) -> str:
    return text[0].upper() + text[1:]


def _neighbours(outputs: list[str], most: int) -> pa.Table:
    smallest: pa.Table = FEATURES.empty_table()
    for part in _sound(outputs[0]):
        merged = pa.concat_tables([smallest, part])
        order = np.argsort(_marks(merged), kind="stable")[:most]
        smallest = merged.take(np.sort(order))
    starts = range(0, smallest.num_rows, QUERIES_AT_ONCE)
    tables = [nearest(smallest.slice(start, QUERIES_AT_ONCE), _sound(outputs[1]), NEAREST) for start in starts]
    return pa.concat_tables([NEIGHBOURS.empty_table(), *tables])
