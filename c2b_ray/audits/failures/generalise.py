"""Tests the captions of findings elsewhere: with other classifiers, other generators, and the images of an index.

From each source, some runs of a caption are compared with as many of its baseline by Mann and Whitney's exact test
(Wiles et al. 2022, Table 6). All of these draws are new, also those of the run's own generator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from c2b_ray.audits.failures.beside import beside
from c2b_ray.audits.failures.drawing import CONFIRMATION, MEASURE, Drawing, Source, Wanted
from c2b_ray.audits.failures.sources import Generated, Indexed, generated, indexed
from c2b_ray.audits.failures.work import Hypothesis, Work
from c2b_ray.metrics.mann_whitney import mann_whitney
from c2b_ray.pipelines.rounds import RoundStage
from c2b_ray.schemas import TRANSFERS, seed_of
from c2b_ray.schemas.failure_rows import TransferRow
from c2b_ray.steps.discovery.candidates import Candidate

RUNS = "runs"


def generalise(work: Work, findings: Sequence[Hypothesis]) -> None:
    """Writes `schemas.TRANSFERS`. With a section `generalise`: runs of every source; without one: the other classifiers
    on the draws that measured the findings."""
    rows: list[TransferRow] = []
    if work.config.generalise is None:
        rows += [row for one in findings for row in _rows(work, one, work.drawing, MEASURE, is_elsewhere=False)]
    else:
        captions = list(dict.fromkeys(c for one in findings for c in (work.baselines[one.kind.label], one.caption)))
        for drawing in _elsewhere(work, captions) if captions else ():
            rows += [row for one in findings for row in _rows(work, one, drawing, RUNS, is_elsewhere=True)]
    rows += beside(work)
    if rows or work.config.generalise is not None:
        work.run.write("transfers", pa.Table.from_pylist(rows, TRANSFERS))


def _elsewhere(work: Work, captions: Sequence[Candidate]) -> Iterator[Drawing]:
    """Draws the runs of these captions and returns every source, the run's own first."""
    section, models = work.config.generalise, work.models
    assert section is not None
    seed = seed_of("generalise", work.config.seed)
    sources: list[Generated | Indexed] = [
        generated(spec, models, seed) for spec in dict.fromkeys((work.drawing.source, *section.generators))
    ]
    if section.index is not None:
        sources.append(indexed(section.index, captions, section.runs * section.images, models))
    for source in sources:
        drawing = _drawing(work, source, source.load, seed, section.images)
        wanted = [Wanted(one, CONFIRMATION, RUNS, section.runs * section.images) for one in captions]
        drawing.draw(wanted, work.steps, f"generalise: {source.name}")
        yield drawing


def _drawing(work: Work, source: Source, load: Any, seed: int, size: int) -> Drawing:
    contenders = work.drawing.stage.contenders
    stage = RoundStage(work.models.runner, load, contenders, work.run.location("rounds"), seed)
    return Drawing(work.run, stage, source, work.drawing.deciders, size)


def _rows(work: Work, one: Hypothesis, drawing: Drawing, part: str, is_elsewhere: bool) -> Iterator[TransferRow]:
    """Returns a row per classifier; the finding's own classifier only where the images are new to it."""
    base = work.baselines[one.kind.label]
    for decider in drawing.deciders:
        name, target = decider.classifier, one.kind.target
        if name == one.kind.classifier and not is_elsewhere:
            continue
        mine, others = (drawing.counts(caption, name, CONFIRMATION, part) for caption in (one.caption, base))
        x, y = (drawing.rates(caption, name, part, target) if is_elsewhere else [] for caption in (one.caption, base))
        yield {
            "caption_id": one.caption.caption_id,
            "label": one.kind.label,
            "target": target,
            "source": drawing.source,
            "classifier": name,
            "draws": mine.draws,
            "failures": mine.towards(target),
            "any_failures": mine.failures,
            "baseline_draws": others.draws,
            "baseline_failures": others.towards(target),
            "rates": x,
            "baseline_rates": y,
            "p_value": mann_whitney(x, y).p_value if x and y else None,
        }
