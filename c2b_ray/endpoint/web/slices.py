"""Pages that lead from scores to images: slices of an audit of attributes, and captions of a search for failures.

A slice is a class at a value of an attribute. Scores and rates are shown as the run wrote them. An image of a caption's
failures is addressed by the number of its round and its position there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.compute as pc
from starlette.responses import Response

from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.failures.discovery.rounds import SAMPLE
from c2b_ray.audits.failures.report.rows import CONFIRMATION, DISCOVERY
from c2b_ray.audits.failures.run import FailuresRun
from c2b_ray.endpoint.api.problems import ProblemError, not_found
from c2b_ray.endpoint.api.reads import Results, finished
from c2b_ray.endpoint.api.results import CLOSED, picture_type, read, run_of
from c2b_ray.endpoint.web.rendering import PageRequest, shown
from c2b_ray.report.redact import clean
from c2b_ray.steps.answers import answers_of

PAGE = 24
MOST = 1000
SLICE_VERDICTS = ("against", "for", "none", "undetermined")
SLICE_SORTS = ("phi", "accuracy", "n", "q_value")
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
    sort = visit.query("sort") if visit.query("sort") in SLICE_SORTS else "phi"
    filters = SliceFilters(visit.query("classifier"), visit.query("target_class"), visit.query("attribute"),
                visit.query("verdict"), sort, visit.query("order") == "descending")  # fmt: skip
    filter_values = {name: getattr(filters, name) for name in ("classifier", "target_class", "attribute", "verdict")}
    rows = [row for row in scores if all(row[name] == value for name, value in filter_values.items() if value)]
    sortable = [row for row in rows if row[sort] is not None and row[sort] == row[sort]]
    sortable.sort(key=lambda row: row[sort], reverse=filters.descending)
    rows = sortable + [row for row in rows if row[sort] is None or row[sort] != row[sort]]
    choices = {name: sorted({row[name] for row in scores}) for name in ("classifier", "target_class", "attribute")}
    return shown(visit, "slices.html.j2", {
        "job_id": visit.part("job_id"), "rows": [{**row, "link": _link(row)} for row in rows[:MOST]], "look": filters,
        "total": len(rows), "choices": {**choices, "verdict": list(SLICE_VERDICTS)}, "tau": run.config.tau,
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


# Pages of a failures run: its captions with their failure rates, and the stored images of one caption's failures.


CAPTION_VERDICTS = ("failure", "not_shown", "undetermined")
CAPTION_SORTS = ("rate", "baseline_rate", "ratio", "draws", "q_value")
_FILTERS = ("classifier", "label", "stage", "verdict")
_DRAWN = ("caption_id", "classifier", "generator")


@dataclass(frozen=True)
class HypothesisFilters:
    """Filters and order of hypotheses. An empty text means any."""

    classifier: str
    label: str
    stage: str
    verdict: str
    sort: str
    ascending: bool

    def link(self, sort: str) -> str:
        values = {**vars(self), "sort": sort}
        values["order"] = "ascending" if sort == self.sort and not self.ascending else ""
        values.pop("ascending")
        return f"?{urlencode({name: value for name, value in values.items() if value})}"


def captions_page(visit: PageRequest) -> Response:
    results = _results(visit)
    all_rows = [{**row, "number": number} for number, row in enumerate(results.table("hypotheses").to_pylist())]
    stages = {row["stage"] for row in all_rows}
    sort = visit.query("sort") if visit.query("sort") in CAPTION_SORTS else "ratio"
    stage = visit.query("stage") if "stage" in visit.request.query_params else CONFIRMATION
    filters = HypothesisFilters(visit.query("classifier"), visit.query("label"), stage if stage in stages else "",
                visit.query("verdict"), sort, visit.query("order") == "ascending")  # fmt: skip
    rows = [row for row in all_rows if all(getattr(filters, name) in ("", row[name]) for name in _FILTERS)]
    rows.sort(key=lambda row: (row[sort] is None, (row[sort] or 0.0) * (1 if filters.ascending else -1)))
    choices = {name: sorted({row[name] for row in all_rows}) for name in ("classifier", "label")}
    return shown(visit, "captions.html.j2", {
        "job": results.job, "rows": rows[:MOST], "total": len(rows), "look": filters,
        "choices": {**choices, "stage": [item for item in (CONFIRMATION, DISCOVERY) if item in stages],
                    "verdict": list(CAPTION_VERDICTS)},
    })  # fmt: skip


def caption_page(visit: PageRequest) -> Response:
    """Shows a caption's rate and its failures, those of confirmation first."""
    results = _results(visit)
    number = visit.number("number", 0, 100_000_000)
    hypotheses = results.table("hypotheses")
    if number >= hypotheses.num_rows:
        raise not_found("caption")
    hypothesis = hypotheses.slice(number, 1).to_pylist()[0]
    start = visit.number("start", 0, 100_000_000)
    failures = list(
        _failures(results, _failures_run(results).read("hypotheses", list(_DRAWN)).slice(number, 1).to_pylist()[0])
    )
    return shown(visit, "caption.html.j2", {
        "job": results.job, "one": hypothesis, "number": number, "failures": failures[start : start + PAGE],
        "total": len(failures), "start": start, "page": PAGE,
    })  # fmt: skip


def example(visit: PageRequest) -> Response:
    """Returns the encoded image of a failure."""
    results = _results(visit)
    number, position = (_whole(visit.part(name)) for name in ("round", "position"))
    examples: Sequence[Mapping[str, Any]] = ()
    if number < results.rows("rounds"):
        examples = results.rows_at("rounds", [number], ["examples"])["examples"].to_pylist()[0]
    data = examples[position]["image"] if position < len(examples) else None
    if data is None:
        raise not_found("image")
    headers = {"Cache-Control": "private, max-age=86400, immutable", "Content-Security-Policy": CLOSED}
    return Response(data, media_type=picture_type(data), headers=headers)


def _failures(results: Results, hypothesis: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yields the failures of a caption, classifier and generator. Samples are left out: they need not be failures."""
    light = _failures_run(results).read("rounds", [*_DRAWN, "part", "stage", "first"])
    is_shown = pc.not_equal(light["part"], SAMPLE)
    for name in _DRAWN:
        is_shown = pc.and_(is_shown, pc.equal(light[name], hypothesis[name]))
    rounds = light.append_column("number", pa.array(range(light.num_rows), pa.int64())).filter(is_shown).to_pylist()
    rounds.sort(key=lambda row: (row["stage"] != CONFIRMATION, row["first"]))
    examples = results.rows_at("rounds", [row["number"] for row in rounds], ["examples"])["examples"].to_pylist()
    for row, examples_of_round in zip(rounds, examples, strict=True):
        for position, failure in enumerate(examples_of_round):
            if failure["image"] is not None:
                yield {
                    "predicted": clean(failure["predicted"] or ""),
                    "confidence": failure["confidence"],
                    "stage": row["stage"],
                    "image": f"{row['number']}/{position}",
                    "file": clean(failure.get("key") or ""),  # a generated image has none, nor has one of an older run
                    "seed": failure["seed"],
                }


def _results(visit: PageRequest) -> Results:
    results = read(visit.context, visit.caller, visit.part("job_id"))
    finished(results)
    if not isinstance(results.run, FailuresRun):
        raise ProblemError(409, "no_captions", "only a finished search for failures has captions with rates")
    return results


def _failures_run(results: Results) -> FailuresRun:
    assert isinstance(results.run, FailuresRun)
    return results.run


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise not_found("image")
    return int(text)
