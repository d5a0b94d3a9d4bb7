"""`c2b remote`: runs the local commands on a shared endpoint. It loads no Ray, and no model but to read its labels.

The endpoint's URL is in C2B_ENDPOINT; the key is in C2B_KEY, or in the file that C2B_KEY_FILE names. Neither is an
option, since other users of the machine can see command lines.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from c2b_ray.audits.audit import QUESTION, audits, names
from c2b_ray.audits.gate import ALLOW, ALLOW_BEFORE, OPTION
from c2b_ray.cli import set_next_step, show
from c2b_ray.cli.audit import ClassColumn, ClassifierOption, ImageColumn, RootOption, TaskOption, drafted_audit
from c2b_ray.cli.compare import check_options
from c2b_ray.cli.progress import sending
from c2b_ray.errors import Argument, ConfigError
from c2b_ray.report import words
from c2b_ray.storage import files
from c2b_ray.storage.folders import IMAGES
from c2b_ray.text import visible

if TYPE_CHECKING:
    from c2b_ray.client import Endpoint, EndpointError, Event


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
    """Returns an error's message, which begins with the fields that are wrong, with options in their place, also where
    it says what to do. Fields of a config begin with `config.`, and stay."""
    options = {argument.named("request"): argument.named("terminal") for argument in Argument}
    fields = [one.field for one in error.errors]
    written, message = f"{', '.join(fields)}: ", str(error)
    if not message.startswith(written):
        return message
    rest = message.removeprefix(written)
    if set(fields) <= set(options):
        unmistakable = "|".join(field for field in options if "_" in field)  # `classifier` is also a word
        rest = re.sub(rf"\b({unmistakable})\b", lambda match: options[match[0]], rest)
    return f"{', '.join(options.get(field, field) for field in fields)}: {rest}"


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
    _print_judgement(result, as_json)


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
    _print_judgement(result, as_json)


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


def _print_judgement(result: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        show.print_json(result)
    else:
        _print_gates(result["gates"])
    if result["failed"]:
        raise typer.Exit(1)


def _print_gates(checks: Sequence[Mapping[str, str]]) -> None:
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


app = typer.Typer(help="Use a shared endpoint (C2B_ENDPOINT, C2B_KEY or C2B_KEY_FILE).", no_args_is_help=True)
for command in (gate, compare, ask):
    app.command()(command)
File = Annotated[str, typer.Argument(metavar="FILE.yaml", help="The file, as for the local command.")]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the end; exit 1 if the job fails.")]
Once = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="Submitting the same file again with the same text, such as a build's id, starts no new job.",
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--estimate",
        "--dry-run",
        help="Upload what the file names, check it at the endpoint, estimate the cost, and stop; exit 1 if a quota "
        "would refuse the job now.",
    ),
]


def audit_images(
    source: Annotated[
        str,
        typer.Argument(
            metavar="AUDIT.yaml|IMAGES",
            help="An audit file, as for c2b audit; or labelled images, with --classifier. What the file names on this "
            "machine is uploaded.",
        ),
    ],
    classifier: ClassifierOption = None,
    task: TaskOption = None,
    image_column: ImageColumn = None,
    class_column: ClassColumn = None,
    root: RootOption = None,
    name: NAME = None,
    wait: Wait = True,
    once: Once = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    drafted = drafted_audit(source, classifier, (task, image_column, class_column, root))
    _submit("c2b", source if drafted is None else drafted.fields, (name, once), (wait, dry_run, as_json))


def _submit_of(kind: str) -> Callable[..., None]:
    def submit(
        file: File,
        name: NAME = None,
        wait: Wait = True,
        once: Once = None,
        dry_run: DryRun = False,
        as_json: Json = False,
    ) -> None:
        _submit(kind, file, (name, once), (wait, dry_run, as_json))

    return submit


for _kind, _audit in audits().items():
    app.command(
        _audit.command.split()[1],
        help=f"Submit a file of {_audit.command} with the files that it names, and wait for the job.",
    )(audit_images if _kind == "c2b" else _submit_of(_kind))


@app.command()
def status(job: JOB, as_json: Json = False) -> None:
    """Show the progress of a job."""
    with connected() as endpoint:
        _print_job(endpoint.get(job), as_json)


@app.command()
def wait(job: JOB, as_json: Json = False) -> None:
    """Follow a job until it ends; exit 1 if it fails or is cancelled."""
    with connected() as endpoint:
        _end(endpoint.wait(job, on_event=_Events()), as_json)


@app.command("list")
def listed(
    limit: Annotated[int, typer.Option(min=1, help="The most jobs.")] = 20,
    state: Annotated[str | None, typer.Option(help="queued, running, finished, failed or cancelled.")] = None,
    kind: Annotated[str | None, typer.Option(help=f"{', '.join(names())} or {QUESTION}.")] = None,
    as_json: Json = False,
) -> None:
    """List the tenant's jobs, the newest first."""
    with connected() as endpoint:
        jobs = list(endpoint.list(limit, state=state, kind=kind))
    if as_json:
        show.print_json(jobs)
        return
    if not jobs:
        show.note("no jobs")
    for job in jobs:
        show.line(_job_line(job))


@app.command()
def cancel(
    job: JOB,
    purge: Annotated[bool, typer.Option("--purge", help="Delete an ended job with all its data.")] = False,
    as_json: Json = False,
) -> None:
    """Cancel a job at its next batch."""
    with connected() as endpoint:
        _print_job(endpoint.cancel(job, purge), as_json)


@app.command()
def tables(
    job: JOB,
    name: Annotated[str | None, typer.Argument(help="The table. Default: list the names.")] = None,
    form: Annotated[str, typer.Option("--format", help="csv, json or parquet.")] = "csv",
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="The file to write. Default: standard output.")
    ] = None,
) -> None:
    """List the tables of a job, or fetch one."""
    if form not in ("csv", "json", "parquet"):
        raise ConfigError("--format", f"there is no format {form!r}; expected csv, json or parquet")
    with connected() as endpoint:
        if name is None or form == "json":
            fetched = endpoint.tables(job) if name is None else list(endpoint.rows(job, name))
            _write(f"{show.json_line(fetched)}\n".encode(), out, "json")
        else:
            _write(endpoint.table(job, name, "parquet" if form == "parquet" else "csv"), out, form)


@app.command()
def report(
    job: JOB, out: Annotated[str, typer.Option(metavar="FILE", help="The file to write.")] = "report.html"
) -> None:
    """Fetch the report of a finished job."""
    with connected() as endpoint:
        files.write_under(out, endpoint.report(job))
    show.line(f"report: {out}")


@app.command()
def export(
    job: JOB,
    form: Annotated[
        str,
        typer.Option(
            "--format", help="csv, json, parquet, images, failures, perturbations, label-errors or model-card."
        ),
    ],
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="The file to write. Default: standard output.")
    ] = None,
    classifier: Annotated[str | None, typer.Option(metavar="SPEC", help="The classifier of a model card.")] = None,
) -> None:
    """Fetch the results for other programs, as c2b export writes them."""
    with connected() as endpoint:
        _write(endpoint.export(job, form, classifier), out, form)


@app.command()
def upload(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A model, an image, an archive of images, a table.")],
    kind: Annotated[
        str | None,
        typer.Option(
            help="onnx, safetensors, image, images, table, csv or text. Default: what the file's name ends with says."
        ),
    ] = None,
    name: NAME = None,
    as_json: Json = False,
) -> None:
    """Upload a file and print the spec that names it in a config."""
    upload_kind = kind or _kind_of(file)
    with connected() as endpoint, sending() as told:
        stored = endpoint.upload(file, upload_kind, name, told)
    if as_json:
        show.print_json(stored)
    else:
        show.line(str(stored["spec"]))


_KIND_OF_SUFFIX = {
    ".onnx": "onnx",
    ".safetensors": "safetensors",
    ".parquet": "table",
    ".pq": "table",
    ".csv": "csv",
    ".txt": "text",
    **dict.fromkeys((".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz"), "images"),
    **dict.fromkeys(IMAGES, "image"),
}


def _kind_of(file: str) -> str:
    """Returns what an upload is, by the end of its file's name."""
    kind = next((kind for suffix, kind in _KIND_OF_SUFFIX.items() if file.lower().endswith(suffix)), None)
    if kind is None:
        raise ConfigError(
            "--kind",
            f"{file}: its name does not say what it is; end it in .onnx, .safetensors, .parquet, .csv, .txt, .zip or "
            ".tar or as an image, or write --kind onnx, safetensors, table, csv, text, images or image",
        )
    return kind


def _submit(
    kind: str, config: str | dict[str, Any], naming: tuple[str | None, str | None], flags: tuple[bool, bool, bool]
) -> None:
    (name, idempotency_key), (waits, dry_run, as_json) = naming, flags
    with connected() as endpoint:
        with sending() as told:
            fields = endpoint.upload_files(kind, config, told, show.note)
        if dry_run:
            _print_estimate(endpoint.check(kind, fields))
            return
        job = endpoint.submit(kind, fields, name, idempotency_key)
        if not waits:
            _print_job(job, as_json)
            return
        print(f"{job['id']}: submitted", file=sys.stderr, flush=True)
        set_next_step(f"the job goes on: c2b remote wait {job['id']}, or cancel in place of wait")
        _end(endpoint.wait(job["id"], on_event=_Events()), as_json)


def _print_estimate(checked: Mapping[str, Any]) -> None:
    """Prints what a job would cost; exits with 1 if a quota would refuse it now."""
    show.print_json(checked)
    refused = checked.get("refused")  # an endpoint of an earlier release does not say
    if not refused:
        return
    seconds = refused["free_in_seconds"]
    when = "" if seconds is None else f" (in {words.duration(seconds)})"
    show.note(f"the file is valid, but the job would be refused now: {refused['quota']}: {refused['detail']}{when}")
    raise typer.Exit(1)


def _end(job: Mapping[str, Any], as_json: bool) -> None:
    _print_job(job, as_json)
    if job["state"] != "finished":
        raise typer.Exit(1)
    if not as_json:
        show.note(f"its report: c2b remote report {job['id']} --out report.html")


def _print_job(job: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        show.print_json(job)
        return
    show.line(_job_line(job))
    if failure := job.get("failure"):
        prefix = f"{failure['field']}: " if failure.get("field") else ""
        show.line(f"{failure.get('title', 'failed')}: {prefix}{failure.get('detail', '')}")
    if result := job.get("result"):  # an endpoint of an earlier release says none
        show.line(result)


def _job_line(job: Mapping[str, Any]) -> str:
    progress = job["progress"]
    parts = [job["id"], job["kind"], job["state"], *([job["name"]] if job["name"] else [])]
    if job["state"] == "running" and progress["stage"]:
        parts.append(" ".join([progress["stage"], *_counted(progress["done"] or 0, progress["total"])]))
    if job["state"] == "running" and job.get("cancel_requested"):
        parts.append("ends at its next batch, because its cancellation was requested")
    return "  ".join(parts)


class _Events:
    """Prints events, warnings among them. Progress that says nothing new, such as bytes that were booked, is left
    out."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, event: Event) -> None:
        data, text = event.data, ""
        if event.kind == "state":
            text = f"{data.get('state')}{f' ({reason})' if (reason := data.get('reason')) else ''}"
        elif event.kind == "progress":
            text = " ".join([f"{data.get('stage')}", *_counted(data.get("done"), data.get("total"))])
        elif event.kind == "warning":
            text = f"warning: {data.get('text')}"
        if text and text != self._last:
            print(visible(text), file=sys.stderr, flush=True)
            self._last = text


def _counted(done: int | None, total: int | None) -> list[str]:
    return [] if done is None else [words.count(done) + (f" of {words.count(total)}" if total else "")]


def _write(data: bytes, out: str | None, form: str) -> None:
    if out is not None:
        files.write_under(out, data)
    elif form == "parquet":
        raise ConfigError("--out", "a Parquet file needs a name")
    else:
        sys.stdout.write(data.decode())
