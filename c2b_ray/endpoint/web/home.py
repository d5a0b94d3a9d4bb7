"""The list of audits: filtered, sorted, by pages, with a choice of two to compare."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.responses import Response

from c2b_ray.endpoint.api.problems import FieldError, ProblemError
from c2b_ray.endpoint.kinds import COMPARED_KINDS, KINDS
from c2b_ray.endpoint.ledger.listing import ORDERS, Listing, Look, listing
from c2b_ray.endpoint.web.rendering import STATES, shown
from c2b_ray.endpoint.web.visit import Visit

PAGE = 25


def home(visit: Visit) -> Response:
    look = _look(visit)
    about = ("pages", visit.tenant_id, *vars(look).values())
    position = visit.context.signer.open(visit.query("cursor") or None, *about)
    rows = listing(visit.context.db, visit.tenant_id, look, None if position is None else tuple(position), PAGE)
    return shown(visit, "home.html.j2", {
        "jobs": rows.items, "look": look, "kinds": list(KINDS), "sorts": _sorts(look),
        "next": _next(visit, rows, look, about), "begins": position is None,
        "compared": COMPARED_KINDS,
        "comparable": sum(job.state == "finished" and job.kind in COMPARED_KINDS for job in rows.items) > 1,
    })  # fmt: skip


def _look(visit: Visit) -> Look:
    look = Look(
        visit.query("state"), visit.query("kind"), visit.query("name"),
        visit.query("sort") or "created", visit.query("order") != "ascending",
    )  # fmt: skip
    allowed = {"state": ("", *STATES), "kind": ("", *KINDS), "order": tuple(ORDERS)}
    for name, values in allowed.items():
        if getattr(look, name) not in values:
            detail = f"expected one of {', '.join(filter(None, values))}"
            raise ProblemError(422, "invalid", f"{name}: {detail}", [FieldError(name, detail)])
    return look


def _sorts(look: Look) -> list[dict[str, str]]:
    """Returns the columns' headings: the link of each, and how the list is sorted by it now."""
    sorts = []
    for name in ("name", "kind", "state", "images", "created", "ended"):
        current = name == look.order
        falling = not look.descending if current else name in ("created", "ended", "images")
        arrow = ("descending" if look.descending else "ascending") if current else "none"
        sorts.append({"name": name, "link": _link(look, name, falling), "sorted": arrow})
    return sorts


def _link(look: Look, order: str, descending: bool, cursor: str = "") -> str:
    values = {"state": look.state, "kind": look.kind, "name": look.name, "sort": order,
              "order": "descending" if descending else "ascending", "cursor": cursor}  # fmt: skip
    return f"?{urlencode({name: value for name, value in values.items() if value})}"


def _next(visit: Visit, rows: Listing, look: Look, about: tuple[object, ...]) -> str | None:
    if rows.next is None:
        return None
    cursor = visit.context.signer.seal(list(rows.next), *about)
    return _link(look, look.order, look.descending, cursor)
