"""What pages and terminals are worded with: columns, the summary of a run, numbers and lists as text, and sentences
with emphasised words. It knows no kind of run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from c2b_ray.models import catalog
from c2b_ray.steps.fetch import Load
from c2b_ray.steps.synonyms import article as article
from c2b_ray.storage.labelled import table_opener


@dataclass(frozen=True)
class Column:
    """A column of a table on a page or a terminal. `number`: aligned to the right. Of a page alone: `spec`, its cells
    are specs of models; `hidden`, its name is for screen readers, as of a column of bars; `heading`, what its head
    shows in place of the name, such as a verdict with its sign."""

    name: str
    number: bool = False
    spec: bool = False
    hidden: bool = False
    heading: Sentence = ()

    @property
    def label(self) -> str:
        """What a narrow page, whose tables have no head, writes above a cell."""
        is_word = self.name[:1].isascii() and self.name[1:2].islower()
        return "" if self.hidden else self.name[:1].lower() + self.name[1:] if is_word else self.name


@dataclass(frozen=True)
class Summary:
    """`rows`: texts, one for each column; `marks`: "bad", "good" or "" for each row. `first`: lines above the
    table, about what puts all of it in doubt. `report`: the page's path, for people at that machine; "" without one.
    `to_json`: for programs. `headline`: the result in one line, for a list of runs. `findings`: how many each
    classifier has, by its name in the run; none where the kind of run has no findings of classifiers."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    marks: Sequence[str]
    lines: Sequence[str]
    report: str = ""
    to_json: Mapping[str, Any] = field(default_factory=dict)
    first: Sequence[str] = ()
    headline: str = ""
    findings: Mapping[str, int] = field(default_factory=dict)


# Formats numbers, names and lists for sentences and tables.


UNKNOWN = "—"
THIN = "\u202f"  # a narrow space that never breaks
FIXED = "\u00a0"  # a full space that never breaks
MINUS = "\u2212"


def percent(share: float) -> str:
    """0.41 → 41 %. Only 0 and 1 themselves are written 0 % and 100 %."""
    return UNKNOWN if math.isnan(share) else f"{_percent_digits(share)}{THIN}%"


def percent_range(low: float, high: float) -> str:
    if math.isnan(low) or math.isnan(high):
        return UNKNOWN
    return f"{_percent_digits(low)}–{_percent_digits(high)}{THIN}%"


def _percent_digits(share: float) -> str:
    digits = f"{100 * share:.0f}"
    if digits == "100" and share < 1:
        return f"{min(math.floor(1000 * share) / 10, 99.9):.1f}"
    if digits == "0" and share > 0:
        return f"{max(math.ceil(1000 * share) / 10, 0.1):.1f}"
    return digits


def rate(share: float) -> str:
    """Formats a share that may be tiny, to two digits: 0.0072 → 0.72 %, 0.0000022 → 0.00022 %. Only 0 and 1 themselves
    are written 0 % and 100 %."""
    return UNKNOWN if math.isnan(share) else f"{_rate_digits(share)}{THIN}%"


def rate_range(low: float, high: float) -> str:
    if math.isnan(low) or math.isnan(high):
        return UNKNOWN
    return f"{_rate_digits(low)}–{_rate_digits(high)}{THIN}%"


def _rate_digits(share: float) -> str:
    percentage = 100 * share
    if share == 0 or percentage >= 10:
        return _percent_digits(share)
    percentage = float(f"{percentage:.2g}")
    return f"{percentage:.{max(1 - math.floor(math.log10(percentage)), 0)}f}"


def times(ratio: float) -> str:
    """Formats a ratio of rates: 514, 13.5, ∞."""
    if math.isnan(ratio):
        return UNKNOWN
    if math.isinf(ratio):
        return "∞"
    return count(round(ratio)) if ratio >= 99.95 else f"{ratio:.1f}"


def times_range(low: float, high: float) -> str:
    if math.isnan(low) or math.isnan(high):
        return UNKNOWN
    return f"{times(low)} to {times(high)}"


def signed(value: float) -> str:
    """−0.55 and +0.31, to two decimals; 0.00 has no sign."""
    if math.isnan(value):
        return UNKNOWN
    digits = f"{abs(value):.2f}"
    if float(digits) == 0:
        return digits
    return f"{MINUS if value < 0 else '+'}{digits}"


def signed_range(low: float, high: float) -> str:
    if math.isnan(low) or math.isnan(high):
        return UNKNOWN
    return f"{signed(low)} to {signed(high)}"


def small_probability(value: float) -> str:
    if math.isnan(value):
        return UNKNOWN
    return f"<{THIN}0.001" if value < 0.001 else f"{value:.3f}"


def size(bytes_: float) -> str:
    """Returns bytes with three digits, such as 20 GiB."""
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    power = next((power for power in range(len(units)) if bytes_ / 1024**power < 999.5), len(units) - 1)
    return f"{bytes_ / 1024**power:.3g} {units[power]}"


def decimal(value: float) -> str:
    """Formats a setting such as τ as briefly as possible."""
    return f"{value:g}".replace("-", MINUS)


def count(number: int) -> str:
    """20,000, with commas from four digits on."""
    return f"{number:,}"


def plural(number: int, one: str, many: str = "") -> str:
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def shown_of(title: str, shown: int, total: int) -> str:
    """Returns a table's title with the number of its rows, if all are shown, or else how many of them are."""
    return f"{title} ({count(total)})" if shown == total else f"{title} ({count(shown)} of {count(total)})"


def further(total: int, shown: int, where: str) -> str:
    """Returns how many of `total` are not shown, and `where` they are; "" where all are."""
    return f"And {count(total - shown)} more, {where}." if total > shown else ""


def part(part: int, total: int) -> str:
    """Returns 52 of 100, all 100, or none of 100."""
    if total and part == total:
        return f"all {count(total)}" if total > 1 else "the one"
    return f"{count(part) if part else 'none'} of {count(total)}"


def listed(items: Sequence[str]) -> str:
    """a; a and b; a, b and c."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def distances(is_inception: bool) -> tuple[str, str]:
    """Returns what the two distances between sets of images are called: FID and KID on Inception's features alone."""
    return ("FID", "KID") if is_inception else ("Fréchet distance", "Kernel distance")


def shortened(text: str, limit: int) -> str:
    """Puts the text on one line, cut at a word with an ellipsis where it is longer than `limit`."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    cut = line[: limit - 1]
    return f"{cut.rsplit(' ', 1)[0] if ' ' in cut[limit // 2 :] else cut}…"


def moment(iso: str) -> str:
    """Formats an ISO 8601 time as 20 November 2026, 17:11 UTC; returns anything else unchanged."""
    try:
        time = datetime.fromisoformat(iso)
    except ValueError:
        return iso
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    time = time.astimezone(UTC)
    return f"{time.day} {time:%B %Y, %H:%M} UTC"


def duration(seconds: float) -> str:
    if not math.isfinite(seconds) or seconds < 0:
        return UNKNOWN
    if seconds < 10:
        return f"{seconds:.1f}{THIN}s"
    if round(seconds) < 60:
        return f"{seconds:.0f}{THIN}s"
    minutes, remainder = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}{THIN}min {remainder}{THIN}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}{THIN}h {minutes}{THIN}min"


# A sentence of a page as spans of text, some of them emphasised. Knows no HTML.


@dataclass(frozen=True)
class Span:
    """A span of a sentence; `strong` spans are emphasised. `style`: italic, code, spec (the name of a model), sign
    (screen readers leave it out), unseen (they alone read it), or classes of the page's style sheets. `link`: an
    address; `title`: what a pointer above it tells."""

    text: str
    strong: bool = False
    style: str = ""
    link: str = ""
    title: str = ""


Sentence = tuple[Span, ...]


# The source of images that a run left where they lie, as its config names it.


def source_of(config: Mapping[str, Any]) -> Load | None:
    """Returns what opens the source of an audit's images: its labelled table, or its index; None where it has neither.

    It can be sent to other processes.
    """
    images = config.get("images")
    if not isinstance(images, Mapping):
        return None
    if images.get("table") is not None:
        return table_opener(images)
    return None if images.get("index") is None else partial(catalog.index, images["index"])
