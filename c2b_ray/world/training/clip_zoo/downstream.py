"""Models built on CLIP models: a captioner and answerer for each, over one frozen language model, and their outputs.

    OUT/data/          the audit's table and its neutral texts
    OUT/MODEL/         captions.parquet, vqa.parquet, before.parquet, after.parquet, connector.safetensors, metrics.json
    OUT/clip-bias.yaml the audit that reads all of it

Everything but the CLIP model is equal: data, order, seeds, steps, the connector's size, the language model. The
training data has no bias, so any bias of the answers comes from the CLIP model. Knows scenes, encoders and connectors;
audits nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml

from c2b_ray.models import catalog
from c2b_ray.roles import Floats
from c2b_ray.storage import files
from c2b_ray.world import table as clip_table
from c2b_ray.world.captions import caption
from c2b_ray.world.clip_zoo_members import check_factor, neutral_texts
from c2b_ray.world.queries import FACTORS
from c2b_ray.world.scenes import Scene
from c2b_ray.world.table import TableOptions
from c2b_ray.world.training.clip_zoo import connector
from c2b_ray.world.training.clip_zoo.connector import Connector, Exercise, FrozenLanguageModel, Stage
from c2b_ray.world.training.clip_zoo.quality import zero_shot
from c2b_ray.world.truth import render_all

_TRAINING_SEED = 900
_ANSWER_TOKENS = 5
_CAPTION_TOKENS = 48
_ROWS = 256  # pictures in one batch
_STAGE = Stage(steps=300, batch=64, rate=3e-3)


@dataclass(frozen=True)
class Recipe:
    """Stage 1 learns to caption, stage 2 to answer, on `scenes` pictures with attributes of every value."""

    scenes: int = 6000
    hidden: int = 256
    captions: Stage = _STAGE
    answers: Stage = _STAGE
    seed: int = 0


@dataclass(frozen=True)
class Plan:
    """models: name → spec of an encoder. questions: the number of questions about each picture of the table. also:
    attributes to audit by, besides the table's groups; no question is about any of them."""

    models: Mapping[str, str]
    language: Path
    table: TableOptions
    questions: int = 2
    recipe: Recipe = field(default_factory=Recipe)
    also: tuple[str, ...] = ()

    @property
    def attributes(self) -> tuple[str, ...]:
        return (self.table.attribute, *self.also)


@dataclass(frozen=True)
class _ImageQuestion:
    """A row of the table, the factor in question, and the right answer."""

    row: int
    factor: str
    answer: str


def question(factor: str) -> str:
    return "What is the object?" if factor == "target_class" else f"What is the {factor}?"


def run(out: Path, plan: Plan) -> None:
    """Writes all of OUT. Keeps a model whose metrics.json names the present weights of its spec, and this plan."""
    torch.set_num_threads(1)
    for attribute in plan.also:
        check_factor("also", attribute, ())
    clip_table.write(out / "data", plan.table)
    scenes = clip_table.scenes_of(plan.table)
    language = FrozenLanguageModel(plan.language)
    learned = clip_table.scenes_of(
        replace(plan.table, n=plan.recipe.scenes, seed=_TRAINING_SEED, localities=0, planted=0.0)
    )
    for name, spec in plan.models.items():
        made = _ingredients(spec, plan)
        if not _is_current(out / name / "metrics.json", made):
            metrics = {**made, **_build(out / name, spec, plan, language, (learned, scenes))}
            files.write_under(out / name / "metrics.json", (json.dumps(metrics, indent=2) + "\n").encode())
            print(f"{name}: captions {metrics['caption_loss']:.3f} nats, answers {metrics['accuracy']:.3f}", flush=True)
    files.write_under(out / "clip-bias.yaml", yaml.safe_dump(audit_config(out, plan), sort_keys=False).encode())


def _ingredients(spec: str, plan: Plan) -> dict[str, Any]:
    """Returns the ingredients of a captioner and answerer, as in its metrics.json."""
    fixed = {"recipe": asdict(plan.recipe), "table": asdict(plan.table), "questions": plan.questions}
    made = {"spec": spec, "revision": catalog.encoder(spec).revision, **fixed, "attributes": plan.attributes}
    plain: dict[str, Any] = json.loads(json.dumps(made))
    return plain


def _is_current(path: Path, made: dict[str, Any]) -> bool:
    if not path.is_file():
        return False
    there = json.loads(path.read_text())
    return all(there.get(name) == value for name, value in made.items())


def audit_config(out: Path, plan: Plan) -> dict[str, object]:
    """Returns the fields of `c2b clip-bias` that name the files of OUT, with paths relative to it."""

    def each(file: str) -> dict[str, str]:
        return {name: f"{name}/{file}.parquet" for name in plan.models}

    accuracies = {name: json.loads((out / name / "metrics.json").read_text())["zero_shot"] for name in plan.models}
    data = {"table": "data/table.parquet", "attributes": list(plan.attributes), "texts": neutral_texts()}
    return {
        "models": dict(plan.models),
        "datasets": {"scenes": data},
        "downstream": {
            "vqa": {"dataset": "scenes", "vqa": each("vqa")},
            "captions": {"dataset": "scenes", "captions": each("captions")},
        },
        "spaces": {"dataset": "scenes", "before": each("before"), "after": each("after")},
        "performance": accuracies,
    }


def questions_about(
    scenes: Sequence[Scene], attributes: Collection[str], count: int, seed: int
) -> list[_ImageQuestion]:
    """Draws `count` questions about each scene, of different factors and never of the protected attributes."""
    random = Random(f"questions {seed}")  # noqa: S311 (no secret)
    factors = [name for name in FACTORS if name not in attributes]
    return [
        _ImageQuestion(row, factor, getattr(scene, factor))
        for row, scene in enumerate(scenes)
        for factor in random.sample(factors, count)
    ]


def _build(
    out: Path, spec: str, plan: Plan, language: FrozenLanguageModel, scenes: tuple[list[Scene], list[Scene]]
) -> dict[str, float]:
    """Trains on the first scenes, writes captions and answers about the second, and returns the measurements."""
    encoder = catalog.encoder(spec)
    learned, shown = (encoder.encode_images(list(render_all(group))) for group in scenes)
    model, losses = train(learned, scenes[0], language, plan.attributes, plan.recipe)
    with torch.no_grad():
        soft = model(connector.scaled(shown))
    keys = [f"scene-{plan.table.seed}-{row:06d}" for row in range(len(shown))]
    questions = questions_about(scenes[1], plan.attributes, plan.questions, plan.table.seed)
    predictions = answers(soft, questions, language)
    out.mkdir(parents=True, exist_ok=True)
    connector.save(model, out / "connector.safetensors")
    _write(out / "vqa.parquet", {
        "image": [keys[one.row] for one in questions],
        "question": [question(one.factor) for one in questions],
        "answer": [one.answer for one in questions],
        "prediction": predictions,
    })  # fmt: skip
    _write(out / "captions.parquet", {"image": keys, "caption": _written(soft, "", _CAPTION_TOKENS, language)})
    _write(out / "before.parquet", {"image": keys, "embedding": list(shown)})
    _write(out / "after.parquet", {"image": keys, "embedding": list(soft.flatten(1).numpy())})
    right = [answer == one.answer for answer, one in zip(predictions, questions, strict=True)]
    return {
        "caption_loss": losses[0],
        "answer_loss": losses[1],
        "accuracy": float(np.mean(right)),
        "zero_shot": zero_shot(encoder, shown, scenes[1]),
    }


def train(
    embeddings: Floats,
    scenes: Sequence[Scene],
    language: FrozenLanguageModel,
    attributes: Collection[str],
    recipe: Recipe,
) -> tuple[Connector, tuple[float, float]]:
    """Trains both stages; returns the connector and the loss at the end of each."""
    model, rows = connector.connect(embeddings, language, recipe.hidden, recipe.seed)
    texts = [Exercise(row, "", caption(scene, recipe.seed + row)) for row, scene in enumerate(scenes)]
    factors = len(FACTORS) - len(set(attributes))
    replies = [
        Exercise(one.row, question(one.factor), f" {one.answer}")
        for one in questions_about(scenes, attributes, factors, recipe.seed)
    ]
    first = connector.fit(model, rows, language, texts, recipe.captions, recipe.seed)
    second = connector.fit(model, rows, language, replies, recipe.answers, recipe.seed + 1)
    return model, (first, second)


def answers(soft: torch.Tensor, questions: Sequence[_ImageQuestion], language: FrozenLanguageModel) -> list[str]:
    """Returns the answer to each question, in order."""
    result = [""] * len(questions)
    for factor in FACTORS:
        numbers = [k for k, one in enumerate(questions) if one.factor == factor]
        if not numbers:
            continue
        rows = soft[[questions[k].row for k in numbers]]
        for k, text in zip(numbers, _written(rows, question(factor), _ANSWER_TOKENS, language), strict=True):
            result[k] = text
    return result


def _written(soft: torch.Tensor, prompt: str, longest: int, language: FrozenLanguageModel) -> list[str]:
    return [text for rows in torch.split(soft, _ROWS) for text in language.write(rows, prompt, longest)]


def _write(path: Path, columns: dict[str, object]) -> None:
    sink = pa.BufferOutputStream()
    arrays = {
        name: pa.array(values, pa.list_(pa.float32()) if name == "embedding" else None)
        for name, values in columns.items()
    }
    pq.write_table(pa.table(arrays), sink)
    files.write_under(path, sink.getvalue().to_pybytes())
