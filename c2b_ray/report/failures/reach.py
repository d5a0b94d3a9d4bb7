"""The likely findings of a budget of draws in words, shown before a run and on its page.

Knows the least rates of an estimate; knows neither their computation nor pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from c2b_ray.config.failures import SMALLEST_RATIO
from c2b_ray.report.kit import words
from c2b_ray.report.kit.method import mapping
from c2b_ray.steps.discovery.power import COMMON_RATE


def reach_sentence(least_rates: Sequence[Mapping[str, Any]]) -> str:
    """Returns one sentence from rows with `share` and `rate`; empty where there is none, or where one is not a
    number."""
    rows = [(one.get("share"), one.get("rate")) for one in least_rates]
    known = [(share, rate) for share, rate in rows if isinstance(share, float) and share > 0]
    reached = [(share, rate) for share, rate in known if isinstance(rate, float)]
    if not reached:
        return "this budget is not likely to find any failure: give it more draws" if known else ""
    (first, least), *others = reached
    more = "".join(f"; {words.rate(rate)} where 1 in {round(1 / share)} does" for share, rate in others)
    return (
        f"with this budget a failure is found 4 times in 5, at best, if it happens on at least {words.rate(least)} of "
        f"the images that show what it needs, where 1 in {round(1 / first)} images of the label shows that{more}. "
        "Rarer failures want draws in proportion"
    )


def ratio_sentence(ratio: float, draws: int | None) -> str:
    """Returns a sentence about the smallest ratio of rates that is searched for. `draws`: those that are expected to
    confirm a caption of this ratio where the bare prompt fails at `COMMON_RATE`; None for labelled images."""
    baseline = "the label’s other images" if draws is None else "the bare prompt"
    said = f"captions that fail at least {multiple(ratio)} as often as {baseline} are searched for, and others given up"
    if draws is None:
        return said
    return (
        f"{said}; where the bare prompt fails on 1 in {round(1 / COMMON_RATE)} images, it takes on average at most "
        f"about {words.count(int(float(f'{draws:.1e}')))} images to confirm one that fails exactly {multiple(ratio)} "
        "as often"
    )


def search_line(search: Mapping[str, Any]) -> str:
    """Returns sentences on how causes were searched for among labelled images; empty where the run does not say it."""
    tried = search.get("tried")
    if not isinstance(tried, list):
        return ""
    sizes = ("value", "pair of values", "set of three values")
    plurals = ("values", "pairs of values", "sets of three values")
    known = zip(tried, sizes, plurals, strict=False)
    sets = words.listed([words.plural(int(number), one, several) for number, one, several in known])
    tested = words.plural(int(search.get("tested", 0)), "hypothesis was", "hypotheses were")
    line = (
        f"Causes of up to {search.get('most_columns')} values were searched for in the table’s "
        f"{words.plural(int(search.get('columns', 0)), 'column')}: {sets} that at least two failures show, for each "
        f"classifier, label and wrong answer; {tested} tested. Causes of more values, and those that no column says, "
        "were not tried"
    )
    if left := int(search.get("not_extended", 0)):
        line += f", nor was a third value added to {words.plural(left, 'pair')}, those that go with failures least"
    return f"{line}."


@dataclass(frozen=True)
class ReachRow:
    """One label's row of a table in words. `cells`: in the order of `reach_columns` or `caption_columns`."""

    classifier: str
    label: str
    images: str
    usual: str
    cells: tuple[str, ...]


def reach_columns(search: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns what the least rates of `reach_rows` are about: the share of images, and the probability."""
    rows, powers = _reach_labels(search), search.get("powers") or []
    shares = [one["share"] for one in rows[0]["least"]] if rows else []
    return tuple(f"1 in {round(1 / share)} shows it, {words.percent(power)}" for share in shares for power in powers)


def reach_rows(search: Mapping[str, Any], names: Mapping[str, str]) -> tuple[ReachRow, ...]:
    """Returns, of each label and classifier, the least failure rate of a cause that the run would have found. `names`:
    what the page calls classifiers."""
    return tuple(
        _reach_row(row, names, [_least(rate, row["usual"]) for one in row["least"] for rate in one["rates"]])
        for row in _reach_labels(search)
    )


def reach_summary(search: Mapping[str, Any]) -> str:
    """Returns one sentence for a terminal: the least rate that would have been found, of the label with the median."""
    rows = _reach_labels(search)
    if not rows:
        return ""
    first = [row["least"][0]["rates"][0] for row in rows]
    order = sorted(range(len(rows)), key=lambda at: float("inf") if first[at] is None else first[at])
    row = rows[order[len(order) // 2]]
    of = "" if len(rows) == 1 else f" (the median of {words.count(len(rows))} labels and classifiers: {row['label']})"
    if all(one["rates"][0] is None for one in row["least"]):
        return f"With this many images no cause would have been found 4 times in 5, at any rate{of}."
    parts = [
        f"{_least(one['rates'][0], row['usual'])} where 1 in {round(1 / one['share'])} images shows it"
        for one in row["least"]
    ]
    return (
        f"A cause would have been found 4 times in 5, at best, if it fails at least at: {'; '.join(parts)}; otherwise "
        f"the label fails at {words.rate(row['usual'])}{of}. The report has every label."
    )


def caption_line(search: Mapping[str, Any]) -> str:
    """Returns sentences on which captions were tried on generated images; empty where the run does not say it."""
    rows = _reach_labels(search)
    if not rows:
        return ""
    of_label = {row["label"]: row for row in rows}.values()  # all classifiers answer for the same captions
    proposed, screened = (sum(sum(row[name]) for row in of_label) for name in ("proposed", "screened"))
    sizes = ("one sentence", "two", "three or more")
    by_size = [sum(row["screened"][at] for row in of_label) for at in range(len(sizes))]
    shown = words.listed([f"{words.count(n)} of {size}" for n, size in zip(by_size, sizes, strict=True)])
    line = (
        f"{words.plural(proposed, 'caption was', 'captions were')} proposed, {words.count(screened)} of them drawn "
        f"({shown}), and {words.plural(int(search.get('tested', 0)), 'hypothesis', 'hypotheses')} tested. "
    )
    pairs, missed = (sum(row[name] for row in rows) for name in ("pairs", "pairs_not_tried"))
    if pairs:
        line += (
            f"Of {words.plural(pairs, 'pair of sentences', 'pairs of sentences')} that the captioner said of a "
            f"failure, {words.count(missed)} were in no caption that was drawn. "
        )
    return line + "Sentences that no description of a failure holds were not tried."


def caption_summary(search: Mapping[str, Any]) -> str:
    """Returns one sentence for a terminal: the least rate of a caption that would have been found, of the label with
    the median ratio to its own rate."""
    rows = _reach_labels(search)
    if not rows:
        return ""
    rows = sorted(rows, key=lambda row: float("inf") if row["least"] is None else row["least"] / row["usual"])
    row = rows[len(rows) // 2]
    of = "" if len(rows) == 1 else f", the median of {words.count(len(rows))} labels and classifiers"
    where = f"where the label fails at {words.rate(row['usual'])} ({row['label']}{of}). The report has every label."
    if row["least"] is None:
        return f"With this many draws no caption would have been found 4 times in 5, at any rate, {where}"
    return (
        "A caption that was drawn would have been found 4 times in 5, at best, if it fails at least at "
        f"{_least(row['least'], row['usual'])}, {where}"
    )


def caption_columns(search: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns what the columns of `caption_rows` are about."""
    if not _reach_labels(search):
        return ()
    return "proposed", "drawn", "tested", "pairs not drawn", f"least rate, {words.percent(search['power'])}"


def caption_rows(search: Mapping[str, Any], names: Mapping[str, str]) -> tuple[ReachRow, ...]:
    """Returns, of each label and classifier, what was tried, and the least failure rate of a caption that the run would
    have found if it had drawn it."""
    tried = ("proposed", "screened", "tested")
    return tuple(
        _reach_row(
            row,
            names,
            [
                *(words.count(sum(row[name])) for name in tried),
                f"{words.count(row['pairs_not_tried'])} of {words.count(row['pairs'])}",
                _least(row["least"], row["usual"]),
            ],
        )
        for row in _reach_labels(search)
    )


def _reach_row(row: Mapping[str, Any], names: Mapping[str, str], cells: Sequence[str]) -> ReachRow:
    return ReachRow(
        classifier=names.get(row["classifier"], row["classifier"]),
        label=row["label"],
        images=words.count(row["images"]),
        usual=words.rate(row["usual"]),
        cells=tuple(cells),
    )


def _least(rate: float | None, usual: float) -> str:
    return "not at any rate" if rate is None else f"{words.rate(rate)} ({words.times(rate / usual)} times)"


def _reach_labels(search: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    rows = search.get("labels")
    return [mapping(row) for row in rows] if isinstance(rows, list) else []


def ratio_of(manifest: Mapping[str, Any]) -> str:
    """Returns the smallest ratio that a run searched for, such as "twice"."""
    ratio = mapping(manifest.get("config")).get("smallest_ratio")
    return multiple(ratio if isinstance(ratio, int | float) else SMALLEST_RATIO)


def multiple(ratio: float) -> str:
    return "twice" if ratio == SMALLEST_RATIO else f"{ratio:g} times"
