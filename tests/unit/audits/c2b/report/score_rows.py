"""Rows of scores for the views of a report."""

from __future__ import annotations

import html
import math
import re
from typing import Any

import pyarrow as pa

from c2b_ray import tables
from c2b_ray.audits.c2b.report.ranking import Group, ranked
from c2b_ray.report.blocks import Block, Page, Section

NAN = float("nan")


def row(value: str, phi: float = NAN, verdict: str = "undetermined", **more: Any) -> dict[str, Any]:
    """Returns a row of scores with an accuracy of 0.9 + φ, so that the other values' mean is 0.9."""
    accuracy = 0.9 + phi
    low, high = (phi - 0.06, phi + 0.06)
    return {
        "classifier": "m", "target_class": "bus", "attribute": "weather", "bias_class": value,
        "n": 0 if math.isnan(phi) else 200, "correct": 0 if math.isnan(phi) else round(200 * accuracy), "errors": 0,
        "accuracy": accuracy, "accuracy_low": accuracy - 0.05, "accuracy_high": accuracy + 0.05,
        "phi": phi, "phi_low": low, "phi_high": high, "p_value": 0.01, "q_value": 0.01,
        "verdict": verdict, "paper_verdict": 0, "images_to_settle": None,
    } | {"mistaken_for": None, "mistaken": 0, "answered_bias_class": None} | more  # fmt: skip


def scores(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), tables.SCORES)


def only(*rows: dict[str, Any]) -> Group:
    (group,) = ranked(scores(*rows))
    return group


def text(spans: Any) -> str:
    return "".join(span.text for span in spans)


def lines(*blocks: Block) -> list[str]:
    """Returns what a reader of these blocks on a page sees, a line for each element."""
    page = Page("", "", "", [Section("", blocks)]).html()
    seen = re.sub(r"<[^>]+>", "\n", page[page.index("<main>") : page.index("</main>")])
    return [line.strip(" ") for line in html.unescape(seen).splitlines() if line.strip()]
