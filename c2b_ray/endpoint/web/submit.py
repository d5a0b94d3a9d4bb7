"""The form that submits an audit, one for each kind. It is checked during typing, and again when it is sent."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from c2b_ray.endpoint.api.bodies import canonical
from c2b_ray.endpoint.api.problems import FieldError, ProblemError, body_of, not_found, problem_of
from c2b_ray.endpoint.api.submitting import Resolved, resolve, submit_job
from c2b_ray.endpoint.api.uploads import upload_body
from c2b_ray.endpoint.kinds import ANSWERING_KINDS, KINDS
from c2b_ray.endpoint.ledger import jobs, uploads
from c2b_ray.endpoint.ledger.job import Filters
from c2b_ray.endpoint.web.forms import FIELDS, config_of
from c2b_ray.endpoint.web.rendering import shown
from c2b_ray.endpoint.web.visit import Visit, goto
from c2b_ray.report.kit.words import plural
from c2b_ray.world.zoo import names

_LATEST = 50
_OF_ROLE = {
    "generators": "image_generator", "language_models": "language_model", "captioners": "captioner",
    "latent_generators": "latent_generator", "encoders": "encoder",
}  # fmt: skip


def form(visit: Visit) -> Response:
    kind = _kind(visit.query("kind") or "c2b")
    values = {field.name: field.default for field in FIELDS[kind]}
    return _shown(visit, kind, {**values, "name": "", "yaml": "", "once": secrets.token_urlsafe(16)}, None)


def send(visit: Visit) -> Response:
    """Submits the form. The same form sent twice creates one job. Errors are shown beside their fields, and the input
    is kept."""
    kind = _kind(visit.sent("kind"))
    values = _sent(visit, kind)
    try:
        resolved = _resolved(visit, kind, values)
        name = _name(values["name"])
        content = canonical({"kind": kind, "name": name, "config": resolved.config})
        once = f"page-{hashlib.sha256(values['once'].encode() + content).hexdigest()}"
        answer = submit_job(visit.context, visit.caller, resolved, name, (once, content))
    except Exception as error:
        problem = problem_of(error)
        if problem is None or problem.status not in (400, 422, 429):
            raise
        return _shown(visit, kind, values, problem)
    return goto(f"/ui/audits/{json.loads(bytes(answer.body))['id']}")


def check(visit: Visit) -> Response:
    """Checks the form for the script: returns the errors of `send`, and the number of images. Nothing is stored."""
    kind = _kind(visit.sent("kind"))
    values = _sent(visit, kind)
    try:
        resolved = _resolved(visit, kind, values)
        _name(values["name"])
    except Exception as error:
        problem = problem_of(error)
        if problem is None or problem.status not in (400, 422):
            raise
        body = body_of(problem, "")
        return JSONResponse({"valid": False, "message": body["detail"], **_errors_of(problem)})
    images = f" It asks about {plural(resolved.images, 'image')} at most." if resolved.images else ""
    return JSONResponse({"valid": True, "message": f"This can be submitted.{images}", "fields": [], "messages": []})


def _shown(visit: Visit, kind: str, values: Mapping[str, str], problem: ProblemError | None) -> Response:
    errors = {} if problem is None else _by_field(problem)
    known = {field.name for field in FIELDS[kind]} | {"name", "yaml"}
    return shown(visit, "submit.html.j2", {
        "kind": kind, "kinds": {name: KINDS[name].label for name in FIELDS}, "fields": FIELDS[kind], "values": values,
        "suggestions": _suggestions(visit), "errors": errors, "known": known,
        "problem": None if problem is None else body_of(problem, "")["detail"],
    }, 200 if problem is None else problem.status)  # fmt: skip


def _kind(name: str) -> str:
    if name not in FIELDS:
        raise not_found("kind of audit that has a form")
    return name


def _sent(visit: Visit, kind: str) -> dict[str, str]:
    wanted = [*(field.name for field in FIELDS[kind]), "name", "yaml", "once"]
    return {name: visit.sent(name) for name in wanted}


def _resolved(visit: Visit, kind: str, values: Mapping[str, str]) -> Resolved:
    return resolve(visit.context, visit.caller, kind, config_of(kind, values, values["yaml"]))


def _name(text: str) -> str | None:
    if len(text) > 200 or not text.isprintable():
        detail = "expected at most 200 printable characters"
        raise ProblemError(422, "invalid", f"name: {detail}", [FieldError("name", detail)])
    return text or None


def _by_field(problem: ProblemError) -> dict[str, str]:
    """Returns the errors by the form's field names: images.generator for config.images.generator."""
    field_errors = body_of(problem, "")["errors"] or [{"field": "yaml", "message": body_of(problem, "")["detail"]}]
    return {one["field"].removeprefix("config.") or "yaml": one["message"] for one in field_errors}


def _suggestions(visit: Visit) -> dict[str, list[Any]]:
    """Returns the suggestions for the form's texts: models of this release, and the tenant's uploads and runs."""
    db, tenant_id = visit.context.db, visit.tenant_id
    stored = [upload_body(one) for one in uploads.page(db, tenant_id, None, _LATEST)[0]]
    failures, audits = (
        jobs.page(db, tenant_id, Filters(state="finished", kind=kind), limit=_LATEST).items
        for kind in ANSWERING_KINDS[::-1]
    )
    return {
        "classifiers": [f"world:{name}" for name in ("clip", *names("classifier"))]
        + [one["spec"] for one in stored if one["kind"] == "onnx"],
        **{suggested: [f"world:{name}" for name in names(role)] for suggested, role in _OF_ROLE.items()},
        "tables": [one["spec"] for one in stored if one["kind"] in ("table", "images")],
        "captioned": [one["spec"] for one in stored if one["kind"] == "table"],
        "runs": [f"run:{job.id}" for job in failures],
        "audits": [f"run:{job.id}" for job in audits],
    }


def _errors_of(problem: ProblemError) -> dict[str, list[str]]:
    by_field = _by_field(problem)
    return {"fields": list(by_field), "messages": list(by_field.values())}
