"""The terminal summary of an audit: its strongest findings, those over all classes and of two values at once, and the
number of cells by verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from c2b_ray.audits.c2b.budget import clusters, duplicates
from c2b_ray.audits.c2b.report import perturbations
from c2b_ray.audits.c2b.report.findings import caveats
from c2b_ray.audits.c2b.report.headline import (
    Accuracy,
    accuracies,
    accuracy_line,
    implausible_line,
    near_line,
    near_misses,
    next_step,
    tally,
    two_stages,
)
from c2b_ray.audits.c2b.report.intersections import sentence, strongest
from c2b_ray.audits.c2b.report.label_errors import label_errors_line
from c2b_ray.audits.c2b.report.look_answers import (
    followed_looks,
    followed_sentence,
    named_by_attributes,
    named_sentence,
    what_answers_follow,
)
from c2b_ray.audits.c2b.report.method import ACCURACY, DerivedValues, compared_by, metric_named, right_line, shown
from c2b_ray.audits.c2b.report.overview import (
    effective_of_all,
    pooled_sentence,
    repeated_findings,
    strongest_pooled,
)
from c2b_ray.audits.c2b.report.ranking import Cell, Group, cells_of, leading, ranked, strongest_first
from c2b_ray.audits.c2b.report.undetermined import copies_line, one_caption_line
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.c2b.scoring.judge import ScoreRow
from c2b_ray.report import words
from c2b_ray.report.method import setup_lines
from c2b_ray.report.words import Column, Summary
from c2b_ray.steps.answers import gives_each_label

MOST_ROWS = 15
VERDICTS = ("for", "against", "none", "undetermined")
COLUMNS = (
    *(Column(name) for name in ("classifier", "class", "attribute", "value")),
    *(Column(name, number=True) for name in ("right", "φ", "interval of φ", "n")),
    Column("verdict"),
    Column("more", number=True),
)
_MARKS = {"against": "bad", "for": "good"}


def _accuracies(run: C2BRun, cells: Sequence[Cell], confidence: float) -> list[Accuracy]:
    found, clusters_of_run = accuracies(cells, gives_each_label(run.predictions_of(["predicted_class"]))), clusters(run)
    if clusters_of_run is None:
        return found
    shares = effective_of_all(run.captions, run.draws, run.predictions, duplicates(run), clusters_of_run, confidence)
    return [replace(of, independent=shares.get(of.classifier, 1.0)) for of in found]


def summary(run: C2BRun) -> Summary:
    scores, config = run.scores, run.config
    cells, groups = cells_of(scores), leading(ranked(scores))
    verdicts = {name: sum(cell.verdict == name for cell in cells) for name in VERDICTS}
    pooled = strongest_pooled(run.read("pooled").to_pylist())
    pairs = strongest(run.intersections.to_pylist())
    confidence = 1 - config.alpha
    repeated = repeated_findings(cells)
    lines = [pooled_sentence(row, row["classifier"], confidence, repeated) for row in pooled[:MOST_ROWS]]
    lines += ["".join(span.text for span in sentence(row, row["classifier"], confidence)) for row in pairs[:MOST_ROWS]]
    perturbed = run.read("perturbations").to_pylist()
    perturbation_groups = perturbations.strongest(perturbed)
    lines += [
        _perturbed_line(perturbation_rows[0], confidence) for perturbation_rows in perturbation_groups[:MOST_ROWS]
    ]
    lines += [perturbations.line(perturbed)] if perturbed else []
    by_column = named_by_attributes(
        cells, run.captions, run.draws, run.predictions, config.tau, config.alpha, partial(duplicates, run)
    )
    named_lines = [
        "".join(span.text for span in named_sentence(look, cells, f"{look.classifier}: ", confidence)[0])
        for look in by_column
    ]
    told_by_column = {look.classifier for look in by_column}
    looks = [
        look
        for look in followed_looks(run.read("looks"), run.read("look_alikes"))
        if look.classifier not in told_by_column
    ]
    followed = ["".join(span.text for span in followed_sentence(look, f"{look.classifier}: ")) for look in looks]
    stages = two_stages(config, cells, run.captions, run.read("confirmation"))
    rule = right_line(config, run.manifest.get("rule"))
    cautions = [line for line in (one_caption_line(cells), copies_line(cells)) if line]
    right = _accuracies(run, cells, confidence)
    notes = setup_lines(run.manifest, what_answers_follow(by_column, looks))
    closest = near_misses(cells, config.tau)
    ahead = (
        [*(near_line(cell, len(right) > 1, config.tau) for cell in closest), next_step(closest, config)]
        if cells
        else []
    )
    of_findings, derived = findings_table(groups), DerivedValues(run.manifest)
    leads = [group.lead for group, _ in groups[:MOST_ROWS] if group.lead is not None]
    meanings = dict.fromkeys(
        f"{lead.target_class}, {lead.attribute}: {line}"
        for lead in leads
        if (line := derived.explained(lead.target_class, lead.attribute, lead.bias_class))
    )
    tally_line = (
        [tally(cells, len(pooled), len(pairs), sum(map(len, perturbation_groups)))] if cells or not perturbed else []
    )
    return Summary(
        title=of_findings.title,
        columns=of_findings.columns,
        rows=of_findings.rows,
        marks=of_findings.marks,
        lines=[
            *named_lines,
            *followed,
            *(accuracy_line(accuracy, confidence) for accuracy in right),
            *meanings,
            *lines,
            *filter(None, (compared_by(config), rule, stages)),
            *cautions,
            *filter(None, (label_errors_line(run.read("label_errors"), config),)),
            *tally_line,
            *filter(None, ahead),
        ],
        report=run.report,
        first=notes or list(filter(None, map(implausible_line, right))),
        headline=". ".join(
            [*(line.rstrip(".") for line in [*named_lines, *followed][:1]), *_strongest(groups), *tally_line]
        )
        or next(iter(lines), ""),
        findings={
            name: sum(cell.is_finding for cell in cells if cell.classifier == name)
            for name in sorted({cell.classifier for cell in cells})
        },
        to_json={
            "run": run.path,
            "report": run.report,
            "setup": run.manifest.get("setup") or [],
            "accuracy": [
                {"classifier": accuracy.classifier, "right": accuracy.right, "images": accuracy.images}
                for accuracy in right
            ],
            "verdicts": verdicts,
            "next": list(filter(None, ahead)),
            "named_by_attributes": named_lines,
            "looks": run.read("looks").to_pylist(),
            "cautions": cautions,
            "blank_rows": run.manifest.get("blank_rows") or {},
            "groups": len(groups),
            "findings": findings(scores),
            "pooled": pooled,
            "intersections": pairs,
            "perturbations": [row for perturbation_rows in perturbation_groups for row in perturbation_rows],
        },
    )


def _perturbed_line(row: perturbations.Row, confidence: float) -> str:
    return "".join(span.text for span in perturbations.sentence(row, row["classifier"], confidence))


def _strongest(groups: Sequence[tuple[Group, Sequence[Group]]]) -> list[str]:
    lead = groups[0][0].lead if groups else None
    if lead is None:
        return []
    accuracy = lead.metric == ACCURACY
    value = (
        f"{words.percent(lead.accuracy)} right"
        if accuracy
        else f"{metric_named(lead.metric)} {shown(lead.metric, lead.accuracy)}"
    )
    return [f"{lead.target_class}, {lead.attribute} {lead.bias_class}: {value} (φ {words.signed(lead.phi)})"]


def findings_table(groups: Sequence[tuple[Group, Sequence[Group]]]) -> Summary:
    """Returns the strongest findings: the lead of each ranked group, and the number of findings that the page folds
    beneath it."""
    rows, marks = [], []
    for group, similar in groups[:MOST_ROWS]:
        cell = group.lead
        if cell is None:
            continue
        folded_findings = sum(other.is_finding for member in (group, *similar) for other in member.cells) - 1
        basis = "".join(f" {caveat}" for caveat in caveats(cell))
        rows.append(
            (
                *(cell.classifier, cell.target_class, cell.attribute, cell.bias_class),
                words.percent(cell.accuracy) if cell.metric == ACCURACY else shown(cell.metric, cell.accuracy),
                f"{cell.phi:+.2f}",
                f"{cell.phi_low:+.2f} … {cell.phi_high:+.2f}",
                str(cell.n),
                f"{cell.verdict}{basis}",
                f"+{folded_findings}" if folded_findings else "",
            )
        )
        marks.append(_MARKS[cell.verdict])
    number_of_findings = sum(
        cell.is_finding for group, similar in groups for one in (group, *similar) for cell in one.cells
    )
    if len(rows) == len(groups) < number_of_findings:  # a row stands for several
        title = f"Strongest findings ({words.count(number_of_findings)} in {words.plural(len(groups), 'group')})"
    else:
        title = words.shown_of("Strongest findings", len(rows), len(groups))
    metric = next((member.metric for group, _ in groups for member in group.cells), ACCURACY)
    columns = [Column(metric_named(metric), number=True) if column.name == "right" else column for column in COLUMNS]
    return Summary(title, COLUMNS if metric == ACCURACY else columns, rows, marks, lines=())


def findings(scores: pa.Table) -> list[ScoreRow]:
    """Returns the rows of scores judged `for` or `against`, in the order of the page."""
    pairs = [(cell, row) for cell, row in zip(cells_of(scores), scores.to_pylist(), strict=True) if cell.is_finding]
    return [row for _, row in sorted(pairs, key=lambda pair: strongest_first(pair[0]))]
