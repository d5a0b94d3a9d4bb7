"""The report of a run of `c2b latent`: its page, one self-contained file, and its terminal summary."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from c2b_ray.audits.latent.verdicts import FOUND, NOTHING
from c2b_ray.report import words
from c2b_ray.report.blocks import (
    Answers,
    Article,
    Cell,
    Frame,
    Page,
    Pairs,
    Paragraph,
    Section,
    Strips,
    Table,
    Terms,
    Verdict,
    made,
)
from c2b_ray.report.method import mapping, method_of, times
from c2b_ray.report.page import MOST, STYLES, Answer
from c2b_ray.report.pictures import Gallery, Picture, thumbnails
from c2b_ray.report.redact import clean
from c2b_ray.report.words import Column, Sentence, Span, Summary
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
MOST_SHOWN = 40
COMMAND = "c2b latent latent.yaml --out RUN"
_STYLES = {FOUND: ("against", "▲"), NOTHING: ("none", "○")}
_COUNTS = {
    "excluded_problems": "Problems left out",
    "excluded_hyperplanes": "Hyperplanes left out",
    "found": "Directions found",
}
Row = Mapping[str, Any]
MethodRow = tuple[str, str, str, str, str, str, str, str]


# Methods beside each other, where the biased attribute is known.


def method_rows(rows: Sequence[Row]) -> list[MethodRow]:
    """Returns (name, problems, |cos| bias, |cos| target, Δcos, its interval, leads, found) of each method, of the first
    directions of problems with a known biased attribute; none where there is none."""
    first = [row for row in rows if row["rank"] == 0]
    with_truth = [row for row in first if row["delta_cos"] is not None]
    if not with_truth:
        return []
    best: dict[str, float] = {}
    for row in with_truth:
        best[row["problem"]] = max(best.get(row["problem"], -2.0), row["delta_cos"])
    result = []
    for method in dict.fromkeys(row["method"] for row in first):
        of_method = [row for row in with_truth if row["method"] == method]
        searched = [row for row in first if row["method"] == method]
        findings = sum(row["verdict"] == FOUND for row in searched)
        if of_method:
            result.append(_row(method, of_method, best, f"{words.count(findings)} of {words.count(len(searched))}"))
    return result


def target_of(row: Row) -> str:
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


def _row(method: str, rows: Sequence[Row], best: Mapping[str, float], findings: str) -> MethodRow:
    mean, low, high = mean_interval([row["delta_cos"] for row in rows])
    leads = sum(row["delta_cos"] >= best[row["problem"]] for row in rows)
    return (
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


# The labelled attributes near a direction, whether or not the problem names them.


WORTH_SAYING = 0.2
_MOST = 4


NEARLY = 0.9
"""From this |cosine| on a direction is told as that of a labelled attribute."""


def nearest_attributes(row: Row, planes: Sequence[Row]) -> str:
    """`scale +0.83, colour −0.41`: signed cosines of the direction to the attributes' normals, the largest first.

    "" where none is notable. A positive cosine: the direction goes towards the attribute's second value."""
    return ", ".join(f"{name} {words.signed(cosine)}" for name, cosine in _cosines(row, planes)[:_MOST])


def _cosines(row: Row, planes: Sequence[Row]) -> list[tuple[str, float]]:
    """Returns the notable attributes with their signed cosines, the largest first."""
    if row["direction"] is None:
        return []
    direction = np.array(row["direction"])
    cosines = {}
    for plane in planes:
        if plane["generator"] == row["generator"] and plane["excluded"] is None and plane["normal"] is not None:
            normal = np.array(plane["normal"])
            cosines[plane["attribute"]] = float(direction @ normal / np.linalg.norm(normal) / np.linalg.norm(direction))
    notable = [(name, cosine) for name, cosine in cosines.items() if abs(cosine) >= WORTH_SAYING]
    return sorted(notable, key=lambda entry: -abs(entry[1]))


# The page.


def shown_first(rows: Sequence[Row]) -> list[Row]:
    """Returns the found directions, largest effect first, then the others."""
    return sorted(rows, key=lambda row: (row["verdict"] != FOUND, -abs(_number(row["effect"], 0.0))))


def page(
    manifest: Mapping[str, Any],
    tables: tuple[Sequence[Row], Sequence[Row], Sequence[Row]],
    strips: Mapping[str, Sequence[Row]],
    pictures: Mapping[str, str],
) -> Page:
    """Returns the page. `tables`: directions, problems and hyperplanes; `strips`: the frames of each direction's walks;
    `pictures`: a data: URI by direction and number of the frame."""
    rows, problems, planes = tables
    config = mapping(manifest.get("config"))
    evidence = mapping(config.get("evidence"))
    margin, level = (words.decimal(float(evidence.get(name, math.nan))) for name in ("margin", "level"))
    method = method_of(manifest, tuple(_settings(manifest, config)), _COUNTS, COMMAND)
    summary_lines = (Paragraph(_headline(rows), "tally"), Paragraph(_scale(rows, problems), "scale"))
    return Page(
        title=_title(problems),
        suffix="directions that move its answer",
        kicker="Which unknown direction of a latent space moves the classifier’s answer?",
        byline=_byline(manifest, config),
        head=(
            Answers(answers(rows, planes, strips, pictures)),
            *(Paragraph(notice, "notice") for notice in _notices(rows, problems)),
        ),
        sections=(
            _directions(rows, planes, strips, pictures, has_names=config.get("captioner") is not None),
            *_methods(rows),
            *_left_out(problems),
            *_hyperplanes(planes),
            made(method, "latent.yaml", *summary_lines, Terms(_terms(margin, level))),
        ),
        styles=(*STYLES, "latent.css"),
    )


def _directions(
    rows: Sequence[Row],
    planes: Sequence[Row],
    strips: Mapping[str, Sequence[Row]],
    pictures: Mapping[str, str],
    has_names: bool,
) -> Section:
    if not rows:
        return Section("Directions", [Paragraph("No direction was searched.")], "directions", "Directions")
    naming = (
        "Names are words that the captioner says of one end and not of the other; they stand in for the people whom "
        "the paper asked."
        if has_names
        else "No captioner was named, so directions have numbers: look at what changes."
    )
    intro = (
        "Each strip starts from the same latents as all others of its generator and moves along one direction alone; "
        f"below an image its P(label), and its place in standard deviations. {naming}"
    )
    ordered = shown_first(rows)
    articles = [
        _direction(row, strips.get(row["direction_id"], ()), pictures, nearest_attributes(row, planes))
        for row in ordered[:MOST_SHOWN]
    ]
    more = words.count(len(ordered) - MOST_SHOWN)
    left_out = [Paragraph(f"And {more} more, in directions.parquet.", "beneath")] if len(ordered) > MOST_SHOWN else []
    return Section("Directions", [Paragraph(intro, "intro"), *articles, *left_out], "directions", "Directions")


def _methods(rows: Sequence[Row]) -> list[Section]:
    numbers = method_rows(rows)
    if not numbers:
        return []
    text = (
        "Over problems whose biased attribute is known: cosines of each method’s first direction, mean ± standard "
        "deviation; Δcos with its 95\u00a0% interval over problems."
    )
    names = ("Problems", "|cos| bias", "|cos| target", "Δcos", "Leads", "Found")
    columns = [Column("Method"), *(Column(name, number=True) for name in names)]
    lines = [(*row[:4], Cell(row[4], [row[5]]), *row[6:]) for row in numbers]
    table = Table(columns, lines, "Methods", style="summary")
    return [Section("Methods", [Paragraph(text, "beneath"), table], "methods", "Methods")]


def _left_out(problems: Sequence[Row]) -> list[Section]:
    rows = [(clean(row["problem"]), clean(row["reason"] or "")) for row in problems if row["status"] == "excluded"]
    table = Table([Column("Problem"), Column("Reason")], rows, style="reasons")
    return [Section("Left out", [table], "left-out", "Left out")] if rows else []


def _hyperplanes(planes: Sequence[Row]) -> list[Section]:
    text = "Accuracy on held-out latents, both values weighing the same. Below 90\u00a0% an attribute is left out."
    columns = [
        Column("Generator"), Column("Attribute"), Column("Accuracy", number=True), Column("95 % interval", number=True),
        Column("From"), Column("Left out"),
    ]  # fmt: skip
    table = Table(columns, [_plane(row) for row in planes], "Hyperplanes", style="open")
    return [Section("Hyperplanes", [Paragraph(text, "beneath"), table], "planes", "Hyperplanes")] if planes else []


def _terms(margin: str, level: str) -> list[str]:
    """Returns how directions are searched and found."""
    return [
        "**Search.** A direction is the normal of a hyperplane of the latent space (Li & Xu 2021). Latents "
        "are projected onto it and walk along it; generator and classifier are differentiated, and the normal "
        "is what moves the answer most: by *total variation* the mean change from step to step (Eq.\u00a03), "
        "by *consistent change* the change that all walks share. The target’s hyperplane and those of known "
        "attributes are kept out of it: by a penalty, squared cosines to an orthonormal basis of them (the "
        "paper’s Eq.\u00a04 is signed and rewards anti-alignment), or exactly.",
        "**Found.** On latents that no search has seen, P(label) is regressed on the coordinate along the "
        "direction together with the target in the same images: its label or what reference classifiers say, "
        "instrumented by its coordinate, or the coordinate itself. Where enough latents are labelled the "
        "target is held fixed a second way, by a spline of what a fit of second order makes of it, since "
        "attributes bend in learned spaces; the weaker evidence of both counts. The effect is the change from "
        "one standard deviation below the mean to one above on the best straight line, the target held fixed, "
        "with HC3 errors; a latent that is moved so far gains more where P nears 0 or 1. A direction is found "
        f"where the effect exceeds {margin} at level {level}; the margin grows with the doubt about the "
        "target’s hyperplane where nothing else is known of the target. Over all directions that a method "
        "tested in the run the false discovery rate is held at that level (q-values; a later direction counts "
        "with the largest p-value before it). The search goes on, orthogonally to what it has, and ends at "
        "the first direction that is none: *nothing found*. That is said where an effect of twice the margin "
        "would be found in 80 % of such samples, or where the interval excludes one that matters; else it is "
        "*undetermined*. It speaks of what this generator varies apart from the target: labelled attributes "
        "that move with it are named, and of what nobody labelled and the generator never shows alone nothing "
        "is known. An effect has one sign: what makes the classifier less sure, whichever side an image "
        "shows, raises P(label) in some images and lowers it in others, cancels out, and is not found; `c2b "
        "audit` measures accuracy by attribute.",
        "**Why not random directions.** Answers depend on latents nearly linearly, so the best direction "
        "beats random ones whatever the classifier, and moving the target is no bias. What random directions "
        "do is shown, and decides nothing.",
        "**Cosines.** Where the biased attribute is known: |cos| of a direction to its hyperplane’s normal, "
        "to the target’s, and their difference Δcos.",
    ]


def answers(
    rows: Sequence[Row], planes: Sequence[Row], strips: Mapping[str, Sequence[Row]], pictures: Mapping[str, str]
) -> tuple[Answer, ...]:
    """Returns what moves the classifier’s answer, and by how much, the largest effect first; or that nothing does."""
    has_several = len({(row["classifier"], row["label"]) for row in rows}) > 1
    moving = [row for row in shown_first(rows) if row["verdict"] == FOUND]
    return tuple(
        _answer(
            row,
            _cosines(row, planes),
            _strips(row["direction_id"], strips.get(row["direction_id"], ()), pictures),
            has_several,
        )
        for row in moving[:MOST]
    ) or (_no_answer(rows),)


def _answer(
    row: Row, cosines: Sequence[tuple[str, float]], walks: Sequence[Sequence[Frame]], has_several: bool
) -> Answer:
    style, sign = verdict_of(row)
    prefix = f"{clean(row['classifier'])}: " if has_several else ""
    change = words.signed_range(row["effect_low"], row["effect_high"])
    attribute, cosine = cosines[0] if cosines else ("", 0.0)
    known = (Span(", nearly that of the labelled "), Span(clean(attribute), strong=True), Span(","))
    nearest = f"Its cosine to {clean(attribute)} is {words.signed(cosine)}, of the labelled attributes the nearest."
    return Answer(
        verdict=style,
        sign=sign,
        sentence=(
            Span(prefix),
            Span(clean(row["name"] or f"direction {row['rank'] + 1}"), strong=True),
            *(known if abs(cosine) >= NEARLY else ()),
            Span(" moves the probability of "),
            Span(f"“{clean(row['label'])}”", strong=True),
            Span(f" by {words.signed(row['effect'])}."),
        ),
        beneath=(
            f"95{words.THIN}% interval {change}, from one standard deviation below its mean to one above, the target "
            f"held fixed; what matters is more than {row['margin']:.3f}.",
            *([nearest] if attribute else []),
        ),
        link=f"direction-{row['direction_id']}",
        galleries=_along(walks),
    )


def _along(strips: Sequence[Sequence[Frame]]) -> tuple[Gallery, ...]:
    """Returns four pictures of the walk along a direction, from one end to the other."""
    frames = [frame for frame in strips[0] if frame.source] if strips else []
    if len(frames) < 2:
        return ()
    chosen_frames = [frames[round(i * (len(frames) - 1) / 3)] for i in range(4)]
    pictures = tuple(
        Picture(frame.source, "", frame.alt, f"P {frame.texts[0]}", "", "", "")
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


def _direction(row: Row, frames: Sequence[Row], pictures: Mapping[str, str], nearest: str) -> Article:
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
    walks = _strips(row["direction_id"], frames, pictures)
    return Article(
        title=clean(name),
        blocks=[Paragraph(sentence_of(row), "brief"), Pairs(numbers), *([Strips(walks)] if walks else [])],
        link=f"direction-{row['direction_id']}",
        style="direction",
        mark=Verdict(style, sign, row["verdict"]),
    )


def _strips(key: str, frames: Sequence[Row], pictures: Mapping[str, str]) -> tuple[tuple[Frame, ...], ...]:
    lines: dict[int, list[Frame]] = {}
    for number, frame in enumerate(frames):
        line = lines.setdefault(frame["latent"], [])
        is_start = abs(frame["position"]) < 1e-9
        position = "0" if is_start else f"{frame['position']:+.1f}".replace("-", words.MINUS)
        probability = f"{frame['probability']:.2f}"
        alt = f"at {position}: P {probability}"
        line.append(Frame(pictures.get(f"{key} {number}", ""), alt, (probability, position), is_start))
    return tuple(tuple(line) for line in lines.values())


def _plane(row: Row) -> tuple[str, ...]:
    low, high = _number(row["accuracy_low"], math.nan), _number(row["accuracy_high"], math.nan)
    return (
        clean(row["generator"]),
        clean(row["attribute"]),
        words.percent(_number(row["accuracy"], math.nan)),
        words.percent_range(low, high),
        row["trained_on"] or words.UNKNOWN,
        clean(row["excluded"] or ""),
    )


def _byline(manifest: Mapping[str, Any], config: Mapping[str, Any]) -> list[str | Sentence]:
    """Returns the classifiers, as the config has them, and the date."""
    classifier = config.get("classifier")
    names = [classifier] if isinstance(classifier, str) else list(mapping(classifier))
    date = words.moment(str(manifest.get("finished") or manifest.get("created") or ""))
    return [*((Span(clean(name), style="spec"),) for name in names), *([date] if date else [])]


def _title(problems: Sequence[Row]) -> str:
    if len(problems) == 1:
        return clean(f"What moves the answer “{problems[0]['label']}”")
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
    write_bytes(run.report, page(run.manifest, tables, strips, thumbnails(pictures)).html().encode())
    return run.report


# The terminal summary.


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
        f"{name}: Δcos {delta} ({interval}), leads {leading}, found {findings}"
        for name, _, _, _, delta, interval, leading, findings in method_rows(rows)
    ]
    found_rows = [row for row in shown_rows if row["verdict"] == FOUND]
    return Summary(
        title=words.shown_of("Directions", len(shown_rows), len(rows)),
        columns=COLUMNS,
        rows=[_summary_row(row) for row in shown_rows],
        marks=["bad" if row["verdict"] == FOUND else "" for row in shown_rows],
        lines=lines,
        report=run.report,
        headline=". ".join([*map(_strongest, found_rows[:1]), lines[0].rstrip(".")]),
        findings={
            name: sum(row["verdict"] == FOUND for row in rows if row["classifier"] == name)
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


def _strongest(row: Row) -> str:
    return f"{row['name'] or 'a direction without a name'} moves {target_of(row)} by {words.signed(row['effect'])}"


def _summary_row(row: Row) -> tuple[str, ...]:
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
