"""Routes of results: tables, images, the report, exports; and what judges finished runs: gates, comparisons, questions.

Tables are sent as JSON, CSV and Parquet, a part at a time. `report.export` cleans their texts.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from fastapi import Depends, Query, Request
from starlette.responses import Response, StreamingResponse

from c2b_ray.audits.audit import QUESTION, audit_of
from c2b_ray.audits.gate import Check, failed, junit
from c2b_ray.audits.runs import Comparison, check_question
from c2b_ray.config.named import LABELLED, QuestionConfig, draws_images
from c2b_ray.endpoint.api.context import Caller, Context, enter, enter_artifact
from c2b_ray.endpoint.api.envelope import Document, canonical, document
from c2b_ray.endpoint.api.jobs import (
    ACCEPTED,
    Cursor,
    IdempotencyKey,
    Limit,
    job_body,
    of_tenant,
    resolve,
    submit_job,
    submitted_before,
)
from c2b_ray.endpoint.api.models import (
    Answer,
    GateResult,
    Gates,
    JobList,
    Json,
    Question,
    TableList,
    TablePage,
    answers,
    body,
    errors,
    files,
    finite_json,
    router,
)
from c2b_ray.endpoint.api.problems import ProblemError, not_found
from c2b_ray.endpoint.api.reads import REPORT, ROWS, Results, answer_of, finished, readable, results_of
from c2b_ray.endpoint.ledger import jobs
from c2b_ray.endpoint.ledger.tables import Filters
from c2b_ray.report.export import csv_of
from c2b_ray.report.redact import cleaned
from c2b_ray.storage.run import Run
from c2b_ray.text import finite


def json_rows(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [dict(finite(row)) for row in table.to_pylist()]
    return rows


def json_slices(parts: Iterable[pa.Table]) -> Iterator[bytes]:
    """Yields one JSON list of all rows."""
    separator = b"["
    for part in parts:
        if rows := bytes(finite_json(json_rows(part)).body)[1:-1]:
            yield separator + rows
            separator = b","
    yield b"[]" if separator == b"[" else b"]"


def csv_slices(parts: Iterable[pa.Table]) -> Iterator[bytes]:
    """Yields CSV with one header. Lists and structs become JSON; no cell is a formula (`report.export.csv_of`)."""
    for number, part in enumerate(parts):
        data = csv_of(_flat(part))
        yield data.partition(b"\n")[2] if number else data


def parquet_slices(schema: pa.Schema, parts: Iterable[pa.Table]) -> Iterator[bytes]:
    """Yields one Parquet file. At most one part is encoded in memory."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for part in (part for part in parts if part.num_rows):
            writer.write_table(part)
            yield sink.getvalue()
            sink.seek(0)
            sink.truncate()
    yield sink.getvalue()


def _flat(table: pa.Table) -> pa.Table:
    for number, field in enumerate(table.schema):
        is_list = pa.types.is_list(field.type)
        if pa.types.is_struct(field.type) or (is_list and not pa.types.is_string(field.type.value_type)):
            texts = [
                None if value is None else json.dumps(finite(value), ensure_ascii=False)
                for value in table[field.name].to_pylist()
            ]
            table = table.set_column(number, field.name, pa.array(texts, pa.string()))
    return table


# Routes of a job's results: tables, images, the report, exports, answers.


routes = router("results")
Classifier = Annotated[
    str | None, Query(min_length=1, max_length=500, description="One of the run's classifiers; by default all.")
]
REPORT_PATH = "report"
Signature = Annotated[
    str | None, Query(max_length=200, description="The signature of a signed URL, in place of a key.")
]
Artifact = Annotated[
    str,
    Query(max_length=500, pattern=r"^(report|(tables|images)/[^/?#\s]+)$", description="report, tables/…, images/…"),
]
OCTETS, CSV, PARQUET = "application/octet-stream", "text/csv", "application/vnd.apache.parquet"
MEDIA = {
    "csv": CSV,
    "failures": CSV,
    "images": CSV,
    "perturbations": CSV,
    "label-errors": CSV,
    "json": "application/json",
    "parquet": PARQUET,
    "model-card": "text/markdown",
}
ENDS = {
    "csv": "csv",
    "failures": "csv",
    "images": "csv",
    "perturbations": "csv",
    "label-errors": "csv",
    "json": "json",
    "parquet": "parquet",
    "model-card": "md",
}
CLOSED = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"
PICTURES = {
    b"\xff\xd8\xff": "image/jpeg",
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"GIF8": "image/gif",
    b"BM": "image/bmp",
}
_POLICY = re.compile(rb'<meta http-equiv="Content-Security-Policy" content="([^"<>]{1,2000})">')


class SignedUrl(Answer):
    """A URL that works without a key until `expires`, in seconds since 1970."""

    url: str
    expires: int


@routes.get("/audits/{job_id}/tables", responses={**answers(TableList), **errors(409)})
def tables(request: Request, job_id: str) -> Json:
    """List the tables of a job, and the formats in which its results can be exported."""
    results = _results(request, job_id)[2]
    items = [
        {"name": name, "rows": results.rows(name), "columns": {field.name: str(field.type) for field in schema}}
        for name, schema in results.tables.items()
    ]
    return Json({"items": items, "exports": results.exports})


@routes.get(
    "/audits/{job_id}/tables/{name}",
    responses={
        200: {"model": TablePage, "description": "Rows.", "content": {
            CSV: {"schema": {"type": "string"}}, PARQUET: {"schema": {}},
        }},
        **errors(409, 422),
    },
)  # fmt: skip
def table(
    request: Request,
    job_id: str,
    name: str,
    format: Literal["json", "csv", "parquet"] = "json",
    limit: Annotated[int, Query(ge=1, le=10_000, description="Rows of a page of JSON.")] = 1000,
    cursor: Cursor = None,
    signature: Signature = None,
) -> Response:
    """Return a table: JSON by pages, CSV or Parquet as a whole. JSON and CSV leave out the bytes of images."""
    context, results = _artifact(request, job_id)
    if format == "json":
        context_parts = ("table", results.job.tenant_id, job_id, name)
        start = int(context.signer.open(cursor, *context_parts) or 0)
        page = results.page(name, start, limit)
        has_next = start + page.num_rows < results.rows(name)
        following = context.signer.seal(start + page.num_rows, *context_parts) if has_next and page.num_rows else None
        return finite_json({"items": json_rows(page), "rows": results.rows(name), "next": following})
    columns = readable(results.tables.get(name) or pa.schema([])) if format == "csv" else None
    schema, parts = results.slices(name, columns)
    content = csv_slices(parts) if format == "csv" else parquet_slices(schema, parts)
    headers = {"Content-Disposition": attachment(f"{job_id}-{name}.{format}"), "Content-Security-Policy": CLOSED}
    return StreamingResponse(content, media_type=MEDIA[format], headers=headers)


@routes.get(
    "/audits/{job_id}/images/{image_id}",
    response_class=Response,
    responses={
        **files({**dict.fromkeys(PICTURES.values(), "string"), "image/webp": "string", OCTETS: "string"}, "An image."),
        **errors(409, 422),
    },
)
def image(request: Request, job_id: str, image_id: str, signature: Signature = None) -> Response:
    """Return an image of the run, as encoded, by the id that tables use."""
    data = _artifact(request, job_id)[1].image(image_id)
    headers = {"Cache-Control": "private, max-age=86400, immutable", "Content-Security-Policy": CLOSED}
    return Response(data, media_type=picture_type(data), headers=headers)


@routes.get(
    "/audits/{job_id}/report",
    response_class=Response,
    responses={
        **files({"text/html": "string"}, "The report, one page that loads nothing from the network."),
        **errors(409, 422),
    },
)
def report(request: Request, job_id: str, signature: Signature = None) -> Response:
    """Return the report of a finished job."""
    page = _artifact(request, job_id)[1].document(REPORT)
    return Response(page, media_type="text/html", headers={"Content-Security-Policy": page_policy(page)})


@routes.get("/audits/{job_id}/signed", responses={**answers(SignedUrl), **errors(422)})
def signed(request: Request, job_id: str, artifact: Artifact = REPORT_PATH) -> Json:
    """Return a URL of the job's report, or of a table or image, that works without a key for some minutes."""
    context, caller = enter(request, "read")
    job = of_tenant(context, caller, job_id)
    seconds = context.config.signed_url_seconds
    path, expires = context.links.url(f"/v1/audits/{job.id}/{artifact}", caller.tenant_id, seconds)
    return Json({"url": f"{context.config.url}{path}", "expires": expires})


@routes.get(
    "/audits/{job_id}/exports/{form}",
    response_class=Response,
    responses={**files(dict.fromkeys(MEDIA.values(), ""), "The document."), **errors(409, 422)},
)
def export(request: Request, job_id: str, form: str, classifier: Classifier = None) -> Response:
    """Return the results as `c2b export` writes them: csv, json, parquet, images, failures, perturbations,
    label-errors, model-card.

    Not all kinds of runs have each."""
    return export_of(_results(request, job_id)[2], form, classifier)


@routes.get("/audits/{job_id}/answer", responses={200: {"description": "As `c2b ask --json`."}, **errors(409)})
def answer(request: Request, job_id: str) -> Json:
    """Return the answer to a question that has finished."""
    results = _results(request, job_id)[2]
    return finite_json(cleaned(answer_of(results)))


def page_policy(page: bytes) -> str:
    """Returns the Content-Security-Policy of a page: its own policy in a sandbox.

    The page's policy allows its one script and its one style sheet by their hashes. The sandbox gives it no origin,
    cookies or storage of the endpoint. A page without a policy runs no script.
    """
    head = _POLICY.search(page[:8192])
    policy = head[1].decode("ascii", "replace").replace("&#39;", "'") if head else "default-src 'none'; img-src data:"
    if not re.fullmatch(r"[\w '=+/:;.-]+", policy):
        policy = "default-src 'none'; img-src data:"
    return f"{policy}; frame-ancestors 'self'; sandbox allow-scripts"


def attachment(name: str) -> str:
    """Returns a Content-Disposition whose file name has only letters, digits, dots, dashes and underscores."""
    return f'attachment; filename="{re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:150]}"'


def picture_type(data: bytes) -> str:
    """Returns the media type of an image by its first bytes. Unknown ones are bytes, which no browser shows."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in PICTURES.items() if data.startswith(start)), OCTETS)


def read(context: Context, caller: Caller, job_id: str) -> Results:
    """Returns the results of the caller's job. Raises 404 for another tenant's."""
    job = of_tenant(context, caller, job_id)
    return results_of(job, job.run_path or context.run_path(caller.tenant_id, job.id))


def _artifact(request: Request, job_id: str) -> tuple[Context, Results]:
    """Returns the results of a job for a caller with a key or a signed URL."""
    context, tenant_id = enter_artifact(request)
    job = jobs.get(context.db, tenant_id, job_id)
    if job is None:
        raise not_found("audit")
    return context, results_of(job, job.run_path or context.run_path(tenant_id, job.id))


def _results(request: Request, job_id: str) -> tuple[Context, Caller, Results]:
    context, caller = enter(request, "read")
    return context, caller, read(context, caller, job_id)


def export_of(results: Results, form: str, classifier: str | None) -> Response:
    """Returns the results in one of the formats `results.exports`. Raises 404 for another format."""
    if form not in results.exports:
        detail = f"this job has no such export; it has {', '.join(results.exports) or 'none'}"
        raise ProblemError(404, "not_found", detail)
    name, media = attachment(f"{results.job.id}.{ENDS.get(form, form)}"), MEDIA.get(form, OCTETS)
    headers = {"Content-Disposition": name, "Content-Security-Policy": CLOSED}
    if results.dataset is None:
        run = finished(results)
        return Response(audit_of(run).export(run, form, classifier), media_type=media, headers=headers)
    schema, parts = results.slices(ROWS, None if form == "parquet" else readable(results.tables[ROWS]))
    if form == "parquet":
        content = parquet_slices(schema, parts)
    else:
        content = csv_slices(parts) if form == "csv" else json_slices(parts)
    return StreamingResponse(content, media_type=media, headers=headers)


# Routes that judge finished runs: gates, comparisons, questions, and a classifier's history.


OF_WEIGHTS = "`classifier_hash` of a job; of a job of several classifiers, also the hash of each."
XML, HTML = "application/xml", "text/html"
JobId = Annotated[str, Query(min_length=1, max_length=64)]
FailOn = Annotated[list[str] | None, Query(max_length=100, description="Gates, as for `c2b compare --fail-on`.")]
AllowUnchecked = Annotated[bool, Query(description="Let gates pass that no cell could be checked against.")]
_JUNIT = {XML: {"schema": {"type": "string"}}}
_GATED: dict[int | str, dict[str, Any]] = {
    200: {"model": GateResult, "description": f"Each check; JUnit for clients that accept {XML}.", "content": _JUNIT}
}
_COMPARED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": f"What changed from A to B; a page for clients that accept {HTML}, JUnit for {XML}.",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            HTML: {"schema": {"type": "string"}},
            **_JUNIT,
        },
    }
}


@routes.post(
    "/audits/{job_id}/gate",
    responses={**_GATED, **errors(409, 415, 422)},
    openapi_extra=body(Gates),
)  # fmt: skip
def gate(request: Request, job_id: str, sent: Annotated[Document, Depends(document)]) -> Response:
    """Check a run against conditions that must not hold."""
    context, caller = enter(request, "read")
    gates = sent.as_model(Gates)
    run = finished(read(context, caller, job_id))
    checks = _in_words(audit_of(run).check_gates(run, gates.fail_on, gates.classifier, gates.allow_unchecked))
    if _accepts(request, XML):
        return Response(junit("c2b gate", checks, {"run": job_id}), media_type=XML)
    return finite_json(_gates(checks))


@routes.get(
    "/comparisons",
    responses={**_COMPARED, **errors(409, 422)},
)
def compare(
    request: Request,
    a: JobId,
    b: JobId | None = None,
    classifier_a: Classifier = None,
    classifier_b: Classifier = None,
    fail_on: FailOn = None,
    allow_unchecked: AllowUnchecked = False,
) -> Response:
    """Compare two classifiers on the images that both have seen: B against A, from two runs or from one."""
    context, caller = enter(request, "read")
    run_a = finished(read(context, caller, a))
    run_b = run_a if b is None else finished(read(context, caller, b))
    comparison: Comparison = audit_of(run_a).comparison(run_a, run_b, classifier_a, classifier_b)
    checks = _in_words(comparison.check(fail_on or [], allow_unchecked))
    if _accepts(request, XML):
        return Response(junit("c2b compare", checks, comparison.properties()), media_type=XML)
    if _accepts(request, HTML):
        page = comparison.page().encode()
        return Response(page, media_type=HTML, headers={"Content-Security-Policy": page_policy(page)})
    # The JSON of `c2b compare --json`, with jobs in place of directories.
    compared = cleaned({**comparison.to_json(), "a": a, "b": b or a})
    return finite_json({**compared, **_gates(checks)})


@routes.post(
    "/audits/{job_id}/questions",
    status_code=202,
    responses={**ACCEPTED, **errors(409, 415, 422)},
    openapi_extra=body(Question),
)
def ask(
    request: Request,
    job_id: str,
    sent: Annotated[Document, Depends(document)],
    idempotency_key: IdempotencyKey = None,
) -> Json:
    """Ask a finished run how its classifiers do on images of a sentence. The question is a new job, whose `answer`
    contains the result."""
    context, caller = enter(request, "submit")
    question = sent.as_model(Question)
    config = {"run": f"run:{job_id}", **question.model_dump(exclude_none=True)}
    idempotency = idempotency_key, canonical(config)
    if (earlier_answer := submitted_before(context, caller, idempotency)) is not None:
        return earlier_answer
    refuse_unanswering(finished(read(context, caller, job_id)), config)
    resolved = resolve(context, caller, QUESTION, config)
    return submit_job(context, caller, resolved, None, idempotency)


@routes.get("/classifiers/history", responses={**answers(JobList), **errors(422)})
def history(
    request: Request,
    classifier: Annotated[
        str,
        Query(
            min_length=1,
            max_length=200,
            description=OF_WEIGHTS,
        ),
    ],
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Json:
    """List the finished audits of a classifier, alone or among others, by the hash of its weights, latest first."""
    context, caller = enter(request, "read")
    context_parts = ("history", caller.tenant_id, classifier)
    position = context.signer.open(cursor, *context_parts)
    filters = Filters(state="finished", classifier_hash=classifier)
    page = jobs.page(context.db, caller.tenant_id, filters, position, limit)
    following = context.signer.following(page.next, *context_parts)
    return Json({"items": [job_body(job) for job in page.items], "next": following})


def refuse_unanswering(run: Run, config: dict[str, Any]) -> None:
    """Refuses a question before a job is created that would fail: 409 for a run that cannot answer questions, 422 for a
    field that the run does not fit."""
    if audit_of(run).questions is None:
        raise ProblemError(409, "no_questions", f"a run of {run.kind.command} answers no questions")
    if not draws_images(run.record.config):
        raise ProblemError(409, "no_questions", LABELLED)
    check_question(run, QuestionConfig.model_validate(config))


def answers_questions(run: Run) -> bool:
    """Returns whether a finished run can answer questions."""
    return audit_of(run).questions is not None and draws_images(run.record.config)


def run_of(context: Context, caller: Caller, job_id: str) -> Run:
    """Returns the finished run of the caller's job."""
    return finished(read(context, caller, job_id))


def _in_words(checks: list[Check]) -> list[Check]:
    return [check.worded("request") for check in checks]


def _gates(checks: list[Check]) -> dict[str, Any]:
    return {"failed": failed(checks), "gates": cleaned([check.to_json() for check in checks])}


def _accepts(request: Request, media_type: str) -> bool:
    """Returns whether the request's Accept header names this media type first."""
    first = request.headers.get("accept", "").partition(",")[0].partition(";")[0].strip().lower()
    return first == media_type
