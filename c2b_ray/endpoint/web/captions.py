"""Pages of a failures run: its captions with their failure rates, and the stored images of one caption's failures.

Rates are shown as the run wrote them. An image is addressed by the number of its round and its position there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.compute as pc
from starlette.responses import Response

from c2b_ray.audits.failures.discovery.rounds import SAMPLE
from c2b_ray.audits.failures.report.rows import CONFIRMATION, DISCOVERY
from c2b_ray.audits.failures.run import FailuresRun
from c2b_ray.endpoint.api.problems import ProblemError, not_found
from c2b_ray.endpoint.api.reads import Results, finished
from c2b_ray.endpoint.api.results import CLOSED, picture_type, read
from c2b_ray.endpoint.web.rendering import shown
from c2b_ray.endpoint.web.session import PageRequest
from c2b_ray.report.redact import clean

MOST, PAGE = 1000, 24
VERDICTS = ("failure", "not_shown", "undetermined")
SORTS = ("rate", "baseline_rate", "ratio", "draws", "q_value")
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
    sort = visit.query("sort") if visit.query("sort") in SORTS else "ratio"
    stage = visit.query("stage") if "stage" in visit.request.query_params else CONFIRMATION
    filters = HypothesisFilters(visit.query("classifier"), visit.query("label"), stage if stage in stages else "",
                visit.query("verdict"), sort, visit.query("order") == "ascending")  # fmt: skip
    rows = [row for row in all_rows if all(getattr(filters, name) in ("", row[name]) for name in _FILTERS)]
    rows.sort(key=lambda row: (row[sort] is None, (row[sort] or 0.0) * (1 if filters.ascending else -1)))
    choices = {name: sorted({row[name] for row in all_rows}) for name in ("classifier", "label")}
    return shown(visit, "captions.html.j2", {
        "job": results.job, "rows": rows[:MOST], "total": len(rows), "look": filters,
        "choices": {**choices, "stage": [item for item in (CONFIRMATION, DISCOVERY) if item in stages],
                    "verdict": list(VERDICTS)},
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
    failures = list(_failures(results, _run(results).read("hypotheses", list(_DRAWN)).slice(number, 1).to_pylist()[0]))
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
    light = _run(results).read("rounds", [*_DRAWN, "part", "stage", "first"])
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


def _run(results: Results) -> FailuresRun:
    assert isinstance(results.run, FailuresRun)
    return results.run


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise not_found("image")
    return int(text)
