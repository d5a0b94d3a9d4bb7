"""`c2b dataset evaluate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from c2b_ray.cli import progress, show
from c2b_ray.cli.session import Placement, session
from c2b_ray.report.kit import words

if TYPE_CHECKING:
    from c2b_ray.commands.dataset.evaluated import Evaluated


def evaluate(
    dataset: Annotated[str, typer.Argument(metavar="DIR", help="A dataset of failures.")],
    classifiers: Annotated[
        list[str],
        typer.Option(metavar="SPECS", help="Specs separated by commas; repeatable. NAME=SPEC gives one a name."),
    ],
    out: Annotated[str, typer.Option(help="The directory for tables and a page.")],
    reference: Annotated[
        str | None,
        typer.Option(help="Labelled images to compare with: a folder of labels, or a table."),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC", help="The model of the features: an encoder, a classifier, or inception:PATH.safetensors."
        ),
    ] = None,
    neighbours: Annotated[
        int, typer.Option(min=0, help="The number of failures whose nearest reference images are listed.")
    ] = 1000,
    label_map: Annotated[
        str | None, typer.Option(metavar="FILE", help="JSON: label → the classifiers' labels.")
    ] = None,
    via: Annotated[str, typer.Option(help="Where models run: auto, here, actors or serve.")] = "auto",
    placement: Placement = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure how far failures transfer: rates, error consistency, distance; if interrupted, run it again to resume."""
    from c2b_ray.commands.dataset.contestants import listed
    from c2b_ray.commands.dataset.evaluate import Against
    from c2b_ray.commands.dataset.evaluate import evaluate as run_evaluate

    specs = [spec for text in classifiers for spec in listed(text)]
    against = Against(reference, encoder, neighbours, label_map)
    with progress.shown() as bar:
        result = run_evaluate(dataset, specs, out, against, session(via, placement, bar))
    if as_json:
        show.print_json(result.to_json())
    else:
        _tell(result, out)


BY_IMAGE_ID = (
    "a table of predictions answers for the image_id of the dataset's rows (and for files, where the dataset is of a "
    "labelled table that is still where it was): write a table whose column `file` has them (c2b_ray.load_dataset "
    "reads image_id, image and, in `seed`, the row of a labelled table that the image is from)"
)


def _tell(result: Evaluated, out: str) -> None:
    tables = {one.name for one in result.contestants if one.spec.startswith("table:")}
    for row in result.rates.to_pylist():
        if row["of"] in ("dataset", "reference"):
            show.line(_rate(row, out))
            if row["of"] == "dataset" and not row["images"] and row["classifier"] in tables:
                show.line(f"{row['classifier']}: {BY_IMAGE_ID}")
    if result.compared is not None:
        fid = "none" if result.compared.fid is None else f"{result.compared.fid:.2f}"
        frechet, kernel = words.distances(result.compared.is_inception)
        show.line(f"{frechet} {fid}; {kernel} {result.compared.kid:.4f}; in {result.compared.features}")
        for sentence in result.compared.why:
            show.line(sentence)
    show.line(f"page: {out}/index.html")


def _rate(row: Mapping[str, Any], out: str) -> str:
    """Returns a row of the rates as a line of text, with the number of images without an answer."""
    name, silent = f"{row['classifier']}, {row['of']}, {row['rule']}", row["unanswered"]
    reasons = f"{out}/{'answers' if row['of'] == 'dataset' else 'reference'} gives the reason for each"
    if not row["images"]:
        return f"{name}: no answer for any of {words.plural(silent, 'image')}; {reasons}"
    rate = f"{row['classifier']} fails {row['rate']:.1%} ({row['rate_low']:.1%} to {row['rate_high']:.1%})"
    without = f"; {words.plural(silent, 'image has', 'images have')} no answer: {reasons}" if silent else ""
    return f"{rate} of the {row['of']} by {row['rule']}{without}"
