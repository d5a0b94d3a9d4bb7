"""Pages of a job's results: its tables by pages, filtered and sorted by a column; images; the report; exports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from starlette.responses import Response

from c2b_ray.endpoint.api.jobs import of_tenant
from c2b_ray.endpoint.api.problems import FieldError, ProblemError, not_found
from c2b_ray.endpoint.api.reads import REPORT, Results, readable
from c2b_ray.endpoint.api.results import CLOSED, export_of, page_policy, picture_type, read
from c2b_ray.endpoint.web.rendering import shown
from c2b_ray.endpoint.web.session import PageRequest

PAGE = 50
MOST_ROWS = 1_000_000
"""The most rows of a table that can be sorted or filtered, which reads a whole column."""


@dataclass(frozen=True)
class Choice:
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
    results, name = _read(visit), visit.part("name")
    if name not in results.tables:
        raise not_found("table")
    columns = readable(results.tables[name])
    choice = _choice(visit, columns)
    rows, total = _rows(results, name, choice)
    return shown(visit, "table.html.j2", {
        "job": results.job, "name": name, "columns": columns, "rows": rows.to_pylist(), "total": total,
        "choice": choice, "names": list(results.tables), "pages": -(-total // PAGE), "first": choice.page * PAGE,
        "pictures": "image_id" in columns and ("images" in results.tables or results.dataset is not None),
    })  # fmt: skip


def report(visit: PageRequest) -> Response:
    """Returns the report in a sandbox, so that it shares no cookie with these pages."""
    page = _read(visit).document(REPORT)
    return Response(page, media_type="text/html", headers={"Content-Security-Policy": page_policy(page)})


def image(visit: PageRequest) -> Response:
    data = _read(visit).image(visit.part("image_id"))
    headers = {"Cache-Control": "private, max-age=86400, immutable", "Content-Security-Policy": CLOSED}
    return Response(data, media_type=picture_type(data), headers=headers)


def export(visit: PageRequest) -> Response:
    return export_of(_read(visit), visit.part("form"), visit.query("classifier") or None)


def _read(visit: PageRequest) -> Results:
    of_tenant(visit.context, visit.caller, visit.part("job_id"))
    return read(visit.context, visit.caller, visit.part("job_id"))


def _choice(visit: PageRequest, columns: list[str]) -> Choice:
    choice = Choice(visit.query("column"), visit.query("text"), visit.query("sort"),
                    visit.query("order") == "descending", visit.number("page", 0, 10_000_000))  # fmt: skip
    for field, name in (("column", choice.column), ("sort", choice.sort)):
        if name and name not in columns:
            detail = f"the table has no column {name!r}"
            raise ProblemError(422, "invalid", detail, [FieldError(field, detail)])
    return choice


def _rows(results: Results, name: str, choice: Choice) -> tuple[pa.Table, int]:
    """Returns a page of rows, and the number of all rows that match."""
    filtered = bool(choice.text and choice.column)
    total = results.rows(name)
    if not filtered and not choice.sort:
        return results.page(name, choice.page * PAGE, PAGE), total
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
    page_rows = rows[choice.page * PAGE : (choice.page + 1) * PAGE].tolist()
    return results.rows_at(name, page_rows), len(rows)


def _order(column: pa.ChunkedArray, descending: bool) -> pa.Array:
    """Returns the order of a column's rows. Missing values come last; nested values are sorted as text."""
    if pa.types.is_nested(column.type):
        column = pa.chunked_array([pa.array([str(value) for value in column.to_pylist()], pa.string())])
    direction = "descending" if descending else "ascending"
    return pc.sort_indices(pa.table({"value": column}), sort_keys=[("value", direction)])
