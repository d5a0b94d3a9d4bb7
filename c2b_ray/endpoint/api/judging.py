"""Routes that judge finished runs: gates, comparisons, questions, and a classifier's history."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Query, Request
from starlette.responses import Response

from c2b_ray.audits.audit import QUESTION, audit_of
from c2b_ray.audits.gate import Check, failed, junit
from c2b_ray.audits.runs import Comparison, check_question
from c2b_ray.config.named import LABELLED, QuestionConfig, draws_images
from c2b_ray.endpoint.api.auth import Caller, Json, answers, body, enter, errors, finite_json, router
from c2b_ray.endpoint.api.catalog import job_body
from c2b_ray.endpoint.api.context import Context
from c2b_ray.endpoint.api.envelope import Document, canonical, document
from c2b_ray.endpoint.api.jobs import ACCEPTED, Cursor, IdempotencyKey, Limit, resolve, submit_job, submitted_before
from c2b_ray.endpoint.api.models import GateResult, Gates, JobList, Question
from c2b_ray.endpoint.api.problems import ProblemError
from c2b_ray.endpoint.api.reads import finished
from c2b_ray.endpoint.api.results import Classifier, page_policy, read
from c2b_ray.endpoint.ledger import jobs
from c2b_ray.endpoint.ledger.job import Filters
from c2b_ray.report.redact import cleaned
from c2b_ray.storage.run import Run

routes = router("results")
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
    return finite_json(_compared(comparison, checks, (a, b or a)))


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
    page = jobs.page(context.db, caller.tenant_id, filters, None if position is None else tuple(position), limit)
    following = None if page.next is None else context.signer.seal(list(page.next), *context_parts)
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


def _compared(comparison: Comparison, checks: list[Check], names: tuple[str, str]) -> dict[str, Any]:
    """Returns the JSON of `c2b compare --json`, with jobs in place of directories."""
    return {**cleaned({**comparison.to_json(), "a": names[0], "b": names[1]}), **_gates(checks)}


def _accepts(request: Request, media_type: str) -> bool:
    """Returns whether the request's Accept header names this media type first."""
    first = request.headers.get("accept", "").partition(",")[0].partition(";")[0].strip().lower()
    return first == media_type
