"""A job's pages: its state, progress, summary and forms; its tables by pages; its report, images and exports.

Tables and the images of a failure dataset can be filtered up to `MOST_ROWS` rows. A page reads the columns that it
filters or sorts by, and the rows that it shows.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml
from pydantic import ValidationError
from starlette.responses import Response

from c2b_ray.audits.audit import QUESTION, audit_of
from c2b_ray.audits.failures.run import FailuresRun
from c2b_ray.config.reading import first_problem
from c2b_ray.endpoint.api.envelope import canonical
from c2b_ray.endpoint.api.jobs import follow, of_tenant, purged, resolve, submit_job
from c2b_ray.endpoint.api.models import Question
from c2b_ray.endpoint.api.problems import FieldError, ProblemError, not_found
from c2b_ray.endpoint.api.reads import ANSWER, REPORT, ROWS, Results, answer_of, finished, readable
from c2b_ray.endpoint.api.results import (
    CLOSED,
    answers_questions,
    export_of,
    page_policy,
    picture_type,
    read,
    refuse_unanswering,
)
from c2b_ray.endpoint.kinds import compared_kinds, kinds
from c2b_ray.endpoint.ledger import jobs, webhooks
from c2b_ray.endpoint.ledger.tables import Job
from c2b_ray.endpoint.web.rendering import PageRequest, goto, shown
from c2b_ray.errors import C2BError
from c2b_ray.report.redact import clean, cleaned
from c2b_ray.report.words import Summary
from c2b_ray.storage import files

_NO_ANSWER_YET = 409
_EVENTS = 12


def job_page(visit: PageRequest) -> Response:
    job = of_tenant(visit.context, visit.caller, visit.part("job_id"))
    results = _results(visit, job)
    run = None if results is None else results.run
    return shown(visit, "job.html.j2", {
        "job": job, "label": kinds()[job.kind].question if job.kind in kinds() else job.kind,
        "running": not job.ended_for_good, "log": _log(visit, job),
        "config": yaml.safe_dump(cleaned(job.config), sort_keys=False, allow_unicode=True, width=100),
        "tables": [] if results is None else [(name, results.rows(name)) for name in results.tables],
        "exports": results.exports if results and job.state == "finished" else [],
        "summary": _summary(results), "report": results is not None and files.exists(f"{results.path}/{REPORT}"),
        "answer": _answer(results), "compares": job.kind in compared_kinds() and job.state == "finished",
        "questions": job.state == "finished" and run is not None and answers_questions(run),
        "slices": run is not None and run.kind.name == "c2b" and run.has("scores"),
        "gallery": results is not None and results.dataset is not None,
        "captions": job.state == "finished" and isinstance(run, FailuresRun),
        "asked_run": str(job.config.get("run", "")).removeprefix("run:") if job.kind == "question" else "",
        "may_submit": "submit" in visit.caller.key.scopes, "has_form": job.kind in kinds() and job.kind != QUESTION,
    })  # fmt: skip


def job_events(visit: PageRequest) -> Response:
    """Returns the API's stream of events. The browser says which event it saw last."""
    job = of_tenant(visit.context, visit.caller, visit.part("job_id"))
    last = visit.request.headers.get("last-event-id", "")
    last_seen = int(last) if last.isascii() and last.isdigit() and len(last) <= 18 else 0
    return follow(visit.context, job, last_seen, visit.caller.key)


def cancel(visit: PageRequest) -> Response:
    job = jobs.request_cancel(visit.context.db, visit.tenant_id, visit.part("job_id"), visit.caller.actor)
    if job is None:
        raise not_found("audit")
    return goto(f"/ui/audits/{job.id}")


def delete(visit: PageRequest) -> Response:
    purged(visit.context, visit.caller, visit.part("job_id"))
    return goto("/ui/")


def ask(visit: PageRequest) -> Response:
    """Submits a question to a finished run as a new job."""
    context, caller, job_id = visit.context, visit.caller, visit.part("job_id")
    run = finished(read(context, caller, job_id))
    sentence, n = visit.sent("sentence"), visit.sent("n")
    if not sentence:
        raise ProblemError(422, "invalid", "write a sentence, such as 'a bus in the snow at night'", [
            FieldError("sentence", "it is empty")
        ])  # fmt: skip
    if n and not (n.isascii() and n.isdigit() and len(n) < 7):
        raise ProblemError(422, "invalid", "n: expected a whole number", [FieldError("n", "expected a whole number")])
    fields = {"sentence": sentence, "n": int(n) if n else None, "classifier": visit.sent("classifier") or None,
              "target_class": visit.sent("target_class") or None}  # fmt: skip
    config = {"run": f"run:{job_id}", **_question(fields).model_dump(exclude_none=True)}
    refuse_unanswering(run, config)
    resolved = resolve(context, caller, "question", config)
    answer = submit_job(context, caller, resolved, None, (None, canonical(config)))
    return goto(f"/ui/audits/{json.loads(bytes(answer.body))['id']}")


def _question(fields: dict[str, Any]) -> Question:
    try:
        return Question.model_validate({name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        raise first_problem(error, None, Question) from error


def _results(visit: PageRequest, job: Job) -> Results | None:
    """Returns the results of a job; None if there are none yet."""
    try:
        return read(visit.context, visit.caller, job.id)
    except ProblemError as error:
        if error.status == _NO_ANSWER_YET:
            return None
        raise
    except C2BError:  # its run is damaged or gone: the page still shows the job
        return None


def _summary(results: Results | None) -> Summary | None:
    if results is None or results.run is None or results.job.state != "finished":
        return None
    summary: Summary = audit_of(results.run).summarise(results.run)
    return summary


def _answer(results: Results | None) -> Any:
    if results is None or results.job.kind != "question" or not files.exists(f"{results.path}/{ANSWER}"):
        return None
    return cleaned(answer_of(results))


def _log(visit: PageRequest, job: Job) -> list[dict[str, Any]]:
    shown_events = [
        _event_row(event)
        for event in webhooks.events_after(visit.context.db, job.id, limit=2000)
        if event.kind != "progress"
    ]
    return shown_events[-_EVENTS:]


def _event_row(event: webhooks.Event) -> dict[str, Any]:
    """Returns an event in words."""
    data = event.data
    what = data.get("state") or data.get("step") or data.get("name") or data.get("message") or event.kind
    return {"at": event.at, "what": str(what), "why": clean(str(data.get("reason") or data.get("text") or ""))}


# Pages of a job's results: its tables by pages, filtered and sorted by a column; images; the report; exports.


ROWS_A_PAGE = 50
MOST_ROWS = 1_000_000
"""The most rows of a table that can be sorted or filtered, which reads a whole column."""


@dataclass(frozen=True)
class RowFilters:
    """Filters rows whose `column` contains `text`, and sorts them by `sort`. Empty: all rows, as stored."""

    column: str
    text: str
    sort: str
    descending: bool
    page: int

    def link(self, **changes: Any) -> str:
        values = {**vars(self), **changes}
        parameters = {"column": values["column"], "text": values["text"], "sort": values["sort"],
                 "order": "descending" if values["descending"] else "", "page": values["page"] or ""}  # fmt: skip
        return f"?{urlencode({name: value for name, value in parameters.items() if value != ''})}"


def table_page(visit: PageRequest) -> Response:
    results, name = _results_of_visit(visit), visit.part("name")
    if name not in results.tables:
        raise not_found("table")
    columns = readable(results.tables[name])
    choice = _row_filters(visit, columns)
    rows, total = _rows(results, name, choice)
    return shown(visit, "table.html.j2", {
        "job": results.job, "name": name, "columns": columns, "rows": rows.to_pylist(), "total": total,
        "choice": choice, "names": list(results.tables),
        "pages": -(-total // ROWS_A_PAGE), "first": choice.page * ROWS_A_PAGE,
        "pictures": "image_id" in columns and ("images" in results.tables or results.dataset is not None),
    })  # fmt: skip


def report(visit: PageRequest) -> Response:
    """Returns the report in a sandbox, so that it shares no cookie with these pages."""
    page = _results_of_visit(visit).document(REPORT)
    return Response(page, media_type="text/html", headers={"Content-Security-Policy": page_policy(page)})


def image(visit: PageRequest) -> Response:
    data = _results_of_visit(visit).image(visit.part("image_id"))
    headers = {"Cache-Control": "private, max-age=86400, immutable", "Content-Security-Policy": CLOSED}
    return Response(data, media_type=picture_type(data), headers=headers)


def export(visit: PageRequest) -> Response:
    return export_of(_results_of_visit(visit), visit.part("form"), visit.query("classifier") or None)


def _results_of_visit(visit: PageRequest) -> Results:
    of_tenant(visit.context, visit.caller, visit.part("job_id"))
    return read(visit.context, visit.caller, visit.part("job_id"))


def _row_filters(visit: PageRequest, columns: list[str]) -> RowFilters:
    choice = RowFilters(visit.query("column"), visit.query("text"), visit.query("sort"),
                    visit.query("order") == "descending", visit.number("page", 0, 10_000_000))  # fmt: skip
    for field, name in (("column", choice.column), ("sort", choice.sort)):
        if name and name not in columns:
            detail = f"the table has no column {name!r}"
            raise ProblemError(422, "invalid", detail, [FieldError(field, detail)])
    return choice


def _rows(results: Results, name: str, choice: RowFilters) -> tuple[pa.Table, int]:
    """Returns a page of rows, and the number of all rows that match."""
    filtered = bool(choice.text and choice.column)
    total = results.rows(name)
    if not filtered and not choice.sort:
        return results.page(name, choice.page * ROWS_A_PAGE, ROWS_A_PAGE), total
    if total > MOST_ROWS:
        detail = f"a table of {total:,} rows cannot be sorted or filtered here; export it to do so"
        raise ProblemError(422, "too_many_rows", detail)
    table = results.table(
        name, sorted({column for column in (choice.column if filtered else "", choice.sort) if column})
    )
    rows = np.arange(table.num_rows)
    if filtered:
        texts = pa.array(
            ["" if value is None else str(value) for value in table[choice.column].to_pylist()], pa.string()
        )
        rows = np.flatnonzero(pc.match_substring(texts, choice.text, ignore_case=True).to_numpy(zero_copy_only=False))
    if choice.sort:
        rows = rows[_order(table[choice.sort].take(rows), choice.descending)]
    page_rows = rows[choice.page * ROWS_A_PAGE : (choice.page + 1) * ROWS_A_PAGE].tolist()
    return results.rows_at(name, page_rows), len(rows)


def _order(column: pa.ChunkedArray, descending: bool) -> pa.Array:
    """Returns the order of a column's rows. Missing values come last; nested values are sorted as text."""
    if pa.types.is_nested(column.type):
        column = pa.chunked_array([pa.array([str(value) for value in column.to_pylist()], pa.string())])
    direction = "descending" if descending else "ascending"
    return pc.sort_indices(pa.table({"value": column}), sort_keys=[("value", direction)])


# The page of a failure dataset's images, by label, wrong answer and caption.


IMAGES_A_PAGE = 24
CHOICES = 200
NAMES = ("label", "predicted", "caption")
UNDECIDED = "several labels alike"


@dataclass(frozen=True)
class ImageFilters:
    """Filters of images. An empty text means any."""

    label: str
    predicted: str
    caption: str

    def link(self, start: int) -> str:
        values = {name: value for name, value in vars(self).items() if value}
        return f"?{urlencode({**values, 'start': start})}"


def gallery_page(visit: PageRequest) -> Response:
    results = read(visit.context, visit.caller, visit.part("job_id"))
    if results.dataset is None:
        raise ProblemError(409, "no_dataset", "only a finished dataset has a gallery")
    total, start = results.rows(ROWS), visit.number("start", 0, 1_000_000_000)
    choice = ImageFilters(*(visit.query(name) for name in NAMES))
    choices: dict[str, list[tuple[str, int]]] = {}
    rows: range | list[int] = range(total)
    if total <= MOST_ROWS:
        values: dict[str, list[str]] = {
            name: pc.fill_null(results.table(ROWS, [name])[name], UNDECIDED).to_pylist() for name in NAMES
        }
        choices = {name: Counter(texts).most_common(CHOICES) for name, texts in values.items()}
        is_chosen = np.ones(total, bool)
        for name, chosen_text in vars(choice).items():
            if chosen_text:
                is_chosen &= np.array([text == chosen_text for text in values[name]], bool)
        rows = np.flatnonzero(is_chosen).tolist()
    elif any(vars(choice).values()):
        detail = f"the images of a dataset of {total:,} rows cannot be filtered here; export it to filter them"
        raise ProblemError(422, "too_many_rows", detail)
    images = results.rows_at(ROWS, rows[start : start + IMAGES_A_PAGE]).to_pylist()
    return shown(visit, "gallery.html.j2", {
        "job": results.job, "images": images, "total": len(rows), "start": start, "page": IMAGES_A_PAGE,
        "choice": choice, "choices": choices, "undecided": UNDECIDED,
    })  # fmt: skip
