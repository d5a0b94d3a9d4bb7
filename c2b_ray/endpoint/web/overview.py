"""Pages over several audits: their list, a comparison of two, and the φ of a classifier's cells from audit to audit.

A classifier's history follows the name that its audits give it, so a retrained one keeps its history; the pages say
where its weights changed. It may also follow the hash of its weights (`classifier_hash` of a job with one classifier),
so one file keeps its history under any name, alone or among others. Scores are read as the audits wrote them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from markupsafe import escape
from starlette.responses import Response

from c2b_ray.audits.audit import audit_of, names_in
from c2b_ray.audits.c2b.run import CLASSIFIER
from c2b_ray.audits.runs import Comparison
from c2b_ray.endpoint.api.problems import FieldError, ProblemError, not_found
from c2b_ray.endpoint.api.reads import headline_of
from c2b_ray.endpoint.api.results import page_policy, read, run_of
from c2b_ray.endpoint.kinds import compared_kinds, kinds
from c2b_ray.endpoint.ledger import jobs
from c2b_ray.endpoint.ledger.jobs import ORDERS, JobFilters, listing
from c2b_ray.endpoint.ledger.tables import Filters, Job
from c2b_ray.endpoint.web.rendering import STATES, PageRequest, shown, trusted
from c2b_ray.errors import C2BError, ConfigError
from c2b_ray.report.redact import clean_setting, names_of
from c2b_ray.report.words import signed
from c2b_ray.storage import THREADS
from c2b_ray.tables import content_id

PAGE = 25
_CLASSIFIERS = 2
"""The classifiers of an audit that the list names."""


def home(visit: PageRequest) -> Response:
    filters = _filters(visit)
    context_parts = ("pages", visit.tenant_id, *vars(filters).values())
    position = visit.context.signer.open(visit.query("cursor") or None, *context_parts)
    rows = listing(visit.context.db, visit.tenant_id, filters, position, PAGE)
    cursor = visit.context.signer.following(rows.next, *context_parts)
    with ThreadPoolExecutor(THREADS) as pool:  # a store answers slowly, and many at once
        results = list(pool.map(lambda job: _result(visit, job), rows.items))
    return shown(visit, "home.html.j2", {
        "jobs": list(zip(rows.items, map(_classifiers, rows.items), results, strict=True)),
        "look": filters, "kinds": list(kinds()), "sorts": _sorts(filters),
        "next": None if cursor is None else _link(filters, filters.order, filters.descending, cursor),
        "begins": position is None,
        "compared": compared_kinds(),
        "comparable": sum(job.state == "finished" and job.kind in compared_kinds() for job in rows.items) > 1,
    })  # fmt: skip


def _result(visit: PageRequest, job: Job) -> str:
    """Returns a job's result in one line, or why it failed; empty if there is neither."""
    if job.state != "finished":
        return str((job.failure or {}).get("title", ""))
    return headline_of(visit.context, job) or ""


def _classifiers(job: Job) -> str:
    """Returns the names of what a job is about; of many, the first ones and the number of the others."""
    kind = kinds().get(job.kind)  # None for an audit of a package that is not installed any more
    names = [] if kind is None else [clean_setting(name) for name in names_in(job.resolved, kind.models)]
    unlisted = len(names) - _CLASSIFIERS
    return ", ".join(names[:_CLASSIFIERS]) + (f" and {unlisted} more" if unlisted > 0 else "")


def _filters(visit: PageRequest) -> JobFilters:
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
        "sides": sides, "a": _value_of_choice(sides, visit.query("a")), "b": _value_of_choice(sides, visit.query("b")),
        "unclear": "", "summaries": [], "page_link": "",
    }  # fmt: skip
    if len(selected) == 2:
        a, b = (_value_of_choice(sides, side, visit.query(name)) for side, name in zip(selected, _NAMES, strict=True))
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


def _value_of_choice(sides: Sequence[Side], value: str, name: str = "") -> str:
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
    names = [visit.query(field) or _classifier_name(visit, side) for field, side in zip(_NAMES, selected, strict=True)]
    comparison: Comparison = audit_of(run_a).comparison(run_a, run_b, *names)
    return comparison


def _classifier_name(visit: PageRequest, side: str) -> str | None:
    """Returns the name of a side's classifier, as pages show it; None for a whole audit. Raises 404 if it has none."""
    job_id, separator, number = side.partition(_MARK)
    if not separator:
        return None
    job = jobs.get(visit.context.db, visit.tenant_id, job_id)
    compared = [] if job is None else kinds()[job.kind].compared_names(job.resolved)
    if not (number.isascii() and number.isdigit() and len(number) < 5 and int(number) < len(compared)):
        raise not_found("classifier")
    return names_of(compared)[compared[int(number)]]


# The pages of a classifier over time: the φ of each of its cells, from audit to audit, drawn as a small inline SVG:
# points with their intervals around zero.


WIDTH, HEIGHT, MARGIN, LEFT = 220.0, 76.0, 8.0, 24.0
_SCALE = (("+1", 9.0), ("0", HEIGHT / 2 - 2), ("−1", HEIGHT - 2))
"""What the left edge says of the scale, and the baselines of its texts."""
_MARKS = {"against": "against", "for": "for", "none": "none"}


@dataclass(frozen=True)
class HistoryPoint:
    """φ with its interval. `verdict`: against, for, none, undetermined. `n`: the number of images."""

    phi: float
    low: float | None
    high: float | None
    verdict: str
    n: int


def sparkline(points: Sequence[HistoryPoint | None], title: str, audits: int) -> str:
    """Returns the SVG. All share one scale from −1 to +1, so that small multiples can be compared by eye."""
    words = escape(f"{title}: {described(points)}")
    parts = [
        f'<svg class="history" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" role="img" aria-label="{words}">',
        f'<line class="zero" x1="0" x2="{WIDTH:.0f}" y1="{_y(0):.1f}" y2="{_y(0):.1f}"></line>',
        *(f'<text class="scale" x="2" y="{y:.0f}">{name}</text>' for name, y in _SCALE),
    ]
    plotted = [(_x(i, audits), point) for i, point in enumerate(points) if point is not None]
    path = " ".join(f"{x:.1f},{_y(point.phi):.1f}" for x, point in plotted)
    parts.append(f'<polyline class="path" points="{path}"></polyline>')
    for x, point in plotted:
        if point.low is not None and point.high is not None:
            ends = f'y1="{_y(point.low):.1f}" y2="{_y(point.high):.1f}"'
            parts.append(f'<line class="interval" x1="{x:.1f}" x2="{x:.1f}" {ends}></line>')
        css_class = _MARKS.get(point.verdict, "undetermined")
        parts.append(f'<circle class="{css_class}" cx="{x:.1f}" cy="{_y(point.phi):.1f}" r="3.5"></circle>')
    return "".join([*parts, "</svg>"])


def _x(number: int, audits: int) -> float:
    """`LEFT` is kept for the scale."""
    return WIDTH / 2 if audits < 2 else LEFT + (WIDTH - LEFT - MARGIN) * number / (audits - 1)


def _y(phi: float) -> float:
    return MARGIN + (HEIGHT - 2 * MARGIN) * (1.0 - max(-1.0, min(1.0, phi))) / 2.0


def described(points: Sequence[HistoryPoint | None]) -> str:
    """Returns what a sparkline shows, in words."""
    scored = [point for point in points if point is not None]
    if not scored:
        return "no audit has a score"
    first, last = scored[0], scored[-1]
    return f"φ from {signed(first.phi)} to {signed(last.phi)} over {len(scored)} of {len(points)} audits"


LATEST, AUDITS, PANELS = 200, 24, 60


@dataclass(frozen=True)
class Series:
    """The φ of one cell over the audits, oldest first; None where an audit has no φ. `classifier`: empty unless the
    page shows several."""

    classifier: str
    target_class: str
    attribute: str
    bias_class: str
    points: tuple[HistoryPoint | None, ...]

    @property
    def title(self) -> str:
        slice_ = f"{self.target_class}, {self.attribute}: {self.bias_class}"
        return f"{self.classifier}, {slice_}" if self.classifier else slice_

    @property
    def strength(self) -> float:
        return max((abs(point.phi) for point in self.points if point is not None), default=-1.0)


def classifiers_page(visit: PageRequest) -> Response:
    """Lists the classifiers of the latest audits."""
    by_name: dict[str, list[Job]] = defaultdict(list)
    for job in _audits_of_classifier(visit):
        for name in classifiers_of(job.resolved):
            by_name[name].append(job)
    rows = [
        {"name": name, "shown": clean_setting(name), "audits": len(jobs_of_name), "latest": jobs_of_name[0],
         "weights": len({_weights(visit, job, name) for job in jobs_of_name})}
        for name, jobs_of_name in sorted(by_name.items())
    ]  # fmt: skip
    return shown(visit, "classifiers.html.j2", {"rows": rows, "latest": LATEST})


def history_page(visit: PageRequest) -> Response:
    name, weights = visit.request.query_params.get("name", "")[:2000], visit.query("hash")
    audits = (
        _audits_of_classifier(visit, weights)
        if weights
        else [j for j in _audits_of_classifier(visit) if name in classifiers_of(j.resolved)]
    )
    audits = audits[:AUDITS][::-1]
    if not audits:
        raise not_found("classifier")
    selected = visit.query("attribute"), visit.query("target_class")
    complete, missing = _series(visit, audits, name, weights)
    hashes = [weights or _weights(visit, job, name) for job in audits]
    jobs_of_hash = {digest: {job.id for job in _audits_of_classifier(visit, digest)} for digest in hashes if digest}
    is_linked = [
        digest is not None and job.id in jobs_of_hash[digest] for job, digest in zip(audits, hashes, strict=True)
    ]
    series = [s for s in complete if selected[0] in ("", s.attribute) and selected[1] in ("", s.target_class)]
    panels = [
        {"series": s, "plot": trusted(sparkline(s.points, s.title, len(audits))), "says": described(s.points)}
        for s in sorted(series, key=lambda s: -s.strength)[:PANELS]
    ]
    return shown(visit, "history.html.j2", {
        "name": name, "hash": weights, "audits": audits, "series": series, "panels": panels,
        "weights": hashes, "linked": is_linked,
        "more": max(0, len(series) - PANELS), "missing": missing, "attribute": selected[0], "target_class": selected[1],
        "shown": f"Weights {weights[:8]}" if weights else clean_setting(name),
        "names": sorted({clean_setting(c) for job in audits for c in _names_on_page(visit, job, name, weights)}),
        "attributes": sorted({s.attribute for s in complete}), "classes": sorted({s.target_class for s in complete}),
    })  # fmt: skip


def classifiers_of(config: Mapping[str, Any]) -> list[str]:
    """Returns the names that an audit's scores give its classifiers."""
    value = config.get("classifier") or []
    if isinstance(value, str):
        return [value]
    return [str(key) for key in value]  # the keys of a mapping


def _weights(visit: PageRequest, job: Job, name: str) -> str | None:
    """Returns the hash of the weights that an audit's classifier of this name had; None if it is not known.

    `classifier_hash` is that of all classifiers of a job.
    """
    if len(classifiers_of(job.resolved)) == 1:
        return job.classifier_hash
    try:
        run = read(visit.context, visit.caller, job.id).run
    except (C2BError, ProblemError):
        return None
    models = {} if run is None else run.manifest.get("models", {})
    named = models.get(f"{CLASSIFIER}{name}") or models.get(f"{CLASSIFIER}{clean_setting(name)}") or {}
    return content_id(named["revision"]) if named.get("revision") else None


def _names_on_page(visit: PageRequest, job: Job, name: str, weights: str) -> list[str]:
    """Returns the names of an audit's classifiers that the page is about: those with these weights, or of this name."""
    if not weights:
        return [name]
    names = classifiers_of(job.resolved)
    return (
        names
        if weights == job.classifier_hash
        else [candidate for candidate in names if _weights(visit, job, candidate) == weights]
    )


def _audits_of_classifier(visit: PageRequest, weights: str | None = None) -> list[Job]:
    filters = Filters(state="finished", kind="c2b", classifier_hash=weights)
    return jobs.page(visit.context.db, visit.tenant_id, filters, limit=LATEST).items


def _series(visit: PageRequest, audits: Iterable[Job], name: str, weights: str) -> tuple[list[Series], int]:
    """Returns the series by class, attribute and value, and how many audits could not be read.

    Weights of several classifiers, those of a whole audit, have a series of each; else audits continue one series.
    """
    points: dict[tuple[str, str, str, str], dict[int, HistoryPoint]] = defaultdict(dict)
    number, missing = 0, 0
    for number, job in enumerate(audits):
        try:
            rows = _scores(visit, job, _names_on_page(visit, job, name, weights))
        except (C2BError, ProblemError):  # deleted by retention, or damaged: show the history of the others
            missing += 1
            continue
        has_several = len({row["classifier"] for row in rows}) > 1
        for row in rows:
            if row["phi"] is not None and row["phi"] == row["phi"]:
                one_of_several = clean_setting(row["classifier"]) if has_several else ""
                key = one_of_several, row["target_class"], row["attribute"], row["bias_class"]
                points[key][number] = HistoryPoint(
                    row["phi"], row["phi_low"], row["phi_high"], row["verdict"], row["n"]
                )
    length = number + 1
    return [
        Series(*key, tuple(points_of_series.get(i) for i in range(length)))
        for key, points_of_series in sorted(points.items())
    ], missing


def _scores(visit: PageRequest, job: Job, names_wanted: list[str]) -> list[dict[str, Any]]:
    results = read(visit.context, visit.caller, job.id)
    columns = ["classifier", "target_class", "attribute", "bias_class", "phi", "phi_low", "phi_high", "verdict", "n"]
    if results.run is None or not results.run.has("scores"):
        return []
    rows: list[dict[str, Any]] = results.run.read("scores", columns).to_pylist()
    names = {row["classifier"] for row in rows}
    # The table may contain the spec without the parts that must not leave the machine.
    stored_names = {name if name in names else clean_setting(name) for name in names_wanted}
    return [row for row in rows if row["classifier"] in stored_names]
