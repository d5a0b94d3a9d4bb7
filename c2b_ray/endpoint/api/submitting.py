"""From a client's request to a stored job: checked by the policy and the quotas, and written to the ledger.

Routes and pages submit through it. It loads no model.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from c2b_ray.endpoint.api.auth import Caller
from c2b_ray.endpoint.api.context import Context
from c2b_ray.endpoint.api.described import job_body
from c2b_ray.endpoint.api.problems import FieldError, ProblemError
from c2b_ray.endpoint.api.responses import Json
from c2b_ray.endpoint.booking import UNKNOWN, images_of_question, models_of
from c2b_ray.endpoint.kinds import kind_named
from c2b_ray.endpoint.ledger import jobs, uploads, usage
from c2b_ray.endpoint.ledger.job import Job, NewJob
from c2b_ray.endpoint.policy import specs
from c2b_ray.endpoint.policy.paths import Tenancy
from c2b_ray.errors import ConfigError

_UPLOAD = re.compile(r"upload:([0-9a-f]{64})")
_MOST_UPLOADS = 100
_DAYS = 30


@dataclass(frozen=True)
class Resolved:
    """A config as it was sent and as it will run (`runs`). `images`: the most images; None if unknown before it
    runs."""

    kind: str
    config: dict[str, Any]
    runs: dict[str, Any]
    models: tuple[str, ...]
    images: int | None


def resolve(context: Context, caller: Caller, kind: str, config: Mapping[str, Any]) -> Resolved:
    """Checks a config and returns what will run. Raises 422, which names a field that is wrong, or that names something
    this tenant may not use."""
    model = kind_named(kind).config_class
    tenancy = tenancy_of(context, caller.tenant_id, config)
    try:
        runs = specs.check(config, model, tenancy)
        if kind == "latent":
            _check_gradients(config)
    except ConfigError as error:
        message = str(error).removeprefix(f"{error.field}: " if error.field else "")
        field = f"config.{error.field}" if error.field else "config"
        raise ProblemError(422, "invalid_config", f"{field}: {message}", [FieldError(field, message)]) from error
    models = tuple(model for model in models_of(context.db, caller.tenant_id, kind, config) if model != UNKNOWN)
    asks = kind == "question"
    images = images_of_question(context.db, caller.tenant_id, config) if asks else _images(kind, runs)
    return Resolved(kind, dict(config), runs, models, images)


def _check_gradients(config: Mapping[str, Any]) -> None:
    """Checks at submission, and not when the job starts. It uses the submitted config, because an error may show its
    paths."""
    from c2b_ray.audits.latent.preflight import check_gradients
    from c2b_ray.config.latent import LatentConfig

    check_gradients(LatentConfig.model_validate(config))


def submit_job(
    context: Context, caller: Caller, resolved: Resolved, name: str | None, once: tuple[str | None, bytes]
) -> Json:
    """Submits the job and answers 202. `once`: the Idempotency-Key, and the body to compare it by."""
    key, content = once
    new = NewJob(
        kind=resolved.kind,
        config=resolved.config,
        resolved=resolved.runs,
        name=name,
        idempotency_key=key,
        body_hash=hashlib.sha256(content).hexdigest(),
        images=resolved.images or 0,
        models=resolved.models,
    )
    job, created = jobs.submit(context.db, caller.tenant_id, caller.key.id, new, context.config.quotas)
    return _accepted(job, created)


def submitted_before(context: Context, caller: Caller, once: tuple[str | None, bytes]) -> Json | None:
    """Returns the answer to a repeated submission; None for a new one.

    It is called before the config is checked, because a file that the config names may have been deleted since.
    """
    key, content = once
    if key is None:
        return None
    job = jobs.submitted_before(context.db, caller.tenant_id, key, hashlib.sha256(content).hexdigest())
    return None if job is None else _accepted(job, False)


def _accepted(job: Job, created: bool) -> Json:
    answer = Json({**job_body(job), "config": job.config}, 202)
    answer.headers["Location"] = f"/v1/audits/{job.id}"
    if not created:
        answer.headers["Idempotent-Replayed"] = "true"
    return answer


def tenancy_of(context: Context, tenant_id: str, config: Mapping[str, Any]) -> Tenancy:
    """Returns the tenant's part of the endpoint, with the uploads that the config names."""
    named = {sha for text in _texts(config) for sha in _UPLOAD.findall(text)}
    if len(named) > _MOST_UPLOADS:
        raise ProblemError(422, "invalid_config", f"a config names at most {_MOST_UPLOADS} uploads")
    known = {sha: uploads.get(context.db, tenant_id, sha) for sha in sorted(named)}
    kinds = {sha: upload.kind for sha, upload in known.items() if upload is not None}
    return Tenancy(context.tenant_root(tenant_id), context.config.policy, kinds)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [text for item in items for text in _texts(item)]


def _images(kind: str, runs: Mapping[str, Any]) -> int | None:
    """Returns the most images that the config implies, without reading any file; None if it does not say."""
    if kind == "c2b" and runs.get("classes") != "all":
        from c2b_ray.audits.c2b.size import most_images
        from c2b_ray.config.audit import AuditConfig
        from c2b_ray.config.defaults import with_defaults

        config = with_defaults(AuditConfig.model_validate(runs), None)
        return None if config.images.table is not None else most_images(config) * len(config.specs)
    if kind == "failures":
        from c2b_ray.config.failures import FailuresConfig

        return FailuresConfig.model_validate(runs).budget.draws
    if kind == "prompts":
        from c2b_ray.audits.prompts import size
        from c2b_ray.config.prompts import PromptsConfig

        return size.most_images(PromptsConfig.model_validate(runs))
    if kind == "latent":
        from c2b_ray.audits.latent import size as of_latent
        from c2b_ray.config.latent import LatentConfig

        return of_latent.most_images(LatentConfig.model_validate(runs))
    return None


def model_seconds(context: Context, caller: Caller, resolved: Resolved) -> float | None:
    """Estimates the most model seconds from the tenant's earlier use of these models; None if it never used one of
    them."""
    models, images = resolved.models, resolved.images
    if images is None or not models:
        return None
    with context.db.reading() as tx:
        now = tx.now
    first, last = usage.day_of(now - _DAYS * usage.DAY), usage.day_of(now)
    spent: dict[str, tuple[int, float]] = {}
    for one in usage.spend(context.db, caller.tenant_id, first, last):
        before = spent.get(one.model, (0, 0.0))
        spent[one.model] = before[0] + one.images, before[1] + one.model_seconds
    rates = [spent[model] for model in models if spent.get(model, (0, 0.0))[0]]
    each = images / len(models)
    return sum(each * seconds / count for count, seconds in rates) if len(rates) == len(models) else None
