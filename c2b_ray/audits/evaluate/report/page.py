"""The page of an evaluation, and its results as one JSON value beside it: the counterparts of Classifier-to-Bias'
Tables 1 to 4, Figures 3 to 6 and appendices. It computes nothing but the means of Figure 6."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from c2b_ray.config.classifiers import specs_by_name
from c2b_ray.report import words
from c2b_ray.report.blocks import (
    Block,
    Cell,
    Columns,
    Details,
    Figure,
    Page,
    Pairs,
    Paragraph,
    Section,
    Table,
    Terms,
    grid,
    shade,
)
from c2b_ray.report.forest import BAND, RULE, Forest, ForestRow, forest_svg
from c2b_ray.report.page import STYLES
from c2b_ray.report.redact import clean, clean_setting, names_of
from c2b_ray.report.words import Column
from c2b_ray.storage.files import write_bytes
from c2b_ray.storage.run import Run
from c2b_ray.text import finite, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Row = Mapping[str, Any]
TESTED, PAPER = "tested", "paper"
TO_DETECTED, TO_TRUTH = "truth_to_detected", "detected_to_truth"
RULES = {TESTED: "tested", PAPER: "the paper’s rule, |φ| > τ alone"}
THRESHOLD_KINDS = {"set": "the threshold that was set", "calibrated": "the calibrated threshold"}
CASES = ("against", "none", "for")
_NAN = float("nan")


def number(value: float | None) -> float:
    return _NAN if value is None else value


def share(value: float | None, is_good: bool = True) -> Cell:
    size = number(value)
    if size != size:
        return Cell(words.UNKNOWN, shade="empty")
    return Cell(words.percent(size), shade=shade(size, "for" if is_good else "against"))


def signed(value: float | None, low: float | None = None, high: float | None = None) -> Cell:
    size = number(value)
    if size != size:
        return Cell(words.UNKNOWN, shade="empty")
    limits = words.signed_range(number(low), number(high))
    colour = shade(abs(size), "for" if size >= 0 else "against") if round(size, 2) else ""
    return Cell(words.signed(size), [] if limits == words.UNKNOWN else [limits], shade=colour)


def outcome_grids(rows: Sequence[Row], rule: str, tables: Mapping[str, float]) -> list[Block]:
    """Builds Tables 1 and 2, one for each threshold."""
    grids: list[Block] = []
    for kind, threshold in tables.items():
        selected = [r for r in rows if r["classifier"] == "" and r["rule"] == rule and r["threshold_kind"] == kind]
        lines = {}
        for method in dict.fromkeys(row["method"] for row in selected):
            rows_of = {row["direction"]: row for row in selected if row["method"] == method}
            lines[clean(method)] = [*_outcome(rows_of[TO_DETECTED]), *_outcome(rows_of[TO_TRUTH])]
        if lines:
            head = ("HIT", "FH", "MISS", "HIT − FH", "biases")
            title = f"{THRESHOLD_KINDS[kind].capitalize()}, cosine {threshold:.2f}; {RULES[rule]}"
            caption = (
                "The first five columns start from the ground truth’s biases, the last five from the detected ones"
            )
            grids += grid(title, caption, (*head, *head), lines)
    return grids


def _outcome(row: Row) -> tuple[Cell, ...]:
    limits = (row["hit_minus_false"], row["hit_minus_false_low"], row["hit_minus_false_high"])
    count = Cell(words.count(row["biases"]), shade="")
    return share(row["hit"]), share(row["false_hit"], False), share(row["miss"], False), signed(*limits), count


def difference_grid(rows: Sequence[Row]) -> list[Block]:
    if not rows:
        return []
    pairs = dict.fromkeys((row["method_a"], row["method_b"]) for row in rows)
    column_keys = dict.fromkeys((row["rule"], row["threshold_kind"], row["direction"]) for row in rows)
    short = {TO_DETECTED: "from the truth", TO_TRUTH: "from the detected"}
    lines = {}
    for a, b in pairs:
        row_of_column = {
            (r["rule"], r["threshold_kind"], r["direction"]): r
            for r in rows
            if (r["method_a"], r["method_b"]) == (a, b)
        }
        cells = [
            signed(
                row_of_column[w]["difference"], row_of_column[w]["difference_low"], row_of_column[w]["difference_high"]
            )
            for w in column_keys
        ]
        lines[f"{clean(a)} − {clean(b)}"] = cells
    columns = [f"{rule}, {kind}, {short[direction]}" for rule, kind, direction in column_keys]
    return grid("Differences in HIT − FH", "With intervals over classifiers and classes", columns, lines)


def agreement_grids(rows: Sequence[Row], rule: str, names: Mapping[str, str]) -> list[Block]:
    """Builds Tables 3 and 4, and the 3 × 3 table of each method. `names`: what each classifier is called."""
    selected = [row for row in rows if row["rule"] == rule]
    classifiers = list(dict.fromkeys(row["classifier"] for row in selected))
    methods = list(dict.fromkeys(row["method"] for row in selected))
    row_of_cell = {(row["method"], row["classifier"]): row for row in selected}
    lines = {
        names[classifier] if classifier else "all": [
            _agreement(row_of_cell.get((method, classifier))) for method in methods
        ]
        for classifier in classifiers
    }
    caption = "+1 the same case, −1 opposite directions, 0 else; beneath, of those that either side calls biased"
    title = f"Agreement with pseudo-labels, {RULES[rule]}"
    grids = grid(title, caption, [clean(method) for method in methods], lines) if methods else []
    for method in methods:
        row = row_of_cell[method, ""]
        lines = {f"detected {a}": [Cell(words.count(row[f"{a}_{b}"]), shade=_case(a, b)) for b in CASES] for a in CASES}
        columns = [f"pseudo-labels {b}" for b in CASES]
        grids += grid(f"{clean(method)}, {RULES[rule]}", "How often which case met which", columns, lines)
    return grids


def _agreement(row: Row | None) -> Cell:
    if row is None:
        return Cell(words.UNKNOWN, shade="")
    of_biased = f"{words.signed(number(row['agreement_of_biased']))} of the biased"
    return Cell(signed(row["agreement"]).text, [of_biased], shade="")


def _case(a: str, b: str) -> str:
    if a == b:
        return "for d2"
    return "against d3" if "none" not in (a, b) else ""


def threshold_grids(rows: Sequence[Row], many: str) -> list[Block]:
    """Builds App. C: HIT − FH from the ground truth, as tested."""
    grids: list[Block] = []
    for method in dict.fromkeys(row["method"] for row in rows):
        selected = [
            row
            for row in rows
            if (row["method"], row["rule"], row["direction"], row["many"]) == (method, TESTED, TO_DETECTED, many)
        ]
        taus = sorted({row["tau"] for row in selected})
        row_of_cell = {(row["threshold"], row["tau"]): row for row in selected}
        gains = {key: number(row["hit"]) - number(row["false_hit"]) for key, row in row_of_cell.items()}
        lines = {
            words.decimal(threshold): [signed(gains[threshold, tau]) for tau in taus]
            for threshold in sorted({row["threshold"] for row in selected})
        }
        caption = "HIT − FH of the ground truth’s biases; a line for each least cosine, a column for each τ"
        grids += grid(clean(method), caption, [f"τ = {words.decimal(tau)}" for tau in taus], lines)
    return grids


VERDICTS = {1: "for", -1: "against", 0: "undetermined"}
ENDS = ("← worse", "better →")
MOST_ROWS = 12
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 400, 220, 40, 34, 10
KINDS = {"class": ("classes", "for"), "value": ("values", "against"), "both": ("both", "undetermined")}


def bias_figure(detected: pa.Table, key: tuple[str, str, str], tau: float, salt: str) -> str:
    """φ of every value of the attributes that a method detects a bias of, for one classifier and class."""
    rows = [
        row
        for row in detected.to_pylist()
        if (row["source"], row["classifier"], row["target_class"]) == key and row["score"] is not None
    ]
    biased = {row["attribute"] for row in rows if row[TESTED]}
    biased_rows = sorted((row for row in rows if row["attribute"] in biased), key=lambda row: row["score"])
    if len(biased_rows) > MOST_ROWS:
        half = MOST_ROWS // 2
        biased_rows = [*biased_rows[:half], *biased_rows[-half:]]
    forest_rows = [
        ForestRow(f"{row['attribute']}: {row['value']}", number(row["score"]), _NAN, _NAN, VERDICTS[row[TESTED]])
        for row in biased_rows
    ]
    description = "; ".join(f"{row.label} {words.signed(row.value)}" for row in forest_rows)
    forest = Forest(forest_rows, f"φ for {key[2]}, band ±{words.decimal(tau)}: {description}.", ENDS)
    return forest_svg(forest, lambda axes: _dress(axes, forest_rows, tau), salt)


def _dress(axes: Axes, rows: Sequence[ForestRow], tau: float) -> None:
    reach = 1.1 * max([abs(row.value) for row in rows] + [2 * tau, 0.02])
    axes.set_xlim(-reach, reach)
    axes.axvspan(-tau, tau, color=BAND, linewidth=0, clip_on=False)
    axes.axvline(0, color=RULE, linewidth=1, clip_on=False)


def recall_means(rows: Sequence[Row]) -> dict[str, list[tuple[float, float, float]]]:
    """Returns by kind (A, mean recall relative to A·K images, mean recall relative to all K), over its captions."""
    sums: dict[tuple[str, float], list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        if row["relevant"] and row["reachable"] is not None:
            sums[row["kind"], row["share"]].append((row["reachable"], row["recall"]))
    result: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for (kind, share), pairs in sorted(sums.items()):
        result[kind].append((share, sum(p[0] for p in pairs) / len(pairs), sum(p[1] for p in pairs) / len(pairs)))
    return dict(result)


def recall_figure(means: Mapping[str, Sequence[tuple[float, float, float]]]) -> str:
    """Draws Figure 6: recall@A·K, relative to what A·K images can hold, over A."""
    inner, height = WIDTH - LEFT - 14, HEIGHT - TOP - BOTTOM
    parts = []
    for step in range(5):
        y = TOP + height * (1 - step / 4)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 14}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--rule)"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{25 * step}{words.THIN}%</text>')
    for share in (0.01, 0.25, 0.5, 0.75, 1.0):
        x = LEFT + inner * share
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 16}" text-anchor="middle">{share:g}</text>')
    for position, (kind, points) in enumerate(means.items()):
        name, colour = KINDS[kind]
        line = " ".join(f"{LEFT + inner * a:.1f},{TOP + height * (1 - r):.1f}" for a, r, _ in points)
        paint = f"var(--mark-{colour})"
        if len(points) == 1:  # a line of one point cannot be seen
            a, r, _ = points[0]
            parts.append(
                f'<circle cx="{LEFT + inner * a:.1f}" cy="{TOP + height * (1 - r):.1f}" r="4" fill="none" '
                f'stroke="{paint}" stroke-width="2"/>'
            )
        parts.append(f'<polyline points="{line}" fill="none" stroke="{paint}" stroke-width="2"/>')
        parts.append(f'<text x="{LEFT + 8 + 90 * position}" y="{HEIGHT - 2}" fill="{paint}">{escape(name)}</text>')
    curves = (
        f"{KINDS[kind][0]}: " + ", ".join(f"{a:g} → {r:.2f}" for a, r, _ in points) for kind, points in means.items()
    )
    description = escape(visible("recall over A: " + "; ".join(curves)))
    opening = (
        f'<svg class="forest" role="img" aria-label="{description}" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-size="11" fill="var(--muted)" xmlns="http://www.w3.org/2000/svg">'
    )
    return opening + "".join(parts) + "</svg>"


SHOWN_MATCHES, SHOWN_RANKS = 40, 8
SIGNS = {1: "better", -1: "worse", 0: "none"}
WHAT = {"class": "the class", "value": "the value", "both": "both"}


def _listing(title: str, caption: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> list[Section]:
    """Returns a table of texts as a section, where there are rows."""
    table = Table([Column(name) for name in columns], rows, title, style="open models")
    return [Section(title, [Paragraph(f"{caption}.", "beneath"), table])] if rows else []


def ranking_list(rows: Sequence[Row], names: Mapping[str, str]) -> list[Section]:
    """Lists the strongest attributes of each method and classifier (section 3.5)."""
    top_rows = [row for row in rows if row["rank"] <= SHOWN_RANKS]
    lines = tuple(
        (
            clean(row["method"]),
            names[row["classifier"]],
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
    return _listing("Attributes, aggregated over classes", "The strongest first", columns, lines)


def _limits(low: float | None, high: float | None) -> str:
    return words.UNKNOWN if low is None or high is None else f"{low:.3f}–{high:.3f}"


def match_list(matches: pa.Table, thresholds: Mapping[str, float], names: Mapping[str, str]) -> list[Section]:
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
                f"{names[row['classifier']]}, {clean(row['target_class'])}",
                f"{clean(row['truth_wording'])} ({SIGNS[row['truth_tested']]})",
                f"{clean(row['detected_wording'])} ({SIGNS[row['detected_tested']]})",
                f"{row['similarity']:.2f}",
                ", ".join(kinds) or "none",
            )
        )
    columns = ("Method", "Classifier, class", "Ground truth", "Nearest detected", "Cosine", "Matches at")
    return _listing("Matches", "In words, with the direction that either side says", columns, tuple(lines))


def _spread(rows: Sequence[Row]) -> list[Row]:
    """Returns a fixed number of rows, spread from the nearest to the farthest."""
    if len(rows) <= SHOWN_MATCHES:
        return list(rows)
    step = len(rows) / SHOWN_MATCHES
    return [rows[int(i * step)] for i in range(SHOWN_MATCHES)]


def shown_list(rows: Sequence[Row]) -> list[Section]:
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
    return _listing("What the drawn images show", "As the model that answers questions sees it", columns, lines)


def proposer_list(rows: Sequence[Row]) -> list[Section]:
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
    return _listing("What was proposed", "One row a method; compare methods that differ in the model", columns, lines)


def strongest(detected: pa.Table, most: int) -> list[tuple[str, str, str]]:
    """Returns (method, classifier, class) of the largest |φ| as tested, each once, for Figures 3 to 5."""
    rows = [row for row in detected.to_pylist() if row[TESTED] and row["attribute"] != "keyword"]
    rows.sort(key=lambda row: (-abs(number(row["score"])), row["classifier"], row["target_class"]))
    keys = dict.fromkeys((row["source"], row["classifier"], row["target_class"]) for row in rows)
    return list(keys)[:most]


FIGURES = 4


TERMS = (
    "A bias of the ground truth is a difference in a classifier’s accuracy on a class between images with a value "
    "and those without it. By the paper’s rule it counts where it exceeds τ; as tested, where besides the "
    "hypothesis that it does not is rejected, at the false discovery rate over all. Detected biases count by the "
    "same two rules.",
    "Names match where the cosine of their sentence embeddings reaches a threshold: the one that was set, and one "
    "that hardly any two names of the ground truth reach, which mean different things. A name that denies, such "
    "as “no beard”, is taken for what it denies, with its direction turned. A bias is a hit where what it matches "
    "has the same direction, a false hit where it has the other one, else a miss. Intervals are of a bootstrap "
    "over pairs of classifier and class.",
    "B2T sees which images were answered wrong: keywords of their captions, scored by how much more similar wrong "
    "images are to them than right ones. A positive score is a bias against. Its τ is in points, cosine × 100. "
    "Pseudo-labels are answers of a model; +1 is also paid where both sides find nothing, which is why the 3 × 3 "
    "table stands beside it.",
)


def evaluate_page(results: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> str:
    """Returns the page as HTML. `results`: the content of results.json; `tables`: the tables that it leaves out."""
    rows, names = results["tables"], names_of(list(results["classifiers"]))
    thresholds = {kind: value for kind, value in results["thresholds"].items() if value is not None}
    outcomes = [*outcome_grids(rows["agreement"], TESTED, thresholds), *difference_grid(rows["differences"])]
    agreement = agreement_grids(rows["vqa"], TESTED, names)
    others = threshold_grids(tables["thresholds"].to_pylist(), results["many"])
    return Page(
        title=clean(results["task"]),
        suffix="detected biases evaluated",
        kicker="Detected biases, held against ground truth",
        head=(
            Paragraph(_headline(rows["agreement"], next(iter(thresholds), "")), "tally"),
            Paragraph(_scale(results, tables), "scale"),
            *(Paragraph(notice, "notice") for notice in (*map(clean, results["notes"]), *_notices(tables, names))),
        ),
        sections=(
            Section(
                "Ground truth and detected (Tables 1 and 2)",
                [*outcomes, Details("By the paper’s rule", outcome_grids(rows["agreement"], PAPER, thresholds))],
            ),
            *(
                [
                    Section(
                        "Agreement with pseudo-labels (Tables 3 and 4)",
                        [*agreement, Details("By the paper’s rule", agreement_grids(rows["vqa"], PAPER, names))],
                    )
                ]
                if agreement
                else []
            ),
            *_biases(tables["detected"], results["tau"], names),
            *_retrieval(tables["recall"].to_pylist() if "recall" in tables else []),
            *ranking_list(rows["ranking"], names),
            *match_list(tables["matches"], thresholds, names),
            *proposer_list(rows["proposers"]),
            *shown_list(rows["shown"]),
            Section("Other thresholds (Appendix C)", others),
            Section("How it was evaluated", [Terms(TERMS), Pairs(_settings(results, names))]),
        ),
        styles=(*STYLES, "browse.css"),
    ).html()


def _headline(rows: Sequence[Row], kind: str) -> str:
    parts = [
        f"{clean(row['method'])} hits {words.percent(row['hit'])}"
        for row in rows
        if row["classifier"] == "" and row["rule"] == TESTED and row["threshold_kind"] == kind
        and row["direction"] == TO_DETECTED and row["hit"] is not None
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


def _notices(tables: Mapping[str, pa.Table], names: Mapping[str, str]) -> list[str]:
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
        f"The ground truth finds no bias in {words.listed([names[name] for name in controls])}; methods find "
        f"{words.count(len(false_alarms))} there."
    ]


def _biases(detected: pa.Table, tau: float, names: Mapping[str, str]) -> list[Section]:
    figures = [
        Figure(bias_figure(detected, key, tau, f"bias-{i}"), f"{clean(key[0])}: {names[key[1]]}, {clean(key[2])}")
        for i, key in enumerate(strongest(detected, FIGURES))
    ]
    return [Section("Biases of a class (Figures 3 to 5)", [Columns(figures, "galleries wide")])] if figures else []


def _retrieval(rows: Sequence[Row]) -> list[Section]:
    means = recall_means(rows)
    if not means:
        return []
    lines = {
        KINDS[kind][0]: [Cell(words.percent(reach), [words.percent(recall)], shade="") for _, reach, recall in points]
        for kind, points in means.items()
    }
    caption = "Of the A·K nearest images, how many are relevant; beneath, of all K relevant ones. Means over captions"
    columns = [f"A = {share:g}" for share, _, _ in next(iter(means.values()))]
    figure = Figure(recall_figure(means), "recall@A·K, of what A·K images can hold")
    return [Section("Retrieval (Figure 6)", [figure, *grid("recall@A·K", caption, columns, lines)])]


def _settings(results: Mapping[str, Any], names: Mapping[str, str]) -> list[tuple[str, str]]:
    b2t, least = results["b2t"], results["thresholds"]
    return [
        ("τ", words.decimal(results["tau"])),
        ("False discovery rate", words.decimal(results["alpha"])),
        ("Several matches", results["many"]),
        ("Sentence encoder", clean_setting(results["sentence_encoder"])),
        *[(f"Least cosine, {kind}", words.UNKNOWN if v is None else f"{v:.3f}") for kind, v in least.items()],
        ("B2T", "not run" if b2t is None else f"{clean_setting(b2t['captioner'])}, {clean_setting(b2t['encoder'])}"),
        *([] if b2t is None else [("B2T’s τ, in points (cosine × 100)", words.decimal(b2t["tau"]))]),
        *[(names[name], clean_setting(spec)) for name, spec in results["classifiers"].items() if name != spec],
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
