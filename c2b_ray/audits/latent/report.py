"""The report of a run of `c2b latent`: its page, one self-contained file, and its terminal summary."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from c2b_ray.report import words
from c2b_ray.report.method import Method, mapping, method_of, times
from c2b_ray.report.page import MOST, STYLES, Answer, render
from c2b_ray.report.pictures import Gallery, Picture, thumbnails
from c2b_ray.report.redact import clean
from c2b_ray.report.words import Column, Span, Summary
from c2b_ray.storage.files import write_bytes
from c2b_ray.storage.run import Run
from c2b_ray.text import finite

METHODS = {
    "consistent": "consistent change (ours)",
    "total-variation": "total variation (Li & Xu)",
    "paper": "Li & Xu’s code, its settings",
    "signed-penalty": "total variation, Eq. 4 as printed",
    "no-penalty": "total variation, no penalty",
    "hessian-penalty": "total variation, Hessian penalty",
    "no-penalty+hessian": "total variation, Hessian penalty alone",
    "axes": "axes of the latent space",
    "hessian": "Hessian penalty’s directions",
    "random": "a random direction",
}


@dataclass(frozen=True)
class MethodRow:
    name: str
    problems: str
    cos_bias: str
    cos_target: str
    delta: str
    interval: str
    leading: str
    findings: str


def method_rows(rows: Sequence[Mapping[str, Any]]) -> tuple[MethodRow, ...]:
    """One row a method, of the first directions of problems with a known biased attribute; () where there is none."""
    first = [row for row in rows if row["rank"] == 0]
    with_truth = [row for row in first if row["delta_cos"] is not None]
    if not with_truth:
        return ()
    best: dict[str, float] = {}
    for row in with_truth:
        best[row["problem"]] = max(best.get(row["problem"], -2.0), row["delta_cos"])
    result = []
    for method in dict.fromkeys(row["method"] for row in first):
        of_method = [row for row in with_truth if row["method"] == method]
        searched = [row for row in first if row["method"] == method]
        findings = sum(row["verdict"] == "found" for row in searched)
        if of_method:
            result.append(_row(method, of_method, best, f"{words.count(findings)} of {words.count(len(searched))}"))
    return tuple(result)


def target_of(row: Mapping[str, Any]) -> str:
    """Returns the target, with the known attributes that directions avoid: searches of one target may differ in them
    alone."""
    avoided = ", ".join(row["known"] or ())
    return f"{row['target']} (known: {avoided})" if avoided else str(row["target"])


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and Student's 95 % limits, NaN limits for one value."""
    array = np.asarray(values, np.float64)
    if len(array) < 2:
        return float(array.mean()), float("nan"), float("nan")
    reach = stats.t.ppf(0.975, len(array) - 1) * array.std(ddof=1) / np.sqrt(len(array))
    return float(array.mean()), float(array.mean() - reach), float(array.mean() + reach)


def _row(method: str, rows: Sequence[Mapping[str, Any]], best: Mapping[str, float], findings: str) -> MethodRow:
    mean, low, high = mean_interval([row["delta_cos"] for row in rows])
    leads = sum(row["delta_cos"] >= best[row["problem"]] for row in rows)
    return MethodRow(
        METHODS.get(method, method),
        words.count(len(rows)),
        _mean_and_deviation([row["cos_bias"] for row in rows]),
        _mean_and_deviation([row["cos_target"] for row in rows]),
        words.signed(mean),
        words.signed_range(low, high),
        words.percent(leads / len(rows)),
        findings,
    )


def _mean_and_deviation(values: Sequence[float]) -> str:
    return f"{np.mean(values):.2f} ± {np.std(values):.2f}"


# The report of a run of `c2b latent`: directions, their strips and how they compare → one self-contained HTML file.


# Finds the labelled attributes near a direction, whether or not the problem names them.


WORTH_SAYING = 0.2
_MOST = 4


def nearest_attributes(row: Mapping[str, Any], planes: Sequence[Mapping[str, Any]]) -> str:
    """`scale +0.83, colour −0.41`: signed cosines of the direction to the attributes' normals, the largest first.

    "" where none is notable. A positive cosine: the direction goes towards the attribute's second value."""
    if row["direction"] is None:
        return ""
    direction = np.array(row["direction"])
    cosines = {}
    for plane in planes:
        if plane["generator"] == row["generator"] and plane["excluded"] is None and plane["normal"] is not None:
            normal = np.array(plane["normal"])
            cosines[plane["attribute"]] = float(direction @ normal / np.linalg.norm(normal) / np.linalg.norm(direction))
    by_distance = sorted(
        (name for name in cosines if abs(cosines[name]) >= WORTH_SAYING), key=lambda name: -abs(cosines[name])
    )
    return ", ".join(f"{name} {words.signed(cosines[name])}" for name in by_distance[:_MOST])


# The page of a run of `c2b latent` as a tree of text. Knows rows of its tables and thumbnails; knows no files.


MOST_SHOWN = 40
FOUND, NOTHING = "found", "nothing found"
_STYLES = {FOUND: ("against", "▲"), NOTHING: ("none", "○")}
COMMAND = "c2b latent latent.yaml --out RUN"
_COUNTS = {
    "excluded_problems": "Problems left out",
    "excluded_hyperplanes": "Hyperplanes left out",
    "found": "Directions found",
}
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Frame:
    """One image of a strip. `source`: "" where there is none."""

    source: str
    probability: str
    position: str
    is_start: bool


@dataclass(frozen=True)
class Direction:
    link: str
    title: str
    sentence: str
    verdict: str
    style: str
    sign: str
    numbers: tuple[tuple[str, str], ...]
    strips: tuple[tuple[Frame, ...], ...]


@dataclass(frozen=True)
class Plane:
    generator: str
    attribute: str
    accuracy: str
    interval: str
    trained_on: str
    excluded: str


@dataclass(frozen=True)
class View:
    title: str
    answers: tuple[Answer, ...]
    headline: str
    scale: str
    notices: tuple[str, ...]
    directions: tuple[Direction, ...]
    more: str
    named: bool
    methods: tuple[MethodRow, ...]
    planes: tuple[Plane, ...]
    left_out: tuple[tuple[str, str], ...]
    margin: str
    level: str
    method: Method


def shown_first(rows: Sequence[Row]) -> list[Row]:
    """Returns the found directions, largest effect first, then the others."""
    return sorted(rows, key=lambda row: (row["verdict"] != FOUND, -abs(_number(row["effect"], 0.0))))


def build_view(
    manifest: Mapping[str, Any],
    tables: tuple[Sequence[Row], Sequence[Row], Sequence[Row]],
    strips: Mapping[str, Sequence[Row]],
    thumbnails: Mapping[str, str],
) -> View:
    """`tables`: directions, problems and hyperplanes."""
    rows, problems, planes = tables
    config = mapping(manifest.get("config"))
    evidence = mapping(config.get("evidence"))
    ordered = shown_first(rows)
    left_out: list[tuple[str, str]] = [
        (clean(row["problem"]), clean(row["reason"] or "")) for row in problems if row["status"] == "excluded"
    ]
    return View(
        title=_title(problems),
        answers=answers(rows, strips, thumbnails),
        headline=_headline(rows),
        scale=_scale(rows, problems),
        notices=tuple(_notices(rows, problems)),
        directions=tuple(
            _direction(row, strips.get(row["direction_id"], ()), thumbnails, nearest_attributes(row, planes))
            for row in ordered[:MOST_SHOWN]
        ),
        more=f"And {words.count(len(ordered) - MOST_SHOWN)} more, in directions.parquet."
        if len(ordered) > MOST_SHOWN
        else "",
        named=config.get("captioner") is not None,
        methods=method_rows(rows),
        planes=tuple(_plane(row) for row in planes),
        left_out=tuple(left_out),
        margin=words.decimal(float(evidence.get("margin", math.nan))),
        level=words.decimal(float(evidence.get("level", math.nan))),
        method=method_of(manifest, tuple(_settings(manifest, config)), _COUNTS, COMMAND),
    )


def answers(
    rows: Sequence[Row], strips: Mapping[str, Sequence[Row]], thumbnails: Mapping[str, str]
) -> tuple[Answer, ...]:
    """Returns what moves the classifier’s answer, and by how much, the largest effect first; or that nothing does."""
    has_several = len({(row["classifier"], row["label"]) for row in rows}) > 1
    moving = [row for row in shown_first(rows) if row["verdict"] == FOUND]
    return tuple(_answer(row, strips, thumbnails, has_several) for row in moving[:MOST]) or (_no_answer(rows),)


def _answer(row: Row, strips: Mapping[str, Sequence[Row]], thumbnails: Mapping[str, str], has_several: bool) -> Answer:
    style, sign = verdict_of(row)
    prefix = f"{clean(row['classifier'])}: " if has_several else ""
    change = words.signed_range(row["effect_low"], row["effect_high"])
    return Answer(
        verdict=style,
        sign=sign,
        sentence=(
            Span(prefix),
            Span(clean(row["name"] or f"direction {row['rank'] + 1}"), strong=True),
            Span(" moves the probability of "),
            Span(f"“{clean(row['label'])}”", strong=True),
            Span(f" by {words.signed(row['effect'])}."),
        ),
        beneath=(
            f"95{words.THIN}% interval {change}, from one standard deviation below its mean to one above, the target "
            f"held fixed; what matters is more than {row['margin']:.3f}.",
        ),
        link=f"direction-{row['direction_id']}",
        galleries=_along(_strips(row["direction_id"], strips.get(row["direction_id"], ()), thumbnails)),
    )


def _along(strips: Sequence[Sequence[Frame]]) -> tuple[Gallery, ...]:
    """Returns four pictures of the walk along a direction, from one end to the other."""
    frames = [frame for frame in strips[0] if frame.source] if strips else []
    if len(frames) < 2:
        return ()
    chosen_frames = [frames[round(i * (len(frames) - 1) / 3)] for i in range(4)]
    pictures = tuple(
        Picture(frame.source, "", f"at {frame.position}: P {frame.probability}", f"P {frame.probability}", "", "", "")
        for frame in dict.fromkeys(chosen_frames)
    )
    return (Gallery("none", "", "The same image, moved along it", pictures),)


def _no_answer(rows: Sequence[Row]) -> Answer:
    if not rows:
        return Answer("undetermined", "?", (Span("Nothing was searched."),))
    undecided = [row for row in rows if row["verdict"] != NOTHING]
    rows_told = undecided or rows
    labels_told = list(dict.fromkeys(f"“{clean(row['label'])}”" for row in rows_told))
    remainder = [f"{words.count(len(labels_told) - MOST)} more"] if len(labels_told) > MOST else []
    labels = words.listed([*labels_told[:MOST], *remainder])
    line = (
        f"Whether anything moves the probability of {labels} is not decided."
        if undecided
        else f"Nothing was found that moves the probability of {labels} by more than {rows_told[0]['margin']:.3f}."
    )
    return Answer(
        "undetermined" if undecided else "none", "?" if undecided else "○", (Span(line),), (sentence_of(rows_told[0]),)
    )


def verdict_of(row: Row) -> tuple[str, str]:
    """Returns the style and the sign of a verdict."""
    return _STYLES.get(row["verdict"], ("undetermined", "?"))


def sentence_of(row: Row) -> str:
    """Returns a row as a sentence."""
    if row["effect"] is None or math.isnan(row["effect"]):
        return clean(f"{row['reason'] or 'Not decided'}.")
    change = words.signed_range(row["effect_low"], row["effect_high"])
    sentence = f"P({row['label']}) changes by {words.signed(row['effect'])} ({change}) along it"
    why = str(row["reason"]).partition("; ")[2]
    remark = f" {why[0].upper()}{why[1:]}." if row["verdict"] != FOUND and why else ""
    return clean(f"{sentence}; what matters is more than {row['margin']:.3f}.{remark}")


def _direction(row: Row, frames: Sequence[Row], thumbnails: Mapping[str, str], nearest: str) -> Direction:
    style, sign = verdict_of(row)
    name = row["name"] or (f"direction {row['rank'] + 1}" if row["direction"] is not None else "no direction")
    method = METHODS.get(row["method"], str(row["method"]))
    numbers: list[tuple[str, str]] = [("Method", method), ("Problem", clean(row["problem"]))]
    if row["known"]:
        numbers.append(("Known, and avoided", clean(", ".join(row["known"]))))
    if row["cos_bias"] is not None:
        cosines = f"{row['cos_bias']:.2f} to {clean(row['biased'] or 'the biased attribute')}"
        if row["cos_target"] is not None:
            cosines += f", {row['cos_target']:.2f} to the target, difference {words.signed(row['delta_cos'])}"
        numbers.append(("|cos|", cosines))
    elif row["cos_target"] is not None:
        numbers.append(("|cos| to the target", f"{row['cos_target']:.2f}"))
    if nearest:
        numbers.append(("Cosines to labelled attributes", clean(nearest)))
    if row["q_value"] is not None:
        numbers.append(("q-value", words.small_probability(row["q_value"])))
    if row["random_effect"] is not None:
        numbers.append(("95 % of random directions", f"change less than {row['random_effect']:.3f}"))
    if row["picked"]:
        numbers.append(("Picked", clean(str(row["picked"]))))
    return Direction(
        link=f"direction-{row['direction_id']}",
        title=clean(name),
        sentence=sentence_of(row),
        verdict=row["verdict"],
        style=style,
        sign=sign,
        numbers=tuple(numbers),
        strips=_strips(row["direction_id"], frames, thumbnails),
    )


def _strips(key: str, frames: Sequence[Row], thumbnails: Mapping[str, str]) -> tuple[tuple[Frame, ...], ...]:
    lines: dict[int, list[Frame]] = {}
    for number, frame in enumerate(frames):
        line = lines.setdefault(frame["latent"], [])
        is_start = abs(frame["position"]) < 1e-9
        position = "0" if is_start else f"{frame['position']:+.1f}".replace("-", words.MINUS)
        probability = f"{frame['probability']:.2f}"
        line.append(Frame(thumbnails.get(f"{key} {number}", ""), probability, position, is_start))
    return tuple(tuple(line) for line in lines.values())


def _plane(row: Row) -> Plane:
    low, high = _number(row["accuracy_low"], math.nan), _number(row["accuracy_high"], math.nan)
    return Plane(
        clean(row["generator"]),
        clean(row["attribute"]),
        words.percent(_number(row["accuracy"], math.nan)),
        words.percent_range(low, high),
        row["trained_on"] or words.UNKNOWN,
        clean(row["excluded"] or ""),
    )


def _title(problems: Sequence[Row]) -> str:
    if len(problems) == 1:
        return clean(f"{problems[0]['classifier']}: {problems[0]['label']}")
    classifiers = {row["classifier"] for row in problems}
    return f"{words.plural(len(classifiers), 'classifier')}, {words.plural(len(problems), 'problem')}"


def _headline(rows: Sequence[Row]) -> str:
    searched = {(row["problem"], row["method"]) for row in rows}
    successful = {(row["problem"], row["method"]) for row in rows if row["verdict"] == FOUND}
    if not searched:
        return "Nothing was searched."
    if len(searched) == 1:
        directions = [row for row in rows if row["verdict"] == FOUND]
        if directions:
            return f"{words.plural(len(directions), 'direction')} found that moves its answer."
        return "Nothing found." if rows[0]["verdict"] == NOTHING else "Not decided."
    return (
        f"Something was found in {words.count(len(successful))} of {words.plural(len(searched), 'search', 'searches')}."
    )


def _scale(rows: Sequence[Row], problems: Sequence[Row]) -> str:
    generators = len({row["generator"] for row in problems})
    methods = len({row["method"] for row in rows})
    images = sum(row["images_used"] or 0 for row in rows)
    return (
        f"{words.plural(len(problems), 'problem')} in the latent space of {words.plural(generators, 'generator')}, by "
        f"{words.plural(methods, 'method')}; {words.plural(images, 'image')} generated."
    )


def _notices(rows: Sequence[Row], problems: Sequence[Row]) -> list[str]:
    left_out = sum(row["status"] == "excluded" for row in problems)
    sentences = []
    if left_out:
        problem_count = words.plural(len(problems), "problem")
        sentences.append(
            f"{words.count(left_out)} of {problem_count} left out: no hyperplane separates their attributes."
        )
    if reserved := [row for row in problems if row["status"] != "excluded" and row["reason"]]:
        first = clean(f"{reserved[0]['problem']}: {reserved[0]['reason']}")
        sentences.append(f"{words.plural(len(reserved), 'problem')} searched with a reservation. {first}.")
    unanswered = [row for row in rows if row["direction"] is None]
    if unanswered:
        searches = words.plural(len(unanswered), "search", "searches")
        sentences.append(f"{searches} without an answer, the first because of {clean(str(unanswered[0]['reason']))}.")
    return sentences


def _settings(manifest: Mapping[str, Any], config: Mapping[str, Any]) -> list[tuple[str, str]]:
    search, evidence = mapping(config.get("search")), mapping(config.get("evidence"))
    settings = {
        "Iterations": search.get("iterations"),
        "Latents an iteration": search.get("batch"),
        "Positions of a walk": search.get("walk"),
        "Starts": search.get("starts"),
        "λ, orthogonality": search.get("penalty"),
        "Latents that decide": evidence.get("latents"),
        "Margin": evidence.get("margin"),
        "Level": evidence.get("level"),
        "Seed": config.get("seed"),
    }
    rows: list[tuple[str, str]] = [
        (name, words.decimal(float(value))) for name, value in settings.items() if isinstance(value, int | float)
    ]
    return [*rows, ("Run", clean(str(manifest.get("run_id")))), *times(manifest)]


def _number(value: float | None, absent: float) -> float:
    return absent if value is None or math.isnan(value) else value


def write_report(run: Run) -> str:
    """Writes `report.html` of a run, whole or not at all, and returns its path. StorageError where the file system
    refuses."""
    directions = run.read("directions").to_pylist()
    direction_ids = {row["direction_id"] for row in shown_first(directions)[:MOST_SHOWN]}
    strips: dict[str, list[dict[str, Any]]] = {}
    for part in run.each("strips", run.kind.tables["strips"].names):
        for row in part.to_pylist():
            if row["direction_id"] in direction_ids:
                strips.setdefault(row["direction_id"], []).append(row)
    pictures = {
        f"{key} {number}": row["image"]
        for key, rows in strips.items()
        for number, row in enumerate(rows)
        if row["image"]
    }
    tables = (directions, run.read("problems").to_pylist(), run.read("hyperplanes").to_pylist())
    view = build_view(run.manifest, tables, strips, thumbnails(pictures))
    write_bytes(run.report, render("latent.html.j2", view, (*STYLES, "latent.css")).encode())
    return run.report


# The terminal summary of a run of `c2b latent`. Knows the report's words; knows nothing of terminals.


MOST_ROWS, MOST_LEFT_OUT = 20, 5
COLUMNS = (
    *(Column(name) for name in ("classifier", "target", "method", "verdict", "name")),
    *(Column(name, number=True) for name in ("effect", "interval", "q", "|cos b|", "|cos t|")),
)


def summary(run: Run) -> Summary:
    rows = run.read("directions").to_pylist()
    shown_rows = shown_first(rows)[:MOST_ROWS]
    counts = run.record.counts
    lines = [
        f"{words.plural(counts.get('found', 0), 'direction')} found; {counts.get('excluded_problems', 0)} of "
        f"{words.plural(counts.get('problems', 0), 'problem')} and {counts.get('excluded_hyperplanes', 0)} of "
        f"{words.plural(counts.get('hyperplanes', 0), 'hyperplane')} left out."
    ]
    left_out = [row for row in run.read("problems").to_pylist() if row["status"] == "excluded"]
    lines += [f"Left out: {row['problem']}: {row['reason']}." for row in left_out[:MOST_LEFT_OUT]]
    if len(left_out) > MOST_LEFT_OUT:
        lines.append(f"And {words.count(len(left_out) - MOST_LEFT_OUT)} more left out, in problems.parquet.")
    lines += [
        f"{row.name}: Δcos {row.delta} ({row.interval}), leads {row.leading}, found {row.findings}"
        for row in method_rows(rows)
    ]
    found_rows = [row for row in shown_rows if row["verdict"] == "found"]
    return Summary(
        title=words.shown_of("Directions", len(shown_rows), len(rows)),
        columns=COLUMNS,
        rows=[_summary_row(row) for row in shown_rows],
        marks=["bad" if row["verdict"] == "found" else "" for row in shown_rows],
        lines=lines,
        report=run.report,
        headline=". ".join([*map(_strongest, found_rows[:1]), lines[0].rstrip(".")]),
        findings={
            name: sum(row["verdict"] == "found" for row in rows if row["classifier"] == name)
            for name in sorted({row["classifier"] for row in rows})
        },
        to_json={
            "run": run.path,
            "report": run.report,
            "counts": dict(counts),
            "directions": finite(rows),
            "left_out": {row["problem"]: row["reason"] for row in left_out},
        },
    )


def _strongest(row: Mapping[str, Any]) -> str:
    return f"{row['name'] or 'a direction without a name'} moves {target_of(row)} by {words.signed(row['effect'])}"


def _summary_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    unknown = row["effect"] is None
    return (
        row["classifier"],
        target_of(row),
        row["method"],
        row["verdict"],
        row["name"] or "",
        words.UNKNOWN if unknown else words.signed(row["effect"]),
        words.UNKNOWN if unknown else words.signed_range(row["effect_low"], row["effect_high"]),
        words.UNKNOWN if unknown else words.small_probability(row["q_value"]),
        words.UNKNOWN if row["cos_bias"] is None else f"{row['cos_bias']:.2f}",
        words.UNKNOWN if row["cos_target"] is None else f"{row['cos_target']:.2f}",
    )
