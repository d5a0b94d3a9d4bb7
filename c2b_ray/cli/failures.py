"""`c2b failures`: the captions that make a classifier fail, and how often."""

from __future__ import annotations

from typing import Annotated

import typer

from c2b_ray.audits.audit import audit_named
from c2b_ray.cli import progress, show
from c2b_ray.cli.audit import Json, Via
from c2b_ray.cli.audit_command import command_of
from c2b_ray.cli.progress import RUN, RunsByDefault

app = typer.Typer(help="Find the captions that make a classifier fail.", no_args_is_help=True, cls=RunsByDefault)


app.command(RUN)(command_of(audit_named("failures")))


@app.command()
def ask(
    directory: Annotated[str, typer.Argument(metavar="RUN", help="The directory of a finished run.")],
    sentence: Annotated[str, typer.Argument(metavar="SENTENCE", help="A caption that names a label: a fly on a leaf.")],
    draws: Annotated[int, typer.Option(min=100, help="The most images, those of the baseline included.")] = 20_000,
    target: Annotated[str | None, typer.Option(help="A wrong label to test for, besides any failure.")] = None,
    via: Via = "auto",
    as_json: Json = False,
) -> None:
    """Test whether the classifier fails more often on images of your sentence; the result is added to the run."""
    from c2b_ray.audits.failures.ask import ask as ask_run
    from c2b_ray.audits.failures.report.captions import BEFORE, answer_lines

    with progress.shown() as bar:
        answer = ask_run(directory, sentence, draws, target, via, bar)
    rows = [row for row in answer.rows.to_pylist() if row["stage"] == "confirmation"]
    if as_json:
        show.print_json(rows)
        return
    if not answer.is_new:
        show.line(BEFORE)
    for text in answer_lines(rows):
        show.line(text)
