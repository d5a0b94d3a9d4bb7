"""`c2b check`: whether a config's models are read as they were meant, before a run."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from c2b_ray.audits.kit.models import fact_line
from c2b_ray.cli import show

if TYPE_CHECKING:
    from c2b_ray.audits.check import Answer, CheckedModel, CheckResult

MOST_LABELS = 5
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
    _print(checked)


def _print(checked: CheckResult) -> None:
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
        last_label = f" … {model.labels[-1]}" if len(model.labels) > MOST_LABELS else ""
        lines.append(f"{len(model.labels):,} labels: {', '.join(model.labels[:MOST_LABELS])}{last_label}")
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
