"""Pages of an audit's slices — a class at a value of an attribute — with their scores, and of the images of one.

Scores are shown as the audit wrote them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.compute as pc
from starlette.responses import Response

from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.endpoint.api.judging import run_of
from c2b_ray.endpoint.api.problems import ProblemError, not_found
from c2b_ray.endpoint.web.rendering import shown
from c2b_ray.endpoint.web.session import PageRequest
from c2b_ray.steps.answers import answers_of

PAGE = 24
VERDICTS = ("against", "for", "none", "undetermined")
_SORTS = ("phi", "accuracy", "n", "q_value")
_NAMES = ("classifier", "target_class", "attribute", "bias_class")


@dataclass(frozen=True)
class SliceFilters:
    """Filters and order of slices. An empty text means any."""

    classifier: str
    target_class: str
    attribute: str
    verdict: str
    sort: str
    descending: bool

    def link(self, sort: str) -> str:
        values = {**vars(self), "sort": sort}
        values["order"] = "descending" if sort == self.sort and not self.descending else ""
        values.pop("descending")
        return f"?{urlencode({name: value for name, value in values.items() if value})}"


def slices_page(visit: PageRequest) -> Response:
    run = _run(visit)
    scores = run.scores.to_pylist()
    sort = visit.query("sort") if visit.query("sort") in _SORTS else "phi"
    filters = SliceFilters(visit.query("classifier"), visit.query("target_class"), visit.query("attribute"),
                visit.query("verdict"), sort, visit.query("order") == "descending")  # fmt: skip
    filter_values = {name: getattr(filters, name) for name in ("classifier", "target_class", "attribute", "verdict")}
    rows = [row for row in scores if all(row[name] == value for name, value in filter_values.items() if value)]
    sortable = [row for row in rows if row[sort] is not None and row[sort] == row[sort]]
    sortable.sort(key=lambda row: row[sort], reverse=filters.descending)
    rows = sortable + [row for row in rows if row[sort] is None or row[sort] != row[sort]]
    choices = {name: sorted({row[name] for row in scores}) for name in ("classifier", "target_class", "attribute")}
    return shown(visit, "slices.html.j2", {
        "job_id": visit.part("job_id"), "rows": [{**row, "link": _link(row)} for row in rows[:1000]], "look": filters,
        "total": len(rows), "choices": {**choices, "verdict": list(VERDICTS)}, "tau": run.config.tau,
    })  # fmt: skip


def slice_page(visit: PageRequest) -> Response:
    """Shows the images of a slice with the classifier's answers, wrong ones first or only one kind."""
    run = _run(visit)
    values_of_cell = {name: visit.query(name) for name in _NAMES}
    cell = next(
        (row for row in run.scores.to_pylist() if all(row[name] == values_of_cell[name] for name in _NAMES)), None
    )
    if cell is None:
        raise not_found("slice")
    answers = visit.query("answers") if visit.query("answers") in ("wrong", "right") else "all"
    images = [image for image in _images(run, cell) if answers == "all" or image["right"] == (answers == "right")]
    start = visit.number("start", 0, 100_000_000)
    link = _link(cell)
    return shown(visit, "slice.html.j2", {
        "job_id": visit.part("job_id"), "cell": cell, "images": images[start : start + PAGE], "total": len(images),
        "start": start, "page": PAGE, "answers": answers, "link": link,
    })  # fmt: skip


def _run(visit: PageRequest) -> C2BRun:
    run = run_of(visit.context, visit.caller, visit.part("job_id"))
    if not isinstance(run, C2BRun) or not run.has("scores"):
        raise ProblemError(409, "no_slices", "only a finished audit of attributes has slices")
    return run


def _link(row: Mapping[str, Any]) -> str:
    return urlencode({name: row[name] for name in _NAMES})


def _images(run: C2BRun, cell: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the images of a slice: wrong answers first, then by their rank for their caption."""
    captions = run.read("captions").filter(
        (pc.field("target_class") == cell["target_class"])
        & (pc.field("attribute") == cell["attribute"])
        & (pc.field("bias_class") == cell["bias_class"])
    )
    texts = dict(zip(captions["caption_id"].to_pylist(), captions["text"].to_pylist(), strict=True))
    draws = run.read("draws")
    drawn_images = draws.filter(pc.is_in(draws["caption_id"], pa.array(list(texts), pa.string())))
    columns = ["image_id", "label", "label_probability", "predicted_class", "answered", "undecided", "error"]
    predictions = run.predictions_of(columns)
    is_answer = pc.and_(
        pc.equal(predictions["classifier"], cell["classifier"]),
        pc.is_in(predictions["image_id"], drawn_images["image_id"].combine_chunks()),
    )
    rows_by_image = {
        row["image_id"]: row for row in _rows_of_images(drawn_images, predictions.filter(is_answer), cell, texts)
    }
    return sorted(rows_by_image.values(), key=lambda row: (row["right"], row["rank"]))


def _rows_of_images(
    drawn_images: pa.Table, predictions: pa.Table, cell: Mapping[str, Any], texts: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    valid = predictions.filter(pc.is_null(predictions["error"]))
    answer_of_image = answers_of(valid, cell["classifier"]).of(cell["target_class"])
    rows = {row["image_id"]: row for row in predictions.to_pylist()}
    for draw in drawn_images.sort_by([("rank", "descending")]).to_pylist():
        row = rows.get(draw["image_id"])
        if row is not None:
            right = answer_of_image.get(draw["image_id"]) == cell["target_class"]
            yield {**row, "right": right, "rank": draw["rank"], "caption": texts[draw["caption_id"]]}
