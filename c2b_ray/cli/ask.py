"""`c2b ask`: asks a finished run one question, which its models answer in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from c2b_ray.cli import show

if TYPE_CHECKING:
    from c2b_ray.commands.ask import AnswerSet


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
    from c2b_ray.commands.ask import ask as run_ask

    result = run_ask(run, sentence, n, classifier, target_class, index)
    kept = result.keep() if keep else None
    if html:
        result.write_page(html)
    if as_json:
        show.print_json({**result.to_json(), "page": html, "kept": kept})
        return
    _print(result)
    for name, path in (("page", html), ("kept", kept)):
        if path:
            show.line(f"{name}: {path}")


def _print(result: AnswerSet) -> None:
    from c2b_ray.report.ask.page import left_out, lines, right_line

    console = show.out()
    for answer in result.answers:
        console.print(f"[bold]{escape(answer.classifier)}[/] on {escape(repr(result.sentence))}", soft_wrap=True)
        console.print(f"  {right_line(answer.of_sentence)}")
        for line in lines(answer, result.target_class):
            console.print(f"  {escape(line)}", soft_wrap=True)
    for line in left_out(result.repeats):
        console.print(line)
