"""`c2b remote gate`, `compare` and `ask`; connects to the endpoint that the environment names."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from c2b_ray.audits.gate import ALLOW, ALLOW_BEFORE, OPTION
from c2b_ray.cli import show
from c2b_ray.cli.compare import check_options
from c2b_ray.errors import Argument, ConfigError
from c2b_ray.report import words
from c2b_ray.storage import files

if TYPE_CHECKING:
    from c2b_ray.client import Endpoint, EndpointError

URL_VARIABLE, KEY_VARIABLE, FILE_VARIABLE = "C2B_ENDPOINT", "C2B_KEY", "C2B_KEY_FILE"
JOB = Annotated[str, typer.Argument(metavar="JOB", help="A job's id, job_….")]
NAME = Annotated[str | None, typer.Option(help="A name for people.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
FailOn = Annotated[
    list[str] | None, typer.Option(OPTION, metavar="GATE", help="A condition, as for c2b gate. Repeatable.")
]
Junit = Annotated[str | None, typer.Option("--junit", metavar="FILE", help="Write the checks as JUnit XML.")]
AllowUnchecked = Annotated[
    bool, typer.Option(ALLOW, ALLOW_BEFORE, help="Pass a gate if none of its cells could be checked or decided.")
]
Classifier = Annotated[str | None, typer.Option(metavar="SPEC", help="One classifier. Default: all.")]


def app_of_judging(app: typer.Typer) -> None:
    app.command("gate")(gate)
    app.command("compare")(compare)
    app.command("ask")(ask)


@contextmanager
def connected() -> Iterator[Endpoint]:
    """Connects to the endpoint that the environment names. ConfigError if there is none, or others can read the key.

    What the endpoint says about a field of a request is said about the command's option.
    """
    from c2b_ray.client import Endpoint, EndpointError

    url = os.environ.get(URL_VARIABLE)
    if not url:
        raise ConfigError(URL_VARIABLE, "set it to the endpoint's URL, such as https://audits.example.org")
    with Endpoint(url, _key()) as endpoint:
        try:
            yield endpoint
        except EndpointError as error:
            error.args = (_at_terminal(error),)
            raise


def _at_terminal(error: EndpointError) -> str:
    """Returns an error's message, which begins with the fields that are wrong, with options in their place. Fields of a
    config begin with `config.`, and stay."""
    options = {argument.named("request"): argument.named("terminal") for argument in Argument}
    fields = [one.field for one in error.errors]
    written, message = f"{', '.join(fields)}: ", str(error)
    if not message.startswith(written):
        return message
    return f"{', '.join(options.get(field, field) for field in fields)}: {message.removeprefix(written)}"


def gate(
    job: JOB,
    fail_on: FailOn = None,
    classifier: Classifier = None,
    as_json: Json = False,
    junit_file: Junit = None,
    allow_unchecked: AllowUnchecked = False,
) -> None:
    """Check a run's results against conditions that must not hold; exit 1 if one does."""
    if not fail_on:
        raise ConfigError(OPTION, "name a condition that must not hold, such as against or phi<-0.2")
    check_options(fail_on, junit_file)
    with connected() as endpoint:
        result = endpoint.gate(job, fail_on, classifier, allow_unchecked)
        if junit_file:
            files.write_under(junit_file, endpoint.gate_junit(job, fail_on, classifier, allow_unchecked))
    _tell(result, as_json)


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A job's id.")],
    b: Annotated[
        str | None, typer.Argument(metavar="[B]", help="Another job's id. Default: A, with two classifiers.")
    ] = None,
    classifier_a: Classifier = None,
    classifier_b: Classifier = None,
    out: Annotated[str | None, typer.Option(metavar="FILE", help="Write the page to this file.")] = None,
    as_json: Json = False,
    fail_on: FailOn = None,
    junit_file: Junit = None,
    allow_unchecked: AllowUnchecked = False,
) -> None:
    """Compare two classifiers on identical images: what improved and what got worse from A to B."""
    check_options(fail_on, junit_file)
    options: dict[str, Any] = {
        "classifier_a": classifier_a,
        "classifier_b": classifier_b,
        "fail_on": fail_on or None,
        "allow_unchecked": allow_unchecked,
    }
    with connected() as endpoint:
        result = endpoint.compare(a, b, **options).json()
        if out:
            files.write_under(out, endpoint.compare(a, b, "text/html", **options).content)
        if junit_file:
            files.write_under(junit_file, endpoint.compare(a, b, "application/xml", **options).content)
    if not as_json:
        summary = ", ".join(f"{words.count(count)} {change}" for change, count in result["changes"].items())
        show.line(f"A: {result['classifier_a']}  B: {result['classifier_b']}")
        show.line(summary)
        if out:
            show.line(f"comparison: {out}")
    _tell(result, as_json)


def ask(
    job: JOB,
    sentence: Annotated[
        str, typer.Argument(metavar="SENTENCE", help="A description of images, such as 'a bus in the snow at night'.")
    ],
    n: Annotated[
        int | None, typer.Option("-n", "--n", min=1, help="The number of images, or of draws of a failures run.")
    ] = None,
    classifier: Classifier = None,
    target_class: Annotated[
        str | None,
        typer.Option("--class", metavar="CLASS", help="The class of the sentence. Default: the one that it names."),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="A wrong label of a failures run to test for, besides any failure.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure how well the classifiers of a finished run do on images of a sentence."""
    with connected() as endpoint:
        options: dict[str, Any] = {"n": n, "classifier": classifier, "target_class": target_class, "target": target}
        answer = endpoint.ask(job, sentence, **options)
    if as_json:
        show.print_json(answer)
        return
    for text in answer["lines"]:
        show.line(text)


def _tell(result: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        show.print_json(result)
    else:
        _print(result["gates"])
    if result["failed"]:
        raise typer.Exit(1)


def _print(checks: Sequence[Mapping[str, str]]) -> None:
    for gate_text in dict.fromkeys(check["gate"] for check in checks):
        of_gate = [check for check in checks if check["gate"] == gate_text]
        failing = [check for check in of_gate if check["outcome"] == "failed"]
        cells = f"{words.count(len(failing))} of {words.plural(len(of_gate), 'cell')}"
        show.line(f"{'failed' if failing else 'passed'} {gate_text}: {cells}")
        for check in failing:
            show.line(f"  {check['cell']}: {check['message']} ({check['classifier']})")


def _key() -> str:
    if key := os.environ.get(KEY_VARIABLE):
        return key.strip()
    path = os.environ.get(FILE_VARIABLE)
    if not path:
        raise ConfigError(KEY_VARIABLE, f"set it to a key of the endpoint, or {FILE_VARIABLE} to a file that holds one")
    try:
        if os.stat(path).st_mode & (stat.S_IRGRP | stat.S_IROTH):
            raise ConfigError(FILE_VARIABLE, f"{path}: others can read the key; run: chmod 600 {path}")
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(FILE_VARIABLE, f"{path}: cannot be read: {error}") from error
