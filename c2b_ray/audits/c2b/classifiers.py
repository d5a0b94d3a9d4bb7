"""The classifiers of a run, and which of them a user means."""

from __future__ import annotations

from c2b_ray.audits.kit import classifiers
from c2b_ray.errors import ConfigError
from c2b_ray.store.c2b_run import C2BRun


def classifiers_of(run: C2BRun) -> list[str]:
    """The specs that a run has predictions of, in the order in which its audit named them."""
    # Scores keep that order; parts of predictions come in the order of their file names, which are random.
    scored = run.read("scores", ["classifier"])
    rows = scored if scored.num_rows else run.predictions
    return list(rows["classifier"].unique().to_pylist())


def one_of(run: C2BRun, name: str | None, option: str) -> str:
    """As `kit.classifiers.one_of`."""
    return classifiers.one_of(classifiers_of(run), name, option, run.path)


def two_of(run: C2BRun, name_a: str | None, name_b: str | None) -> tuple[str, str]:
    known = classifiers_of(run)
    a = None if name_a is None else one_of(run, name_a, "--classifier-a")
    b = None if name_b is None else one_of(run, name_b, "--classifier-b")
    if a is not None and a == b:
        raise ConfigError("--classifier-b", f"{b} is compared with itself; name two classifiers, or two runs")
    if a is not None and b is not None:
        return a, b
    if len(known) != 2:
        raise ConfigError(
            "--classifier-a, --classifier-b",
            f"{run.path} has predictions of {classifiers.listed(known)}; name the two to compare, or a second run",
        )
    others = [spec for spec in known if spec not in (a, b)]
    return a or others.pop(0), b or others.pop(0)
