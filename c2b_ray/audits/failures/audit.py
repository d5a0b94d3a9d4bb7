"""Wiles et al. (2022): which captions make an image classifier fail, and how often.

Below the walk: how reliably the generator draws a label (App. B.3), and which captions the search tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from c2b_ray.audits.failures.config import FailuresConfig, read_failures_config
from c2b_ray.audits.failures.confirmation import TEST_SHARE, Confirmation, discovered, generalise
from c2b_ray.audits.failures.discovery.candidates import Candidate, Hierarchy
from c2b_ray.audits.failures.discovery.race import POWER, Confirming, Screening, least_caption_rate
from c2b_ray.audits.failures.discovery.reliability import answer_of, inspect, inspection, reliability, unreliable_labels
from c2b_ray.audits.failures.discovery.rounds_stage import describe_all
from c2b_ray.audits.failures.drawing import CONFIRMATION, DISCOVERY, SEARCH, TEST
from c2b_ray.audits.failures.estimate import checked, expected
from c2b_ray.audits.failures.labelled import find_labelled
from c2b_ray.audits.failures.refinement import FIRST, GOAL, GROWTH, baseline_rate, described
from c2b_ray.audits.failures.report.page import write_report
from c2b_ray.audits.failures.run import CaptionReach, CaptionSearch, FailuresRun, open_failures_run
from c2b_ray.audits.failures.search import FEWEST, SURPRISE, discover
from c2b_ray.audits.failures.setup import note_setup, of_baselines
from c2b_ray.audits.failures.state import FailuresState, Kind, ancestry_of, start, write_candidates, write_hypotheses
from c2b_ray.audits.kit.backend import AUTO, backend
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.models import HERE, held_in_memory, model_row, paths_read, specs_of, warn_of_assumptions
from c2b_ray.audits.kit.progress import Listener
from c2b_ray.audits.kit.session import Cost, Session, Steps, finished
from c2b_ray.config.placement import PlacementConfig, read_placement
from c2b_ray.engine.images import of_revision
from c2b_ray.roles import Answer
from c2b_ray.stats.intervals import wilson_interval
from c2b_ray.storage.manifest import FileOrFields
from c2b_ray.tables import RELIABILITY, content_id

if TYPE_CHECKING:
    from c2b_ray.models.memory_classifier import InMemory, Model


RUNS = "runs"


def find_failures(
    config: FileOrFields | FailuresConfig,
    out: str | Path | None = None,
    via: str = AUTO,
    listener: Listener | None = None,
    placement: FileOrFields | PlacementConfig | None = None,
    *,
    classifier: Model | InMemory | Mapping[str, Model | InMemory] | None = None,
    labels: Sequence[str] | None = None,
    costs: Sequence[Cost] = (),
) -> FailuresRun:
    """Finds the captions that make a classifier fail, or resumes such a run, and returns it.

    `config`: the path of a failures file, a mapping of its fields, or a `FailuresConfig`. The other arguments are those
    of `c2b_ray.audit`: `out`: the run directory, by default `runs/failures-<run id>`. `via`: where the models run:
    `here`, `actors`, `serve` or `auto`. `placement`: how many processes run each stage. `classifier`, `labels`: models
    in memory. `costs`: the estimate made before the run; the manifest keeps it.

    Raises InputError for what the user can correct. After an interruption the same call resumes the run.
    """
    in_memory = held_in_memory(classifier, labels, via)  # held until the run ends
    session = Session(HERE if in_memory else via, None if placement is None else read_placement(placement), listener)
    return find(read_failures_config(config, specs_of(in_memory)), out, session, costs)


def find(config: FailuresConfig, out: str | Path | None, session: Session, costs: Sequence[Cost] = ()) -> FailuresRun:
    """Does the work of `find_failures`. `costs`: the estimate made before the run; the manifest keeps it."""
    config = checked(config, session.via)
    via = session.chosen(lambda: config.budget.draws)
    fields = config.model_dump(mode="json")
    run_id = content_id("failures", fields)
    steps = Steps(session.listener)
    with open_failures_run(out or f"{RUNS}/failures-{run_id}", run_id, fields) as run:
        if costs or "estimate" not in run.manifest:
            run.update({"estimate": expected(config, costs).model_dump(exclude_none=True)})
        with backend(via, session.placement) as models:
            walk(config, run, models, steps)
        with steps.step("report"):
            run.update(finished(via, steps, {name: run.read(name).num_rows for name in ("candidates", "hypotheses")}))
            write_report(run)
    return run


def walk(config: FailuresConfig, run: FailuresRun, models: Backend, steps: Steps) -> None:
    """Runs the whole protocol, from the baselines to the table of hypotheses."""
    models.runner.check_paths(run.path, paths_read(config))
    if config.images.labelled is not None:
        find_labelled(config, run, models, steps)
        return
    work = start(config, run, models, steps, config.seed)
    draws = config.budget.draws
    hypotheses = discover(work, int(draws * config.budget.discovery))
    note_setup(config, run, work.drawing.stage.classifiers, of_baselines(work), steps)
    work.doubts.update(measure_trust(work))
    write_candidates(work)
    confirmation = Confirmation(work, hypotheses)
    remaining = draws - sum(work.drawing.spent.values())
    confirmation.test(int(remaining * TEST_SHARE))
    confirmation.test(int(confirmation.spare(draws - sum(work.drawing.spent.values())) * TEST_SHARE))
    confirmation.measure(draws - sum(work.drawing.spent.values()))
    generalise(work, confirmation.findings)
    write_hypotheses(run, pa.concat_tables([confirmation.table(), discovered(work, hypotheses)]))
    spent = {f"{stage} {part}": count for (stage, part), count in sorted(work.drawing.spent.items())}
    dropped_sentences = {} if work.describing is None else work.describing.dropped
    placements = models.runner.placements
    run.update(
        {
            "spent": spent,
            "dropped_sentences": dropped_sentences,
            "caption_search": reach_of(work, confirmation).model_dump(),
            **({"placement": placements, "stages": models.runner.stages} if placements else {}),
        }
    )


# Measures whether the generator draws a label at all, as a verifier sees it (Wiles et al. 2022, App. B.3). The images
# are the sample of each label's baseline. Their other content (Fig. 5b) comes from the captioner's descriptions.


SHOWN = 12
"""Sentences of each label that the table has: those that are said most."""


def measure_trust(work: FailuresState) -> dict[str, str]:
    """Writes `tables.RELIABILITY`; returns label → why it is not to be trusted."""
    if work.config.verifier is None:
        return {}
    labels = [label for label, caption in work.baselines.items() if work.drawing.sample(caption)]
    ancestry = ancestry_of(work.config)
    answers = _seen(work, labels)
    inspections = [inspection(label, work.config.labels) for label in labels]
    hierarchy = None if ancestry is None else Hierarchy(ancestry)
    answers_of_label = [[[answer] for answer in answers[label]] for label in labels]
    rows = reliability(work.drawing.source, inspections, answers_of_label, hierarchy)
    work.run.write("reliability", pa.concat_tables([rows, *(_said(work, label) for label in labels)]))
    return unreliable_labels(rows)


def _seen(work: FailuresState, labels: list[str]) -> dict[str, list[Answer]]:
    """Returns what the verifier sees in each image of a label's sample."""
    spec = str(work.config.verifier)
    described = work.models.describe("captioner", spec)
    revision = described.revision
    work.run.update({"models": {"verifier": model_row(spec, described)}})
    warn_of_assumptions(work.steps, spec, described)
    images = [
        (label, sample_row["image"]) for label in labels for sample_row in work.drawing.sample(work.baselines[label])
    ]
    ids = [content_id("inspect", revision, label, work.config.labels, data) for label, data in images]
    stored = _known(work, ids)
    missing = {answer_id: image for answer_id, image in zip(ids, images, strict=True) if answer_id not in stored}
    if missing:
        work.run.begin_writing()
        rows = pa.table(
            {
                "description_id": list(missing),
                "label": [label for label, _ in missing.values()],
                "labels": [work.config.labels] * len(missing),
                "image": pa.array([data for _, data in missing.values()], pa.binary()),
            }
        )
        factory = partial(of_revision, work.models.captioner(spec), revision, spec)
        with work.steps.step("verify the generator") as on_progress:
            describe_all(work.models.runner, rows, factory, work.run.location("descriptions"), on_progress, inspect)
        stored = _known(work, ids)
    answers: dict[str, list[Answer]] = {label: [] for label in labels}
    for answer_id, (label, _) in zip(ids, images, strict=True):
        answers[label].append(answer_of(*stored[answer_id]))
    return answers


def _known(work: FailuresState, ids: list[str]) -> dict[str, tuple[str | None, str | None]]:
    wanted_ids, rows = set(ids), work.run.read("descriptions").to_pylist()
    return {row["description_id"]: (row["text"], row["error"]) for row in rows if row["description_id"] in wanted_ids}


def _said(work: FailuresState, label: str) -> pa.Table:
    """Counts of how many of a label's images the captioner says each sentence."""
    if work.describing is None:
        return RELIABILITY.empty_table()
    sample = work.drawing.sample(work.baselines[label])
    descriptions = [
        sentences for sentences in work.describing.sentences([(label, image["image"]) for image in sample]) if sentences
    ]
    counts = Counter(sentence for sentences in descriptions for sentence in set(sentences))
    rows = []
    for sentence, times in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:SHOWN]:
        low, high = wilson_interval(times, len(descriptions))
        fields = {"generator": work.drawing.source, "label": label, "attribute": "description", "value": sentence}
        numbers = {
            "images": len(descriptions),
            "shown": times,
            "rate": times / len(descriptions),
            "rate_low": low,
            "rate_high": high,
        }
        rows.append(fields | numbers)
    return pa.Table.from_pylist(rows, RELIABILITY)


# Says which captions a search among generated images tried, and which failure rate of another it would have found.


SIZES = 3
"""Captions are counted by their sentences: one, two, three or more."""


def reach_of(work: FailuresState, confirmation: Confirmation) -> CaptionSearch:
    """Returns what was tried for each classifier and label. The least rates are those of one more caption of a label,
    if it is proposed and drawn, with the label's share of the draws that this run had for its test."""
    config, labels = work.config, len(work.baselines)
    in_discovery = sum(count for (stage, _), count in work.drawing.spent.items() if stage == DISCOVERY)
    at_test = (config.budget.draws - in_discovery) * TEST_SHARE / labels
    tested = Confirming(
        at_test,
        (len(confirmation.hypotheses) + 1) / (len(confirmation.findings) + 1),
        config.alpha,
        config.smallest_ratio,
    )
    rows = [
        _of_label(work, confirmation, decider.classifier, label, tested)
        for decider in work.drawing.deciders
        for label in work.baselines
    ]
    return CaptionSearch(power=POWER, tested=len(confirmation.hypotheses), draws_of_label=int(at_test), labels=rows)


def _of_label(
    work: FailuresState, confirmation: Confirmation, classifier: str, label: str, tested: Confirming
) -> CaptionReach:
    base, any_failure = work.baselines[label], Kind(classifier, label, None)
    proposed = [
        candidate
        for candidate in work.candidates.values()
        if candidate.label == label and candidate.origin != "baseline"
    ]
    screened = [
        candidate for candidate in proposed if work.drawing.counts(candidate, classifier, DISCOVERY, SEARCH).draws
    ]
    confirmed = {
        candidate.caption.caption_id
        for candidate in confirmation.hypotheses
        if candidate.kind.classifier == classifier
        and work.drawing.counts(candidate.caption, classifier, CONFIRMATION, TEST).draws
    }
    images, usual = work.drawing.counts(base, classifier, DISCOVERY, SEARCH).draws, baseline_rate(work, any_failure)
    descriptions = [] if work.describing is None else described(work, any_failure, base)
    pairs = _pairs(descriptions)
    most = max(images // 2, 1)
    screening = Screening(most, FIRST, GROWTH, GOAL, FEWEST, SURPRISE)
    return CaptionReach(
        classifier=classifier,
        label=label,
        images=images,
        usual=usual,
        proposed=_by_size(proposed),
        screened=_by_size(screened),
        tested=_by_size(candidate for candidate in proposed if candidate.caption_id in confirmed),
        pairs=len(pairs),
        pairs_not_tried=len(pairs - _pairs(candidate.sentences for candidate in screened)),
        least=least_caption_rate(usual, screening, tested),
    )


def _by_size(captions: Iterable[Candidate]) -> list[int]:
    counts = Counter(min(max(len(caption.sentences), 1), SIZES) for caption in captions)
    return [counts[size] for size in range(1, SIZES + 1)]


def _pairs(descriptions: Iterable[Iterable[str]]) -> set[tuple[str, str]]:
    """Returns every two sentences that stand together."""
    return {(a, b) for sentences in descriptions for a, b in combinations(sorted(set(sentences)), 2)}
