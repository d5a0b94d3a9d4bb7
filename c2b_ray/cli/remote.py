"""`c2b remote`: runs the local commands on a shared endpoint. It loads no Ray, and no model but to read its labels.

The endpoint's URL is in C2B_ENDPOINT; the key is in C2B_KEY, or in the file that C2B_KEY_FILE names. Neither is an
option, since other users of the machine can see command lines.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from c2b_ray.audits.audit import QUESTION, audits, names
from c2b_ray.cli import show
from c2b_ray.cli.audit import ClassColumn, ClassifierOption, ImageColumn, RootOption, TaskOption, drafted_audit
from c2b_ray.cli.progress import sending
from c2b_ray.cli.remote_judging import JOB, NAME, Json, app_of_judging, connected
from c2b_ray.errors import ConfigError
from c2b_ray.report import words
from c2b_ray.storage import files
from c2b_ray.storage.folders import IMAGES
from c2b_ray.text import visible

if TYPE_CHECKING:
    from c2b_ray.client import Event

app = typer.Typer(help="Use a shared endpoint (C2B_ENDPOINT, C2B_KEY or C2B_KEY_FILE).", no_args_is_help=True)
app_of_judging(app)
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
        help="Upload what the file names, check it at the endpoint, estimate the cost, and stop.",
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
        _show(endpoint.get(job), as_json)


@app.command()
def wait(job: JOB, as_json: Json = False) -> None:
    """Follow a job until it ends; exit 1 if it fails or is cancelled."""
    with connected() as endpoint:
        _end(endpoint.wait(job, on_event=_say), as_json)


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
    for job in jobs:
        show.line(_line(job))


@app.command()
def cancel(
    job: JOB,
    purge: Annotated[bool, typer.Option("--purge", help="Delete an ended job with all its data.")] = False,
    as_json: Json = False,
) -> None:
    """Cancel a job at its next batch."""
    with connected() as endpoint:
        _show(endpoint.cancel(job, purge), as_json)


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
            show.print_json(endpoint.check(kind, fields))
            return
        job = endpoint.submit(kind, fields, name, idempotency_key)
        if not waits:
            _show(job, as_json)
            return
        print(f"{job['id']}: submitted", file=sys.stderr, flush=True)
        _end(endpoint.wait(job["id"], on_event=_say), as_json)


def _end(job: Mapping[str, Any], as_json: bool) -> None:
    _show(job, as_json)
    if job["state"] != "finished":
        raise typer.Exit(1)


def _show(job: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        show.print_json(job)
        return
    show.line(_line(job))
    if failure := job.get("failure"):
        prefix = f"{failure['field']}: " if failure.get("field") else ""
        show.line(f"{failure.get('title', 'failed')}: {prefix}{failure.get('detail', '')}")


def _line(job: Mapping[str, Any]) -> str:
    progress = job["progress"]
    parts = [job["id"], job["kind"], job["state"], *([job["name"]] if job["name"] else [])]
    if job["state"] == "running" and progress["stage"]:
        parts.append(" ".join([progress["stage"], *_counted(progress["done"] or 0, progress["total"])]))
    return "  ".join(parts)


def _say(event: Event) -> None:
    data = event.data
    texts = {
        "state": lambda: f"{data.get('state')}{f' ({reason})' if (reason := data.get('reason')) else ''}",
        "progress": lambda: " ".join([f"{data.get('stage')}", *_counted(data.get("done"), data.get("total"))]),
    }
    text: Callable[[], str] | None = texts.get(event.kind)
    if text is not None:
        print(visible(text()), file=sys.stderr, flush=True)


def _counted(done: int | None, total: int | None) -> list[str]:
    return [] if done is None else [words.count(done) + (f" of {words.count(total)}" if total else "")]


def _write(data: bytes, out: str | None, form: str) -> None:
    if out is not None:
        files.write_under(out, data)
    elif form == "parquet":
        raise ConfigError("--out", "a Parquet file needs a name")
    else:
        sys.stdout.write(data.decode())
