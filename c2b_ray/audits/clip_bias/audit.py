"""Ramos et al. (2025): how biased CLIP models are, globally and locally, and whether it transfers downstream."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from c2b_ray.audits.clip_bias.config import ClipBiasConfig
from c2b_ray.audits.clip_bias.datasets import (
    EmbeddedDataset,
    Embedding,
    Encoder,
    cluster_table,
    embedded_dataset,
    example_table,
)
from c2b_ray.audits.clip_bias.downstream import GroupGuesses, ResultBlock, measure_downstream
from c2b_ray.audits.clip_bias.measurement import checked, convergence_table, images_in, measure_pretraining
from c2b_ray.audits.clip_bias.report import write_report
from c2b_ray.audits.clip_bias.run import ClipBiasRun, load_clip_bias_run, open_clip_bias_run
from c2b_ray.audits.clip_bias.steps.measure import (
    MeasuredModels,
    bias_table,
    rate_table,
    replicate_table,
    with_q_values,
)
from c2b_ray.audits.clip_bias.steps.relations import gap_table, locality_table, pair_table, transfer_table
from c2b_ray.audits.kit.backend import AUTO, backend
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.models import model_row, paths_read, warn_of_assumptions
from c2b_ray.audits.kit.progress import Listener
from c2b_ray.audits.kit.session import Session, Steps, finished
from c2b_ray.config.placement import PlacementConfig, read_placement
from c2b_ray.config.reading import ConfigFile
from c2b_ray.errors import ConfigError
from c2b_ray.models import group_guessers
from c2b_ray.storage.manifest import FileOrFields
from c2b_ray.tables import content_id

RUNS = "runs"
TABLES = ("clip_bias", "transfer", "locality", "rates", "model_pairs", "gaps", "convergence", "clusters")


def clip_bias(
    config: FileOrFields | ClipBiasConfig,
    out: str | Path | None = None,
    via: str = AUTO,
    listener: Listener | None = None,
    placement: FileOrFields | PlacementConfig | None = None,
    reuse: str | Path | ClipBiasRun | None = None,
) -> ClipBiasRun:
    """Measures the biases of CLIP models and how they correlate, or resumes such a run, and returns the run.

    `config`: a file's path, a mapping of its fields, or a `ClipBiasConfig`. The other arguments are those of
    `c2b_ray.audit`: `out`: the run directory, by default `runs/clip-bias-<run id>`. `via`: where the models run:
    `here`, `actors`, `serve` or `auto`. `placement`: how many processes run each stage.

    `reuse`: an earlier run of other metrics, groups or results on the same tables; its embeddings are copied, not
    computed again. An image is identified by its key, its bytes and the model's revision: one replaced under its name
    is embedded anew, here and where a run is resumed.

    Raises InputError for errors that the user can correct; after an interruption the same call resumes the run.
    """
    session = Session(via, None if placement is None else read_placement(placement), listener)
    return measure(read_clip_bias_config(config), out, session, reuse)


def measure(
    config: ClipBiasConfig, out: str | Path | None, session: Session, reuse: str | Path | ClipBiasRun | None = None
) -> ClipBiasRun:
    """Does the work of `clip_bias`."""
    earlier = None if reuse is None else load_clip_bias_run(reuse)
    config = checked(config, session.via)
    via = session.chosen(lambda: images_in(config))
    fields = config.model_dump(mode="json")
    run_id = content_id("clip-bias", fields)
    steps = Steps(session.listener)
    with open_clip_bias_run(out or f"{RUNS}/clip-bias-{run_id}", run_id, fields) as run:
        with backend(via, session.placement) as models:
            walk(config, Embedding(run, models.runner, earlier), models, steps)
        with steps.step("report"):
            run.update(finished(via, steps, {name: run.count(name) for name in TABLES}))
            write_report(run)
    return run


def walk(config: ClipBiasConfig, embedding: Embedding, models: Backend, steps: Steps) -> None:
    """Runs the whole protocol, from embeddings to the tables."""
    run = embedding.run
    models.runner.check_paths(run.path, paths_read(config))
    encoders = _encoders(config, run, models, steps)
    measurements = MeasuredModels()
    data, recall = {}, {}
    for name in config.datasets:
        data[name], notes = embedded_dataset(name, config, encoders, embedding, steps)
        measurements.notes += notes
        with steps.step(f"measure {name}"):
            recall[name] = measure_pretraining(measurements, data[name], config, encoders)
    with steps.step("measure what is built on the models") as on_progress:
        guesser = partial(group_guessers.load, config.leakage.guesser)
        guesses = GroupGuesses(run, models.runner, guesser, config, on_progress)
        for name, block in config.downstream.items():
            measure_downstream(measurements, ResultBlock(name, block, data[block.dataset].images, config), guesses)
    with steps.step("correlate"):
        performance = config.performance or next((of_models for of_models in recall.values() if of_models), {})
        _write_tables(config, run, measurements, performance)
    with steps.step("compare embedding spaces"):
        run.write("convergence", convergence_table(measurements, config, data, encoders))
    run.write("clusters", cluster_table(list(data.values())))
    run.write("examples", example_table(list(data.values()), config.seed))
    _note(config, run, measurements, data, performance)
    if placements := models.runner.placements:
        run.update({"placement": placements, "stages": models.runner.stages})


def _encoders(config: ClipBiasConfig, run: ClipBiasRun, models: Backend, steps: Steps) -> dict[str, Encoder]:
    descriptions = {name: models.describe("encoder", spec) for name, spec in config.models.items()}
    for name, description in descriptions.items():
        warn_of_assumptions(steps, name, description)
    run.update(
        {"models": {f"encoder {name}": model_row(spec, descriptions[name]) for name, spec in config.models.items()}}
    )
    return {
        name: Encoder(name, spec, descriptions[name].revision, models.encoder(spec))
        for name, spec in config.models.items()
    }


def window_of(config: ClipBiasConfig, performance: dict[str, float]) -> list[str]:
    """Returns the models whose transfer is studied: all, or those whose performance is within the window."""
    if config.window is None:
        return list(config.models)
    low, high = config.window
    return [model for model in config.models if low <= performance.get(model, float("nan")) <= high]


def _write_tables(
    config: ClipBiasConfig, run: ClipBiasRun, measurements: MeasuredModels, performance: dict[str, float]
) -> None:
    rows, confidence = with_q_values(measurements.biases), 1 - config.alpha
    window = window_of(config, performance)
    if config.window is not None and len(window) < 3:
        measurements.notes.append(f"window: {len(window)} models of a performance in it; transfer needs three")
    dataset_of_block = {name: block.dataset for name, block in config.downstream.items()}
    run.write("clip_bias", bias_table(rows))
    run.write("replicates", replicate_table(rows))
    run.write("rates", rate_table(measurements.rates))
    run.write("transfer", transfer_table(rows, window, confidence, dataset_of_block))
    run.write("locality", locality_table(rows, list(config.models), confidence))
    run.write("model_pairs", pair_table(rows, config.alpha, config.margin))
    run.write("gaps", gap_table(measurements.rates))


def _note(
    config: ClipBiasConfig,
    run: ClipBiasRun,
    measurements: MeasuredModels,
    data: dict[str, EmbeddedDataset],
    performance: dict[str, float],
) -> None:
    groups = {
        name: {view.group: len(view.members) for view in dataset.images.views[1:]} for name, dataset in data.items()
    }
    window = window_of(config, performance)
    run.update({"notes": measurements.notes, "groups": groups, "performance": performance, "window": window})


# Reads and checks a file of `c2b clip-bias` once, at the edge; its paths become absolute, relative to that file.


def read_clip_bias_config(source: FileOrFields | ClipBiasConfig) -> ClipBiasConfig:
    """Returns the config of a run; see `ConfigFile.read`."""
    return FILE.read(source)


def _with_texts(data: dict[str, Any], file: Path) -> dict[str, Any]:
    """Reads the `texts` of a dataset from the file that they name, a text per line. A mapping may come from others, so
    it may not name a file."""
    datasets = data.get("datasets")
    if not isinstance(datasets, dict):
        return data
    read = {
        name: {**dataset, "texts": _lines(dataset["texts"], file, f"datasets.{name}.texts")}
        if isinstance(dataset, dict) and isinstance(dataset.get("texts"), str)
        else dataset
        for name, dataset in datasets.items()
    }
    return {**data, "datasets": read}


def _lines(path: str, file: Path, field: str) -> list[str]:
    try:
        lines = (file.parent / path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise ConfigError(
            field, f"{path!r} is neither a list of texts nor a file with one a line ({error})", location=str(file)
        ) from error
    return [line.strip() for line in lines if line.strip()]


FILE = ConfigFile(ClipBiasConfig, "c2b clip-bias", completed=_with_texts)
