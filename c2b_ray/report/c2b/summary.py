"""The terminal summary of a C2B run: its strongest findings, those over all classes and of two values at once, and the
number of cells by verdict.

Knows the report's ranking and sentences; knows nothing of terminals.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from c2b_ray.report.c2b import perturbations
from c2b_ray.report.c2b.derived import DerivedValues
from c2b_ray.report.c2b.findings import caveats
from c2b_ray.report.c2b.headline import tally, two_stages
from c2b_ray.report.c2b.intersections import sentence, strongest
from c2b_ray.report.c2b.method import right_line
from c2b_ray.report.c2b.notes import copies_line, one_caption_line
from c2b_ray.report.c2b.outlook import (
    accuracies,
    accuracy_line,
    implausible_line,
    near_line,
    near_misses,
    next_step,
)
from c2b_ray.report.c2b.pooled import pooled_sentence, strongest_pooled
from c2b_ray.report.c2b.ranking import Group, cells_of, leading, ranked, strongest_first
from c2b_ray.report.kit import words
from c2b_ray.report.kit.setup import setup_lines
from c2b_ray.report.kit.summary import Column, Summary
from c2b_ray.steps.score_row import ScoreRow
from c2b_ray.store.c2b_run import C2BRun

MOST_ROWS = 15
VERDICTS = ("for", "against", "none", "undetermined")
COLUMNS = (
    *(Column(name) for name in ("classifier", "class", "attribute", "value")),
    *(Column(name, number=True) for name in ("right", "φ", "interval of φ", "n")),
    Column("verdict"),
    Column("more", number=True),
)
_MARKS = {"against": "bad", "for": "good"}


def summary(run: C2BRun) -> Summary:
    scores = run.scores
    cells, groups = cells_of(scores), leading(ranked(scores))
    verdicts = {name: sum(cell.verdict == name for cell in cells) for name in VERDICTS}
    pooled = strongest_pooled(run.read("pooled").to_pylist())
    pairs = strongest(run.intersections.to_pylist())
    confidence = 1 - float(run.config.get("alpha", 0.05))
    lines = [pooled_sentence(row, row["classifier"], confidence) for row in pooled[:MOST_ROWS]]
    lines += ["".join(span.text for span in sentence(row, row["classifier"], confidence)) for row in pairs[:MOST_ROWS]]
    perturbed = run.read("perturbations").to_pylist()
    told = perturbations.strongest(perturbed)
    lines += [_perturbed_line(of[0], confidence) for of in told[:MOST_ROWS]]
    lines += [perturbations.line(perturbed)] if perturbed else []
    stages = two_stages(run.config, cells, run.captions, run.read("confirmation"))
    rule, cautions = right_line(run.config), [line for line in (one_caption_line(cells), copies_line(cells)) if line]
    right = accuracies(cells)
    noted = setup_lines(run.manifest)
    near = near_misses(cells, float(run.config.get("tau", 0.05)))
    ahead = [*(near_line(cell, len(right) > 1) for cell in near), next_step(near, run.config)] if cells else []
    of_findings, derived = findings_table(groups), DerivedValues(run.manifest)
    leads = [group.lead for group, _ in groups[:MOST_ROWS] if group.lead is not None]
    meant = dict.fromkeys(
        f"{lead.target_class}, {lead.attribute}: {line}"
        for lead in leads
        if (line := derived.explained(lead.target_class, lead.attribute, lead.bias_class))
    )
    counted = [tally(cells, len(pooled), len(pairs), sum(map(len, told)))] if cells or not perturbed else []
    return Summary(
        title=of_findings.title,
        columns=of_findings.columns,
        rows=of_findings.rows,
        marks=of_findings.marks,
        lines=[
            *(accuracy_line(one, confidence) for one in right),
            *meant,
            *lines,
            *filter(None, (rule, stages)),
            *cautions,
            *counted,
            *filter(None, ahead),
        ],
        report=run.report,
        first=noted or list(filter(None, map(implausible_line, right))),
        headline=". ".join([*_strongest(groups), *counted]) or next(iter(lines), ""),
        findings={
            name: sum(cell.is_finding for cell in cells if cell.classifier == name)
            for name in sorted({cell.classifier for cell in cells})
        },
        to_json={
            "run": run.path,
            "report": run.report,
            "setup": run.manifest.get("setup") or [],
            "accuracy": [{"classifier": one.classifier, "right": one.right, "images": one.images} for one in right],
            "verdicts": verdicts,
            "next": list(filter(None, ahead)),
            "cautions": cautions,
            "blank_rows": run.manifest.get("blank_rows") or {},
            "groups": len(groups),
            "findings": findings(scores),
            "pooled": pooled,
            "intersections": pairs,
            "perturbations": [row for of in told for row in of],
        },
    )


def _perturbed_line(row: perturbations.Row, confidence: float) -> str:
    return "".join(span.text for span in perturbations.sentence(row, row["classifier"], confidence))


def _strongest(groups: Sequence[tuple[Group, Sequence[Group]]]) -> list[str]:
    lead = groups[0][0].lead if groups else None
    if lead is None:
        return []
    return [
        f"{lead.target_class}, {lead.attribute} {lead.bias_class}: {lead.accuracy:.0%} right "
        f"(φ {words.signed(lead.phi)})"
    ]


def findings_table(groups: Sequence[tuple[Group, Sequence[Group]]]) -> Summary:
    """Returns the strongest findings: the lead of each ranked group, and the number of findings that the page folds
    beneath it."""
    rows, marks = [], []
    for group, alike in groups[:MOST_ROWS]:
        cell = group.lead
        if cell is None:
            continue
        more = sum(other.is_finding for one in (group, *alike) for other in one.cells) - 1
        basis = "".join(f" {caveat}" for caveat in caveats(cell))
        rows.append(
            (
                *(cell.classifier, cell.target_class, cell.attribute, cell.bias_class),
                f"{cell.accuracy:.0%}",
                f"{cell.phi:+.2f}",
                f"{cell.phi_low:+.2f} … {cell.phi_high:+.2f}",
                str(cell.n),
                f"{cell.verdict}{basis}",
                f"+{more}" if more else "",
            )
        )
        marks.append(_MARKS[cell.verdict])
    title = f"Strongest findings ({min(MOST_ROWS, len(groups))} of {len(groups)})"
    return Summary(title, COLUMNS, rows, marks, lines=())


def findings(scores: pa.Table) -> list[ScoreRow]:
    """Returns the rows of scores judged `for` or `against`, in the order of the page."""
    pairs = [(cell, row) for cell, row in zip(cells_of(scores), scores.to_pylist(), strict=True) if cell.is_finding]
    return [row for _, row in sorted(pairs, key=lambda pair: strongest_first(pair[0]))]
