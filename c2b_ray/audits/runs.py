"""Operations on runs of any kind: report, summary, exports, gates, a comparison with another, an index of many.

It calls the run's audit (`audits.audit`) and knows none. It needs neither Ray nor a model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any, Protocol

import pyarrow as pa

from c2b_ray.audits.audit import Questions, audit_of
from c2b_ray.audits.gate import Check
from c2b_ray.audits.kit.backend import AUTO
from c2b_ray.audits.kit.progress import IMAGES, Listener
from c2b_ray.audits.kit.session import Steps
from c2b_ray.config.named import QuestionConfig
from c2b_ray.errors import Argument, ConfigError, RunError, nearest
from c2b_ray.report.formats import writers
from c2b_ray.report.formats.folder import Counted, Folder, RunImages, destination, images_csv
from c2b_ray.report.run_list import index_page
from c2b_ray.report.words import Summary
from c2b_ray.storage import files
from c2b_ray.storage.run import ListedRun, Run, finished, list_runs, load_run
from c2b_ray.text import finite


class Comparison(Protocol):
    """Two classifiers compared, whatever the kind of their runs. `cells`: a table with a row for everything that
    changed or may have changed, with a column `change`."""

    @property
    def cells(self) -> pa.Table: ...

    def check(self, fail_on: Sequence[str], allow_unchecked: bool = False) -> list[Check]:
        """Checks gates on how cells changed."""
        ...

    def page(self) -> str:
        """Returns the comparison as one HTML page."""
        ...

    def write(self, out: str | Path) -> str:
        """Writes comparison.parquet and comparison.html into a directory; returns the page's path."""
        ...

    def properties(self) -> dict[str, str]:
        """Returns what was compared, and at which levels."""
        ...

    def summaries(self) -> list[Summary]:
        """Returns the summaries that a terminal shows, in this order."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Returns the comparison for programs."""
        ...


def write_report(run: str | Path | Run) -> str:
    """Writes the run's report.html again; returns its path."""
    loaded = run if isinstance(run, Run) else load_run(run)
    return audit_of(loaded).write_report(loaded)


def summary(run: Run) -> Summary:
    """Returns a run's summary for a terminal."""
    result: Summary = audit_of(run).summarise(run)
    return result


def export(run: str | Path | Run, form: str, classifier: str | None = None) -> bytes:
    """Returns a run as one document, in a format of its kind. `classifier`: needed for formats of a single classifier.

    Raises RunError for a run that holds nothing to export yet, ConfigError for another format or where it is unclear
    which classifier is meant.
    """
    loaded = run if isinstance(run, Run) else load_run(run)
    return audit_of(loaded).export(loaded, form, classifier)


def check(
    run: str | Path | Run, fail_on: Sequence[str], classifier: str | None = None, allow_unchecked: bool = False
) -> list[Check]:
    """Checks gates on one run, on all its classifiers or on one.

    A gate that could be checked on nothing fails, unless `allow_unchecked`. Raises RunError for a run that is not
    finished.
    """
    loaded = finished(run)
    return audit_of(loaded).check_gates(loaded, fail_on, classifier, allow_unchecked)


def compare(
    a: str | Path | Run,
    b: str | Path | Run | None = None,
    classifier_a: str | None = None,
    classifier_b: str | None = None,
) -> Any:
    """Compares two classifiers on identical images: B against A. For C2B runs, see `audits.c2b.comparison.compare`.

    `a`, `b`: runs of one kind, or their directories; without `b`, two classifiers of one run. Raises RunError for runs
    that are not finished, ConfigError for runs of different kinds.
    """
    run_a = finished(a)
    run_b = run_a if b is None else finished(b)
    return audit_of(run_a).comparison(run_a, run_b, classifier_a, classifier_b)


def write_index(folder: str | Path, page: str | Path) -> list[ListedRun]:
    """Writes an index page of the runs in a folder and below, for any web server; returns them.

    `page`: the file, or a folder for index.html. Its links to reports are relative to it.
    """
    location = str(page)
    if not location.endswith((".html", ".htm")):
        location = f"{location.rstrip('/')}/index.html"
    runs = list_runs(folder)
    files.write_under(location, index_page(runs, str(folder), location).encode())
    return runs


# A run's images in the formats of other tools: folders for FiftyOne, Label Studio, COCO and Hugging Face, and CSV.


FORMATS: Mapping[str, Callable[[RunImages, Folder], Counted]] = MappingProxyType(
    {
        "fiftyone": writers.write_fiftyone,
        "label-studio": writers.write_label_studio,
        "coco": writers.write_coco,
        "huggingface": writers.write_huggingface,
    }
)
"""A format that is a folder → what writes it."""


def run_images(run: str | Path | Run, classifier: str | None = None) -> RunImages:
    """Returns a run's images: of failures where there are classifiers. Raises ConfigError for a kind without images."""
    loaded = run if isinstance(run, Run) else load_run(run)
    declared = audit_of(loaded).images
    if not declared:
        raise ConfigError(Argument.RUN, f"{loaded.path} is a run of {loaded.kind.command}, which holds no images")
    images: RunImages = resolve_name(declared)(loaded, classifier)
    return images


def export_images(run: str | Path | Run, form: str, out: str | Path, classifier: str | None = None) -> Counted:
    """Writes a run's images into the folder `out`, a path or URI, which appears whole; returns how many they are.

    Images that lie as files below a labelled table's folder stay there, and are named by their place; others are copied
    (`huggingface` holds all bytes). Raises ConfigError for an unknown format or classifier, RunError where `out` holds
    files, or the run no image.
    """
    if form not in FORMATS:
        raise ConfigError(Argument.FORMAT, f"there is no format {form!r}; {nearest(form, FORMATS)}")
    loaded = run if isinstance(run, Run) else load_run(run)
    images = run_images(loaded, classifier)
    identity = {"run": loaded.manifest["run_id"], "format": form, "classifier": classifier, "version": 1}
    if next(images.rows(), None) is None:
        raise RunError(f"{loaded.path}: no image to export: nothing failed, or the images are gone", run=loaded.path)
    with destination(str(out), identity) as folder:
        return FORMATS[form](images, folder)


def images_as_csv(run: Run, classifier: str | None) -> bytes:
    """Returns a run's images as CSV, without their bytes (`report.formats.folder.COLUMNS`)."""
    return images_csv(run_images(run, classifier))


# Asks a finished run of any audit that can answer a question, as a job that keeps its answer in files.


ANSWER = "answer.json"


def answer_question(
    config: dict[str, Any] | QuestionConfig,
    out: str | Path,
    via: str = AUTO,
    listener: Listener | None = None,
    placement: object = None,
) -> str:
    """Asks, writes the answer under `out`, and returns its path. An existing answer is kept.

    `via` and `listener` as for audits; a question needs no `placement`. Raises ConfigError where the audit does not
    take a field, or the sentence names no class; RunError for a run that is not finished.
    """
    question = config if isinstance(config, QuestionConfig) else QuestionConfig.model_validate(config)
    location = f"{str(out).rstrip('/')}/{ANSWER}"
    if files.exists(location):
        return location
    run = finished(question.run)
    check_question(run, question)
    steps = Steps(listener)
    with steps.step(f"ask: {question.sentence}"):
        answer, images = resolve_name(_questions(run).answer)(run, question, str(out), via, listener)
        if images:
            steps.count({IMAGES: images})
    text = json.dumps(finite(answer), ensure_ascii=False, indent=2, default=str)
    files.write_under(location, f"{text}\n".encode())
    return location


def check_question(run: Run, question: QuestionConfig) -> None:
    """Raises ConfigError for a question that a finished run cannot answer, such as about a class that it does not have.
    It loads no model."""
    questions = _questions(run)
    for name in ("classifier", "target_class", "target"):
        if name not in questions.fields and getattr(question, name) is not None:
            raise ConfigError(name, f"a run of {run.kind.command} has no use for it; leave it out")
    resolve_name(questions.check)(run, question)


def _questions(run: Run) -> Questions:
    questions = audit_of(run).questions
    if questions is None:
        raise ConfigError("run", f"a run of {run.kind.command} answers no questions")
    return questions
