"""The page of an evaluation of a dataset: rates, transfer, consistency, distance, and failures beside the reference
images nearest to them, as Wiles et al. 2022 show them (Figs. 4, 7, 9 to 11)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from c2b_ray.report import words
from c2b_ray.report.blocks import (
    Article,
    Block,
    Cell,
    Galleries,
    Page,
    Pairs,
    Paragraph,
    Section,
    Table,
    Terms,
    grid,
    shade,
)
from c2b_ray.report.page import STYLES
from c2b_ray.report.pictures import WRONG, Gallery, Picture, thumbnail_or_nothing
from c2b_ray.report.redact import clean, clean_setting, names_of
from c2b_ray.report.words import Column

SIDE = 192


@dataclass(frozen=True)
class FailureWithNeighbours:
    """A failure's bytes, its neighbours (rows of `tables.dataset.NEIGHBOURS`), and the bytes of reference rows by
    number."""

    image: bytes
    neighbours: Sequence[Mapping[str, Any]]
    pictures: Mapping[int, bytes | None]


def _failure(failure: FailureWithNeighbours) -> Article:
    first = failure.neighbours[0]
    label, predicted = first["label"], first["predicted"] or "several labels alike"
    itself = Picture(
        source=thumbnail_or_nothing(failure.image, SIDE),
        key=clean(first["image_id"]),
        alt=f"{words.article(label).capitalize()}{label}, taken for {predicted}",
        label=f"taken for {predicted}",
        probability="",
        stands_for="",
        caption="",
    )
    galleries = [Gallery("wrong", WRONG, "The failure", (itself,))]
    for among, title in (("all", "Nearest of all"), ("same_label", f"Nearest that show {words.article(label)}{label}")):
        rows = sorted((row for row in failure.neighbours if row["among"] == among), key=lambda row: int(row["rank"]))
        if rows:
            galleries.append(Gallery("right", "", title, tuple(_neighbour(row, failure.pictures) for row in rows)))
    return Article(f"{label}, taken for {predicted}", [Galleries(galleries, "wide")], style="sides", level=3)


def _neighbour(row: Mapping[str, Any], pictures: Mapping[int, bytes | None]) -> Picture:
    data = pictures.get(row["row"])
    label = row["neighbour_label"] or "no label"
    return Picture(
        source="" if data is None else thumbnail_or_nothing(data, SIDE),
        key=clean(row["key"]),
        alt=f"{label}, cosine similarity {row['similarity']:.2f}",
        label=label,
        probability=f"{row['similarity']:.2f}",
        stands_for="",
        caption="",
    )


RULES = {"top1": "top-1", "top3": "top-3"}
HEADS = {"dataset": "This dataset", "reference": "Reference"}


def evaluation_page(results: Mapping[str, Any], failures: Sequence[FailureWithNeighbours]) -> str:
    """Returns the page as HTML. `results`: the content of results.json."""
    names = names_of([entry["name"] for entry in results["classifiers"]])
    images = f"{words.plural(results['images'], 'image')} of {words.plural(results['captions'], 'caption')}"
    head = [
        Paragraph(_headline(results, names), "tally"),
        Paragraph(f"{images}, {words.plural(len(names), 'classifier')}.", "scale"),
        *(Paragraph(notice, "notice") for notice in _notices(results, names)),
    ]
    image_kinds = dict.fromkeys(row["of"] for row in results["consistency"])
    transfer = [block for rule in RULES for block in _transfer(results, rule, names)]
    consistency = [
        block for kind in image_kinds for rule in RULES for block in _consistency(results, rule, kind, names)
    ]
    return Page(
        title=clean(results["dataset"]),
        suffix="a dataset of failures evaluated",
        kicker="A dataset of failures, evaluated",
        head=head,
        sections=(
            Section("Failure rates", [block for rule in RULES for block in _rates(results, rule, names)]),
            Section("Transfer", transfer),
            Section("Error consistency", consistency),
            *_distance(results["similarity"]),
            *_nearest(results["similarity"], failures),
            Section("How it was evaluated", [Terms(TERMS), _classifiers(results, names)]),
        ),
        styles=(*STYLES, "browse.css"),
    ).html()


TERMS = (
    "An answer fails by top-1 where the likeliest of all the classifier’s labels is not the image’s, by top-3 "
    "where the label is not among the three likeliest; a tie counts against the label. Images were kept because a "
    "classifier of the build fails on them: its own rate here is high by selection, and so is the transfer from "
    "it; rates between other classifiers are over the images that this selection left.",
    "Images of one caption share what makes them hard. Intervals are 95 % over captions: of a rate Wilson’s with "
    "the effective number of images (the linearised variance of a ratio over captions), of κ the jackknife’s. "
    "Every image of the reference counts for itself.",
    "κ = (observed − expected agreement) / (1 − expected agreement) of being right, Geirhos et al. 2020. "
    "Distances are torch-fidelity’s: covariances with n − 1, kernel distance with a cubic kernel over 100 subsets "
    "of 1,000 images; it may be below 0. Neighbours are by cosine similarity of the same features, exactly.",
)


def _distance(similarity: Mapping[str, Any] | None) -> list[Section]:
    if similarity is None:
        return []
    notes = [Paragraph(note, "beneath") for note in _similarity_notes(similarity)]
    return [Section("Distance to the reference", [Pairs(_similarity(similarity)), *notes])]


def _nearest(similarity: Mapping[str, Any] | None, failures: Sequence[FailureWithNeighbours]) -> list[Section]:
    if not failures:
        return []
    agreement = "" if similarity is None else _agreement(similarity["agreement"])
    lines = [Paragraph(agreement)] if agreement else []
    return [Section("Nearest reference images", [*lines, *map(_failure, failures)])]


def _classifiers(results: Mapping[str, Any], names: Mapping[str, str]) -> Table:
    columns = [Column("Name"), Column("Family"), Column("Spec", spec=True)]
    rows = [
        (names[classifier["name"]], classifier["family"], clean_setting(classifier["spec"]))
        for classifier in results["classifiers"]
    ]
    return Table(columns, rows, style="open models", caption="The classifiers")


def _headline(results: Mapping[str, Any], names: Mapping[str, str]) -> str:
    rows = [r for r in results["rates"] if r["of"] == "dataset" and r["rule"] == "top1" and r["rate"] is not None]
    if not rows:
        return "No classifier has an answer."
    least, most = min(rows, key=lambda row: row["rate"]), max(rows, key=lambda row: row["rate"])
    if len(rows) == 1:
        return f"{names[least['classifier']]} fails on {words.percent(least['rate'])} of the images."
    return (
        f"{names[most['classifier']]} fails on {words.percent(most['rate'])} of the images, "
        f"{names[least['classifier']]} on {words.percent(least['rate'])}."
    )


def _notices(results: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    sentences = []
    if results["captions"] == 1:
        sentences.append(
            "All images share one caption: intervals take images for independent, and say nothing of other captions."
        )
    if copies := results.get("copies_in_reference"):
        sentences.append(
            f"{words.plural(copies, 'image')} of the reference "
            f"{'is a copy' if copies == 1 else 'are copies'} of others: intervals there count pictures."
        )
    sentences += _of_selection(results, names)
    for name, count in results["right_now"].items():
        if count:
            sentences.append(
                f"{names[name]} is now right by top-1 on {words.plural(count, 'image')} that it failed in the build "
                f"(rule {results['rule']}): other weights, another rule, or floats of another machine."
            )
    of_dataset = [row for row in results["rates"] if row["of"] == "dataset"]
    unanswered = {names[row["classifier"]]: row["unanswered"] for row in of_dataset if row["unanswered"]}
    if unanswered:
        parts = [f"{words.plural(count, 'image')} by {name}" for name, count in unanswered.items()]
        sentences.append(f"Not answered, and left out: {words.listed(parts)}.")
    return sentences


def _of_selection(results: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    """Says that images are missing on which the classifiers of the build are right: κ is not what it is elsewhere."""
    if len(names) < 2 or not any(name in results["built"] for name in names):
        return []
    names_in_build = {**names_of(results["built"]), **names}
    build_classifiers = words.listed([names_in_build[name] for name in results["built"]])
    condition = (
        f"{build_classifiers} fails" if len(results["built"]) == 1 else f"at least one of {build_classifiers} fails"
    )
    hint = "" if results["similarity"] else ": --reference names some"
    return [
        f"Images are here because {condition}; others are missing. So error consistency here is lower than on images "
        f"that nobody selected, and may lie below 0 where errors agree{hint}."
    ]


def _rates(results: Mapping[str, Any], rule: str, names: Mapping[str, str]) -> list[Block]:
    image_kinds = [kind for kind in ("dataset", "reference") if any(row["of"] == kind for row in results["rates"])]
    lines = {}
    for name in names:
        rows = {r["of"]: r for r in results["rates"] if r["classifier"] == name and r["rule"] == rule}
        lines[names[name]] = [_rate(rows.get(kind)) for kind in image_kinds]
    return grid(f"Failure rates, {RULES[rule]}", "As Figs. 4 and 7", [HEADS[kind] for kind in image_kinds], lines)


def _transfer(results: Mapping[str, Any], rule: str, names: Mapping[str, str]) -> list[Block]:
    failures_of: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in results["rates"]:
        if row["of"].startswith("failures of ") and row["rule"] == rule:
            failures_of.setdefault(row["of"].removeprefix("failures of "), {})[row["classifier"]] = row
    failing_names = {**names_of(list(failures_of)), **names}
    lines = {}
    for failing, rows in failures_of.items():
        count = max(row["images"] for row in rows.values())
        lines[f"{failing_names[failing]} ({words.count(count)})"] = [_rate(rows.get(name)) for name in names]
    caption = "Of the failures of the classifier on the left, the share that each classifier above fails too"
    return grid(f"Transfer, {RULES[rule]}", caption, list(names.values()), lines) if lines else []


def _consistency(results: Mapping[str, Any], rule: str, images_counted: str, names: Mapping[str, str]) -> list[Block]:
    matching = [r for r in results["consistency"] if (r["rule"], r["of"]) == (rule, images_counted)]
    rows = {(r["classifier_a"], r["classifier_b"]): r for r in matching}
    lines = {
        names[first]: [
            _kappa(rows.get((first, second)) or rows.get((second, first)), first == second) for second in names
        ]
        for first in names
    }
    caption = (
        "Cohen’s κ of being right, ordered by family: 100 % the same errors, 0 as by chance, below 0 they avoid each "
        "other’s"
    )
    title = f"Error consistency, {RULES[rule]}, {HEADS[images_counted].lower()}"
    return grid(title, caption, list(names.values()), lines)


def _rate(row: Mapping[str, Any] | None) -> Cell:
    if row is None or row["rate"] is None:
        return Cell(words.UNKNOWN, shade="empty")
    interval = words.percent_range(row["rate_low"], row["rate_high"])
    return Cell(words.percent(row["rate"]), [interval], shade=shade(row["rate"], "against"))


def _kappa(row: Mapping[str, Any] | None, itself: bool) -> Cell:
    if row is None or row["kappa"] is None:
        return Cell(words.UNKNOWN, shade="empty")
    low, high = row["kappa_low"], row["kappa_high"]
    interval = "" if itself or low is None or math.isnan(low) else f"{_points(low)} to {_points(high)}"
    value = row["kappa"]
    colour = shade(abs(value), "for" if value >= 0 else "against")
    return Cell(f"{_points(value)}{words.THIN}%", [interval], shade=colour)


def _points(value: float) -> str:
    return f"{100 * value:.0f}".replace("-", words.MINUS)


def _similarity(similarity: Mapping[str, Any]) -> list[tuple[str, str]]:
    fid = words.UNKNOWN if similarity["fid"] is None else f"{similarity['fid']:.2f}"
    frechet, kernel = words.distances(similarity["is_inception"])
    return [
        (frechet, fid),
        (kernel, f"{similarity['kid']:.4f}".replace("-", words.MINUS)),
        ("Images here", words.count(similarity["images"])),
        ("Reference images", words.count(similarity["reference_images"])),
        ("Features", f"{clean_setting(similarity['features'])}, {words.count(similarity['dimension'])} dimensions"),
    ]


def _similarity_notes(similarity: Mapping[str, Any]) -> list[str]:
    notes = []
    if not similarity["is_inception"]:
        notes.append(
            "These are not the FID and KID of the literature, which are defined on Inception’s features "
            "(--encoder inception:PATH.safetensors): numbers of other features cannot be compared with them."
        )
    return [*notes, *map(clean, similarity["why"])]


def _agreement(shares: Mapping[str, Any]) -> str:
    if not shares["failures"] or shares["mostly_predicted"] is None:
        return ""
    return (
        f"Of {words.plural(int(shares['failures']), 'failure')}, {words.percent(shares['mostly_predicted'])} have "
        f"mostly neighbours of the label that they were taken for, {words.percent(shares['mostly_true'])} of their own."
    )
