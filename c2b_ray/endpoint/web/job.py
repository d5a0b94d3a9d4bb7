"""A job's page: its state, progress, results, and failure; forms to cancel it, delete it, and ask a question."""

from __future__ import annotations

import json
from typing import Any

import yaml
from starlette.responses import Response

from c2b_ray.audits.audit import audit_of
from c2b_ray.audits.failures.run import FailuresRun
from c2b_ray.endpoint.api.envelope import canonical
from c2b_ray.endpoint.api.events import follow
from c2b_ray.endpoint.api.jobs import of_tenant, purged, resolve, submit_job
from c2b_ray.endpoint.api.judging import answers_questions, refuse_unanswering
from c2b_ray.endpoint.api.models import Question
from c2b_ray.endpoint.api.problems import FieldError, ProblemError, not_found
from c2b_ray.endpoint.api.reads import ANSWER, REPORT, Results, answer_of, finished
from c2b_ray.endpoint.api.results import read
from c2b_ray.endpoint.kinds import compared_kinds, kinds
from c2b_ray.endpoint.ledger import jobs, webhooks
from c2b_ray.endpoint.ledger.job import Job
from c2b_ray.endpoint.web.rendering import shown
from c2b_ray.endpoint.web.session import PageRequest, goto
from c2b_ray.errors import C2BError
from c2b_ray.report.redact import cleaned
from c2b_ray.report.words import Summary
from c2b_ray.storage import files

_NO_ANSWER_YET = 409
_EVENTS = 12


def job_page(visit: PageRequest) -> Response:
    job = of_tenant(visit.context, visit.caller, visit.part("job_id"))
    results = _results(visit, job)
    run = None if results is None else results.run
    return shown(visit, "job.html.j2", {
        "job": job, "label": kinds()[job.kind].question if job.kind in kinds() else job.kind,
        "running": not job.ended_for_good, "log": _log(visit, job),
        "config": yaml.safe_dump(cleaned(job.config), sort_keys=False, allow_unicode=True, width=100),
        "tables": _tables(results), "exports": results.exports if results and job.state == "finished" else [],
        "summary": _summary(results), "report": results is not None and files.exists(f"{results.path}/{REPORT}"),
        "answer": _answer(results), "compares": job.kind in compared_kinds() and job.state == "finished",
        "questions": job.state == "finished" and run is not None and answers_questions(run),
        "slices": run is not None and run.kind.name == "c2b" and run.has("scores"),
        "gallery": results is not None and results.dataset is not None,
        "captions": job.state == "finished" and isinstance(run, FailuresRun),
        "asked_run": str(job.config.get("run", "")).removeprefix("run:") if job.kind == "question" else "",
        "may_submit": "submit" in visit.caller.key.scopes,
    })  # fmt: skip


def job_events(visit: PageRequest) -> Response:
    """Returns the API's stream of events. The browser says which event it saw last."""
    job = of_tenant(visit.context, visit.caller, visit.part("job_id"))
    last = visit.request.headers.get("last-event-id", "")
    last_seen = int(last) if last.isascii() and last.isdigit() and len(last) <= 18 else 0
    return follow(visit.context, job, last_seen, visit.caller.key)


def cancel(visit: PageRequest) -> Response:
    job = jobs.request_cancel(visit.context.db, visit.tenant_id, visit.part("job_id"), visit.caller.actor)
    if job is None:
        raise not_found("audit")
    return goto(f"/ui/audits/{job.id}")


def delete(visit: PageRequest) -> Response:
    purged(visit.context, visit.caller, visit.part("job_id"))
    return goto("/ui/")


def ask(visit: PageRequest) -> Response:
    """Submits a question to a finished run as a new job."""
    context, caller, job_id = visit.context, visit.caller, visit.part("job_id")
    run = finished(read(context, caller, job_id))
    sentence, n = visit.sent("sentence"), visit.sent("n")
    if not sentence:
        raise ProblemError(422, "invalid", "write a sentence, such as 'a bus in the snow at night'", [
            FieldError("sentence", "it is empty")
        ])  # fmt: skip
    if n and not (n.isascii() and n.isdigit() and len(n) < 7):
        raise ProblemError(422, "invalid", "n: expected a whole number", [FieldError("n", "expected a whole number")])
    fields = {"sentence": sentence, "n": int(n) if n else None, "classifier": visit.sent("classifier") or None,
              "target_class": visit.sent("target_class") or None}  # fmt: skip
    config = {"run": f"run:{job_id}", **_question(fields).model_dump(exclude_none=True)}
    refuse_unanswering(run, config)
    resolved = resolve(context, caller, "question", config)
    answer = submit_job(context, caller, resolved, None, (None, canonical(config)))
    return goto(f"/ui/audits/{json.loads(bytes(answer.body))['id']}")


def _question(fields: dict[str, Any]) -> Question:
    from pydantic import ValidationError

    from c2b_ray.config.problems import first_problem

    try:
        return Question.model_validate({name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        raise first_problem(error, None, Question) from error


def _results(visit: PageRequest, job: Job) -> Results | None:
    """Returns the results of a job; None if there are none yet."""
    try:
        return read(visit.context, visit.caller, job.id)
    except ProblemError as error:
        if error.status == _NO_ANSWER_YET:
            return None
        raise
    except C2BError:  # its run is damaged or gone: the page still shows the job
        return None


def _tables(results: Results | None) -> list[tuple[str, int]]:
    return [] if results is None else [(name, results.rows(name)) for name in results.tables]


def _summary(results: Results | None) -> Summary | None:
    if results is None or results.run is None or results.job.state != "finished":
        return None
    summary: Summary = audit_of(results.run).summarise(results.run)
    return summary


def _answer(results: Results | None) -> Any:
    if results is None or results.job.kind != "question" or not files.exists(f"{results.path}/{ANSWER}"):
        return None
    return cleaned(answer_of(results))


def _log(visit: PageRequest, job: Job) -> list[dict[str, Any]]:
    shown_events = [
        _event_row(event) for event in webhooks.after(visit.context.db, job.id, limit=2000) if event.kind != "progress"
    ]
    return shown_events[-_EVENTS:]


def _event_row(event: webhooks.Event) -> dict[str, Any]:
    """Returns an event in words."""
    data = event.data
    words = data.get("state") or data.get("step") or data.get("name") or data.get("message") or event.kind
    return {"at": event.at, "what": str(words), "why": str(data.get("reason") or "")}
