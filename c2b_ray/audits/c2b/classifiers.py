"""Lists the classifiers of a run, and resolves the names by which a user chooses among them."""

from __future__ import annotations

from c2b_ray.audits.kit import classifiers
from c2b_ray.store.c2b_run import C2BRun


def classifiers_of(run: C2BRun) -> list[str]:
    """Returns the specs that a run has predictions of, in the order of its audit's config."""
    # Scores keep that order; parts of predictions come in the order of their file names, which are random.
    scored = run.read("scores", ["classifier"])
    rows = scored if scored.num_rows else run.read("perturbations", ["classifier"])
    rows = rows if rows.num_rows else run.predictions
    return list(rows["classifier"].unique().to_pylist())


def one_of(run: C2BRun, name: str | None, option: str) -> str:
    """As `kit.classifiers.one_of`."""
    return classifiers.one_of(classifiers_of(run), name, option, run.path)


def two_of(run: C2BRun, name_a: str | None, name_b: str | None) -> tuple[str, str]:
    """As `kit.classifiers.two_of`."""
    return classifiers.two_of(classifiers_of(run), name_a, name_b, run.path)
