"""The list of audits: filtered, sorted, by pages, with a choice of two to compare."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.responses import Response

from c2b_ray.audits.audit import audit_of
from c2b_ray.audits.runs import Comparison
from c2b_ray.endpoint.api.judging import run_of
from c2b_ray.endpoint.api.problems import FieldError, ProblemError
from c2b_ray.endpoint.api.results import page_policy
from c2b_ray.endpoint.kinds import compared_kinds, kinds
from c2b_ray.endpoint.ledger import jobs
from c2b_ray.endpoint.ledger.job import Filters
from c2b_ray.endpoint.ledger.jobs import ORDERS, JobFilters, Listing, listing
from c2b_ray.endpoint.web.rendering import STATES, shown
from c2b_ray.endpoint.web.session import PageRequest

PAGE = 25


def home(visit: PageRequest) -> Response:
    look = _look(visit)
    about = ("pages", visit.tenant_id, *vars(look).values())
    position = visit.context.signer.open(visit.query("cursor") or None, *about)
    rows = listing(visit.context.db, visit.tenant_id, look, None if position is None else tuple(position), PAGE)
    return shown(visit, "home.html.j2", {
        "jobs": rows.items, "look": look, "kinds": list(kinds()), "sorts": _sorts(look),
        "next": _next(visit, rows, look, about), "begins": position is None,
        "compared": compared_kinds(),
        "comparable": sum(job.state == "finished" and job.kind in compared_kinds() for job in rows.items) > 1,
    })  # fmt: skip


def _look(visit: PageRequest) -> JobFilters:
    look = JobFilters(
        visit.query("state"), visit.query("kind"), visit.query("name"),
        visit.query("sort") or "created", visit.query("order") != "ascending",
    )  # fmt: skip
    allowed = {"state": ("", *STATES), "kind": ("", *kinds()), "order": tuple(ORDERS)}
    for name, values in allowed.items():
        if getattr(look, name) not in values:
            detail = f"expected one of {', '.join(filter(None, values))}"
            raise ProblemError(422, "invalid", f"{name}: {detail}", [FieldError(name, detail)])
    return look


def _sorts(look: JobFilters) -> list[dict[str, str]]:
    """Returns the columns' headings: the link of each, and how the list is sorted by it now."""
    sorts = []
    for name in ("name", "kind", "state", "images", "created", "ended"):
        current = name == look.order
        falling = not look.descending if current else name in ("created", "ended", "images")
        arrow = ("descending" if look.descending else "ascending") if current else "none"
        sorts.append({"name": name, "link": _link(look, name, falling), "sorted": arrow})
    return sorts


def _link(look: JobFilters, order: str, descending: bool, cursor: str = "") -> str:
    values = {"state": look.state, "kind": look.kind, "name": look.name, "sort": order,
              "order": "descending" if descending else "ascending", "cursor": cursor}  # fmt: skip
    return f"?{urlencode({name: value for name, value in values.items() if value})}"


def _next(visit: PageRequest, rows: Listing, look: JobFilters, about: tuple[object, ...]) -> str | None:
    if rows.next is None:
        return None
    cursor = visit.context.signer.seal(list(rows.next), *about)
    return _link(look, look.order, look.descending, cursor)


# The page of two finished audits side by side: what changed from the first to the second, on the images of both.


_CHOICES = 100


def compare_page(visit: PageRequest) -> Response:
    """Shows the comparison of two audits, or a form to choose them."""
    chosen = _chosen(visit)
    finished = jobs.page(visit.context.db, visit.tenant_id, Filters(state="finished"), limit=_CHOICES).items
    values = {
        "jobs": [job for job in finished if job.kind in compared_kinds()], "a": "", "b": "",
        "classifier_a": visit.query("classifier_a"), "classifier_b": visit.query("classifier_b"),
        "summaries": [], "page_link": "",
    }  # fmt: skip
    if len(chosen) == 2:
        comparison = _comparison(visit, chosen)
        link = {"a": chosen[0], "b": chosen[1], **comparison_names(comparison)}
        values |= {"a": chosen[0], "b": chosen[1], "summaries": comparison.summaries(),
                   "page_link": f"/ui/compare/report?{urlencode(link)}", **comparison_names(comparison)}  # fmt: skip
    return shown(visit, "compare.html.j2", values)


def compare_report(visit: PageRequest) -> Response:
    """Returns the page that `c2b compare` writes, in a sandbox."""
    page = _comparison(visit, _chosen(visit)).page().encode()
    return Response(page, media_type="text/html", headers={"Content-Security-Policy": page_policy(page)})


def comparison_names(comparison: Comparison) -> dict[str, str]:
    names = comparison.properties()
    return {name: names[name] for name in ("classifier_a", "classifier_b")}


def _chosen(visit: PageRequest) -> list[str]:
    """Returns the two audits, from a=…&b=… or from two ticked boxes of the list, the older first."""
    ticked = visit.request.query_params.getlist("job")
    named = [visit.query(name) for name in ("a", "b") if visit.query(name)]
    if not ticked:
        return named if len(named) == 2 else []
    if len(ticked) != 2:
        detail = f"tick two audits to compare, not {len(ticked)}"
        raise ProblemError(422, "invalid", detail, [FieldError("job", detail)])
    known = [(jobs.get(visit.context.db, visit.tenant_id, job_id), job_id) for job_id in ticked]
    return [job_id for _, job_id in sorted(known, key=lambda pair: pair[0].created if pair[0] else 0.0)]


def _comparison(visit: PageRequest, chosen: list[str]) -> Comparison:
    if len(chosen) != 2:
        raise ProblemError(422, "invalid", "name two audits: a and b", [FieldError("a", "expected an audit's id")])
    run_a, run_b = (run_of(visit.context, visit.caller, job_id) for job_id in chosen)
    names = visit.query("classifier_a") or None, visit.query("classifier_b") or None
    comparison: Comparison = audit_of(run_a).comparison(run_a, run_b, *names)
    return comparison
