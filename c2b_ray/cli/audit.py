"""`c2b audit`, `c2b report` and `c2b demo`: run audits and show their reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from c2b_ray.audits.audit import audit_named
from c2b_ray.cli import progress, show
from c2b_ray.cli.progress import Log, Placement, log_run, session, trackers
from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.storage import absent_bucket, files
from c2b_ray.storage.folders import what_else
from c2b_ray.storage.run import Run, load_run

if TYPE_CHECKING:
    from c2b_ray.audits.c2b.from_images import DraftedAudit

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Via = Annotated[
    str,
    typer.Option(
        help="Where models run: here (this process, without Ray), actors (of Ray Data) or serve (Ray Serve); "
        "auto: here for small runs, else actors."
    ),
]


ClassifierOption = Annotated[
    list[str] | None,
    typer.Option("--classifier", help="The spec of the classifier, such as onnx:net.onnx; again for another one."),
]
TaskOption = Annotated[str | None, typer.Option("--task", help="The task in one sentence. Default: its classes.")]
ImageColumn = Annotated[
    str | None, typer.Option("--image-column", help="The table's column of images, where its name does not tell.")
]
ClassColumn = Annotated[
    str | None, typer.Option("--class-column", help="The table's column of classes, where its name does not tell.")
]
RootOption = Annotated[
    str | None, typer.Option("--root", help="The folder below which a table's images lie. Default: found by its paths.")
]


def audit(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="AUDIT.yaml|IMAGES",
            help="An audit file; or labelled images: a folder with a folder for each class, a CSV or Parquet table, or "
            "a Hugging Face dataset, with --classifier.",
        ),
    ] = None,
    classifier: ClassifierOption = None,
    task: TaskOption = None,
    image_column: ImageColumn = None,
    class_column: ClassColumn = None,
    root: RootOption = None,
    out: Annotated[str | None, typer.Option(help="The run directory. Default: runs/c2b-<id>.")] = None,
    via: Via = "auto",
    placement: Placement = None,
    log: Log = None,
    as_json: Json = False,
    dry_run: Annotated[
        bool,
        typer.Option("--estimate", "--dry-run", help="Estimate the cost by a short trial of its models, and stop."),
    ] = False,
    print_schema: Annotated[bool, typer.Option(help="Print the JSON schema of an audit file and stop.")] = False,
) -> None:
    """Audit a classifier: find the attributes of an image that make it better or worse."""
    if print_schema:
        from c2b_ray.config import AuditConfig

        show.schema(AuditConfig)
        return
    if source is None:
        raise ConfigError(
            "",
            "name an audit file, or a folder of labelled images with --classifier; c2b audit --print-schema shows what "
            "a file holds, and c2b init writes one",
        )
    drafted = drafted_audit(source, classifier, (task, image_column, class_column, root))
    file = source if drafted is None else _written(drafted, source, out)
    if dry_run:
        show.estimate(audit_named("c2b").estimate_of(file, via), as_json)
        if not as_json:
            _show_facts(file)
        return
    from c2b_ray.audits.c2b.audit import audit as run_audit

    logs = trackers(log)
    with progress.shown() as bar:
        run = run_audit(file, out, via, bar, placement)
    show_run(run, as_json)
    if file != source and not as_json:
        show.line(f"audit file: {file}")
    log_run(run, logs)


def drafted_audit(
    source: str, classifier: Sequence[str] | None, choices: tuple[str | None, str | None, str | None, str | None]
) -> DraftedAudit | None:
    """Returns the audit of labelled images, and says on standard error what was found; None where `source` is an audit
    file. `choices`: --task, --image-column, --class-column and --root."""
    from c2b_ray.audits.c2b.from_images import AUDIT_FILES, Choices, are_images, drafted
    from c2b_ray.storage.labelled_rows import TABLES

    if not are_images(source):
        if (classifier or any(one is not None for one in choices)) and not source.lower().endswith(AUDIT_FILES):
            problem = "no table of images" if files.exists(source) else "no such file or folder"
            if kind := what_else(source):
                problem += f", but {kind}"
            raise SourceError(
                absent_bucket(source)
                or f"{source}: {problem}; expected a folder of images, or a table that ends in {', '.join(TABLES)}"
            )
        if classifier or any(one is not None for one in choices):
            _refuse_annotations(source)
            raise ConfigError(
                "",
                f"{source} is an audit file, which says itself what --classifier and the other options are for; edit "
                "it",
            )
        return None
    if not classifier:
        raise ConfigError("--classifier", f"{source} holds images: name what answers them, such as onnx:net.onnx")
    draft = drafted(source, classifier, Choices(*choices))
    for text in draft.summary:
        show.note(text)
    for text in draft.warnings:
        show.note(f"warning: {text}")
    return draft


def _refuse_annotations(source: str) -> None:
    """Raises SourceError for a JSON file that lists images or their annotations, as COCO's do, and is no audit."""
    if not source.lower().endswith(".json") or not files.exists(source):
        return
    with suppress(ValueError):  # no JSON: the reader of audit files says so
        content = json.loads(files.read_bytes(source))
        if isinstance(content, dict) and {"task", "classes", "classifier"} & set(content):
            return
        raise SourceError(
            f"{source} lists annotations and is no audit file; expected a folder of images, or a table with a column "
            "of images and one of their classes, such as a CSV file that is made of it"
        )


def _written(draft: DraftedAudit, images: str, out: str | None) -> str:
    """Writes the audit file beside the run and returns its path."""
    from c2b_ray.audits.c2b.audit import RUNS
    from c2b_ray.audits.c2b.from_images import place_of, written

    file = written(draft, place_of(images, out, RUNS))
    show.note(f"audit file: {file}")
    return file


def _show_facts(file: str) -> None:
    """Prints the settings of the classifiers, and where each was read; most have told them to the estimate already."""
    from c2b_ray.audits.kit.models import fact_line
    from c2b_ray.config import read_audit
    from c2b_ray.models import catalog

    for name, spec in read_audit(file).specs.items():
        for fact in catalog.described("classifier", spec).facts:
            show.line(f"{name}: {fact_line(fact)}")


def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory.")],
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Write a run's report again and show its findings."""
    from c2b_ray.audits.runs import write_report

    logs = trackers(log)
    loaded = load_run(run)
    write_report(loaded)
    show_run(loaded, as_json)
    log_run(loaded, logs)


def demo(
    out: Annotated[Path, typer.Option(help="The directory for images, index and run.")] = Path("runs/demo"),
    images: Annotated[int, typer.Option(min=100, help="The number of scenes to render and index.")] = 5000,
    via: Via = "auto",
    placement: Placement = None,
    as_json: Json = False,
) -> None:
    """Audit planted classifiers of the embedded world, from rendering its images to the report."""
    from c2b_ray.audits.demo import demo as run_demo

    with progress.shown() as bar:
        run = run_demo(out, images, session(via, placement, bar))
    show_run(run, as_json)


def show_run(run: Run, as_json: bool) -> None:
    from c2b_ray.audits.runs import summary

    show.summary(summary(run), as_json)
