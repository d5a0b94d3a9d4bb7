"""The JSON of a job in answers."""

from __future__ import annotations

from typing import Any

from c2b_ray.endpoint.ledger.job import Job
from c2b_ray.report.kit.redact import cleaned


def job_body(job: Job) -> dict[str, Any]:
    """Returns the JSON of a job, without its config."""
    here = f"/v1/audits/{job.id}"
    return {
        "id": job.id,
        "kind": job.kind,
        "name": job.name,
        "state": job.state,
        "created": job.created,
        "started": job.started,
        "ended": job.ended,
        "progress": {
            "stage": job.stage,
            "done": job.done,
            "total": job.total,
            "rate": job.rate,
            "seconds_left": job.seconds_left,
        },
        "images": job.images,
        "model_seconds": job.model_seconds,
        "bytes": job.bytes,
        "slices": job.slices,
        "attempt": job.attempt,
        "cancel_requested": job.cancel_requested,
        "failure": None if job.failure is None else cleaned(job.failure),
        "classifier_hash": job.classifier_hash,
        "config": None,
        "links": {
            "self": here,
            "events": f"{here}/events",
            "tables": f"{here}/tables",
            "report": f"{here}/report",
        },
    }
