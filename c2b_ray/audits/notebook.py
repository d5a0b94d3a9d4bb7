"""Runs in notebooks: the headline with pictures, failures as a table with pictures, a table as pandas, the report.

What these return is HTML for Jupyter (`_repr_html_`); it needs neither IPython nor widgets. It knows audits by
their declarations alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from c2b_ray.audits.audit import audit_of
from c2b_ray.audits.runs import run_images
from c2b_ray.errors import ConfigError, nearest
from c2b_ray.report import words
from c2b_ray.report.formats.folder import Row, RunImages
from c2b_ray.report.pictures import thumbnail_or_nothing
from c2b_ray.report.redact import clean
from c2b_ray.storage import files
from c2b_ray.storage.run import Run
from c2b_ray.tables.path import EXPORTED_IMAGES
from c2b_ray.text import visible

if TYPE_CHECKING:
    import pandas

PICTURES, IN_A_TABLE = 8, 24
LOOKED_AT = 512
"""Images among which those that are part of a finding are looked for, to be shown first."""
HEIGHT = 800  # pixels of a page inside a notebook
LARGEST = 160  # pixels of a picture's longer side
_CARD = "display:inline-block;vertical-align:top;width:10em;margin:0 .6em .6em 0;font-size:.85em;overflow-wrap:anywhere"


def html(run: Run) -> str:
    """Returns a run's headline, what it found, and pictures; of a run that is not finished, its state."""
    kind, path = escape(run.kind.command), escape(visible(run.path))
    record = run.record
    if not record.has_results:
        return f"<p><b>{kind}</b>: {escape(str(record.status))}, {path}</p>"
    summary = audit_of(run).summarise(run)
    first = "".join(f"<p><b>{_text(line)}</b></p>" for line in summary.first)
    images = run_images(run) if audit_of(run).images else None
    findings = [sentence.sentence for sentence in images.findings[:3]] if images else []
    listed = "".join(f"<li>{_text(sentence)}</li>" for sentence in findings)
    pictures = "" if images is None else _pictures(images, PICTURES)
    where = (
        f"<p><small>{kind}, report: {escape(visible(run.report))}; <code>run.show()</code> opens it here</small></p>"
    )
    return f"<div>{first}<p><b>{_text(summary.headline)}.</b></p><ul>{listed}</ul><div>{pictures}</div>{where}</div>"


def to_pandas(run: Run, table: str | None = None) -> pandas.DataFrame:
    """Returns a table of the run; by default its results, such as the scores of `c2b audit`. Raises ConfigError for a
    table that such runs do not have."""
    name = table or audit_of(run).main_table or next(iter(run.kind.tables))
    if name not in run.kind.tables:
        raise ConfigError(
            "table", f"a run of {run.kind.command} has no table {name!r}; {nearest(name, run.kind.tables)}"
        )
    return run.read(name).to_pandas()


@dataclass(frozen=True, repr=False)
class Failures:
    """The images that were answered wrong, in a notebook with pictures: those first that are part of a finding.

    `images`: with their findings (`audits.runs.run_images`).
    """

    images: RunImages

    @cached_property
    def table(self) -> pa.Table:
        """The columns of `tables.path.EXPORTED_IMAGES` but the bytes, a row per image."""
        schema = pa.schema([field for field in EXPORTED_IMAGES if field.name != "bytes"])
        return pa.concat_tables(
            [schema.empty_table(), *(part.drop_columns(["bytes"]) for part in self.images.tables(False))]
        )

    def __repr__(self) -> str:
        return f"<{self.images.title}: {words.plural(len(self), 'image')}>"

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def to_pandas(self) -> pandas.DataFrame:
        return self.table.to_pandas()

    def _repr_html_(self) -> str:
        title = f"{_text(self.images.title)}: {words.plural(len(self), 'image')}"
        limit_note = f"<p>The first {IN_A_TABLE}.</p>" if len(self) > IN_A_TABLE else ""
        return f"<div><p><b>{title}</b></p><div>{_pictures(self.images, IN_A_TABLE)}</div>{limit_note}</div>"


def failures(run: Run, classifier: str | None = None) -> Failures:
    """Returns the images that the classifier, or any (None), got wrong. Raises ConfigError for a run without images."""
    return Failures(run_images(run, classifier))


@dataclass(frozen=True, repr=False)
class Page:
    """A run's report inside a notebook, `height` pixels high."""

    content: str
    height: int

    def __repr__(self) -> str:
        return f"<report: {words.count(len(self.content))} characters of HTML>"

    def _repr_html_(self) -> str:
        # The page has its own policy, and the frame no origin: its script cannot reach the notebook.
        style = f"width:100%;height:{self.height}px;border:1px solid #8888"
        return (
            f'<iframe title="report" sandbox="allow-scripts" style="{style}" srcdoc="{escape(self.content)}"></iframe>'
        )


def framed(content: str) -> str:
    """Returns the HTML of a page inside a notebook."""
    return Page(content, HEIGHT)._repr_html_()


def show(run: Run, height: int = HEIGHT) -> Page:
    """Returns the report, for a notebook to show. It is written where it is missing."""
    if not files.exists(run.report):
        audit_of(run).write_report(run)
    return Page(files.read_bytes(run.report).decode(), height)


def _pictures(images: RunImages, most: int) -> str:
    rows = list(islice(images.rows(), LOOKED_AT))
    order = {tag: number for number, tag in reversed(list(enumerate(finding.tag for finding in images.findings)))}
    rows.sort(key=lambda row: min((order[tag] for tag in row["tags"]), default=len(order)))  # of the strongest first
    return "".join(_cards(images, rows[:most]))


def _cards(images: RunImages, rows: Sequence[Row]) -> Iterator[str]:
    away = images.read([row["image_id"] for row in rows if row["bytes"] is None])
    for row in rows:
        source = thumbnail_or_nothing(row["bytes"] or away.get(row["image_id"]) or b"", LARGEST)
        answers = [_answer(prediction) for prediction in row["predictions"]]
        says = "; ".join(answers) or (row["text"] or "")
        alt = ", ".join(filter(None, (row["truth"], says)))
        image = f'<img src="{source}" alt="{_text(alt)}" style="max-width:100%">' if source else "<i>no picture</i>"
        lines = [
            *([f"<b>{_text(row['truth'])}</b>"] if row["truth"] else []),
            _text(says),
            _text(", ".join(row["tags"])),
        ]
        yield f'<div style="{_CARD}">{image}<br>{"<br>".join(filter(None, lines))}</div>'


def _answer(prediction: Mapping[str, Any]) -> str:
    sign = {True: "✗ ", False: "✓ ", None: ""}[prediction["failed"]]
    confidence_text = "" if prediction["confidence"] is None else f" {prediction['confidence']:.2f}"
    return f"{sign}{prediction['label']}{confidence_text}"


def _text(text: str) -> str:
    return escape(visible(clean(text)))
