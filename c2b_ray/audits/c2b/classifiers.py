"""The classifiers of a run, and which of them a user means."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from c2b_ray.errors import ConfigError, nearest
from c2b_ray.filesystems.spec_paths import located
from c2b_ray.report.kit.redact import names_of
from c2b_ray.store.c2b_run import C2BRun


def classifiers_of(run: C2BRun) -> list[str]:
    """The specs that a run has predictions of, in the order in which its audit named them."""
    # Scores keep that order; parts of predictions come in the order of their file names, which are random.
    scored = run.read("scores", ["classifier"])
    rows = scored if scored.num_rows else run.predictions
    return list(rows["classifier"].unique().to_pylist())


def one_of(run: C2BRun, name: str | None, option: str) -> str:
    """The classifier of a run that is asked for: by its name, by a spec with paths relative to here, or as pages call
    it; the only one, where none is."""
    known = classifiers_of(run)
    if name is None:
        if len(known) != 1:
            raise ConfigError(option, f"{run.path} has predictions of {_listed(known)}; name one")
        return known[0]
    on_pages = {name: spec for spec, name in names_of(known).items()}
    for spec in (name, located(name, Path.cwd()), on_pages.get(name)):
        if spec in known:
            return str(spec)
    raise ConfigError(option, f"{run.path} has no predictions of {name!r}; {nearest(name, known)}")


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
            f"{run.path} has predictions of {_listed(known)}; name the two to compare, or a second run",
        )
    others = [spec for spec in known if spec not in (a, b)]
    return a or others.pop(0), b or others.pop(0)


def _listed(specs: Sequence[str]) -> str:
    return ", ".join(specs) or "no classifier"
