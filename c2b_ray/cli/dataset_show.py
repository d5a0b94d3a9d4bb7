"""`c2b dataset show`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from c2b_ray.cli import progress
from c2b_ray.cli import show as shown


def show(
    dataset: Annotated[str, typer.Argument(metavar="DIR", help="A dataset of failures.")],
    out: Annotated[str | None, typer.Option(help="The directory for the pages; DIR-pages by default.")] = None,
    classifier: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only what this classifier failed, with its answers.")
    ] = None,
    most: Annotated[int, typer.Option(help="Images on the pages of labels; as many of captions, and so on.")] = 30_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write pages of a dataset's images, by label, caption, prediction and reason."""
    from c2b_ray.commands.dataset.show import show as run_show

    with progress.shown() as bar:
        pages = run_show(dataset, out or f"{dataset.rstrip('/')}-pages", classifier, most, bar)
    if as_json:
        shown.print_json(asdict(pages))
        return
    shown.line(f"{pages.images} of {pages.rows} images on {pages.files} pages: {pages.out}/index.html")
