"""The form that submits an audit, one for each kind. It is checked during typing, and again when it is sent."""

from __future__ import annotations

import copy
import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from starlette.responses import JSONResponse, Response

from c2b_ray.audits.audit import QUESTION, FormField
from c2b_ray.endpoint.api.envelope import YAML, Document, canonical
from c2b_ray.endpoint.api.jobs import ResolvedConfig, of_tenant, refusal, resolve, submit_job
from c2b_ray.endpoint.api.problems import FieldError, ProblemError, body_of, not_found, problem_of
from c2b_ray.endpoint.api.uploads import upload_body
from c2b_ray.endpoint.kinds import kind_named, kinds
from c2b_ray.endpoint.ledger import jobs, uploads
from c2b_ray.endpoint.ledger.tables import Filters
from c2b_ray.endpoint.web.rendering import PageRequest, goto, shown
from c2b_ray.report.words import plural
from c2b_ray.text import visible
from c2b_ray.world.zoo import names

# The fields of each kind's form, and the config made from the fields and the YAML beside them.


MOST_DIGITS = 15


def config_of(kind: str, sent: Mapping[str, str], yaml_text: str) -> dict[str, Any]:
    """Returns the config of a form. Raises 422, which names the field with a wrong number or list of attributes, or 400
    for invalid YAML."""
    config: dict[str, Any] = {}
    for field in _form_of(kind):
        text = sent.get(field.name, "")
        if text and (field.only is None or sent.get(field.only[0]) == field.only[1]):
            _put(config, field.name.split("."), _value(field, text))
    if not yaml_text.strip():
        return config
    document = Document(yaml_text.encode(errors="replace"), YAML[0]).parsed()
    if document is None:
        return config
    if not isinstance(document, dict):
        raise _wrong("yaml", "expected fields, one a line, such as seed: 7")
    return _merged(config, document)


def filled(kind: str, config: Mapping[str, Any]) -> dict[str, str]:
    """Returns the form of which `config_of` makes this config: what its fields can hold, and the rest as YAML."""
    rest = copy.deepcopy(dict(config))
    values = {field.name: _taken(field, rest, config) for field in _form_of(kind)}
    values["yaml"] = _as_yaml(rest)
    if config_of(kind, values, values["yaml"]) == config:
        return values
    return {**dict.fromkeys(values, ""), "yaml": _as_yaml(config)}


def _taken(field: FormField, rest: dict[str, Any], config: Mapping[str, Any]) -> str:
    """Moves a field's value out of `rest`, and returns it as text; empty if the form cannot hold it."""
    *path, last = field.name.split(".")
    if field.only is not None and _at(config, field.only[0].split(".")) != field.only[1]:
        return ""
    parent = _at(rest, path)
    if not isinstance(parent, dict) or last not in parent:
        return ""
    text = _text(field, parent[last])
    if text is None:
        return ""
    del parent[last]
    while path and not parent:
        parent = _at(rest, path[:-1])
        del parent[path.pop()]
    return text


def _at(config: Any, path: Sequence[str]) -> Any:
    for step in path:
        config = config.get(step) if isinstance(config, Mapping) else None
    return config


def _text(field: FormField, value: Any) -> str | None:
    """Returns the text of which `_value` makes this value; None if there is none, or a browser would change it."""
    text = str(value)
    if isinstance(value, dict):
        text = "\n".join(f"{name}: {_line(of_name)}" for name, of_name in value.items())
    elif isinstance(value, list):
        text = _line(value)
    try:
        is_held = _value(field, text) == value and not isinstance(value, bool)
    except ProblemError:
        return None
    if field.type == "choice":
        is_held = is_held and text in field.options
    lines = text.split("\n") if field.type in ("mapping", "specs") else [text]
    as_typed = text == text.strip() and all(line == visible(line) and line.isprintable() for line in lines)
    return text if text and is_held and as_typed else None


def _line(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _as_yaml(config: Mapping[str, Any]) -> str:
    """Writes a config as YAML, in which a page shows every character as it is."""
    if not config:
        return ""
    text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True, width=100)
    return text if text == visible(text) else yaml.safe_dump(dict(config), sort_keys=False, width=100)


def _value(field: FormField, text: str) -> Any:
    if field.type == "number":
        if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
            raise _wrong(field.name, "expected a whole number")
        return int(text)
    if field.type == "words":
        return "all" if text == "all" else _words(text)
    if field.type not in ("mapping", "specs"):
        return text
    pairs = [line.partition(":") for line in text.splitlines() if line.strip()]
    if any(not colon or not name.strip() or not values.strip() for name, colon, values in pairs):
        example = "weather: clear, snow" if field.type == "mapping" else "small: world:clip-09"
        raise _wrong(field.name, f"expected lines such as {example}")
    names = [name.strip() for name, _, _ in pairs]
    repeated = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if repeated is not None:
        raise _wrong(field.name, f"{repeated!r} occurs twice")
    return {name.strip(): _words(content) if field.type == "mapping" else content.strip() for name, _, content in pairs}


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.replace("\n", ",").split(",") if word.strip()]


def _put(config: dict[str, Any], steps: list[str], value: Any) -> None:
    for step in steps[:-1]:
        config = config.setdefault(step, {})
    config[steps[-1]] = value


def _merged(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Merges two configs. Mappings in both are merged field by field."""
    merged = dict(config)
    for name, value in changes.items():
        are_mappings = isinstance(value, dict) and isinstance(merged.get(name), dict) and name != "attributes"
        merged[name] = _merged(merged[name], value) if are_mappings else value
    return merged


def _wrong(name: str, problem: str) -> ProblemError:
    return ProblemError(422, "invalid_config", f"{name}: {problem}", [FieldError(name, problem)])


_LATEST = 50
_RUNS_OF = "runs-"
"""With the name of a kind: suggests its finished runs."""
_OF_ROLE = {
    "generators": "image_generator", "language_models": "language_model", "captioners": "captioner",
    "latent_generators": "latent_generator", "encoders": "encoder",
}  # fmt: skip


def form(visit: PageRequest) -> Response:
    """Shows the form: empty, or filled with the config of the job that `job` names."""
    once = secrets.token_urlsafe(16)
    if job_id := visit.query("job"):
        if not visit.caller.key.allows("read"):
            raise ProblemError(403, "missing_scope", "this key may not read an earlier audit's config")
        job = of_tenant(visit.context, visit.caller, job_id)
        kind = _kind(job.kind)
        return _shown(visit, kind, {**filled(kind, job.config), "name": job.name or "", "once": once}, None)
    kind = _kind(visit.query("kind") or "c2b")
    values = {field.name: field.default for field in _form_of(kind)}
    return _shown(visit, kind, {**values, "name": "", "yaml": "", "once": once}, None)


def send(visit: PageRequest) -> Response:
    """Submits the form. The same form sent twice creates one job. Errors are shown beside their fields, and the input
    is kept."""
    kind = _kind(visit.sent("kind"))
    values = _sent(visit, kind)
    try:
        resolved = _resolved(visit, kind, values)
        name = _name(values["name"])
        content = canonical({"kind": kind, "name": name, "config": resolved.config})
        idempotency_key = f"page-{hashlib.sha256(values['once'].encode() + content).hexdigest()}"
        answer = submit_job(visit.context, visit.caller, resolved, name, (idempotency_key, content))
    except Exception as error:
        problem = problem_of(error)
        if problem is None or problem.status not in (400, 422, 429):
            raise
        return _shown(visit, kind, values, problem)
    return goto(f"/ui/audits/{json.loads(bytes(answer.body))['id']}")


def check(visit: PageRequest) -> Response:
    """Checks the form for the script: returns the errors of `send`, and the number of images. Nothing is stored."""
    kind = _kind(visit.sent("kind"))
    values = _sent(visit, kind)
    try:
        resolved = _resolved(visit, kind, values)
        _name(values["name"])
        if (denial := refusal(visit.context, visit.caller, resolved)) is not None:
            raise denial
    except Exception as error:
        problem = problem_of(error)
        if problem is None or problem.status not in (400, 422, 429):
            raise
        errors = _by_field(problem)
        return JSONResponse({
            "valid": False, "message": body_of(problem, "")["detail"], "fields": list(errors),
            "messages": list(errors.values()),
        })  # fmt: skip
    images = f" It asks about {plural(resolved.images, 'image')} at most." if resolved.images else ""
    return JSONResponse({"valid": True, "message": f"This can be submitted.{images}", "fields": [], "messages": []})


def _shown(visit: PageRequest, kind: str, values: Mapping[str, str], problem: ProblemError | None) -> Response:
    errors = {} if problem is None else _by_field(problem)
    field_names = {field.name for field in _form_of(kind)} | {"name", "yaml"}
    return shown(visit, "submit.html.j2", {
        "kind": kind, "kinds": {name: audit.question for name, audit in kinds().items() if name != QUESTION},
        "fields": _form_of(kind), "values": values,
        "suggestions": _suggestions(visit, _form_of(kind)), "errors": errors, "known": field_names,
        "problem": None if problem is None else body_of(problem, "")["detail"],
    }, 200 if problem is None else problem.status)  # fmt: skip


def _form_of(kind: str) -> tuple[FormField, ...]:
    return kind_named(kind).form_fields


def _kind(name: str) -> str:
    if name not in kinds() or name == QUESTION:
        raise not_found("kind of audit that has a form")
    return name


def _sent(visit: PageRequest, kind: str) -> dict[str, str]:
    field_names = [*(field.name for field in _form_of(kind)), "name", "yaml", "once"]
    return {name: visit.sent(name) for name in field_names}


def _resolved(visit: PageRequest, kind: str, values: Mapping[str, str]) -> ResolvedConfig:
    return resolve(visit.context, visit.caller, kind, config_of(kind, values, values["yaml"]))


def _name(text: str) -> str | None:
    if len(text) > 200 or not text.isprintable():
        detail = "expected at most 200 printable characters"
        raise ProblemError(422, "invalid", f"name: {detail}", [FieldError("name", detail)])
    return text or None


def _by_field(problem: ProblemError) -> dict[str, str]:
    """Returns the errors by the form's field names: images.generator for config.images.generator."""
    field_errors = body_of(problem, "")["errors"] or [{"field": "yaml", "message": body_of(problem, "")["detail"]}]
    return {error["field"].removeprefix("config.") or "yaml": error["message"] for error in field_errors}


def _runs(visit: PageRequest, kind: str) -> list[str]:
    page = jobs.page(visit.context.db, visit.tenant_id, Filters(state="finished", kind=kind), limit=_LATEST)
    return [f"run:{job.id}" for job in page.items]


def _suggestions(visit: PageRequest, form: Sequence[FormField]) -> dict[str, list[Any]]:
    """Returns the suggestions for the form's texts: models of this release, and the tenant's uploads and runs."""
    db, tenant_id = visit.context.db, visit.tenant_id
    stored = [upload_body(upload) for upload in uploads.page(db, tenant_id, None, _LATEST)[0]]
    return {
        "classifiers": [f"world:{name}" for name in ("clip", *names("classifier"))]
        + [upload["spec"] for upload in stored if upload["kind"] == "onnx"],
        **{suggested: [f"world:{name}" for name in names(role)] for suggested, role in _OF_ROLE.items()},
        "tables": [upload["spec"] for upload in stored if upload["kind"] in ("table", "images")],
        "captioned": [upload["spec"] for upload in stored if upload["kind"] == "table"],
        **{
            f"{_RUNS_OF}{kind}": _runs(visit, kind)
            for kind in kinds()
            if any(field.options == f"{_RUNS_OF}{kind}" for field in form)
        },
    }
