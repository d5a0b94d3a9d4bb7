"""Prints the results of commands: lines, tables and JSON, in which no name can control the terminal.

Names may look like rich's markup: callers that put one into a line or table escape it. It knows rows, not their
source.
"""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from c2b_ray.errors import ConfigError
from c2b_ray.report import words
from c2b_ray.report.words import Summary
from c2b_ray.storage import files
from c2b_ray.text import finite, visible, visible_json, without_credentials

if TYPE_CHECKING:
    from pydantic import BaseModel

    from c2b_ray.audits.ask import AnswerSet
    from c2b_ray.storage.run import ListedRun


MARK_STYLES = {"bad": "red", "good": "green"}


def json_line(value: Any) -> str:
    """Returns one line of JSON, without its end; unknown values are null."""
    return visible_json(json.dumps(finite(value), ensure_ascii=False, allow_nan=False, default=str))


def print_json(value: Any) -> None:
    print(json_line(value))


def cost_table(costs: Sequence[Any], what: str = "audit") -> Table:
    """Returns a table of the estimated cost, a line per kind of work; seconds are for one model in one process."""
    table = Table(title=f"Estimated cost of this {what}", title_justify="left")
    table.add_column("work", overflow="fold")
    for name in ("at least", "at most", "per second", "minutes"):
        table.add_column(name, justify="right")
    table.add_column("", overflow="fold")
    for cost in costs:
        minutes = "" if cost.seconds is None else _minutes(*cost.seconds)
        speed = "" if cost.per_second is None else words.count(round(cost.per_second))
        table.add_row(
            escape(cost.what), words.count(cost.least), words.count(cost.most), speed, minutes, escape(cost.note)
        )
    return table


def _minutes(least: float, most: float) -> str:
    """Returns seconds as minutes to one decimal."""
    first, last = (f"{seconds / 60:.1f}" for seconds in (least, most))
    if last == "0.0":
        return "below 0.1"
    return last if first == last else f"{first} to {last}"


def estimate(estimated: Summary | Sequence[Any], as_json: bool, what: str = "audit") -> None:
    """Prints what an audit's estimate returned: lines of costs, or a summary of its own."""
    if isinstance(estimated, Summary):
        summary(estimated, as_json)
    elif as_json:
        print_json([{**asdict(cost), "seconds": cost.seconds} for cost in estimated])
    else:
        out().print(cost_table(estimated, what))


def summary(content: Summary, as_json: bool) -> None:
    """Prints a run's summary on standard output, as a table and lines or as one JSON object."""
    if as_json:
        print_json(content.to_json)
        return
    for text in content.first:
        out().print(text, style="red", soft_wrap=True, markup=False, highlight=False)
    if content.rows:
        out().print(summary_table(content))
    for text in content.lines:
        line(text)
    if content.report:
        line(f"report: {content.report}")


def summary_table(content: Summary) -> Table:
    table = Table(title=content.title, title_justify="left")
    for column in content.columns:
        table.add_column(column.name, justify="right" if column.number else "left", overflow="fold")
    for row, style_name in zip(content.rows, content.marks, strict=True):
        table.add_row(*map(escape, row), style=MARK_STYLES.get(style_name))
    return table


class _Console(Console):
    """A console that shows control characters instead of sending them to the terminal, and hides credentials."""

    def on_broken_pipe(self) -> None:
        """Leaves what follows unwritten, and ends the command as `print` does."""
        raise BrokenPipeError(errno.EPIPE, "nobody reads the output")

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(without_credentials(text)), **options)


def out() -> Console:
    """Returns a console on standard output; a wide one if that is no terminal, so that no column is lost."""
    return _Console(width=None if sys.stdout.isatty() else 140, emoji=False)


def schema(config: type[BaseModel]) -> None:
    """Prints the JSON schema of a file."""
    print(json.dumps(config.model_json_schema(), indent=2, ensure_ascii=False))


def note(text: str) -> None:
    """Prints one line on standard error: what a command found, beside its result."""
    console = _Console(stderr=True, width=None if sys.stderr.isatty() else 140, emoji=False)
    console.print(text, soft_wrap=True, markup=False, highlight=False)


def line(text: str) -> None:
    """Prints one line without breaking it."""
    out().print(text, soft_wrap=True, markup=False, highlight=False)


# `c2b export`: a run's scores or hypotheses for other programs, and a section for a model card.


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory.")],
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="csv, json, parquet, images, failures, perturbations, label-errors or model-card; or a "
            "folder of images: fiftyone, label-studio, coco or huggingface.",
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|DIR", help="The file to write, by default standard output; or the folder of images."
        ),
    ] = None,
    classifier: Annotated[
        str | None, typer.Option(metavar="SPEC", help="One classifier; of a model card, which one.")
    ] = None,
) -> None:
    """Write a run's scores as CSV, JSON or Parquet, or a model-card section with Hugging Face metadata.

    A row of scores is one cell of one classifier. n: images with an answer; correct: the right ones. accuracy and phi
    have limits (_low, _high) and are corrected for the verifier's findings; _observed is uncorrected. p_value and
    q_value test for a bias, none_p_value and none_q_value for the absence of one. verdict: for, against, none (clear)
    or undetermined. images_to_settle: of each value of the attribute. basis: how the images' values are known.
    Unknown values are empty. c2b_ray/tables/c2b.py documents every column.

    `failures` is CSV with a row for each image that a classifier got wrong in a cell: key, truth (the class that the
    image was drawn for), answer (the predicted class), cell (attribute/value), attribute, bias_class (the value),
    classifier, label (the classifier's label), label_probability, image_id.

    `label-errors` is CSV with a row for each image whose label may be wrong, of an audit with `label_errors`: key,
    label, answer, confidence, label_probability, and the shares of its neighbours that are labelled as either.

    `perturbations` is CSV with a row for each classifier, class, perturbation and level of an audit with `perturb`;
    c2b_ray/tables/c2b.py documents its columns.

    `images` is CSV with a row for each image and answer, of any audit with images: c2b audit, failures, prompts, latent
    and clip-bias. `fiftyone`, `label-studio`, `coco` and `huggingface` write the same into a folder with a README.md
    that says how to load it: images that failed, with the answers of every classifier, the cells that they show, and a
    tag for each finding. Images of a labelled folder or table stay where they are and are named by their paths; others
    are copied.

    A run of c2b failures has csv, json and parquet: a row for each hypothesis, of discovery and of confirmation.
    c2b_ray/tables/failures.py documents every column.
    """
    from c2b_ray.audits.runs import FORMATS, export_images
    from c2b_ray.audits.runs import export as run_export

    if form in FORMATS:
        if out is None:
            raise ConfigError("--out", f"{form} is a folder of images, which needs a name")
        exported = export_images(run, form, out, classifier)
        line(f"{words.plural(exported.images, 'image')}, {words.count(exported.copied)} of them copied: {out}")
        return
    if form == "parquet" and out is None:
        raise ConfigError("--out", "a Parquet file needs a name")
    data = run_export(run, form, classifier)
    if out is None:
        sys.stdout.write(data.decode())
    else:
        files.write_under(out, data)


# `c2b ask`: asks a finished run one question, which its models answer in seconds.


def ask(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory.")],
    sentence: Annotated[
        str, typer.Argument(metavar="SENTENCE", help="A description of images, such as 'a bus in the snow at night'.")
    ],
    n: Annotated[int, typer.Option("-n", "--n", min=1, max=100_000, help="The number of images.")] = 50,
    classifier: Annotated[str | None, typer.Option(metavar="SPEC", help="One classifier. Default: all.")] = None,
    target_class: Annotated[
        str | None,
        typer.Option("--class", metavar="CLASS", help="The class of the sentence. Default: the one that it names."),
    ] = None,
    index: Annotated[str | None, typer.Option(metavar="PATH", help="An index. Default: that of the run.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Write the answer to RUN/asked/.")] = False,
    html: Annotated[str | None, typer.Option("--html", metavar="FILE", help="Write a page with the images.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure how often the classifier is right on images of a sentence, and on other images of its class."""
    from c2b_ray.audits.ask import ask as run_ask

    result = run_ask(run, sentence, n, classifier, target_class, index)
    saved_path = result.keep() if keep else None
    if html:
        result.write_page(html)
    if as_json:
        print_json({**result.to_json(), "page": html, "kept": saved_path})
        return
    _print(result)
    for name, path in (("page", html), ("kept", saved_path)):
        if path:
            line(f"{name}: {path}")


def _print(result: AnswerSet) -> None:
    from c2b_ray.audits.ask import left_out, lines, right_line

    console = out()
    for answer in result.answers:
        console.print(f"[bold]{escape(answer.classifier)}[/] on {escape(repr(result.sentence))}", soft_wrap=True)
        console.print(f"  {right_line(answer.of_sentence)}")
        for line in lines(answer, result.target_class):
            console.print(f"  {escape(line)}", soft_wrap=True)
    for line in left_out(result.repeats):
        console.print(line)


# `c2b runs`: the runs in a folder, of every kind, in the terminal or as a page.


MOST_ROWS = 50
STYLES = {"unreadable": "red", "failed": "red", "running": "yellow"}


def runs(
    folder: Annotated[str, typer.Argument(metavar="[DIR]", help="A folder or s3:// URI that holds runs.")] = "runs",
    html: Annotated[
        str | None,
        typer.Option(metavar="OUT", help="Write an index page, a file or a folder for index.html, to any web server."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object with all runs.")] = False,
) -> None:
    """List runs of all kinds, the newest first: what each is of, its state, and its result in a line.

    The page of --html links to the reports, and shows the findings of each classifier by date.
    """
    from c2b_ray.audits.runs import write_index
    from c2b_ray.storage.run import list_runs

    run_list = write_index(folder, html) if html else list_runs(folder)
    if as_json:
        runs_json = [{**asdict(run), "problem": without_credentials(run.problem)} for run in run_list]
        print_json({"folder": folder, "page": html, "runs": runs_json})
        return
    _print_list(run_list)
    if html:
        line(f"page: {html}")


def _print_list(run_list: Sequence[ListedRun]) -> None:
    if not run_list:
        line("no run here; c2b audit audit.yaml --out runs/NAME makes one")
        return
    table = Table(title=words.plural(len(run_list), "run"), title_justify="left")
    for name in ("run", "date", "kind", "state", "of", "result"):
        table.add_column(name, overflow="fold", no_wrap=name == "date")
    for run in run_list[:MOST_ROWS]:
        classifiers = ", ".join(dict.fromkeys(run.classifiers.values()))
        result = ". ".join(filter(None, (run.headline, run.problem)))
        cells = (run.name, run.date[:10], run.kind, run.state, classifiers, result)
        table.add_row(*map(escape, cells), style=STYLES.get(run.state))
    out().print(table)
    if len(run_list) > MOST_ROWS:
        line(f"and {words.count(len(run_list) - MOST_ROWS)} older ones, which --json and --html list")
