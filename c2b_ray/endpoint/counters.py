"""Counters of this process since it started, for Prometheus. deployments/monitoring relies on their names.

Each process counts what it did itself, so sums over processes count nothing twice. Labels have few values: a route is
its template, a model is the scheme of its name, and text from clients is never a label.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.metrics import MetricWrapperBase

from c2b_ray.engine.progress import Part

disable_created_metrics()  # type: ignore[no-untyped-call]

OTHER = "other"
STAGES = ("classify", "draw", "generalise", "look")
"""Prefixes of the names of steps whose rows are images that classifiers answer about."""
_METHODS = frozenset({"GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH"})
_SCHEMES = frozenset(
    {"world", "onnx", "timm", "torchvision", "hf", "open_clip", "table", "http", "https", "diffusers", "vllm", "openai"}
)
_MOST = 50
_titles: set[str] = set()

IMAGES = Counter("c2b_images_total", "Images that models answered about, by step.", ["stage"], registry=None)
DRAWS = Counter(
    "c2b_failure_draws_total",
    "Images that searches for failures drew, once for each classifier, as their steps end.",
    ["stage", "outcome"],
    registry=None,
)
MODEL_SECONDS = Counter(
    "c2b_model_seconds_total", "Seconds that models computed, by the scheme of their name.", ["model"], registry=None
)
ENDED = Counter("c2b_jobs_ended_total", "Jobs that this process ended.", ["state"], registry=None)
REJECTS = Counter(
    "c2b_rejects_total", "Requests that were refused, by code, and jobs that failed, by title.", ["reason"],
    registry=None,
)  # fmt: skip
REQUESTS = Counter(
    "c2b_http_requests_total", "Requests by the template of their route.", ["method", "route", "status"], registry=None
)
REQUEST_SECONDS = Histogram(
    "c2b_http_request_seconds",
    "Seconds until an answer began.",
    ["route"],
    registry=None,
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
BUSY = Gauge(
    "c2b_stage_busy",
    "Share of their time in which those work that read, decode and answer, and GPUs: the mean of the jobs in a step.",
    ["stage", "part"],
    registry=None,
)
EVERY: tuple[MetricWrapperBase, ...] = (IMAGES, DRAWS, MODEL_SECONDS, ENDED, REJECTS, REQUESTS, REQUEST_SECONDS, BUSY)

for _state in ("finished", "failed", "cancelled"):  # Prometheus sees no increase in a series that begins at 1
    ENDED.labels(_state)
for _stage in (*STAGES, OTHER):
    IMAGES.labels(_stage)
_DRAWS = [(stage, outcome) for stage in ("discovery", "confirmation") for outcome in ("failed", "passed", "unusable")]
for _pair in _DRAWS:
    DRAWS.labels(*_pair)


_busy: dict[str, tuple[str, Mapping[Part, float]]] = {}
_lock = threading.Lock()


def busy(job_id: str, stage: str, shares: Mapping[Part, float]) -> None:
    """Shows how busy the parts of a job's stage are: shares of 0 to 1. Without any, the job waits for none of them."""
    with _lock:
        _busy.pop(job_id, None)
        if shares:
            _busy[job_id] = _prefix(stage), shares
        shares_of_labels: dict[tuple[str, str], list[float]] = {}
        for stage_labels, of_job in _busy.values():
            for part, share in of_job.items():
                shares_of_labels.setdefault((stage_labels, part), []).append(share)
        BUSY.clear()  # what no job does is not shown, rather than as it was last
        for labels, shares_found in shares_of_labels.items():
            BUSY.labels(*labels).set(sum(shares_found) / len(shares_found))


def count_draws(counts: Mapping[str, int]) -> None:
    """Counts the draws that a step of a job reports, by names such as "discovery failed"; ignores other names."""
    for stage, outcome in _DRAWS:
        DRAWS.labels(stage, outcome).inc(counts.get(f"{stage} {outcome}", 0))


def used(stage: str | None, images: Iterable[int], seconds: Mapping[str, float]) -> None:
    """Counts images by step and seconds by model, as they were booked on a job."""
    IMAGES.labels(_prefix(stage or "")).inc(sum(images))
    for model, model_seconds in seconds.items():
        scheme = model.partition(":")[0]
        MODEL_SECONDS.labels(scheme if scheme in _SCHEMES else OTHER).inc(max(0.0, model_seconds))


def _prefix(stage: str) -> str:
    return next((name for name in STAGES if stage.startswith(name)), OTHER)


def ended(state: str, title: str | None) -> None:
    """Counts a job that ended. `title`: the title of its failure. There are few titles, as long as none contains
    variable text."""
    ENDED.labels(state).inc()
    if state == "failed":
        if title is None or (title not in _titles and len(_titles) >= _MOST):
            title = OTHER
        _titles.add(title)
        REJECTS.labels(title).inc()


def refused(code: str) -> None:
    """Counts a refused request, by the code of its problem."""
    REJECTS.labels(code).inc()


def answered(method: str, route: str, status: int, seconds: float) -> None:
    """Counts a request. `route`: its template, or an empty text if none matched. `seconds`: until the answer began."""
    route_label = route or "unknown"
    REQUESTS.labels(method if method in _METHODS else OTHER, route_label, str(status)).inc()
    REQUEST_SECONDS.labels(route_label).observe(seconds)
