"""The blocks that every page is made of, and the page itself.

    text        Paragraph, Items (a list), Terms (rules in prose), Code
    tables      Table of Column and rows of Cell, Bar or plain text; Pairs (name and value)
    answers     Answers at the head of a page, Findings in its body
    pictures    Galleries, Strips, Figure (a plot that was made here)
    grouping    Section, Article, Details (folded), Columns and Panels (side by side)
    the rest    Links to other pages; Fragment: a template of one kind of page, for what no other page shows

An audit's report module makes a Page of them straight from the rows of its tables; `blocks.html.j2` says what each
looks like. A block holds what is shown and no more: counting, ranking and wording are done before it is made. Every
text is escaped where it is rendered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from c2b_ray.report import words
from c2b_ray.report.method import Fact, Method, Model, SetupNote
from c2b_ray.report.page import SCRIPTS, STYLES, Answer, render
from c2b_ray.report.pictures import Gallery
from c2b_ray.report.words import Column, Sentence, Span

Text = str | Sentence

_MARKED = re.compile(r"\*\*(?P<strong>.+?)\*\*|\*(?P<italic>.+?)\*|`(?P<code>.+?)`", re.DOTALL)


def marked(text: str) -> Sentence:
    """Returns the spans of a text in which `**strong**`, `*italic*` and backticks mark words: `marked("**q.** In
    `scores.parquet`.")`. For sentences of our own alone; a name that a user wrote goes into a Span as it is."""
    spans, end = [], 0
    for match in _MARKED.finditer(text):
        spans += [Span(text[end : match.start()])] if match.start() > end else []
        style = str(match.lastgroup)
        spans.append(Span(match[style], style == "strong", "" if style == "strong" else style))
        end = match.end()
    return (*spans, Span(text[end:])) if end < len(text) else tuple(spans)


class Block:
    """A part of a page. `macro`: the name by which the macro `one` of `blocks.html.j2` tells what it looks like."""

    macro: ClassVar[str]


# Text.


@dataclass(frozen=True)
class Paragraph(Block):
    """`style`: intro, legend, beneath, scale, tally, brief, notice, doubt or cue, as report.css has them."""

    macro: ClassVar = "paragraph"
    text: Text
    style: str = ""


@dataclass(frozen=True)
class Items(Block):
    """A list of short texts."""

    macro: ClassVar = "items"
    items: Sequence[Text]
    style: str = "notes"


@dataclass(frozen=True)
class Terms(Block):
    """What the page's words mean and how its numbers came about, a paragraph each: strings with the marks of `marked`,
    or sentences, where names that a user wrote stand in them."""

    macro: ClassVar = "terms"
    paragraphs: Sequence[Text]

    @property
    def texts(self) -> list[Sentence]:
        return [marked(paragraph) if isinstance(paragraph, str) else paragraph for paragraph in self.paragraphs]


@dataclass(frozen=True)
class Code(Block):
    """A file's text."""

    macro: ClassVar = "code"
    text: str


# Tables.


@dataclass(frozen=True)
class Verdict:
    """A verdict with its sign; `verdict`: its style, one of for, against, none, undetermined, good, bad."""

    verdict: str
    sign: str
    name: str


@dataclass(frozen=True)
class Segment:
    """A part of a bar, in percent of its length."""

    verdict: str
    width: str
    start: str = "0"


@dataclass(frozen=True)
class Bar:
    """A share drawn as a bar; `ground`: the rest of it is drawn too."""

    segments: Sequence[Segment]
    ground: bool = True


@dataclass(frozen=True)
class Cell:
    """`small`: lines beneath the text, of which those that repeat it or are empty are left out. `value`: what the
    column is sorted by, where that is not the text. `mark`: a verdict before the text; `bar`: a bar beneath the lines.
    `style`: classes of its own. `shade`: of a cell of a grid the colour, as `shade` returns it, or "" for none."""

    text: Text = ""
    small: Sequence[Text] = ()
    style: str = ""
    title: str = ""
    value: str = ""
    link: str = ""
    mark: Verdict | None = None
    shade: str | None = None
    bar: Bar | None = None

    @property
    def lines(self) -> list[Text]:
        return [line for line in self.small if line and line != self.text]


Cells = Sequence[str | Cell | Bar]


@dataclass(frozen=True)
class TableRow:
    """A row with a style, an id (`link`), or values (`data`: name → value) by which the page's script filters it. A
    row of one cell, in a table of several columns, is the heading of the rows beneath it."""

    cells: Cells
    style: str = ""
    data: Mapping[str, str] = field(default_factory=dict)
    link: str = ""


@dataclass(frozen=True)
class Table(Block):
    """A table; the first cell of a row is the row's head, unless it is not `headed`.

    `name`: says to screen readers what scrolls sideways, where the table may be wider than the page; "" for a narrow
    one. `sortable`: by a click on a column's name. `filtered`: rows with `data` are filtered together with those of
    other tables of this name, and of them no more than `most` show at first. `more`: a line beneath, on what is left
    out. `empty`: the text of a table without rows.
    """

    macro: ClassVar = "table"
    columns: Sequence[Column]
    rows: Sequence[Cells | TableRow]
    name: str = ""
    style: str = "facts"
    caption: Text = ""
    sortable: bool = False
    filtered: str = ""
    most: int = 0
    more: Text = ""
    empty: str = ""
    headed: bool = True

    @property
    def lines(self) -> Iterable[TableRow]:
        """Yields the rows, with every text in a Cell."""
        for row in self.rows:
            line = row if isinstance(row, TableRow) else TableRow(row)
            yield replace(line, cells=[Cell(cell) if isinstance(cell, str) else cell for cell in line.cells])


@dataclass(frozen=True)
class Pairs(Block):
    """Names and values; `title` stands above them."""

    macro: ClassVar = "pairs"
    pairs: Sequence[tuple[str, Text]]
    title: str = ""
    style: str = "pairs"


# Answers and findings.


@dataclass(frozen=True)
class Answers(Block):
    """What was found, at the head of a page, in at most three sentences."""

    macro: ClassVar = "answers"
    answers: Sequence[Answer]


@dataclass(frozen=True)
class FoundRow:
    """A finding as a sentence, with texts beneath it and further paragraphs. `link`: the id of its details on the page,
    `about`: what they are about, for screen readers; `data` as of TableRow."""

    verdict: str
    sign: str
    sentence: Text
    beneath: Sequence[str] = ()
    link: str = ""
    data: Mapping[str, str] = field(default_factory=dict)
    about: str = ""
    paragraphs: Sequence[Paragraph] = ()


@dataclass(frozen=True)
class Findings(Block):
    """Findings, strongest first; `filtered`, `most` and `more` as of Table."""

    macro: ClassVar = "findings"
    rows: Sequence[FoundRow]
    filtered: str = ""
    most: int = 0
    more: Text = ""


# Pictures.


@dataclass(frozen=True)
class Galleries(Block):
    """`level`: of their headings. `style`: wide (one below the other, with many pictures a row), few, or alone (one, as
    wide as the column that it stands in); "" for two or three side by side."""

    macro: ClassVar = "galleries"
    galleries: Sequence[Gallery]
    style: str = ""
    level: int = 4


@dataclass(frozen=True)
class Frame:
    """A picture of a strip. `source`: a data: URI, "" where there is none; `texts`: beneath it."""

    source: str
    alt: str
    texts: Sequence[str]
    strong: bool = False


@dataclass(frozen=True)
class Strips(Block):
    """Rows of pictures that belong together from left to right. `captions`: a text beneath each row, or none."""

    macro: ClassVar = "strips"
    strips: Sequence[Sequence[Frame]]
    captions: Sequence[Text] = ()
    style: str = ""


@dataclass(frozen=True)
class Figure(Block):
    """`svg`: an <svg> element that a module of ours made, whose labels are escaped; it is not escaped again."""

    macro: ClassVar = "figure"
    svg: str
    caption: Text = ""
    style: str = "plot"


# Grouping.


@dataclass(frozen=True)
class Article(Block):
    """Blocks under a heading within a section, such as those of one finding; `link`: its id."""

    macro: ClassVar = "article"
    title: Text
    blocks: Sequence[Block]
    link: str = ""
    style: str = ""
    level: int = 3
    mark: Verdict | None = None


@dataclass(frozen=True)
class Details(Block):
    """Blocks that are folded under a line; `link`: its id."""

    macro: ClassVar = "details"
    summary: Text
    blocks: Sequence[Block]
    open: bool = False
    style: str = ""
    link: str = ""


@dataclass(frozen=True)
class Columns(Block):
    """Blocks side by side, where the page is wide enough. `style`: columns, panels, evidence, curves or charts."""

    macro: ClassVar = "columns"
    blocks: Sequence[Block]
    style: str = "columns"


@dataclass(frozen=True)
class Section(Block):
    """A section of the page. `link`: its id, "" without; `contents`: its name in the page's contents, where that has
    one."""

    macro: ClassVar = "section"
    title: Text
    blocks: Sequence[Block]
    link: str = ""
    contents: str = ""
    mark: Verdict | None = None


@dataclass(frozen=True)
class Links(Block):
    """Links to other pages, and texts between them; `name` says to screen readers what they are."""

    macro: ClassVar = "links"
    name: str
    parts: Sequence[Span]


@dataclass(frozen=True)
class Fragment(Block):
    """A template of its own, which reads `data` as its `view`, for what one kind of page alone shows."""

    macro: ClassVar = "fragment"
    template: str
    data: object


@dataclass(frozen=True)
class Page:
    """A page. `suffix`: what its browser tab says after the title, "" for nothing; `kicker`: the line above the title;
    `byline`: specs and dates beneath it; `head`: blocks before the contents; `styles`, `scripts`: files of this
    package's templates."""

    title: str
    suffix: str
    kicker: Text
    sections: Sequence[Block]
    head: Sequence[Block] = ()
    byline: Sequence[Text] = ()
    styles: Sequence[str] = STYLES
    scripts: Sequence[str] = SCRIPTS

    @property
    def contents(self) -> list[tuple[str, str]]:
        """Returns (id, name) of the sections that the contents list; none where that is one alone."""
        sections = [section for section in self.sections if isinstance(section, Section) and section.contents]
        return [(section.link, section.contents) for section in sections] if len(sections) > 1 else []

    def html(self) -> str:
        """Returns the page as one HTML document, which makes no network requests."""
        return render(self, self.styles, self.scripts)


def grid(title: str, caption: str, columns: Sequence[str], lines: Mapping[str, Sequence[Cell]]) -> list[Block]:
    """Returns a table of shaded cells under its title; `lines`: the cells of each line, by its name."""
    rows: list[Cells] = [(name, *cells) for name, cells in lines.items()]
    text = (Span(f"{title}.", strong=True), Span(f" {caption}."))
    return [
        Paragraph(text, "beneath"),
        Table([Column(""), *map(Column, columns)], rows, f"{title}: {caption}", style="heat"),
    ]


def shade(size: float, verdict: str) -> str:
    """Returns the colour of a cell of a grid, the deeper the larger `size`, in [0, 1]; `verdict`: for or against."""
    return f"{verdict} d{1 + sum(size >= depth for depth in (0.25, 0.5, 0.75))}"


def spec(name: str) -> Span:
    """Returns a spec of a model, as a span."""
    return Span(name, style="spec")


def setup(notes: Sequence[SetupNote]) -> list[Block]:
    """Returns what looks wrong about how classifiers are set up, for the head of a page."""
    blocks = [Paragraph(tuple(_setup_note(note))) for note in notes]
    title = "Hardly an answer is right" if all(note.explained for note in notes) else "The set-up looks wrong"
    return [Article(title, blocks, style="setup", level=2)] if notes else []


def _setup_note(note: SetupNote) -> Iterator[Span]:
    if note.classifier:
        yield from (spec(note.classifier), Span(" "))
    yield from (replace(span, strong=True) for span in coded(note.seen))
    yield from coded(f" {note.cause} {note.remedy}")
    if note.hopeless:
        yield Span(f" Until then nothing below says anything about {'this' if note.classifier else 'the'} classifier.")


def coded(text: str) -> Sentence:
    """Returns the spans of a text in which backticks mark code, and nothing else is a mark: it holds names of users."""
    return tuple(Span(part, style="code" if i % 2 else "") for i, part in enumerate(text.split("`")) if part)


def made(method: Method, file_name: str, *before: Block) -> Section:
    """Returns the last section of every page, how the run was made: `before`, settings and counts, models, and the file
    that makes it again, to be saved as `file_name`."""
    groups = {
        "Settings": method.settings, "Counts": method.counts, "Time": method.seconds, "Versions": method.versions
    }  # fmt: skip
    return Section(
        "How the run was made",
        (
            *before,
            Columns([Pairs(pairs, title) for title, pairs in groups.items() if pairs]),
            *models(method),
            *_again(method, file_name),
        ),
        link="made",
        contents="How it was made",
    )


def models(method: Method) -> list[Block]:
    """Returns the models of the run, what is assumed of them, and where their settings were read."""
    if not method.models:
        return []
    columns = [Column("Role"), Column("Spec", spec=True), Column("Revision", spec=True)]
    rows = [(model.role, model.spec, model.revision) for model in method.models]
    blocks: list[Block] = [Article("Models", [Table(columns, rows, style="models")])]
    if method.assumptions:
        assumed = marked(
            "**Assumed, because nothing states it.** Numbers change where one of these is wrong; an option of the "
            "model’s spec states it."
        )
        blocks += [Paragraph(assumed), Items([_assumption(*pair) for pair in method.assumptions], style="")]
    if method.stated:
        columns = [Column("Model", spec=True), Column("Setting"), Column("Value"), Column("Read from")]
        stated = [(model.spec, fact.name, fact.value, fact.source) for model, fact in method.stated]
        title = "Settings of the models, and where each was read"
        blocks.append(Details(title, [Table(columns, stated, style="models")], style="facts"))
    return blocks


def assumed(method: Method) -> list[Block]:
    """Returns a notice of the models' settings that nothing states; nothing where all are stated."""
    facts = [(Span(f"{fact.name} of "), spec(model.spec)) for model, fact in method.assumptions[:3]]
    if not facts:
        return []
    count = len(method.assumptions)
    verb, them = ("are", "them") if count > 1 else ("is", "it")
    start = f"{words.plural(count, 'setting')} of the models {verb} assumed, because nothing states {them}: "
    between = [span for fact in facts for span in (Span(", "), *fact)][1:]
    link = Span("how it was made", link="#made")
    return [Paragraph((Span(start), *between, Span(". See "), link, Span(".")), "notice")]


def _assumption(model: Model, fact: Fact) -> Sentence:
    text = f": {fact.value} ({fact.source})"
    option = (Span("; "), Span(f"{fact.option}=", style="code")) if fact.option else ()
    return (Span(f"{fact.name} of "), spec(model.spec), Span(text), *option)


def _again(method: Method, file_name: str) -> list[Block]:
    if not method.file:
        return []
    shortened = " Paths are shortened to their last part, and credentials are taken out: put your own in."
    sentence = (
        Span("Save as "), Span(file_name, style="code"), Span(" and run "), Span(method.command, style="code"),
        Span(f".{shortened if method.shortened else ''}"),
    )  # fmt: skip
    return [Article("To make it again", [Paragraph(sentence), Code(method.file)])]
