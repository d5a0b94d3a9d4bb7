"""A run of `c2b audit`: its tables by name, each checked when it is read.

proposals.parquet  rejected.parquet  captions.parquet  draws.parquet  scores.parquet
pooled.parquet                         the scores of each value over all classes together
pool.parquet                           the images that were examined, drawn or not; rank is the order of examination
confirmation.parquet                   draws that confirm findings, if the audit asks for them,
confirmation_pool.parquet              and the images that were examined for them
calibration.parquet                    if images were verified
negatives.parquet                      images of the calibration that look like an index's, and show another class
agreement.parquet                      if they come from two sources
intersections.parquet                  if pairs of attributes were requested
label_errors.parquet                   images whose label may be wrong, if the audit asks for them,
scores_without.parquet                 and the scores without them
look_vectors/                          Parquet parts: how images look that are not answered by their class, if most are
                                       not,
looks.parquet                          whether the answers follow that,
look_alikes.parquet                    and of what is established the images
labelled_images.parquet                what each image shows, if a classifier gives each label on its own
clusters.parquet                       the cluster of each image, if the audit names what a cluster is
properties/                            Parquet parts: what was measured of each image, if the audit measures images
questions.parquet                      attributes whose values are read off the images, if the audit does that,
readings/                              and Parquet parts: what was read
descriptions/  vectors/                Parquet parts: a caption and an embedding of each image, if the audit looks for
                                       attributes in these
perturbed_images.parquet               if images were perturbed: which ones,
perturbed_predictions/                 the answers to their pictures,
perturbations.parquet                  and the effects
images/  verifications/  predictions/  Parquet parts. Images hold their place, size and hash; their bytes only where
                                       nothing else holds them, or the audit asks for it (`keep_images`)
shown/                                 Parquet parts of the pictures that the report shows
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.kind import AUDIT
from c2b_ray.config.audit import AuditConfig
from c2b_ray.engine.images import FETCH
from c2b_ray.engine.stage import Runner
from c2b_ray.errors import RunError, another_run
from c2b_ray.steps.draw import ImageSource, RowNumbers
from c2b_ray.storage.manifest import Manifest
from c2b_ray.storage.parts import Parts, absent, digests, opened
from c2b_ray.storage.run import Run, TableOf, load_run_of, opener_of
from c2b_ray.tables import has_content

CLASSIFIER = "classifier "
"""The prefix of a classifier's name among the manifest's models."""
_OF_CAPTIONS = ("captions", "caption_spread")
_FALSE_ACCEPTS = ("false_accepts", "false_accepts_low", "false_accepts_high")
_OF_METRIC = ("metric", "phi_of_mix")
_COSINE = 1.01
"""The largest accepted cosine: half precision and compression in an index can round up to this."""


class C2BManifest(Manifest):
    """`blank_rows`: for each column of a labelled table, the rows of the audit's classes without a value. `other_rows`:
    the rows of classes that are not audited.
    `setup`: what the answers show about how the classifiers are set up. `derived`: attributes that were cut from
    measurements or columns of numbers and dates, or come from a model (`hypotheses.derived.Derived.record`).
    `rule`: when an answer is right, in words, where that follows from the classifiers and the config's `threshold`.
    `perturbed`: `side`, to which the shorter side of perturbed pictures was reduced."""

    budget: dict[str, Any] | None = None
    perturbed: dict[str, Any] | None = None
    blank_rows: dict[str, int] | None = None
    other_rows: int | None = None
    setup: list[dict[str, Any]] | None = None
    derived: list[dict[str, Any]] | None = None
    rule: str | None = None


class C2BRun(Run):
    """A run of `c2b audit`."""

    config: AuditConfig

    SINCE: ClassVar = {
        "images": ("row", "size", "bytes", "pixels"),
        "intersections": _OF_CAPTIONS,
        "predictions": ("probabilities",),
        "pooled": ("basis", *_OF_CAPTIONS, "clusters"),
        "scores": ("clusters", "detectable", *_FALSE_ACCEPTS, *_OF_METRIC),
        "screening": (*_FALSE_ACCEPTS, *_OF_METRIC),
    }

    proposals = TableOf()
    rejected = TableOf()
    captions = TableOf()
    images = TableOf()
    calibration = TableOf()
    scores = TableOf()
    agreement = TableOf()
    intersections = TableOf()

    @property
    def draws(self) -> pa.Table:
        draws = self.read("draws")
        cosines = draws["similarity"].drop_null()
        if not pc.all(pc.less_equal(pc.abs(cosines), _COSINE), min_count=0).as_py():
            raise RunError(
                f"{self.location('draws.parquet')}: a similarity outside [-1, 1]: the table or the index that it came "
                "from is damaged; rebuild the index and run the c2b audit again",
                location=self.location("draws.parquet"),
                run=self.path,
            )
        return draws

    @property
    def predictions(self) -> pa.Table:
        """Predictions by the weights that the manifest names. A run that was resumed with other weights also keeps the
        earlier ones."""
        return self.predictions_of(None)

    def predictions_of(self, columns: Sequence[str] | None, table: str = "predictions") -> pa.Table:
        """Like `predictions`, with some columns besides `classifier` and `revision`. All columns take four times the
        memory. `table`: another one that has these columns."""
        rows = self.read(table, None if columns is None else ["classifier", "revision", *columns])
        current = [
            pc.and_(
                pc.equal(rows["classifier"], name.removeprefix(CLASSIFIER)),
                pc.equal(rows["revision"], model["revision"]),
            )
            for name, model in self.manifest.get("models", {}).items()
            if name.startswith(CLASSIFIER)
        ]
        return rows.filter(reduce(pc.or_, current)) if current else rows

    @property
    def verifications(self) -> pa.Table:
        """Verifications by the weights of the verifier that the manifest names, as for predictions."""
        rows = self.read("verifications")
        verifier = self.manifest.get("models", {}).get("verifier")
        return rows if verifier is None else rows.filter(pc.equal(rows["revision"], verifier["revision"]))

    def lacks(self, name: str, id_column: str, ids: Callable[[], Iterator[pa.Array]] | None) -> bool:
        """Returns whether a table in parts is missing, or lacks any of the ids, as `Rows.ids` yields them."""
        if ids is None or not self.has(name):
            return True
        existing = opened(self.location(name)).census(id_column).ids
        return any(absent(some, existing).any() for some in ids())

    def wrong_answers(self) -> pa.Table:
        """Returns the images with wrong answers: `tables.FAILURES`, a row per classifier, cell and image."""
        # Imported here, because reading a run needs only its tables.
        from c2b_ray.steps.answers import failures

        images = self.read("images", ["image_id", "key", "content", "fingerprint"])
        return failures(self.captions, self.draws, images, self.predictions)


def load_c2b_run(path: str | Path | Run) -> C2BRun:
    """Does what `load_run` does. Raises ConfigError for a run of another kind."""
    return load_run_of(path, AUDIT, C2BRun)


open_c2b_run = opener_of(AUDIT, C2BRun)
"""As `storage.run.open_run`, for a run of this kind."""


# Checks whether images are still those that a run measured, by the hashes of their bytes, noted when they were
# fetched.


BATCH = 256
NOTED = ["image_id", "key", "content"]


def check_unchanged(
    run: C2BRun,
    wanted: Callable[[], pa.Table],
    source: Callable[[], ImageSource],
    runner: Runner,
    table: str = "images",
) -> None:
    """Raises RunError where the source now holds other bytes than the run fetched.

    `wanted`: makes the table of its images and their rows. `table`: of the run, which has a hash of each image. Files
    whose names stayed and whose pictures changed would be classified by the old pictures and reported with the new
    ones. A missing file changes nothing: the run has its bytes. Nor is an index checked that holds its images itself:
    its revision depends on their bytes, and so does the run's id of each image.
    """
    if not run.has(table):
        return
    total, changed = runner.call(partial(_changed, wanted, opened(run.location(table)), source), FETCH)
    if changed:
        raise RunError(
            f"{run.path}: {len(changed):,} of its {total:,} images are other files now than it measured, the "
            f"first is {changed[0]!r}",
            remedy=another_run("to audit them as they are", "put the former files back"),
        )


def _changed(
    load_wanted: Callable[[], pa.Table], parts: Parts, make: Callable[[], ImageSource]
) -> tuple[int, list[str]]:
    """Returns how many of the `load_wanted` images the parts hold, and the keys of those whose bytes no longer match,
    in the order of their rows; none where the source holds its images itself.

    It reads a part at a time: the keys of a million images take more memory than a driver on Ray otherwise needs.
    """
    source = make()
    if "error" not in source.fetch([]).column_names:
        return 0, []
    images = load_wanted()
    marks = digests(images["image_id"])
    order = np.argsort(marks)
    marks, rows = marks[order], images["row"].to_numpy()[order]
    total, changed = 0, []
    for recorded in parts.each(NOTED):
        recorded_digests = digests(recorded["image_id"])
        positions = np.minimum(np.searchsorted(marks, recorded_digests), len(marks) - 1)
        is_wanted = marks[positions] == recorded_digests if len(marks) else np.zeros(len(recorded_digests), bool)
        total += int(is_wanted.sum())
        changed += _of_part(rows[positions[is_wanted]], recorded["content"].filter(pa.array(is_wanted)), source)
    return total, [key for _, key in sorted(changed)]


def _of_part(rows: RowNumbers, contents: pa.ChunkedArray, source: ImageSource) -> list[tuple[int, str]]:
    """Returns the rows, and their keys, whose bytes no longer match `contents`."""
    changed = []
    for start in range(0, len(rows), BATCH):
        chunk = rows[start : start + BATCH].tolist()
        fetched, recorded_contents = source.fetch(chunk), contents.slice(start, BATCH).to_pylist()
        for row, key, data, content in zip(
            chunk, fetched["key"].to_pylist(), fetched["bytes"].to_pylist(), recorded_contents, strict=True
        ):
            if data is not None and content is not None and not has_content(data, content):
                changed.append((row, key))
    return changed


def _differ(first: str | None, second: str | None) -> bool:
    """Tells whether two hashes belong to other bytes. Runs of different releases may have different hashes of the same
    bytes, of different lengths, which tell nothing."""
    return first is not None and second is not None and len(first) == len(second) and first != second


def check_same_images(a: C2BRun, b: C2BRun) -> None:
    """Raises RunError where images that both runs drew have other bytes in one than in the other."""
    drawn_ids = pc.unique(b.draws["image_id"])
    images_of_a = {row["image_id"]: row for row in a.read("images", NOTED).to_pylist()}
    images_of_b = b.read("images", NOTED)
    changed = [
        row["key"]
        for row in images_of_b.filter(pc.is_in(images_of_b["image_id"], drawn_ids)).to_pylist()
        if (other := images_of_a.get(row["image_id"])) is not None and _differ(row["content"], other["content"])
    ]
    if changed:
        raise RunError(
            f"{len(changed):,} images that {a.path} and {b.path} share had other bytes in one than in the other, the "
            f"first is {sorted(changed)[0]!r}: files were replaced between the two, so their answers cannot be paired; "
            "audit both classifiers in one run, or again on the same files"
        )


def same_images(a: C2BRun, b: C2BRun) -> dict[str, str]:
    """Returns A's id of each image of B that has another id in A and the same bytes.

    An id names a row of a table or of an index, so that it changes with each row that is added and each label that is
    corrected. Of files with the same bytes, those of one name belong together, then those that are left, each once.
    """
    images_of_a, images_of_b = a.read("images", NOTED).to_pylist(), b.read("images", NOTED).to_pylist()
    ids_of_a, ids_of_b = ({row["image_id"] for row in rows} for rows in (images_of_a, images_of_b))
    free = {row["image_id"]: row for row in images_of_a if row["content"] and row["image_id"] not in ids_of_b}
    result: dict[str, str] = {}
    for columns in (("content", "key"), ("content",)):
        same: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for image_id, row in free.items():
            same[tuple(row[name] for name in columns)].append(image_id)
        for row in images_of_b:
            ids = same.get(tuple(row[name] for name in columns), [])
            if ids and row["image_id"] not in ids_of_a and row["image_id"] not in result:
                result[row["image_id"]] = ids.pop(0)
        used = set(result.values())
        free = {image_id: row for image_id, row in free.items() if image_id not in used}
    return result
