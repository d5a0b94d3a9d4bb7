"""Compares two runs, or two classifiers of one run, on the images that both saw; and checks gates on a run.

It composes runs, the comparing step and the gates, and knows no formulas. It needs neither Ray nor a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits import gate as gates
from c2b_ray.audits.c2b.budget import clusters, duplicates
from c2b_ray.audits.c2b.classification import one_of, two_of
from c2b_ray.audits.c2b.report.comparison import (
    changed_cells,
    comparison_page,
    counted,
    disagreement_pictures,
    image_lines,
    summaries,
)
from c2b_ray.audits.c2b.run import C2BRun, check_same_images
from c2b_ray.audits.c2b.scoring import comparison as step
from c2b_ray.audits.c2b.scoring.comparison import ComparisonSide, Disagreement, SharedImages
from c2b_ray.audits.c2b.verification.verified import VerifierAnswers
from c2b_ray.errors import Argument, RunError, SourceError
from c2b_ray.report.words import Summary
from c2b_ray.steps.cells import CellName
from c2b_ray.storage import files, resolve
from c2b_ray.storage.run import MANIFEST

OF_TWO_VALUES = (
    "classifier", "target_class", "attribute", "bias_class", "n", "correct", "errors", "accuracy", "accuracy_low",
    "accuracy_high", "expected", "interaction", "interaction_low", "interaction_high", "p_value", "q_value", "basis",
    "doubt",
)  # fmt: skip
"""Columns of two values at once for gates. φ is none: it is large wherever that of one of the two values is, which has
a cell of its own."""


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`. `cells`: a table of `tables.COMPARISON`. `pooled`: of `COMPARISON_POOLED`, over all
    classes together. `scores`: those of B."""

    run_a: C2BRun
    run_b: C2BRun
    classifier_a: str
    classifier_b: str
    tau: float
    alpha: float
    cells: pa.Table
    pooled: pa.Table
    scores: pa.Table
    shared: SharedImages

    def check(self, fail_on: Sequence[str], allow_unchecked: bool = False) -> list[gates.Check]:
        """Checks gates on the changes of cells, also over all classes, and on B's scores, also of two values at once.

        `phi` and `verdict` are B's, on all of its images. A gate that no cell could be checked against fails, unless
        `allow_unchecked`.
        """
        scores_of_b = {_cell_of(row): row for row in self.scores.to_pylist()}
        rows = []
        for row in self.cells.to_pylist():
            scored = scores_of_b.get(_cell_of(row), {})
            rows.append({**scored, **row, "n": scored.get("n", 0), "pairs": row["n"]})
        rows += [{**row, "pairs": row["n"]} for row in self.pooled.to_pylist()]
        rows += [row for row in _of_two_values(self.run_b) if row["classifier"] == self.classifier_b]
        return gates.check(fail_on, gates.cells_of(rows, self.classifier_b), allow_unchecked)

    def disagreements(self) -> dict[CellName, Disagreement]:
        """Returns the images that only one side got right, for cells that changed and for values that changed over all
        classes."""
        return self.shared.disagreements(changed_cells(self.cells, self.pooled))

    def properties(self) -> dict[str, str]:
        return {
            "classifier_a": self.classifier_a,
            "classifier_b": self.classifier_b,
            "tau": str(self.tau),
            "alpha": str(self.alpha),
        }

    def summaries(self) -> list[Summary]:
        images = image_lines(self.cells, self.disagreements(), self.run_b)
        return summaries((self.classifier_a, self.classifier_b), (self.cells, self.pooled), images)

    def to_json(self) -> dict[str, Any]:
        return {
            "a": self.run_a.path,
            "b": self.run_b.path,
            **{name: getattr(self, name) for name in ("classifier_a", "classifier_b", "tau", "alpha")},
            **counted(self.cells.to_pylist()),
            "cells": self.cells.to_pylist(),
            "pooled": self.pooled.to_pylist(),
        }

    def page(self) -> str:
        """Returns the comparison as one HTML page."""
        title = self.run_b.config.task
        disagreements = self.disagreements()
        pictures = disagreement_pictures(self.run_b, disagreements)
        return comparison_page(
            title,
            (self.classifier_a, self.classifier_b),
            (self.cells, self.pooled),
            (self.tau, self.alpha),
            disagreements,
            pictures,
        )

    def write(self, out: str | Path) -> str:
        """Writes comparison.parquet, comparison_pooled.parquet and comparison.html into a directory; returns the page's
        path."""
        files.make_directory(out)
        directory = str(out).rstrip("/")
        files.write_table(f"{directory}/comparison.parquet", self.cells)
        files.write_table(f"{directory}/comparison_pooled.parquet", self.pooled)
        files.write_bytes(f"{directory}/comparison.html", self.page().encode())
        return f"{directory}/comparison.html"


def compare(
    run_a: C2BRun, run_b: C2BRun, classifier_a: str | None = None, classifier_b: str | None = None
) -> Comparison:
    """Compares two classifiers, cell by cell, on identical images: B against A, or two of one finished run.

    `classifier_a`, `classifier_b`: specs, needed where a run has several classifiers and the choice is unclear. The
    thresholds are the runs'. Raises ConfigError where it is unclear which classifiers are meant; RunError for runs that
    have different settings or share no image, or whose images of the same name have different bytes.
    """
    if resolve(run_a.path)[1] == resolve(run_b.path)[1]:
        spec_a, spec_b = two_of(run_a, classifier_a, classifier_b)
    else:
        spec_a = one_of(run_a, classifier_a, Argument.CLASSIFIER_A)
        spec_b = one_of(run_b, classifier_b, Argument.CLASSIFIER_B)
        check_same_images(run_a, run_b)
    tau, alpha = _thresholds(run_a, run_b)
    shared_images = SharedImages(_side(run_a, spec_a), _side(run_b, spec_b))
    cells, pooled = step.compare(shared_images, tau, alpha), step.compare_pooled(shared_images, tau, alpha)
    scores = run_b.scores.filter(pc.equal(run_b.scores["classifier"], spec_b))
    return Comparison(run_a, run_b, spec_a, spec_b, tau, alpha, cells, pooled, scores, shared_images)


def findings(run: C2BRun, classifier: str | None = None) -> list[gates.GateCell]:
    """Returns the scores of single classes, of all together, of two values at once and of perturbations: of all
    classifiers of the run, or of one. Raises RunError where there is none."""
    rows = [*run.scores.to_pylist(), *run.read("pooled").to_pylist(), *_of_two_values(run), *_of_perturbations(run)]
    if classifier is not None:
        chosen_classifier = one_of(run, classifier, Argument.CLASSIFIER)
        rows = [row for row in rows if row["classifier"] == chosen_classifier]
    if not rows:
        raise RunError(f"{run.path}: the run has no scores, so no gate can be checked")
    return gates.cells_of(rows)


def _of_two_values(run: C2BRun) -> list[dict[str, Any]]:
    """Returns the run's cells of two values at once, as gates check them: without a verdict where another combination
    explains the cell, which then has no interaction of its own."""
    rows = run.intersections.to_pylist()
    return [
        {name: row[name] for name in (*OF_TWO_VALUES, *([] if row["folded_into"] else ["verdict"]))} for row in rows
    ]


def _of_perturbations(run: C2BRun) -> list[dict[str, Any]]:
    """Returns the effects of perturbations as cells: class/perturbation/level."""
    rows = run.read("perturbations").to_pylist()
    return [{**row, "attribute": row["perturbation"], "bias_class": str(row["level"])} for row in rows]


def _cell_of(row: Mapping[str, str]) -> tuple[str, str, str]:
    return row["target_class"], row["attribute"], row["bias_class"]


def _side(run: C2BRun, classifier: str) -> ComparisonSide:
    of_classifier = run.scores.filter(pc.equal(run.scores["classifier"], classifier)).to_pylist()
    doubts = {_cell_of(row): row["doubt"] for row in of_classifier if row["doubt"] is not None}
    verifier_answers = VerifierAnswers(run.verifications) if run.has("verifications") else None
    return ComparisonSide(
        run.captions, run.draws, run.predictions, classifier, duplicates(run), verifier_answers, doubts, clusters(run)
    )


def _thresholds(run_a: C2BRun, run_b: C2BRun) -> tuple[float, float]:
    """Returns τ and α, which must be equal in both runs, as the classes must.

    Raises SourceError where a run's config lacks one of them.
    """
    for run in (run_a, run_b):
        for name in ("tau", "alpha", "classes"):
            if name not in run.record.config:
                raise SourceError(
                    f"{run.location(MANIFEST)}: its config has no {name}, so nothing says how the run was asked; it is "
                    "damaged or of another kind: run its c2b audit anew"
                )
    a, b = run_a.config, run_b.config
    different = [name for name in ("tau", "alpha") if getattr(a, name) != getattr(b, name)]
    if set(a.classes) != set(b.classes):
        different.append("classes")  # among other classes, the same answer means something else
    if a.right != b.right:
        different.append("right")
    if a.metric != b.metric:
        different.append("metric")
    elif a.metric not in ("accuracy", "recall"):
        raise RunError(
            f"{run_a.path} and {run_b.path} compare cells by {a.metric}; two classifiers are compared image by "
            "image, by right and wrong answers: audit both with metric: accuracy, or gate each with `c2b gate`"
        )
    if different:
        raise RunError(
            f"{run_a.path} and {run_b.path} were asked differently ({', '.join(different)}): audit both classifiers "
            "with the same settings, or in one run"
        )
    return a.tau, a.alpha
