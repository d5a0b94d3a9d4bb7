"""`c2b doctor`: what this machine has for audits, and the command that mends each lack."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from c2b_ray.cli import show
from c2b_ray.cli.audit import ClassColumn, ImageColumn, RootOption
from c2b_ray.errors import ConfigError

MARKS = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "broken": "[bold red]broken[/]"}


def doctor(
    runs: Annotated[
        str, typer.Option("--runs", metavar="DIR", help="Where runs will go: a folder, or an s3:// URI.")
    ] = "runs",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what this machine has for audits, and the command that mends each lack; exit 1 where an audit cannot run.

    Looks at Python, packages and extras, GPUs and what uses them, the model hub, Ray, cores, memory, shared memory,
    open files and the place of runs. A note is about what only some users want, or what is tight.
    """
    from c2b_ray.audits.doctor import examine, is_sound

    rows = examine(runs)
    if as_json:
        show.print_json({"sound": is_sound(rows), "rows": [asdict(row) for row in rows]})
    else:
        width = max(len(row.subject) for row in rows)
        for row in rows:
            show.out().print(
                f"{MARKS[row.state]}{' ' * (6 - len(row.state))}  {row.subject:<{width}}  {escape(row.text)}",
                soft_wrap=True,
                highlight=False,
            )
            if row.remedy:
                show.out().print(f"{'':<{width + 10}}→ {escape(row.remedy)}", soft_wrap=True, highlight=False)
    if not is_sound(rows):
        raise typer.Exit(1)


# `c2b init`: a commented audit file from a few questions.


MOST_LABELS = 8


def init(
    images: Annotated[
        str | None,
        typer.Option(
            help="Labelled images (a folder with a folder for each class, a table, a Hugging Face dataset), an index "
            "that c2b index build wrote, or a generator's spec."
        ),
    ] = None,
    classifier: Annotated[
        list[str] | None, typer.Option("--classifier", help="The classifier's spec; again for another one.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="The task in one sentence. Default: its classes.")] = None,
    language_model: Annotated[
        str | None, typer.Option(help="The spec of the model that proposes attributes; labelled images need none.")
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Names with commas between, for an index or a generator. Default: all labels.")
    ] = None,
    image_column: ImageColumn = None,
    class_column: ClassColumn = None,
    root: RootOption = None,
    out: Annotated[str, typer.Option(help="The file to write.")] = "audit.yaml",
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing: options and defaults are the answers.")] = False,
) -> None:
    """Write an audit file: asks for images, classifier, task and language model, and looks at what they are."""
    from c2b_ray.audits import init as command
    from c2b_ray.audits.c2b.from_images import Choices

    images = images or _asked("Images (folder, table, index or generator)", "--images", yes)
    kind = command.kind_of(images)
    show.note(f"{images}: {kind}")
    specs = classifier or [_asked("Classifier, such as onnx:net.onnx", "--classifier", yes)]
    for spec in specs:
        _tell(spec, command.look(spec).labels)
    if task is None and not yes:
        task = _or_nothing("Task in one sentence (empty: from the classes)") or None
    if kind != command.LABELLED and language_model is None:
        language_model = _asked("Language model, such as openai:http://host/v1#model", "--language-model", yes)
    if kind != command.LABELLED and classes is None and not yes:
        classes = _or_nothing("Classes, commas between (empty: all labels)")
    class_names = [name.strip() for name in (classes or "").split(",") if name.strip()]
    choices = Choices(task, image_column, class_column, root, language_model)
    draft = command.draft(command.InitAnswers(images, specs, choices, class_names))
    for text in draft.said:
        show.note(text)
    for text in draft.warnings:
        show.note(f"warning: {text}")
    show.line(command.write(draft, out))
    show.note(f"next: c2b check {out}, then c2b audit {out}")


def _asked(question: str, option: str, yes: bool) -> str:
    if yes:
        raise ConfigError(option, "needed with --yes, which asks nothing")
    return str(typer.prompt(question, err=True)).strip()


def _or_nothing(question: str) -> str:
    return str(typer.prompt(question, default="", show_default=False, err=True)).strip()


def _tell(spec: str, labels: tuple[str, ...]) -> None:
    suffix = " …" if len(labels) > MOST_LABELS else ""
    show.note(f"{spec}: {len(labels):,} labels: {', '.join(labels[:MOST_LABELS])}{suffix}")
