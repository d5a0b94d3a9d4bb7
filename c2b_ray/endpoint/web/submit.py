"""The form that submits an audit, one for each kind. It is checked during typing, and again when it is sent."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from starlette.responses import JSONResponse, Response

from c2b_ray.endpoint.api.envelope import YAML, Document, canonical
from c2b_ray.endpoint.api.jobs import Resolved, resolve, submit_job
from c2b_ray.endpoint.api.problems import FieldError, ProblemError, body_of, not_found, problem_of
from c2b_ray.endpoint.api.uploads import upload_body
from c2b_ray.endpoint.kinds import ANSWERING_KINDS, KINDS
from c2b_ray.endpoint.ledger import jobs, uploads
from c2b_ray.endpoint.ledger.job import Filters
from c2b_ray.endpoint.web.rendering import shown
from c2b_ray.endpoint.web.session import Visit, goto
from c2b_ray.report.words import plural
from c2b_ray.world.zoo import names

# The fields of each kind's form, and the config made from the fields and the YAML beside them.


Type = Literal["text", "words", "number", "choice", "mapping", "specs", "model"]
MOST_DIGITS = 15


@dataclass(frozen=True)
class Field:
    """A field of a form. `name`: the config's field, with dots. `options`: the values of a choice, or the name of the
    suggestions in `submit` for a text. `only`: a field and the value that it must have for this field to be used."""

    name: str
    label: str
    hint: str = ""
    type: Type = "text"
    options: tuple[str, ...] | str = ()
    default: str = ""
    only: tuple[str, str] | None = None


_CLASSIFIER = Field(
    "classifier", "Classifier", "A spec such as world:resnet-planted-0 or onnx:upload:…; an upload's is in the list.",
    "model", "classifiers",
)  # fmt: skip
FIELDS: Mapping[str, tuple[Field, ...]] = {
    "c2b": (
        Field("task", "Task", "What the classifier is for, in a sentence."),
        Field("classes", "Classes", "Names with commas between them, or all.", "words"),
        _CLASSIFIER,
        Field("images.source", "Images", "Where the images come from.", "choice", ("generate", "retrieve", "labelled"),
              "generate"),
        Field("images.generator", "Generator", "Where images are generated.", "model", "generators", "world:renderer",
              ("images.source", "generate")),
        Field("images.index", "Index", "Where images are retrieved.", "text", (), "", ("images.source", "retrieve")),
        Field("images.table", "Table", "Where images are labelled: an upload, or a path below data/.", "model",
              "tables", "", ("images.source", "labelled")),
        Field("attributes", "Attributes", "One a line, as in: weather: clear, snow. Empty: a language model proposes.",
              "mapping"),
        Field("images_per_caption", "Images of each caption", "", "number"),
    ),
    "failures": (
        Field("labels", "Labels", "Names with commas between them.", "words"),
        _CLASSIFIER,
        Field("images.generate.model", "Generator", "What draws the images.", "model", "generators", "world:renderer"),
        Field("rule", "Failure", "Which answers are failures.", "choice",
              ("top1", "top1_parent", "top3", "top3_parent"), "top1"),
        Field("budget.draws", "Images in all", "", "number"),
    ),
    "dataset": (
        Field("captions.run", "Failures", "A finished run of failures, whose captions are taken.", "model", "runs"),
        _CLASSIFIER,
        Field("images.generate.model", "Generator", "What draws the images.", "model", "generators", "world:renderer"),
        Field("draws_per_caption", "Images of each caption", "", "number"),
        Field("cap_per_caption", "Kept of each caption", "At most.", "number"),
    ),
    "prompts": (
        Field("subjects", "Subjects", "What prompts are about, with commas between them, such as bus, boat.", "words"),
        Field("attributes", "Attributes", "What may be hidden, one a line, as in: lighting: day, night.", "mapping"),
        Field("generators", "Generator", "The text-to-image model that is searched.", "model", "generators"),
        Field("language_model", "Language model", "It proposes prompts.", "model", "language_models", "world:prompter"),
        Field("judge", "Judge", "It says what images show.", "model", "captioners", "world:clip"),
        Field("guide", "Guide", "heads: by the generator's activations; judge: by answers on finished images.",
              "choice", ("heads", "judge"), "heads"),
    ),
    "clip-bias": (
        Field("models", "Models", "One a line, a name of your own and a spec, as in: small: world:clip-09.", "specs"),
        Field("datasets.images.table", "Images", "A table with image, caption and attributes: an upload, or a path "
              "below data/.", "model", "captioned"),
        Field("datasets.images.attributes", "Attributes", "Columns of the table, with commas between them.", "words"),
        Field("datasets.images.texts", "Neutral texts", "For MaxSkew, with commas between them; may be empty.",
              "words"),
        Field("groups.k", "Clusters of each model", "1: no local view.", "number"),
    ),
    "latent": (
        Field("generator", "Generator", "A generator with a latent space.", "model", "latent_generators"),
        Field("classifier", "Classifier", "One with gradients, such as world:… or timm:….", "model", "classifiers"),
        Field("latents", "Labelled latents", "A table, from which hyperplanes are trained; may be empty.", "model",
              "captioned"),
        Field("hyperplanes", "Hyperplanes", "A table of those that are known; may be empty.", "model", "captioned"),
        Field("label", "Label", "The classifier's output that is watched."),
        Field("target", "Target", "The attribute that it is meant to tell."),
    ),
    "evaluate": (
        Field("task", "Task", "What the classifier is for, in a sentence."),
        _CLASSIFIER,
        Field("truth.table", "Ground truth", "A table with image, target_class and attributes: an upload, or a path "
              "below data/. CelebA, ImageNet-X and the embedded world are named in the YAML.", "model", "tables"),
        Field("methods.C2B", "Finished audit", "Its biases are held against the ground truth.", "model", "audits"),
        Field("b2t.captioner", "Captioner", "Of the baseline B2T; may be empty.", "model", "captioners"),
        Field("b2t.encoder", "Encoder", "Of the baseline B2T; may be empty.", "model", "encoders"),
    ),
}  # fmt: skip


def config_of(kind: str, sent: Mapping[str, str], yaml_text: str) -> dict[str, Any]:
    """Returns the config of a form. Raises 422, which names the field with a wrong number or list of attributes, or 400
    for invalid YAML."""
    config: dict[str, Any] = {}
    for field in FIELDS[kind]:
        text = sent.get(field.name, "")
        if text and (field.only is None or sent.get(field.only[0]) == field.only[1]):
            _put(config, field.name.split("."), _value(field, text))
    if not yaml_text.strip():
        return config
    more = Document(yaml_text.encode(errors="replace"), YAML[0]).parsed()
    if more is None:
        return config
    if not isinstance(more, dict):
        raise _wrong("yaml", "expected fields, one a line, such as seed: 7")
    return _merged(config, more)


def _value(field: Field, text: str) -> Any:
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
        like = "weather: clear, snow" if field.type == "mapping" else "small: world:clip-09"
        raise _wrong(field.name, f"expected lines such as {like}")
    names = [name.strip() for name, _, _ in pairs]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise _wrong(field.name, f"{twice!r} occurs twice")
    return {name.strip(): _words(rest) if field.type == "mapping" else rest.strip() for name, _, rest in pairs}


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.replace("\n", ",").split(",") if word.strip()]


def _put(config: dict[str, Any], steps: list[str], value: Any) -> None:
    for step in steps[:-1]:
        config = config.setdefault(step, {})
    config[steps[-1]] = value


def _merged(config: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Merges two configs. Mappings in both are merged field by field."""
    merged = dict(config)
    for name, value in more.items():
        both = isinstance(value, dict) and isinstance(merged.get(name), dict) and name != "attributes"
        merged[name] = _merged(merged[name], value) if both else value
    return merged


def _wrong(name: str, why: str) -> ProblemError:
    return ProblemError(422, "invalid_config", f"{name}: {why}", [FieldError(name, why)])


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
