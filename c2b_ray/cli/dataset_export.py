"""`c2b dataset export`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from c2b_ray.cli import progress, show
from c2b_ray.cli.session import Placement, session
from c2b_ray.report.kit import words


def export(
    dataset: Annotated[str, typer.Argument(metavar="DIR", help="A dataset of failures, local or on s3://.")],
    format: Annotated[str, typer.Option(help="imagefolder, webdataset, huggingface or fiftyone.")],
    out: Annotated[str, typer.Option(help="A directory that is empty or does not exist, local or on s3://.")],
    classifier: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only failures of this classifier, with its answers.")
    ] = None,
    via: Annotated[str, typer.Option(help="Where files are written: auto, here or actors.")] = "auto",
    placement: Placement = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Copy a dataset into a format that other tools read; if interrupted, run it again to resume."""
    from c2b_ray.commands.dataset.export import export as run_export

    with progress.shown() as bar:
        result = run_export(dataset, format, out, classifier, session(via, placement, bar))
    if as_json:
        show.print_json(asdict(result))
        return
    images = f"{words.plural(result.rows, 'image')} of {words.plural(result.labels, 'label')}"
    show.line(f"{images} in {result.out} ({result.format})")
