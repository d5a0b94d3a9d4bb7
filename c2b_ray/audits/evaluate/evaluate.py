"""Compares detected biases with ground truth, for `c2b evaluate` and `c2b_ray.evaluate`.

    labelled images → answers → truth  ┐
    audits → scores → detected         ├→ matches → HIT, FH, MISS (Tables 1 and 2, App. C and K)
    mistakes → captions → keywords     ┘
    labelled images → answers to questions → agreement (Tables 3 and 4); → embeddings → recall@A·K (Figure 6)

Every audit and stage resumes; the results from them are counted again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray.audits.c2b.run import CLASSIFIER
from c2b_ray.audits.evaluate.config import B2T, EvaluateConfig, Retrieval, read_evaluate_config
from c2b_ray.audits.evaluate.methods import GroundTruthReadings, Method, ask, keyword_baseline, method
from c2b_ray.audits.evaluate.report.page import write_report
from c2b_ray.audits.evaluate.run import EvaluateRun, open_evaluate_run
from c2b_ray.audits.evaluate.steps.matching import MethodMatch, compared, matches, name_similarities, proposers, ranking
from c2b_ray.audits.evaluate.steps.outcomes import (
    Levels,
    agreement_table,
    difference_table,
    outcome_table,
    recall_table,
    threshold_notes,
    threshold_table,
    wanted,
)
from c2b_ray.audits.evaluate.truth import GroundTruth, TruthTable, ground_truth, truth_table
from c2b_ray.audits.kit.models import check_spec
from c2b_ray.audits.kit.progress import Listener
from c2b_ray.audits.kit.session import Session, Steps, finished
from c2b_ray.config.placement import PlacementConfig, read_placement
from c2b_ray.models import catalog
from c2b_ray.stats import match_threshold
from c2b_ray.storage.manifest import FileOrFields
from c2b_ray.tables import content_id

RUNS = "runs"
SET, CALIBRATED = "set", "calibrated"


def evaluate(
    config: FileOrFields | EvaluateConfig,
    out: str | Path | None = None,
    via: str = "auto",
    listener: Listener | None = None,
    placement: FileOrFields | PlacementConfig | None = None,
) -> EvaluateRun:
    """Runs an evaluation, or what is left of it; returns the run, whose tables, results.json and report are in `out`.

    `out`: by default `runs/evaluate-<run id>`. `via` and `placement`: as for `audit`. Raises InputError for errors that
    the user can correct; RunError where `out` holds another run. After an interruption the same call resumes.
    """
    read = read_evaluate_config(config)
    _check_specs(read)
    session = Session(via, None if placement is None else read_placement(placement), listener)
    fields = read.model_dump(mode="json")
    run_id, steps = content_id("evaluate", fields), Steps(session.listener)
    with open_evaluate_run(out or f"{RUNS}/evaluate-{run_id}", run_id, fields) as run:
        table = truth_table(read, run.path)
        truth = ground_truth(read, table, run.path, session)
        methods = [method(name, read, truth, run.path, session) for name in read.methods]
        remarks = _evaluated(read, truth, methods, run, (session, steps))
        with steps.step("report"):
            run.update(
                {
                    "classes": list(truth.classes),
                    "notes": [*_notes(table), *truth.notes, *remarks],
                    "models": _models(read, truth),
                }
            )
            counts = {name: run.count(name) for name in run.kind.tables}
            run.update(finished(session.chosen(lambda: truth.labels.num_rows), steps, counts))
            write_report(run)
    return run


def _check_specs(config: EvaluateConfig) -> None:
    check_spec("sentence_encoder", "sentence_encoder", config.sentence_encoder)
    catalog.describe("sentence_encoder", config.sentence_encoder)  # needed last, and raises now if it is missing
    for name, spec in config.specs.items():
        check_spec(f"classifier.{name}", "classifier", spec)
    if config.b2t is not None:
        check_spec("b2t.captioner", "captioner", config.b2t.captioner)
        check_spec("b2t.encoder", "encoder", config.b2t.encoder)
    if config.vqa is not None:
        check_spec("vqa.model", "captioner", config.vqa.model)
    if config.retrieval is not None:
        check_spec("retrieval.encoder", "encoder", config.retrieval.encoder)


def _notes(table: TruthTable) -> list[str]:
    if not table.missing:
        return []
    return [f"{table.missing} annotated images are not in the folder of images; the ground truth is without them."]


def _models(config: EvaluateConfig, truth: GroundTruth) -> dict[str, Any]:
    recorded = truth.run.manifest.get("models", {})
    return {
        "classifier": [
            {"revision": None, **recorded.get(f"{CLASSIFIER}{name}", {}), "spec": spec}
            for name, spec in config.specs.items()
        ],
        "sentence_encoder": {
            "spec": config.sentence_encoder,
            "revision": catalog.sentence_encoder(config.sentence_encoder).revision,
        },
    }


def _evaluated(
    config: EvaluateConfig,
    truth: GroundTruth,
    methods: Sequence[Method],
    run: EvaluateRun,
    session_and_steps: tuple[Session, Steps],
) -> list[str]:
    """Writes every table; returns notes on the thresholds."""
    (session, steps), location = session_and_steps, run.location("looked")
    keywords = recall = None
    with session.backend(lambda: truth.labels.num_rows) as models:
        looking = GroundTruthReadings(truth, models, location, steps)
        if config.b2t is not None:
            keywords = keyword_baseline(config.b2t, looking, config.alpha)
        if config.retrieval is not None:
            recall = _recall(config.retrieval, looking)
        vqa, shown_by_images = ask(config, truth, methods, keywords, (models, location, steps)).tables()
    of_vqa = {"vqa": vqa, "shown": shown_by_images} | ({} if recall is None else {"recall": recall})
    biases = truth.biases(config.tau, config.alpha)
    detected = {audited_method.name: audited_method.biases for audited_method in methods} | (
        {} if keywords is None else {B2T: keywords}
    )
    with steps.step("match"):
        pairs, vectors = _compared(config, biases, detected)
        cosines = name_similarities(biases, vectors)
        thresholds = {CALIBRATED: match_threshold(cosines, config.differ), SET: config.threshold}
    with steps.step("count"):
        audited = pa.concat_tables([biases.slice(0, 0), *(audited_method.biases for audited_method in methods)])
        least = float(np.nanmin(list(thresholds.values())))
        result_tables = {
            "truth": biases,
            "detected": pa.concat_tables(detected.values()),
            "matches": pa.concat_tables([matches(method_match, vectors, least) for method_match in pairs]),
            "ranking": ranking(audited, config.alpha),
            "proposers": proposers({m.name: _proposed(m) for m in methods}),
            **_outcomes(pairs, Levels(thresholds, config.many, config.alpha, config.seed)),
            **of_vqa,
        }
        for name, table in result_tables.items():
            run.write(name, table)
        run.update({"thresholds": {kind: None if np.isnan(value) else value for kind, value in thresholds.items()}})
    return threshold_notes(result_tables["matches"], len(cosines), thresholds[SET], thresholds[CALIBRATED])


def _outcomes(pairs: Sequence[MethodMatch], levels: Levels) -> dict[str, pa.Table]:
    return {
        "outcomes": outcome_table(pairs, levels),
        "agreement": agreement_table(pairs, levels),
        "differences": difference_table(pairs, levels),
        "thresholds": threshold_table(pairs, frozenset([B2T])),
    }


def _proposed(audited_method: Method) -> tuple[str | None, pa.Table, int, int, pa.Table]:
    run = audited_method.run
    rejected = run.rejected.num_rows if run.has("rejected") else 0
    return audited_method.language_model, run.proposals, rejected, run.captions.num_rows, audited_method.biases


def _compared(
    config: EvaluateConfig, truth: pa.Table, detected: dict[str, pa.Table]
) -> tuple[list[MethodMatch], dict[str, Any]]:
    tables = [truth, *detected.values()]
    texts = sorted({text for table in tables for row in table["wordings"].to_pylist() for text in row})
    rows = catalog.sentence_encoder(config.sentence_encoder).encode_sentences(texts).astype(np.float64)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    vectors = dict(zip(texts, unit, strict=True))
    return [compared(name, truth, table, vectors) for name, table in detected.items()], vectors


def _recall(config: Retrieval, looking: GroundTruthReadings) -> pa.Table:
    vectors = looking.vectors(config.encoder)
    truth = looking.truth
    templates = (config.class_caption, config.value_caption, config.both_caption)
    queries = list(wanted(truth.labels, truth.visible(), truth.classes, truth.words(), templates))
    encoder = looking.models.text_encoder(config.encoder)
    captions = [query.caption for query in queries]
    texts = np.concatenate(
        [encoder.encode_texts(captions[start : start + 256]) for start in range(0, len(captions), 256)]
    )
    return recall_table(queries, texts, vectors, config.shares)
