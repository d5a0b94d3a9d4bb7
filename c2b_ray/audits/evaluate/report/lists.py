"""The lists of an evaluation's page: rankings, matches, proposers, and the content of drawn images. It computes
nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from c2b_ray.audits.evaluate.report.figures import TESTED, Row, number
from c2b_ray.report import words
from c2b_ray.report.redact import clean, clean_setting

SHOWN_MATCHES, SHOWN_RANKS = 40, 8
SIGNS = {1: "better", -1: "worse", 0: "none"}
WHAT = {"class": "the class", "value": "the value", "both": "both"}


@dataclass(frozen=True)
class Listing:
    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def ranking_list(rows: Sequence[Row]) -> Listing:
    """Lists the strongest attributes of each method and classifier (section 3.5)."""
    shown = [row for row in rows if row["rank"] <= SHOWN_RANKS]
    lines = tuple(
        (
            clean(row["method"]),
            clean_setting(row["classifier"]),
            str(row["rank"]),
            clean(row["attribute"]),
            f"{row['strength']:.3f}",
            _limits(row["strength_low"], row["strength_high"]),
            words.count(row["classes"]),
            words.count(row["biased"]),
        )
        for row in shown
    )
    columns = ("Method", "Classifier", "Rank", "Attribute", "Mean |φ|", "Interval", "Classes", "Biased values")
    return Listing("Attributes, aggregated over classes", "The strongest first", columns, lines)


def _limits(low: float | None, high: float | None) -> str:
    return words.UNKNOWN if low is None or high is None else f"{low:.3f}–{high:.3f}"


def match_list(matches: pa.Table, thresholds: Mapping[str, float]) -> Listing:
    """Lists matches, the nearest first, including those below the least threshold (App. K)."""
    rows = sorted(
        (row for row in matches.to_pylist() if row["truth_tested"] and row["rank"] == 1),
        key=lambda row: (-row["similarity"], row["method"], row["classifier"], row["target_class"]),
    )
    lines = []
    for row in _spread(rows):
        kinds = [kind for kind, threshold in thresholds.items() if row["similarity"] >= threshold - 1e-12]
        lines.append(
            (
                clean(row["method"]),
                f"{clean_setting(row['classifier'])}, {clean(row['target_class'])}",
                f"{clean(row['truth_wording'])} ({SIGNS[row['truth_tested']]})",
                f"{clean(row['detected_wording'])} ({SIGNS[row['detected_tested']]})",
                f"{row['similarity']:.2f}",
                ", ".join(kinds) or "none",
            )
        )
    columns = ("Method", "Classifier, class", "Ground truth", "Nearest detected", "Cosine", "Matches at")
    return Listing("Matches", "In words, with the direction that either side says", columns, tuple(lines))


def _spread(rows: Sequence[Row]) -> list[Row]:
    """Returns a fixed number of rows, spread from the nearest to the farthest."""
    if len(rows) <= SHOWN_MATCHES:
        return list(rows)
    step = len(rows) / SHOWN_MATCHES
    return [rows[int(at * step)] for at in range(SHOWN_MATCHES)]


def shown_list(rows: Sequence[Row]) -> Listing:
    lines = tuple(
        (
            clean(row["method"]),
            WHAT[row["what"]],
            words.percent(number(row["share"])),
            words.percent_range(number(row["share_low"]), number(row["share_high"])),
            words.count(row["images"]),
        )
        for row in rows
    )
    columns = ("Method", "Images that show", "Share", "Interval", "Images")
    return Listing("What the drawn images show", "As the model that answers questions sees it", columns, lines)


def proposer_list(rows: Sequence[Row]) -> Listing:
    lines = tuple(
        (
            clean(row["method"]),
            clean_setting(row["language_model"] or words.UNKNOWN),
            words.count(row["classes"]),
            words.count(row["attributes"]),
            f"{number(row['per_class']):.1f}",
            words.count(row["values"]),
            words.count(row["captions"]),
            words.count(row["rejected"]),
            words.count(row["biased"]),
        )
        for row in rows
    )
    columns = (
        "Method", "Language model", "Classes", "Attributes", "a class", "Values", "Captions", "Rejected replies",
        "Biased, as tested",
    )  # fmt: skip
    return Listing("What was proposed", "One row a method; compare methods that differ in the model", columns, lines)


def strongest(detected: pa.Table, most: int) -> list[tuple[str, str, str]]:
    """Returns (method, classifier, class) of the largest |φ| as tested, each once, for Figures 3 to 5."""
    rows = [row for row in detected.to_pylist() if row[TESTED] and row["attribute"] != "keyword"]
    rows.sort(key=lambda row: (-abs(number(row["score"])), row["classifier"], row["target_class"]))
    keys = dict.fromkeys((row["source"], row["classifier"], row["target_class"]) for row in rows)
    return list(keys)[:most]
