"""Shows a dataset of failures as static pages, for `c2b dataset show`.

    OUT/index.html          counts of every label, caption, prediction and reason, and a link for each
    OUT/label/0-1.html …    the images of the most frequent label, page by page; likewise for each facet and value

It makes two passes over the shards: one counts, one makes thumbnails, which wait on the local disk for their pages. So
memory does not grow with rows, and the number of files is bounded: for a facet with more than `most` images each value
shows its first ones, and their total number. The pages make no network requests.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from c2b_ray.audits.kit.progress import Listener
from c2b_ray.audits.kit.session import Steps
from c2b_ray.errors import ConfigError
from c2b_ray.report import words
from c2b_ray.report.blocks import Cell, Galleries, Links, Page, Pairs, Paragraph, Section, Table, spec
from c2b_ray.report.formats.folder import Folder, destination
from c2b_ray.report.page import STYLES
from c2b_ray.report.pictures import WRONG, Gallery, Picture, thumbnail_or_nothing
from c2b_ray.report.redact import clean, clean_setting
from c2b_ray.report.words import Column, Span
from c2b_ray.storage.failure_dataset import FailureDataset, open_dataset, without_rows

# Pages of a dataset of failures: an index of its facets, and the images of one value.


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


def index_page(overview: DatasetOverview, examples: Sequence[Mapping[str, Any]]) -> str:
    """Renders the index. `examples`: records of rows, with a data: URI as `image`."""
    configured = overview.classifier or overview.config.get("classifier") or "a classifier"
    names = [configured] if isinstance(configured, str) else list(configured)
    draws = overview.manifest.get("draws")
    kept = f"Kept of {words.plural(draws, 'draw')}." if isinstance(draws, int) and draws else ""
    labels = words.plural(len(overview.facets["label"][0]), "label")
    gallery = _gallery(examples, "One image of each of the commonest labels and captions")
    return Page(
        title=clean(overview.location),
        suffix="a dataset of failures",
        kicker=(
            Span("A dataset of failures of "),
            spec(words.listed([clean_setting(str(name)) for name in names])),
        ),
        head=(
            Paragraph(f"{words.plural(overview.rows, 'image')} of {labels}", "tally"),
            *([Paragraph(kept, "scale")] if kept else []),
        ),
        sections=(
            Section("Examples", [gallery]),
            *(_facet(name, counts, numbers, overview.rows) for name, (counts, numbers) in overview.facets.items()),
            *_left_out(overview.manifest),
        ),
        styles=(*STYLES, "browse.css"),
    ).html()


def _left_out(manifest: Mapping[str, Any]) -> list[Section]:
    drops: Mapping[str, int] = manifest.get("drops") or {}
    without: Mapping[str, int] = manifest.get("without_value") or {}
    pairs = [
        *((name.replace("_", " "), words.count(count)) for name, count in drops.items()),
        *((f"without {clean(name)} in the table", words.count(count)) for name, count in without.items()),
    ]
    return [Section("What the build left out", [Pairs(pairs)])] if pairs else []


def value_page(page_of: PageOf, records: Sequence[Mapping[str, Any]], before: int) -> str:
    """Renders a page. `before`: the number of images on earlier pages."""
    page, pages = page_of.page
    images_shown, count = page_of.shown
    first = "" if images_shown == count else f"The first {words.count(images_shown)} of "
    earlier = [Span("← Earlier", link=f"{page_of.number}-{page - 1}.html")] if page > 1 else []
    later = [Span("Later →", link=f"{page_of.number}-{page + 1}.html")] if page < pages else []
    here = Span(f"Page {words.count(page)} of {words.count(pages)}")
    return Page(
        title=clean(page_of.value),
        suffix=page_of.facet,
        kicker=(Span("All failures", link="../index.html"), Span(f" · {page_of.facet}")),
        head=(
            Paragraph(f"{first}{words.plural(count, 'image')}", "tally"),
            *([Links("Pages", [*earlier, here, *later])] if pages > 1 else []),
        ),
        sections=(
            _gallery(records, f"Images {words.count(before + 1)} to {words.count(before + len(records))}", level=2),
            *([Links("Next page", later)] if later else []),
        ),
        styles=(*STYLES, "browse.css"),
    ).html()


def _facet(name: str, counts: Mapping[str, int], numbers: Mapping[str, int], rows: int) -> Section:
    shown = [value for value in list(counts)[:MOST_ROWS] if value in numbers]
    lines = [
        (
            Cell(clean(value), link=f"{name}/{numbers[value]}-1.html"),
            words.count(counts[value]),
            words.percent(counts[value] / rows),
        )
        for value in shown
    ]
    values_left = len(counts) - len(shown)
    images_left = sum(counts.values()) - sum(counts[value] for value in shown)
    table = Table(
        [Column(TITLES[name]), Column("Images", number=True), Column("Share", number=True)],
        lines,
        caption=f"{words.plural(len(counts), name)}, commonest first",
        sortable=True,
        filtered=TITLES[name],
        most=SHOWN_FIRST,
        more=f"And {words.plural(values_left, 'value')} more, with {words.plural(images_left, 'image')}."
        if values_left
        else "",
    )
    return Section(TITLES[name], [table])


def _gallery(records: Sequence[Mapping[str, Any]], title: str, level: int = 3) -> Galleries:
    return Galleries([Gallery("wrong", WRONG, title, tuple(map(_picture, records)))], style="wide", level=level)


def _picture(record: Mapping[str, Any]) -> Picture:
    predicted = _value(record["predicted"])
    return Picture(
        source=record["image"],
        key=clean(record["key"] or record["image_id"]),  # exports name the file of a generated image by its id
        alt=clean(f"{record['label']}; {record['kept_because']}; seed {record['seed']}"),
        label=clean(f"{record['label']} → {predicted}"),
        probability="",
        stands_for="",
        caption=clean(record["caption"]),
    )


FACETS = {"label": "label", "caption": "caption", "predicted": "prediction", "kept_because": "reason"}
"""Column → the folder of its pages."""
MOST_IMAGES, MOST_VALUES = 30_000, 1_000  # that a facet has pages for
ON_A_PAGE = 60
SIDE = 128  # pixels of a thumbnail
HELD_BYTES = 32 * 2**20
UNDECIDED = "several labels alike"
_COLUMNS = ["image_id", "image", "label", "caption", "predicted", "kept_because", "seed", "key"]


@dataclass(frozen=True)
class Pages:
    """What was written: `images` with a page, of `rows`."""

    out: str
    rows: int
    images: int
    files: int


@dataclass(frozen=True)
class Facet:
    """`counts`: of all values, most frequent first. `numbers`: of those with pages. `limit`: the most images of
    each."""

    column: str
    counts: Mapping[str, int]
    numbers: Mapping[str, int]
    limit: int

    @staticmethod
    def of(column: str, counts: Counter[str], most: int) -> Facet:
        ordered = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
        values_shown = list(ordered)[: min(MOST_VALUES, most)]
        numbers = {value: number for number, value in enumerate(values_shown)}
        return Facet(column, ordered, numbers, limit_of([ordered[value] for value in values_shown], most))


def limit_of(counts: Sequence[int], most: int) -> int:
    """Returns the largest limit per count for which the limited counts add up to at most `most`; at least 1."""
    low, high = 1, max([1, *counts])
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if sum(min(count, middle) for count in counts) <= most else (low, middle - 1)
    return low


def show(
    dataset: str, out: str, classifier: str | None = None, most: int = MOST_IMAGES, listener: Listener | None = None
) -> Pages:
    """Writes the pages. Raises ConfigError for an unknown classifier or a `most` below 1; RunError where `out` holds
    files; SourceError where there is no row to show."""
    if most < 1:
        raise ConfigError("--most", f"{most} is not a whole number above 0")
    data = open_dataset(dataset, classifier)
    if not data.rows:
        raise without_rows(data)
    steps = Steps(listener)
    identity = {"dataset": data.id, "format": "pages", "classifier": classifier, "most": most}
    with destination(out, identity) as folder, tempfile.TemporaryDirectory(prefix="c2b-ray-") as spool:
        with steps.step("count"):
            facets = _counted(data, most)
            rows = sum(facets["label"].counts.values())
            if not rows:
                raise without_rows(data)
        with steps.step("make thumbnails"):
            waiting = _Waiting(Path(spool))
            images = _fill(data, facets, waiting)
        with steps.step("write pages"):
            written = sum(_write_pages(folder, facet, waiting) for facet in facets.values())
            folder.put("index.html", index_page(_about(data, facets, rows), _examples(facets, waiting)).encode())
    return Pages(str(out), rows, images, written + 1)


def _counted(data: FailureDataset, most: int) -> dict[str, Facet]:
    counters: dict[str, Counter[str]] = {column: Counter() for column in FACETS}
    for shard in data.shards:
        for table in data.tables([shard.name], list(FACETS)):
            for column, counter in counters.items():
                counter.update(_value(value) for value in table[column].to_pylist())
    return {column: Facet.of(column, counter, most) for column, counter in counters.items()}


def _value(value: str | None) -> str:
    return UNDECIDED if value is None else value


def _fill(data: FailureDataset, facets: Mapping[str, Facet], waiting: _Waiting) -> int:
    """Records every image that a page shows for its page; returns how many images there are."""
    images = 0
    for shard in data.shards:
        for table in data.tables([shard.name], _COLUMNS):
            for row in table.to_pylist():
                page_indices = [
                    (column, number)
                    for column, facet in facets.items()
                    if (number := facet.numbers.get(_value(row[column]))) is not None
                    and waiting.count(column, number) < facet.limit
                ]
                if page_indices:
                    images += 1
                    record = json.dumps({**row, "image": thumbnail_or_nothing(row["image"], SIDE)}, ensure_ascii=False)
                    for index in page_indices:
                        waiting.add(*index, record)
    waiting.spill()
    return images


class _Waiting:
    """Records that wait for their pages: the last few in memory, the others in a file for each value."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[tuple[str, int], list[str]] = {}
        self._bytes = 0
        self._counts: Counter[tuple[str, int]] = Counter()

    def count(self, column: str, number: int) -> int:
        return self._counts[column, number]

    def add(self, column: str, number: int, record: str) -> None:
        self._held.setdefault((column, number), []).append(record)
        self._counts[column, number] += 1
        self._bytes += len(record)
        if self._bytes > HELD_BYTES:
            self.spill()

    def spill(self) -> None:
        for (column, number), records in self._held.items():
            with self._file(column, number).open("a", encoding="utf-8") as stream:
                stream.writelines(f"{record}\n" for record in records)
        self._held.clear()
        self._bytes = 0

    def records(self, column: str, number: int) -> Iterator[dict[str, Any]]:
        with self._file(column, number).open(encoding="utf-8") as stream:
            yield from map(json.loads, stream)

    def _file(self, column: str, number: int) -> Path:
        return self._folder / f"{column}-{number}.jsonl"


def _write_pages(folder: Folder, facet: Facet, waiting: _Waiting) -> int:
    """Writes all pages of a facet; returns their number."""
    written = 0
    for value, number in facet.numbers.items():
        images_shown = waiting.count(facet.column, number)
        pages = -(-images_shown // ON_A_PAGE)
        records_of_page: list[dict[str, Any]] = []
        for index, record in enumerate(waiting.records(facet.column, number), 1):
            records_of_page.append(record)
            if len(records_of_page) == ON_A_PAGE or index == images_shown:
                page = -(-index // ON_A_PAGE)
                page_of = PageOf(
                    FACETS[facet.column], value, number, (page, pages), (images_shown, facet.counts[value])
                )
                name = f"{FACETS[facet.column]}/{number}-{page}.html"
                folder.put(name, value_page(page_of, records_of_page, index - len(records_of_page)).encode())
                written, records_of_page = written + 1, []
    return written


def _about(data: FailureDataset, facets: Mapping[str, Facet], rows: int) -> DatasetOverview:
    return DatasetOverview(
        location=data.location,
        classifier=data.classifier,
        config=data.config,
        manifest=data.manifest,
        rows=rows,
        facets={FACETS[column]: (facet.counts, facet.numbers) for column, facet in facets.items()},
    )


def _examples(facets: Mapping[str, Facet], waiting: _Waiting) -> list[dict[str, Any]]:
    """Returns the first image of each of the most frequent labels, then of the most frequent captions."""
    examples: dict[str, dict[str, Any]] = {}
    for column in ("label", "caption"):
        for number in list(facets[column].numbers.values())[:12]:
            record = next(waiting.records(column, number))
            examples.setdefault(record["image_id"], record)
    return list(examples.values())[:18]
