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

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.kind import AUDIT
from c2b_ray.errors import ConfigError, RunError
from c2b_ray.storage.manifest import Manifest
from c2b_ray.storage.run import Run, load_run, open_run

CLASSIFIER = "classifier "
"""The prefix of a classifier's name among the manifest's models."""
_OF_CAPTIONS = ("captions", "caption_spread")
_FALSE_ACCEPTS = ("false_accepts", "false_accepts_low", "false_accepts_high")
_OF_METRIC = ("metric", "phi_of_mix")
_COSINE = 1.01
"""The largest accepted cosine: half precision and compression in an index can round up to this."""


class C2BManifest(Manifest):
    """`blank_rows`: for each column of a labelled table, the rows of the audit's classes without a value.
    `setup`: what the answers show about how the classifiers are set up. `derived`: attributes that were cut from
    measurements or columns of numbers and dates, or come from a model (`hypotheses.derived.Derived.record`).
    `perturbed`: `side`, to which the shorter side of perturbed pictures was reduced."""

    budget: dict[str, Any] | None = None
    perturbed: dict[str, Any] | None = None
    blank_rows: dict[str, int] | None = None
    setup: list[dict[str, Any]] | None = None
    derived: list[dict[str, Any]] | None = None


class C2BRun(Run):
    """A run of `c2b audit`."""

    SINCE: ClassVar = {
        "images": ("row", "size", "bytes", "pixels"),
        "intersections": _OF_CAPTIONS,
        "predictions": ("probabilities",),
        "pooled": ("basis", *_OF_CAPTIONS, "clusters"),
        "scores": ("clusters", "detectable", *_FALSE_ACCEPTS, *_OF_METRIC),
        "screening": (*_FALSE_ACCEPTS, *_OF_METRIC),
    }

    @property
    def proposals(self) -> pa.Table:
        return self.read("proposals")

    @property
    def rejected(self) -> pa.Table:
        return self.read("rejected")

    @property
    def captions(self) -> pa.Table:
        return self.read("captions")

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
    def images(self) -> pa.Table:
        return self.read("images")

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

    @property
    def calibration(self) -> pa.Table:
        return self.read("calibration")

    @property
    def scores(self) -> pa.Table:
        return self.read("scores")

    @property
    def agreement(self) -> pa.Table:
        return self.read("agreement")

    @property
    def intersections(self) -> pa.Table:
        return self.read("intersections")

    def wrong_answers(self) -> pa.Table:
        """Returns the images with wrong answers: `schemas.FAILURES`, a row per classifier, cell and image."""
        # Imported here, because reading a run needs only its tables.
        from c2b_ray.steps.failures import failures

        images = self.read("images", ["image_id", "key", "content", "fingerprint"])
        return failures(self.captions, self.draws, images, self.predictions)


def load_c2b_run(path: str | Path | Run) -> C2BRun:
    """Does what `load_run` does. Raises ConfigError for a run of another kind."""
    run = path if isinstance(path, Run) else load_run(path)
    if not isinstance(run, C2BRun):
        raise ConfigError("RUN", f"{run.path} is a run of {run.kind.command}; this needs one of c2b audit")
    return run


@contextmanager
def open_c2b_run(path: str | Path, run_id: str, config: Mapping[str, Any]) -> Iterator[C2BRun]:
    """Does what `open_run` does, for a run of this kind."""
    with open_run(path, run_id, config, AUDIT) as run:
        assert isinstance(run, C2BRun)
        yield run
