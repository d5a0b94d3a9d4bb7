"""The list of audits: filtered, sorted, by pages, with a choice of two to compare."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.responses import Response

from c2b_ray.audits.audit import audit_of, names_in
from c2b_ray.audits.runs import Comparison
from c2b_ray.endpoint.api.judging import run_of
from c2b_ray.endpoint.api.problems import FieldError, ProblemError, not_found
from c2b_ray.endpoint.api.results import page_policy
from c2b_ray.endpoint.kinds import compared_kinds, kinds
from c2b_ray.endpoint.ledger import jobs
from c2b_ray.endpoint.ledger.job import Filters, Job
from c2b_ray.endpoint.ledger.jobs import ORDERS, JobFilters, Listing, listing
from c2b_ray.endpoint.web.rendering import STATES, shown
from c2b_ray.endpoint.web.session import PageRequest
from c2b_ray.errors import C2BError, ConfigError
from c2b_ray.report.redact import clean, clean_setting, names_of
from c2b_ray.storage import THREADS
from c2b_ray.storage.run import read_run

PAGE = 25
_CLASSIFIERS = 2
"""The classifiers of an audit that the list names."""


def home(visit: PageRequest) -> Response:
    filters = _look(visit)
    context_parts = ("pages", visit.tenant_id, *vars(filters).values())
    position = visit.context.signer.open(visit.query("cursor") or None, *context_parts)
    rows = listing(visit.context.db, visit.tenant_id, filters, None if position is None else tuple(position), PAGE)
    with ThreadPoolExecutor(THREADS) as pool:  # a store answers slowly, and many at once
        results = list(pool.map(lambda job: _result(visit, job), rows.items))
    return shown(visit, "home.html.j2", {
        "jobs": list(zip(rows.items, map(_classifiers, rows.items), results, strict=True)),
        "look": filters, "kinds": list(kinds()), "sorts": _sorts(filters),
        "next": _next(visit, rows, filters, context_parts), "begins": position is None,
        "compared": compared_kinds(),
        "comparable": sum(job.state == "finished" and job.kind in compared_kinds() for job in rows.items) > 1,
    })  # fmt: skip


def _result(visit: PageRequest, job: Job) -> str:
    """Returns a job's result in one line, or why it failed; empty if there is neither."""
    if job.state != "finished":
        return str((job.failure or {}).get("title", ""))
    try:
        headline = read_run(job.run_path or visit.context.run_path(visit.tenant_id, job.id)).record.headline
    except C2BError:  # a dataset or a question, which makes no run, or one that is damaged or gone
        return ""
    return "" if headline is None else clean(headline.text)


def _classifiers(job: Job) -> str:
    """Returns the names of what a job is about; of many, the first ones and the number of the others."""
    kind = kinds().get(job.kind)  # None for an audit of a package that is not installed any more
    names = [] if kind is None else [clean_setting(name) for name in names_in(job.resolved, kind.models)]
    unlisted = len(names) - _CLASSIFIERS
    return ", ".join(names[:_CLASSIFIERS]) + (f" and {unlisted} more" if unlisted > 0 else "")


def _look(visit: PageRequest) -> JobFilters:
    filters = JobFilters(
        visit.query("state"), visit.query("kind"), visit.query("name"),
        visit.query("sort") or "created", visit.query("order") != "ascending",
    )  # fmt: skip
    allowed = {"state": ("", *STATES), "kind": ("", *kinds()), "order": tuple(ORDERS)}
    for name, values in allowed.items():
        if getattr(filters, name) not in values:
            detail = f"expected one of {', '.join(filter(None, values))}"
            raise ProblemError(422, "invalid", f"{name}: {detail}", [FieldError(name, detail)])
    return filters


def _sorts(filters: JobFilters) -> list[dict[str, str]]:
    """Returns the columns' headings: the link of each, and how the list is sorted by it now."""
    sorts = []
    for name in ("name", "kind", "state", "images", "created", "ended"):
        current = name == filters.order
        falling = not filters.descending if current else name in ("created", "ended", "images")
        arrow = ("descending" if filters.descending else "ascending") if current else "none"
        sorts.append({"name": name, "link": _link(filters, name, falling), "sorted": arrow})
    return sorts


def _link(filters: JobFilters, order: str, descending: bool, cursor: str = "") -> str:
    values = {"state": filters.state, "kind": filters.kind, "name": filters.name, "sort": order,
              "order": "descending" if descending else "ascending", "cursor": cursor}  # fmt: skip
    return f"?{urlencode({name: value for name, value in values.items() if value})}"


def _next(visit: PageRequest, rows: Listing, filters: JobFilters, context_parts: tuple[object, ...]) -> str | None:
    if rows.next is None:
        return None
    cursor = visit.context.signer.seal(list(rows.next), *context_parts)
    return _link(filters, filters.order, filters.descending, cursor)


# The page of two finished audits side by side: what changed from the first to the second, on the images of both.


_CHOICES = 100
_MARK = "~"
"""Between an audit's id and the number of one of its classifiers, from 0, in the order of its config."""


@dataclass(frozen=True)
class Side:
    """A choice of what is compared: an audit, or one classifier of an audit that has several."""

    value: str
    label: str


def compare_page(visit: PageRequest) -> Response:
    """Shows the comparison of two audits, or a form to choose them."""
    selected = _chosen(visit)
    finished = jobs.page(visit.context.db, visit.tenant_id, Filters(state="finished"), limit=_CHOICES).items
    sides = [side for job in finished if job.kind in compared_kinds() for side in _sides(job)]
    values = {
        "sides": sides, "a": _first(sides, visit.query("a")), "b": _first(sides, visit.query("b")), "unclear": "",
        "summaries": [], "page_link": "",
    }  # fmt: skip
    if len(selected) == 2:
        a, b = (_first(sides, side, visit.query(name)) for side, name in zip(selected, _NAMES, strict=True))
        values |= {"a": a, "b": b}
        try:
            comparison = _comparison(visit, selected)
        except ConfigError:
            if not any(option.value.startswith(f"{side}{_MARK}") for option in sides for side in selected):
                raise
            values["unclear"] = "An audit has several classifiers: choose one on each side."
        else:
            link = dict(zip(("a", "b"), selected, strict=True)) | {
                name: visit.query(name) for name in _NAMES if visit.query(name)
            }
            values |= {"summaries": comparison.summaries(), "page_link": f"/ui/compare/report?{urlencode(link)}"}
    return shown(visit, "compare.html.j2", values)


def compare_report(visit: PageRequest) -> Response:
    """Returns the page that `c2b compare` writes, in a sandbox."""
    page = _comparison(visit, _chosen(visit)).page().encode()
    return Response(page, media_type="text/html", headers={"Content-Security-Policy": page_policy(page)})


_NAMES = ("classifier_a", "classifier_b")


def _sides(job: Job) -> list[Side]:
    """Returns what can be chosen of a finished audit."""
    label = f"{job.name or job.id} ({job.kind})"
    compared = kinds()[job.kind].compared_names(job.resolved)
    if len(compared) < 2:
        return [Side(job.id, label)]
    names = names_of(compared)
    return [Side(f"{job.id}{_MARK}{number}", f"{label}: {names[name]}") for number, name in enumerate(compared)]


def _first(sides: Sequence[Side], value: str, name: str = "") -> str:
    """Returns the value of the choice `value`. Where `value` is the id of an audit: of its classifier `name`, else of
    its first one. Empty if there is none."""
    of_audit = [option for option in sides if value in (option.value, option.value.partition(_MARK)[0])]
    of_classifier = [option for option in of_audit if name and option.label.endswith(f": {name}")]
    return next((option.value for option in (*of_classifier, *of_audit)), "")


def _chosen(visit: PageRequest) -> list[str]:
    """Returns the two sides, from a=…&b=… or from two ticked boxes of the list, the older first."""
    ticked = visit.request.query_params.getlist("job")
    in_query = [visit.query(name) for name in ("a", "b") if visit.query(name)]
    if not ticked:
        return in_query if len(in_query) == 2 else []
    if len(ticked) != 2:
        detail = f"tick two audits to compare, not {len(ticked)}"
        raise ProblemError(422, "invalid", detail, [FieldError("job", detail)])
    dated = [(jobs.get(visit.context.db, visit.tenant_id, job_id), job_id) for job_id in ticked]
    return [job_id for _, job_id in sorted(dated, key=lambda pair: pair[0].created if pair[0] else 0.0)]


def _comparison(visit: PageRequest, selected: list[str]) -> Comparison:
    if len(selected) != 2:
        raise ProblemError(422, "invalid", "name two audits: a and b", [FieldError("a", "expected an audit's id")])
    run_a, run_b = (run_of(visit.context, visit.caller, side.partition(_MARK)[0]) for side in selected)
    names = [visit.query(field) or _name(visit, side) for field, side in zip(_NAMES, selected, strict=True)]
    comparison: Comparison = audit_of(run_a).comparison(run_a, run_b, *names)
    return comparison


def _name(visit: PageRequest, side: str) -> str | None:
    """Returns the name of a side's classifier, as pages show it; None for a whole audit. Raises 404 if it has none."""
    job_id, separator, number = side.partition(_MARK)
    if not separator:
        return None
    job = jobs.get(visit.context.db, visit.tenant_id, job_id)
    compared = [] if job is None else kinds()[job.kind].compared_names(job.resolved)
    if not (number.isascii() and number.isdigit() and len(number) < 5 and int(number) < len(compared)):
        raise not_found("classifier")
    return names_of(compared)[compared[int(number)]]
