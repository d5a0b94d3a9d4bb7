"""Resolves the names by which a user chooses a classifier of a run. It does not know where a run keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from c2b_ray.errors import ConfigError, nearest
from c2b_ray.report.redact import names_of
from c2b_ray.storage.spec_paths import located


def one_of(known: Sequence[str], name: str | None, option: str, path: str) -> str:
    """Returns the classifier of the run at `path` that the user names: by its name, by a spec with paths relative to
    the working directory, or by its name on report pages. Without a name it returns the only classifier."""
    if name is None:
        if len(known) != 1:
            raise ConfigError(option, f"{path} has predictions of {listed(known)}; name one")
        return known[0]
    on_pages = {name: spec for spec, name in names_of(known).items()}
    for spec in (name, located(name, Path.cwd()), on_pages.get(name)):
        if spec in known:
            return str(spec)
    raise ConfigError(option, f"{path} has no predictions of {name!r}; {nearest(name, known)}")


def two_of(known: Sequence[str], name_a: str | None, name_b: str | None, path: str) -> tuple[str, str]:
    """Returns two classifiers of one run, resolved as by `one_of`; a run's only two need not be named."""
    a = None if name_a is None else one_of(known, name_a, "--classifier-a", path)
    b = None if name_b is None else one_of(known, name_b, "--classifier-b", path)
    if a is not None and a == b:
        raise ConfigError("--classifier-b", f"{b} is compared with itself; name two classifiers, or two runs")
    if a is not None and b is not None:
        return a, b
    if len(known) != 2:
        raise ConfigError(
            "--classifier-a, --classifier-b",
            f"{path} has predictions of {listed(known)}; name the two to compare, or a second run",
        )
    others = [spec for spec in known if spec not in (a, b)]
    return a or others.pop(0), b or others.pop(0)


def listed(specs: Sequence[str]) -> str:
    return ", ".join(specs) or "no classifier"
