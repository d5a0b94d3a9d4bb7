"""The lists of an evaluation's page: rankings, matches, proposers, and the content of drawn images. It computes
nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from c2b_ray.audits.evaluate.report import figures
from c2b_ray.audits.evaluate.report import figures as grids
from c2b_ray.audits.evaluate.report.figures import PAPER, TESTED, Grid, Row, number
from c2b_ray.config.classifiers import specs_by_name
from c2b_ray.report import words
from c2b_ray.report.page import STYLES, render
from c2b_ray.report.redact import clean, clean_setting
from c2b_ray.storage.files import write_bytes
from c2b_ray.storage.run import Run
from c2b_ray.text import finite

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
    top_rows = [row for row in rows if row["rank"] <= SHOWN_RANKS]
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
        for row in top_rows
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
    return [rows[int(i * step)] for i in range(SHOWN_MATCHES)]


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


# The report of a run of `c2b evaluate`, one self-contained HTML file, and its results as one JSON file beside it.


# The page of an evaluation: the counterparts of Classifier-to-Bias' Tables 1 to 4, Figures 3 to 6 and appendices.


FIGURES = 4


@dataclass(frozen=True)
class Figure:
    title: str
    svg: str


@dataclass(frozen=True)
class EvaluateView:
    title: str
    headline: str
    scale: str
    notices: tuple[str, ...]
    outcomes: tuple[Grid, ...]
    paper_outcomes: tuple[Grid, ...]
    differences: Grid | None
    agreement: tuple[Grid, ...]
    paper_agreement: tuple[Grid, ...]
    biases: tuple[Figure, ...]
    recall: Figure | None
    recall_grid: Grid | None
    thresholds: tuple[Grid, ...]
    lists: tuple[Listing, ...]
    settings: tuple[tuple[str, str], ...]


def evaluate_page(results: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> str:
    """Renders the page. `results`: the content of results.json; `tables`: the tables that it leaves out."""
    return render("evaluate.html.j2", evaluate_view(results, tables), (*STYLES, "browse.css"))


def evaluate_view(results: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> EvaluateView:
    table_rows = results["tables"]
    thresholds = {kind: value for kind, value in results["thresholds"].items() if value is not None}
    means = figures.recall_means(tables["recall"].to_pylist()) if "recall" in tables else {}
    return EvaluateView(
        title=clean(results["task"]),
        headline=_headline(table_rows["agreement"], next(iter(thresholds), "")),
        scale=_scale(results, tables),
        notices=(*map(clean, results["notes"]), *_notices(tables)),
        outcomes=tuple(grids.outcome_grids(table_rows["agreement"], TESTED, thresholds)),
        paper_outcomes=tuple(grids.outcome_grids(table_rows["agreement"], PAPER, thresholds)),
        differences=grids.difference_grid(table_rows["differences"]) if table_rows["differences"] else None,
        agreement=tuple(grids.agreement_grids(table_rows["vqa"], TESTED)),
        paper_agreement=tuple(grids.agreement_grids(table_rows["vqa"], PAPER)),
        biases=tuple(_biases(tables["detected"], results["tau"])),
        recall=Figure("recall@A·K, of what A·K images can hold", figures.recall_figure(means)) if means else None,
        recall_grid=_recall_grid(means) if means else None,
        thresholds=tuple(grids.threshold_grids(tables["thresholds"].to_pylist(), results["many"])),
        lists=tuple(_lists(table_rows, tables, thresholds)),
        settings=tuple(_settings(results)),
    )


def _headline(rows: Sequence[Row], kind: str) -> str:
    parts = [
        f"{clean(row['method'])} hits {words.percent(row['hit'])}"
        for row in rows
        if row["classifier"] == "" and row["rule"] == TESTED and row["threshold_kind"] == kind
        and row["direction"] == grids.TO_DETECTED and row["hit"] is not None
    ]  # fmt: skip
    if not parts:
        return "The ground truth has no biases, as tested."
    return f"Of the ground truth’s biases {words.listed(parts)}."


def _scale(results: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> str:
    numbers = [
        words.plural(len(results["classifiers"]), "classifier"),
        words.plural(len(results["classes"]), "class", "classes"),
        words.plural(tables["truth"].num_rows, "difference") + " in accuracy",
        words.plural(tables["detected"].num_rows, "proposed bias", "proposed biases"),
    ]
    return f"{words.listed(numbers)}."


def _notices(tables: Mapping[str, pa.Table]) -> list[str]:
    biased = {row["classifier"] for row in tables["truth"].to_pylist() if row[TESTED]}
    controls = sorted(set(tables["truth"]["classifier"].to_pylist()) - biased)
    if not controls:
        return []
    false_alarms = {
        (row["source"], row["classifier"], row["target_class"], row["attribute"], row["value"])
        for row in tables["detected"].to_pylist()
        if row["classifier"] in controls and row[TESTED]
    }
    return [
        f"The ground truth finds no bias in {words.listed([clean_setting(name) for name in controls])}; methods find "
        f"{words.count(len(false_alarms))} there."
    ]


def _biases(detected: pa.Table, tau: float) -> list[Figure]:
    return [
        Figure(
            f"{clean(key[0])}: {clean_setting(key[1])}, {clean(key[2])}",
            figures.bias_figure(detected, key, tau, f"bias-{i}"),
        )
        for i, key in enumerate(strongest(detected, FIGURES))
    ]


def _recall_grid(means: Mapping[str, Sequence[tuple[float, float, float]]]) -> Grid:
    shares = [share for share, _, _ in next(iter(means.values()))]
    lines = tuple(
        grids.Line(
            figures.KINDS[kind][0],
            tuple(grids.Cell(words.percent(reach), words.percent(recall)) for _, reach, recall in points),
        )
        for kind, points in means.items()
    )
    caption = "Of the A·K nearest images, how many are relevant; beneath, of all K relevant ones. Means over captions"
    return Grid("recall@A·K", caption, tuple(f"A = {share:g}" for share in shares), lines)


def _lists(
    table_rows: Mapping[str, Any], tables: Mapping[str, pa.Table], thresholds: Mapping[str, float]
) -> list[Listing]:
    listings = [
        ranking_list(table_rows["ranking"]),
        match_list(tables["matches"], thresholds),
        proposer_list(table_rows["proposers"]),
        shown_list(table_rows["shown"]),
    ]
    return [listing for listing in listings if listing.rows]


def _settings(results: Mapping[str, Any]) -> list[tuple[str, str]]:
    b2t, least = results["b2t"], results["thresholds"]
    return [
        ("τ", words.decimal(results["tau"])),
        ("False discovery rate", words.decimal(results["alpha"])),
        ("Several matches", results["many"]),
        ("Sentence encoder", clean_setting(results["sentence_encoder"])),
        *[(f"Least cosine, {kind}", words.UNKNOWN if v is None else f"{v:.3f}") for kind, v in least.items()],
        ("B2T", "not run" if b2t is None else f"{clean_setting(b2t['captioner'])}, {clean_setting(b2t['encoder'])}"),
        *([] if b2t is None else [("B2T’s τ, in points (cosine × 100)", words.decimal(b2t["tau"]))]),
        *[(clean_setting(name), clean_setting(spec)) for name, spec in results["classifiers"].items() if name != spec],
    ]  # fmt: skip


# The results of an evaluation as one JSON value: its settings and its short tables.


LONG = ("outcomes", "truth", "detected", "matches", "thresholds", "recall")
"""Tables that are not in the JSON, only in their Parquet files."""
SETTINGS = ("task", "tau", "alpha", "many", "sentence_encoder", "b2t")


def results_of(run: Run) -> dict[str, Any]:
    manifest, config = run.manifest, run.record.config
    document = {
        **{name: config[name] for name in SETTINGS},
        "classifiers": specs_by_name(config["classifier"]),
        "classes": manifest.get("classes") or [],
        "thresholds": manifest.get("thresholds") or {},
        "notes": manifest.get("notes") or [],
        "tables": {name: run.read(name).to_pylist() for name in run.kind.tables if name not in LONG},
    }
    result: dict[str, Any] = finite(document)
    return result


RESULTS = "results.json"


def write_report(run: Run) -> str:
    """Writes results.json and `report.html` of a run, each whole or not at all; the report's path. StorageError where
    the file system refuses."""
    results = results_of(run)
    write_bytes(run.location(RESULTS), json.dumps(results, indent=1, ensure_ascii=False).encode() + b"\n")
    page = evaluate_page(results, {name: run.read(name) for name in LONG if name != "recall" or run.has(name)})
    write_bytes(run.report, page.encode())
    return run.report
