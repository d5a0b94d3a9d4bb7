"""Pages of a dataset of failures: an index of its facets, and the images of one value.

Knows counts, and records of images with their thumbnails; knows no files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from c2b_ray.report import words
from c2b_ray.report.page import STYLES, render
from c2b_ray.report.pictures import WRONG, Gallery, Picture
from c2b_ray.report.redact import clean, clean_setting

MOST_ROWS = 1_000
SHOWN_FIRST = 25
TITLES = {"label": "Labels", "caption": "Captions", "prediction": "Predictions", "reason": "Reasons"}


@dataclass(frozen=True)
class DatasetOverview:
    """The dataset. `facets`: by name, the count of each value, and the numbers of the values with pages."""

    location: str
    classifier: str | None
    config: Mapping[str, Any]
    manifest: Mapping[str, Any]
    rows: int
    facets: Mapping[str, tuple[Mapping[str, int], Mapping[str, int]]]


@dataclass(frozen=True)
class PageOf:
    """The position of a page: facet and value, `page` of the number of pages, and images `shown` of the number of
    images."""

    facet: str
    value: str
    number: int
    page: tuple[int, int]
    shown: tuple[int, int]


@dataclass(frozen=True)
class Value:
    name: str
    link: str
    count: str
    share: str


@dataclass(frozen=True)
class FacetView:
    title: str
    scale: str
    values: tuple[Value, ...]
    more: str
    shown_first: int


@dataclass(frozen=True)
class IndexView:
    title: str
    classifiers: str
    tally: str
    scale: str
    facets: tuple[FacetView, ...]
    drops: tuple[tuple[str, str], ...]
    gallery: Gallery


@dataclass(frozen=True)
class PageView:
    facet: str
    value: str
    tally: str
    back: str
    onward: str
    pages: str
    gallery: Gallery


def index_page(overview: DatasetOverview, examples: Sequence[Mapping[str, Any]]) -> str:
    return render("browse_index.html.j2", index_view(overview, examples), (*STYLES, "browse.css"))


def index_view(overview: DatasetOverview, examples: Sequence[Mapping[str, Any]]) -> IndexView:
    configured = overview.classifier or overview.config.get("classifier") or "a classifier"
    names = [configured] if isinstance(configured, str) else list(configured)
    draws = (overview.manifest.get("draws") or 0) if isinstance(overview.manifest.get("draws"), int) else 0
    drops: Mapping[str, int] = overview.manifest.get("drops") or {}
    without: Mapping[str, int] = overview.manifest.get("without_value") or {}
    return IndexView(
        title=clean(overview.location),
        classifiers=words.listed([clean_setting(str(name)) for name in names]),
        tally=f"{words.plural(overview.rows, 'image')} of {words.plural(len(overview.facets['label'][0]), 'label')}",
        scale=f"Kept of {words.plural(draws, 'draw')}." if draws else "",
        facets=tuple(
            _facet(name, counts, numbers, overview.rows) for name, (counts, numbers) in overview.facets.items()
        ),
        drops=(
            *((name.replace("_", " "), words.count(count)) for name, count in drops.items()),
            *((f"without {clean(name)} in the table", words.count(count)) for name, count in without.items()),
        ),
        gallery=_gallery(examples, "One image of each of the commonest labels and captions"),
    )


def value_page(page_of: PageOf, records: Sequence[Mapping[str, Any]], before: int) -> str:
    """Renders a page. `before`: the number of images on earlier pages."""
    page, pages = page_of.page
    images_shown, count = page_of.shown
    view = PageView(
        facet=page_of.facet,
        value=clean(page_of.value),
        tally=("" if images_shown == count else f"The first {words.count(images_shown)} of ")
        + words.plural(count, "image"),
        back=f"{page_of.number}-{page - 1}.html" if page > 1 else "",
        onward=f"{page_of.number}-{page + 1}.html" if page < pages else "",
        pages=f"Page {words.count(page)} of {words.count(pages)}" if pages > 1 else "",
        gallery=_gallery(records, f"Images {words.count(before + 1)} to {words.count(before + len(records))}"),
    )
    return render("browse_page.html.j2", view, (*STYLES, "browse.css"))


def _facet(name: str, counts: Mapping[str, int], numbers: Mapping[str, int], rows: int) -> FacetView:
    values = tuple(
        Value(clean(value), f"{name}/{numbers[value]}-1.html", words.count(count), words.percent(count / rows))
        for value, count in list(counts.items())[:MOST_ROWS]
        if value in numbers
    )
    values_left = len(counts) - len(values)
    images_left = sum(counts.values()) - sum(counts[value] for value in list(counts)[: len(values)])
    remainder = (
        f"And {words.plural(values_left, 'value')} more, with {words.plural(images_left, 'image')}."
        if values_left
        else ""
    )
    kinds = words.plural(len(counts), name)
    return FacetView(TITLES[name], f"{kinds}, commonest first", values, remainder, SHOWN_FIRST)


def _gallery(records: Sequence[Mapping[str, Any]], title: str) -> Gallery:
    return Gallery("wrong", WRONG, title, tuple(map(_picture, records)))


def _picture(record: Mapping[str, Any]) -> Picture:
    predicted = record["predicted"] or "several labels alike"
    return Picture(
        source=record["image"],
        key=clean(record["key"] or record["image_id"]),  # exports name the file of a generated image by its id
        alt=clean(f"{record['label']}; {record['kept_because']}; seed {record['seed']}"),
        label=f"{record['label']} → {predicted}",
        probability="",
        stands_for="",
        caption=clean(record["caption"]),
    )
