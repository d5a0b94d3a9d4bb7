"""Commands before a run: `c2b doctor` (what this machine has for audits), `init` (a commented audit file from a few
questions) and `check` (whether a config's models are read as they were meant).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from c2b_ray.audits.kit.models import fact_line
from c2b_ray.cli import show
from c2b_ray.cli.audit import ClassColumn, ImageColumn, RootOption
from c2b_ray.errors import ConfigError

if TYPE_CHECKING:
    from c2b_ray.audits.check import Answer, CheckedModel, CheckResult


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

    images = images or _prompt("Images (folder, table, index or generator)", "--images", yes)
    kind = command.kind_of(images)
    show.note(f"{images}: {kind}")
    specs = classifier or [_prompt("Classifier, such as onnx:net.onnx", "--classifier", yes)]
    for spec in specs:
        _note_labels(spec, command.look(spec).labels)
    if task is None and not yes:
        task = _prompt_or_empty("Task in one sentence (empty: from the classes)") or None
    if kind != command.LABELLED and language_model is None:
        language_model = _prompt("Language model, such as openai:http://host/v1#model", "--language-model", yes)
    if kind != command.LABELLED and classes is None and not yes:
        classes = _prompt_or_empty("Classes, commas between (empty: all labels)")
    class_names = [name.strip() for name in (classes or "").split(",") if name.strip()]
    choices = Choices(task, image_column, class_column, root, language_model)
    draft = command.draft(command.InitAnswers(images, specs, choices, class_names))
    for text in draft.summary:
        show.note(text)
    for text in draft.warnings:
        show.note(f"warning: {text}")
    show.line(command.write(draft, out))
    show.note(f"next: c2b check {out}, then c2b audit {out}")


def _prompt(question: str, option: str, yes: bool) -> str:
    if yes:
        raise ConfigError(option, "needed with --yes, which asks nothing")
    return str(typer.prompt(question, err=True)).strip()


def _prompt_or_empty(question: str) -> str:
    return str(typer.prompt(question, default="", show_default=False, err=True)).strip()


def _note_labels(spec: str, labels: tuple[str, ...]) -> None:
    suffix = " …" if len(labels) > MOST_LABELS else ""
    show.note(f"{spec}: {len(labels):,} labels: {', '.join(labels[:MOST_LABELS])}{suffix}")


LABELS_SHOWN = 5
ROLES = {
    "image_generator": "image generator",
    "language_model": "language model",
    "sentence_encoder": "sentence encoder",
}


def check(
    file: Annotated[
        str, typer.Argument(metavar="FILE.yaml", help="An audit file, or a file of c2b failures or c2b dataset build.")
    ],
    via: Annotated[str, typer.Option(help="Where the run's models will run, as for c2b audit.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check a config before its run: load each model, and answer three pictures.

    Prints what was read from where, what is assumed, the classifiers' likeliest labels beside each picture's class, and
    what will be left out. The exit status is 2 where the run would refuse the config.
    """
    from c2b_ray.audits.check import check as check_config

    checked = check_config(file, via)
    if as_json:
        models = [{**asdict(model), "labels": list(model.labels)} for model in checked.models]
        show.print_json({"models": models, "pictures": checked.pictures, "left_out": list(checked.left_out)})
        return
    _print_check(checked)


def _print_check(checked: CheckResult) -> None:
    for model in checked.models:
        show.line(f"{model.field}: {model.spec}{'' if model.answers else f' ({ROLES.get(model.role, model.role)})'}")
        for line in _lines(model):
            show.line(f"  {line}")
        show.line("")
    if any(model.answers for model in checked.models):
        show.line(f"The pictures are {checked.pictures}.")
    for note in checked.left_out:
        show.line(f"left out: {note}")
    rights = [answer.right for model in checked.models for answer in model.answers if answer.right is not None]
    if rights and not any(rights):
        show.line(
            f"None of {len(rights)} answers is right. If that surprises you, look at the label names and the "
            "normalisation above before the run."
        )


def _lines(model: CheckedModel) -> list[str]:
    lines = [f"revision: {model.revision}"]
    if model.labels:
        last_label = f" … {model.labels[-1]}" if len(model.labels) > LABELS_SHOWN else ""
        lines.append(f"{len(model.labels):,} labels: {', '.join(model.labels[:LABELS_SHOWN])}{last_label}")
    return [*lines, *map(fact_line, model.facts), *map(_answer_text, model.answers)]


def _answer_text(answer: Answer) -> str:
    subject = f"{answer.picture} ({answer.of_class})" if answer.of_class else answer.picture
    verdict = {True: "right: ", False: "wrong: ", None: ""}[answer.right]
    return f"{subject} → {verdict}{_labels_text(answer)}"


def _labels_text(answer: Answer) -> str:
    of_each = answer.given is not None
    kinds = dict.fromkeys(answer.given or (), "given ") | dict.fromkeys(answer.below or (), "below the threshold ")
    parts: dict[str, list[str]] = {}
    for label, probability in answer.top:
        kind = kinds.get(label, "of no class " if of_each else "")
        parts.setdefault(kind, []).append(f"{label} {probability:.0%}")
    return "; ".join(kind + ", ".join(labels) for kind, labels in parts.items())
