"""`c2b dataset harden`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from c2b_ray.cli import progress, show
from c2b_ray.cli.session import Placement, session

if TYPE_CHECKING:
    from c2b_ray.commands.dataset.hardened import Hardened

NAMES = {"as_it_is": "as it is", "without": "trained without the dataset", "with": "trained with the dataset"}

Dataset = Annotated[str, typer.Argument(metavar="DIR", help="A dataset of failures.")]
Out = Annotated[str, typer.Option(help="The directory for weights, results and a page.")]
Classifier = Annotated[
    str | None,
    typer.Option(metavar="SPEC", help="A spec timm:, torchvision: or world:, or the classifier's name in the dataset."),
]
Clean = Annotated[
    str | None, typer.Option(help="The original training data: a folder of labels, a table, or world:N for N renders.")
]
CleanTest = Annotated[str | None, typer.Option(help="Clean images to measure on. Default: a tenth of --clean.")]
Mode = Annotated[str, typer.Option(help="retrain (from fresh weights, as the paper does) or finetune.")]
Seeds = Annotated[int, typer.Option(help="The number of trainings of each kind.")]
Share = Annotated[float, typer.Option(help="The share of each batch that comes from the dataset.")]
Split = Annotated[
    str | None, typer.Option(help="Hold out whole captions or images. Default: captions if there are ten.")
]
Without = Annotated[bool, typer.Option(help="Also train without the dataset, for comparison.")]
Steps = Annotated[int | None, typer.Option(help="The number of batches of each training.")]
Batch = Annotated[int | None, typer.Option(help="The number of images in a batch.")]
Rate = Annotated[float | None, typer.Option(help="The highest learning rate.")]
Crop = Annotated[float, typer.Option(help="The least share of an image that a random crop keeps; 1: no crops.")]
LabelMap = Annotated[str | None, typer.Option(metavar="FILE", help="JSON: label → the classifier's label.")]
Via = Annotated[str, typer.Option(help="Where trainings run: auto, here or actors.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def harden(
    dataset: Dataset,
    out: Out,
    classifier: Classifier = None,
    clean: Clean = None,
    clean_test: CleanTest = None,
    mode: Mode = "retrain",
    seeds: Seeds = 5,
    share: Share = 0.05,
    split: Split = None,
    without: Without = True,
    steps: Steps = None,
    batch: Batch = None,
    rate: Rate = None,
    crop: Crop = 1.0,
    label_map: LabelMap = None,
    via: Via = "auto",
    placement: Placement = None,
    as_json: Json = False,
) -> None:
    """Retrain or fine-tune a classifier with its failures; if interrupted, run it again to resume."""
    from c2b_ray.commands.dataset.harden import Hardening
    from c2b_ray.commands.dataset.harden import harden as run_harden
    from c2b_ray.commands.dataset.harden_images import Clean as CleanImages

    chosen = (mode, seeds, share, split, 0.2, without, steps, batch, rate, crop, label_map)
    options = Hardening(*cast(Any, chosen))
    with progress.shown() as bar:
        data = None if clean is None else CleanImages(clean, clean_test)
        result = run_harden(dataset, out, classifier, data, options, session(via, placement, bar))
    if as_json:
        show.print_json(result.to_json())
    else:
        _tell(result, out)


def _tell(result: Hardened, out: str) -> None:
    for arm, accuracy in result.clean.items():
        failures = result.dataset[arm]
        spread = "" if accuracy.seeds < 2 else f", SD {100 * accuracy.sd:.2f} and {100 * failures.sd:.2f}"
        show.line(f"{NAMES[arm]}: {accuracy.mean:.2%} of clean images, {failures.mean:.2%} of failures{spread}")
    show.line(f"weights and page: {out}/models, {out}/index.html")
