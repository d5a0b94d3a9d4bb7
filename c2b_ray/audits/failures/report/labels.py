"""Each label before any caption, as tables: how often classifiers fail, and whether the generator draws it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from c2b_ray.audits.failures.discovery.reliability import LEAST_RATE
from c2b_ray.audits.failures.report.facts import Facts
from c2b_ray.audits.failures.report.rows import CONFIRMATION, DISCOVERY, Tally, share
from c2b_ray.report import words
from c2b_ray.report.blocks import Bar, Block, Cell, Paragraph, Section, Segment, Table, TableRow, marked
from c2b_ray.report.redact import clean
from c2b_ray.report.words import Column, Span

MOST_ROWS = 400
MOST_TAKEN = 3


def labels(facts: Facts) -> list[Section]:
    """Returns the table of labels and classifiers, the label that fails most often first; images of all generators
    together."""
    captions: dict[tuple[str, str], set[str]] = defaultdict(set)
    for hypothesis in facts.hypotheses:
        captions[hypothesis.label, hypothesis.classifier].add(hypothesis.caption_id)
    findings = Counter((finding.lead.label, finding.lead.classifier) for finding in facts.findings)
    pairs = [(label, classifier) for label in facts.baselines for classifier in facts.names]
    rows = [_row(*pair, facts, (len(captions[pair]), findings[pair])) for pair in pairs]
    if not rows:
        return []
    rows.sort(key=lambda row: row[0])
    intro = (
        "How often each label fails at its baseline, whatever it is taken for, and what its failures are most often "
        "taken for: on the images of confirmation, or of discovery where confirmation drew none."
    )
    columns = [
        Column("Label"),
        *([Column("Classifier", spec=True)] if len(facts.names) > 1 else []),
        Column("Fails", number=True),
        Column("Images", number=True),
        Column("Most often taken for"),
        Column("Captions tried", number=True),
        Column("Findings", number=True),
    ]
    table = Table(
        columns,
        [row for _, row in rows[:MOST_ROWS]],
        sortable=True,
        filtered="labels",
        most=20,
        more=words.further(len(rows), MOST_ROWS, "in the run’s rounds"),
    )
    return [Section("Labels", [Paragraph(intro), table], "labels", "Labels")]


def _row(
    label: str, classifier: str, facts: Facts, tried_and_found: tuple[int, int]
) -> tuple[tuple[float, str, str], TableRow]:
    """Returns the row with its sort key. `tried_and_found`: the numbers of captions tried, and of findings."""
    stage, counts = at_baseline(facts, label, classifier)
    rate, name = facts.rate(counts.failures, counts.draws), facts.names[classifier]
    interval = words.rate_range(float(rate.low), float(rate.high)) if counts.draws else ""
    cells: list[str | Cell | Bar] = [
        clean(label),
        *([name] if len(facts.names) > 1 else []),
        Cell(words.rate(float(rate.value)), [interval]),
        Cell(words.count(counts.draws), [stage]),
        _taken(counts) or words.UNKNOWN,
        *map(words.count, tried_and_found),
    ]
    data = {"label": clean(label), **({"classifier": name} if len(facts.names) > 1 else {})}
    return (-float(rate.value) if counts.draws else 1.0, clean(label), name), TableRow(cells, data=data)


def at_baseline(facts: Facts, label: str, classifier: str) -> tuple[str, Tally]:
    """Returns the stage that drew the images, confirmation where it drew any, and their tally."""
    caption_id = facts.baselines[label].caption_id
    keys = [(caption_id, classifier, generator) for generator in facts.primary]
    confirmed = _sum_tallies([facts.tallies.of(*key) for key in keys])
    if confirmed.draws:
        return CONFIRMATION, confirmed
    return DISCOVERY, _sum_tallies([facts.tallies.discovered.get(key, Tally()) for key in keys])


def _sum_tallies(tallies: Sequence[Tally]) -> Tally:
    total = Tally()
    for tally in tallies:
        total.draws += tally.draws
        total.failures += tally.failures
        total.taken.update(tally.taken)
    return total


def _taken(tally: Tally) -> str:
    ranked = sorted(tally.taken.items(), key=lambda item: (-item[1], item[0]))[:MOST_TAKEN]
    return ", ".join(f"{clean(label)} ({words.percent(count / tally.failures)})" for label, count in ranked)


# Whether the generator draws what the prompt says: each label, and with which attributes (Wiles et al. 2022, App.
# B.3 and Fig. 5b).


MOST_LABELS = 200
MOST_VALUES = 6


def reliability(table: pa.Table, names: Mapping[str, str]) -> Section:
    """Returns how often the generator shows each label. `names`: what each generator is called."""
    rows = table.to_pylist()
    of_labels = [row for row in rows if row["attribute"] is None]
    if not of_labels:
        text = (
            "Nobody checked whether images show their label, so a failure here may be the generator’s. Name a "
            "`verifier` to have it checked."
        )
        return _of_generator([Paragraph(marked(text))])
    of_labels.sort(key=lambda row: (_rate(row), row["label"]))
    attributes: dict[tuple[str, str], dict[str, list[Mapping[str, Any]]]] = {}
    for row in rows:
        if row["attribute"] is not None:
            by_name = attributes.setdefault((row["generator"], row["label"]), {})
            by_name.setdefault(row["attribute"], []).append(row)
    has_several = len({row["generator"] for row in of_labels}) > 1
    has_parents = any(row["parent_shown"] is not None for row in of_labels)
    columns = [
        Column("Label"),
        *([Column("Generator", spec=True)] if has_several else []),
        Column("Shows it", number=True),
        Column("Share", hidden=True),
        *([Column("Shows its parent", number=True)] if has_parents else []),
        Column("Images", number=True),
        Column("With which attributes"),
    ]
    lines = [
        _drawn(
            row,
            [names.get(row["generator"], clean(row["generator"]))] if has_several else [],
            has_parents,
            attributes.get((row["generator"], row["label"]), {}),
        )
        for row in of_labels[:MOST_LABELS]
    ]
    more = words.further(len(of_labels), MOST_LABELS, "in the run’s reliability.parquet")
    meaning = (
        "A failure on an image that does not show its label is the generator’s, not the classifier’s: ? marks labels "
        "that fewer than nine images in ten show."
    )
    shown = Table(columns, lines, sortable=True, filtered="reliable", most=20, more=more)
    return _of_generator([Paragraph(f"{_line(of_labels)} {meaning}"), shown])


def _of_generator(blocks: Sequence[Block]) -> Section:
    return Section("What the generator draws", blocks, "reliable", "What the generator draws")


def _rate(row: Mapping[str, Any]) -> float:
    rate = row["rate"]
    return float(rate) if rate is not None and not math.isnan(rate) else share(row["shown"], row["images"])


def _line(rows: Sequence[Mapping[str, Any]]) -> str:
    images, shown = sum(row["images"] for row in rows), sum(row["shown"] for row in rows)
    with_parent = [row for row in rows if row["parent_shown"] is not None]
    line = (
        f"Of {words.plural(images, 'image')} drawn for {words.plural(len(rows), 'label')}, "
        f"{words.rate(share(images - shown, images))} do not show their label"
    )
    if with_parent:
        parents_shown, images_drawn = (
            sum(row["parent_shown"] for row in with_parent),
            sum(row["images"] for row in with_parent),
        )
        line += (
            f", and {words.rate(share(images_drawn - parents_shown, images_drawn))} show nothing of the label’s parent"
        )
    return f"{line}, by the verifier’s word."


def _drawn(
    row: Mapping[str, Any],
    generator: Sequence[str],
    has_parents: bool,
    attributes: Mapping[str, Sequence[Mapping[str, Any]]],
) -> TableRow:
    rate, label = _rate(row), clean(row["label"])
    low, high = (math.nan if row[name] is None else float(row[name]) for name in ("rate_low", "rate_high"))
    is_marked = rate < LEAST_RATE
    parents = words.UNKNOWN if row["parent_shown"] is None else words.percent(share(row["parent_shown"], row["images"]))
    width = "0" if math.isnan(rate) else f"{100 * rate:.1f}"
    items = tuple(Span(_attribute(name, values), style="item") for name, values in attributes.items())
    doubt = Span("?", style="differs", title="fewer than nine images in ten show it")
    cells: list[str | Cell | Bar] = [
        Cell((Span(f"{label} "), doubt)) if is_marked else label,
        *generator,
        Cell(words.percent(rate), [words.percent_range(low, high)]),
        Bar([Segment("against" if is_marked else "none", width)]),
        *([parents] if has_parents else []),
        words.count(row["images"]),
        Cell(items or words.UNKNOWN, style="shown"),
    ]
    return TableRow(cells, data={"label": label})


def _attribute(name: str, values: Sequence[Mapping[str, Any]]) -> str:
    ranked = sorted(values, key=lambda row: (-_rate(row), row["value"] or ""))
    value_texts = [
        f"{clean(row['value'] or words.UNKNOWN)} {words.percent(_rate(row))}" for row in ranked[:MOST_VALUES]
    ]
    remainder = f" and {words.count(len(ranked) - MOST_VALUES)} more" if len(ranked) > MOST_VALUES else ""
    return f"{clean(name)}: {', '.join(value_texts)}{remainder}"
