"""`c2b dataset`: builds, checks, shows and uses datasets of failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from c2b_ray.audits.audit import audit_named
from c2b_ray.cli import progress, show
from c2b_ray.cli.progress import Placement, session
from c2b_ray.errors import ConfigError
from c2b_ray.report import words
from c2b_ray.text import visible

if TYPE_CHECKING:
    from c2b_ray.audits.dataset.build import BuildResult
    from c2b_ray.audits.dataset.evaluation import Evaluated
    from c2b_ray.audits.dataset.harden import HardeningResult


# `c2b dataset show`.


def show_dataset(
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
        show.print_json(asdict(pages))
        return
    of_images = f"{words.count(pages.images)} of {words.plural(pages.rows, 'image')}"
    show.line(f"{of_images} on {words.plural(pages.files, 'page')}: {pages.out}/index.html")


# `c2b dataset build` and `c2b dataset verify`.


Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def build(
    file: Annotated[str | None, typer.Argument(metavar="CONFIG.yaml", help="The dataset file.")] = None,
    out: Annotated[str | None, typer.Option(help="The dataset's directory, local or on s3://.")] = None,
    via: Annotated[
        str, typer.Option(help="Where models run: here, actors (of Ray) or serve; auto: here for small datasets.")
    ] = "auto",
    placement: Placement = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="The port of counters for Prometheus during the build.")
    ] = None,
    as_json: Json = False,
    dry_run: Annotated[
        bool,
        typer.Option("--estimate", "--dry-run", help="Estimate the cost by a short trial of its models, and stop."),
    ] = False,
    print_schema: Annotated[bool, typer.Option(help="Print the JSON schema of a dataset file and stop.")] = False,
) -> None:
    """Draw images of captions and keep those that a classifier fails on; if interrupted, run it again to resume."""
    if print_schema:
        from c2b_ray.audits.dataset.config import DatasetConfig

        show.schema(DatasetConfig)
        return
    if file is not None and dry_run:
        show.estimate(audit_named("dataset").estimate_of(file, via), as_json, "build")
        return
    if file is None or out is None:
        raise ConfigError("", "name a dataset file and --out DIR; c2b dataset build --print-schema shows the fields")
    from c2b_ray.audits.dataset.build import build as run_build
    from c2b_ray.audits.dataset.config import read_dataset_config

    with progress.shown() as bar:
        built = run_build(read_dataset_config(file), out, session(via, placement, bar), metrics_port)
    if as_json:
        show.print_json(asdict(built))
        return
    _tell(built)


def _tell(built: BuildResult) -> None:
    drops = (
        ", ".join(f"{words.count(count)} {reason.replace('_', ' ')}" for reason, count in built.drops.items()) or "none"
    )
    images = f"{words.count(built.rows)} of {words.plural(built.draws, 'image')}"
    show.line(f"{images} in {words.plural(built.shards, 'shard')} at {built.out}; dropped: {drops}")
    for name, count in built.without_value.items():
        show.line(f"left out of the table, without {name}: {words.plural(count, 'row')}")
    if built.repeated["tasks"]:
        show.line(f"repeated after deaths or interrupts: {words.plural(built.repeated['tasks'], 'task')}")


def verify(
    dataset: Annotated[str, typer.Argument(metavar="DIR", help="A dataset of failures, local or on s3://.")],
    as_json: Json = False,
) -> None:
    """Check that every shard matches the manifest, ids are unique and images decode; exit 1 if not."""
    from c2b_ray.audits.dataset.directory import verify as run_verify

    with progress.shown() as bar:
        verified = run_verify(dataset, bar)
    if as_json:
        show.print_json(asdict(verified))
    else:
        for line in (*verified.problems, *verified.notes):
            print(visible(line))
        result = words.plural(len(verified.problems), "problem") if verified.problems else "intact"
        rows = f"{words.plural(verified.rows, 'row')} of {words.plural(verified.draws, 'draw')}"
        show.line(f"{dataset}: {result}; {rows} in {words.plural(verified.shards, 'shard')}")
        if verified.problems:
            show.line("run the same c2b dataset build again: it rebuilds what is damaged or missing")
    if verified.problems:
        raise typer.Exit(1)


# `c2b dataset evaluate`.


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
    from c2b_ray.audits.dataset.evaluation import ReferenceImages
    from c2b_ray.audits.dataset.evaluation import evaluate as run_evaluate
    from c2b_ray.audits.dataset.evaluation_rows import listed

    specs = [spec for text in classifiers for spec in listed(text)]
    against = ReferenceImages(reference, encoder, neighbours, label_map)
    with progress.shown() as bar:
        result = run_evaluate(dataset, specs, out, against, session(via, placement, bar))
    if as_json:
        show.print_json(result.to_json())
    else:
        _tell_evaluation(result, out)


BY_IMAGE_ID = (
    "a table of predictions answers for the image_id of the dataset's rows (and for files, where the dataset is of a "
    "labelled table that is still where it was): write a table whose column `file` has them (c2b_ray.load_dataset "
    "reads image_id, image and, in `seed`, the row of a labelled table that the image is from)"
)


def _tell_evaluation(result: Evaluated, out: str) -> None:
    tables = {entry.name for entry in result.entries if entry.spec.startswith("table:")}
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
    limits = words.rate_range(row["rate_low"], row["rate_high"])
    rate = f"{row['classifier']} fails {words.rate(row['rate'])} ({limits})"
    without = f"; {words.plural(silent, 'image has', 'images have')} no answer: {reasons}" if silent else ""
    return f"{rate} of the {row['of']} by {row['rule']}{without}"


# `c2b dataset export`.


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
    from c2b_ray.audits.dataset.export import export as run_export

    with progress.shown() as bar:
        result = run_export(dataset, format, out, classifier, session(via, placement, bar))
    if as_json:
        show.print_json(asdict(result))
        return
    images = f"{words.plural(result.rows, 'image')} of {words.plural(result.labels, 'label')}"
    show.line(f"{images} in {result.out} ({result.format})")


# `c2b dataset harden`.


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
    from c2b_ray.audits.dataset.harden import Hardening
    from c2b_ray.audits.dataset.harden import harden as run_harden
    from c2b_ray.audits.dataset.harden_images import CleanImages as CleanImages

    values = (mode, seeds, share, split, 0.2, without, steps, batch, rate, crop, label_map)
    options = Hardening(*cast(Any, values))
    with progress.shown() as bar:
        data = None if clean is None else CleanImages(clean, clean_test)
        result = run_harden(dataset, out, classifier, data, options, session(via, placement, bar))
    if as_json:
        show.print_json(result.to_json())
    else:
        _tell_hardening(result, out)


def _tell_hardening(result: HardeningResult, out: str) -> None:
    from c2b_ray.audits.dataset.harden import gain_sentences

    for arm, accuracy in result.clean.items():
        failures = result.dataset[arm]
        spread = "" if accuracy.seeds < 2 else f", SD {100 * accuracy.sd:.2f} and {100 * failures.sd:.2f}"
        of_clean = f"{accuracy.mean:.2%} of {words.plural(accuracy.images, 'clean image')}"
        of_failures = f"{failures.mean:.2%} of {words.plural(failures.images, 'failure')}"
        show.line(f"{NAMES[arm]}: {of_clean}, {of_failures}{spread}")
    for sentence in gain_sentences(result.to_json()["gain_of_with_over"]):
        show.line(sentence)
    show.line(f"weights and page: {out}/models, {out}/index.html")


app = typer.Typer(help="Datasets of images that a classifier fails on.", no_args_is_help=True)
app.command("build")(build)
app.command("verify")(verify)
app.command("export")(export)
app.command("evaluate")(evaluate)
app.command("harden")(harden)
app.command("show")(show_dataset)
