"""`c2b dataset show`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from c2b_ray.cli import progress
from c2b_ray.cli import show as shown
from c2b_ray.report import words


def show(
    dataset: Annotated[str, typer.Argument(metavar="DIR", help="A dataset of failures.")],
    out: Annotated[str | None, typer.Option(help="The directory for the pages. Default: DIR-pages.")] = None,
    classifier: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only failures of this classifier, with its answers.")
    ] = None,
    most: Annotated[
        int, typer.Option(help="The most images on the pages by label; the same holds for captions, and so on.")
    ] = 30_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write pages of a dataset's images, by label, caption, prediction and reason."""
    from c2b_ray.audits.dataset.show import show as run_show

    with progress.shown() as bar:
        pages = run_show(dataset, out or f"{dataset.rstrip('/')}-pages", classifier, most, bar)
    if as_json:
        shown.print_json(asdict(pages))
        return
    of_images = f"{words.count(pages.images)} of {words.plural(pages.rows, 'image')}"
    shown.line(f"{of_images} on {words.plural(pages.files, 'page')}: {pages.out}/index.html")
