"""The runs below a folder, of every kind: what each is of, its state and its result in a line.

It reads manifests, and opens the tables of a run only where an older release left no headline there. What cannot be
read is a row that says why.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from c2b_ray.errors import C2BError, SourceError
from c2b_ray.storage import absent_bucket, files, is_remote
from c2b_ray.storage.manifest import Headline, Manifest
from c2b_ray.storage.run import MANIFEST, read_run

UNREADABLE = "unreadable"
REPORT = "report.html"


@dataclass(frozen=True)
class ListedRun:
    """One run. `name`: its path below the folder that is listed.

    `state`: finished, running (or interrupted), failed, or unreadable; `date`: when it finished, else when it began, in
    ISO 8601, "" if unknown. `classifiers`: name in the run → spec. `findings`: by name of a classifier. `problem`: why
    the run, or its result, cannot be read.
    """

    path: str
    name: str
    kind: str = ""
    state: str = UNREADABLE
    date: str = ""
    classifiers: Mapping[str, str] = field(default_factory=dict)
    headline: str = ""
    findings: Mapping[str, int] = field(default_factory=dict)
    report: bool = False
    problem: str = ""


def list_runs(folder: str | Path) -> list[ListedRun]:
    """Returns the runs in a folder or bucket and below, the newest first; unreadable ones last.

    Raises SourceError if there is no such folder.
    """
    root = str(folder).rstrip("/") or "/"
    if not files.is_directory(root):
        raise SourceError(absent_bucket(root) or f"{root}: no folder there; name the one that holds your runs")
    runs = [_listed(path, root, names) for path, names in _runs_below(root, set())]
    return sorted(sorted(runs, key=lambda run: run.name), key=lambda run: run.date, reverse=True)


def _runs_below(path: str, visited: set[str]) -> Iterator[tuple[str, Mapping[str, bool]]]:
    """Yields each run's path and what is in it. A run holds no other runs; a link to what was seen is no other one."""
    if not is_remote(path):
        real = os.path.realpath(path)
        if real in visited:
            return
        visited.add(real)
    try:
        names = files.contents(path)
    except C2BError:  # a folder that this user may not open holds no run of theirs
        return
    if names.get(MANIFEST) is False:
        yield path, names
        return
    for name, is_folder in names.items():
        if is_folder and not name.startswith("."):
            yield from _runs_below(f"{path.rstrip('/')}/{name}", visited)


def _listed(path: str, root: str, names: Mapping[str, bool]) -> ListedRun:
    name = posixpath.basename(root) if path == root else path.removeprefix(root).lstrip("/")
    try:
        run = read_run(path)
        record = run.record
    except C2BError as error:
        return ListedRun(path, name, problem=str(error))
    headline, problem = record.headline or Headline(), ""
    if record.headline is None and record.has_results:
        try:
            headline = Headline.model_validate(run.kind.headline(run))
        # A damaged table breaks its readers in as many ways as there are kinds of damage.
        except Exception as error:
            problem = f"its result cannot be read: {error or type(error).__name__}"
    return ListedRun(
        path=path,
        name=name,
        kind=run.kind.name,
        state=record.status,
        date=record.finished or record.created,
        classifiers=_classifiers(record, run.kind.models),
        headline=headline.text or (record.failure or ""),
        findings=headline.findings,
        report=names.get(REPORT) is False,
        problem=problem,
    )


def _classifiers(record: Manifest, field_name: str) -> dict[str, str]:
    classifiers: Any = record.config.get(field_name) or {}
    if isinstance(classifiers, Mapping):
        return {str(name): str(spec) for name, spec in classifiers.items()}
    return {str(spec): str(spec) for spec in (classifiers if isinstance(classifiers, list) else [classifiers])}
