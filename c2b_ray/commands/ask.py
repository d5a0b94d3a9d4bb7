"""Answers one question to a finished run: how often is the classifier right on images of this sentence?

    sentence → class, images → predictions → rate against the class's other images

It composes steps and models as an audit does, and changes nothing in the run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.classifiers import classifiers_of, one_of
from c2b_ray.audits.kit.backend import at_hand
from c2b_ray.audits.kit.loaders import Loaders
from c2b_ray.errors import ConfigError, RunError
from c2b_ray.report.ask.page import answers_page, answers_view
from c2b_ray.schemas import IMAGES, content_id
from c2b_ray.steps.ask import SentenceAnswer, answer, class_of, images_of_class, one_of_each_picture
from c2b_ray.steps.draw import fetch, generate, generated
from c2b_ray.steps.duplicates import COLUMNS, Distinct
from c2b_ray.steps.predict import classification, predict
from c2b_ray.steps.retrieve import retrieve
from c2b_ray.store import files
from c2b_ray.store.c2b_run import CLASSIFIER, C2BRun, load_c2b_run
from c2b_ray.store.run import Run, finished
from c2b_ray.text import finite

Draw = Callable[[str, int], tuple[pa.Table, dict[str, str]]]
"""Draws n images of a caption, best first: a table of `schemas.IMAGES`, and their source, for the record."""


@dataclass(frozen=True)
class AnswerSet:
    """The answer of each classifier, with its data. `images` is a table of `schemas.IMAGES`, `predictions` one of
    `schemas.PREDICTIONS`. `repeats`: how many images of the sentence were left out, near-duplicates of others of it."""

    run: C2BRun
    sentence: str
    target_class: str
    source: dict[str, str]
    alpha: float
    answers: tuple[SentenceAnswer, ...]
    images: pa.Table
    predictions: pa.Table
    repeats: int

    @property
    def id(self) -> str:
        named = [answer.classifier for answer in self.answers]
        return content_id(
            "ask", self.sentence, self.target_class, self.source, named, self.images["image_id"].to_pylist()
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the answer for programs: null where a number is not known."""
        keys = dict(zip(self.images["image_id"].to_pylist(), self.images["key"].to_pylist(), strict=True))
        columns = ["image_id", "classifier", "label", "label_probability", "predicted_class", "error"]
        rows = self.predictions.select(columns).to_pylist()
        whole = {
            "run": self.run.path,
            "sentence": self.sentence,
            "target_class": self.target_class,
            "source": self.source,
            "repeats": self.repeats,
            "answers": [_as_json(item) for item in self.answers],
            "predictions": [{"key": keys[row["image_id"]], **row} for row in rows],
        }
        return dict(finite(whole))

    def keep(self) -> str:
        """Writes the answer beside the run's tables, whole or not at all; returns the file's path."""
        path = self.run.location(f"asked/{self.id}.json")
        files.write_under(path, (json.dumps(self.to_json(), ensure_ascii=False, indent=2) + "\n").encode())
        return path

    def write_page(self, path: str | Path) -> None:
        tables = self.images, self.predictions
        view = answers_view(self.sentence, self.target_class, self.answers, tables, self.alpha, self.repeats)
        files.write_under(path, answers_page(view).encode())


def _as_json(answer: SentenceAnswer) -> dict[str, Any]:
    """Returns the answer under the key that programs have read since the command exists."""
    return {"asked" if name == "of_sentence" else name: value for name, value in asdict(answer).items()}


def ask(
    run: str | Path | Run,
    sentence: str,
    n: int = 50,
    classifier: str | None = None,
    target_class: str | None = None,
    index: str | None = None,
) -> AnswerSet:
    """Returns the answers of the run's classifiers, or of one of them, on `n` images of the sentence.

    `target_class`: by default the one that the sentence names. `index`: of the images, by default that of the run.
    Models answer from Ray Serve where it runs and serves them, otherwise in this process.

    Raises ConfigError where the class or the classifier is ambiguous, or where there is no index; RunError for an
    unfinished run, or where a classifier's weights are no longer those of the run.
    """
    loaded = load_c2b_run(finished(run))
    if not sentence.strip():
        raise ConfigError("", "ask with a sentence, such as 'a bus in the snow at night'")
    config = loaded.config
    target = class_of(sentence, config["classes"], target_class)
    specs = _in_order(loaded) if classifier is None else [one_of(loaded, classifier, "--classifier")]
    confidence = 1 - float(config["alpha"])
    with at_hand() as models:
        images, source = _draws(loaded, models, index)(sentence, n)
        answers, tables = [], []
        of_class = images_of_class(loaded.captions, loaded.draws, target)
        distinct = Distinct(pa.concat_tables([images.select(COLUMNS), loaded.read("images", COLUMNS)]))
        found = images.num_rows
        once = pa.array(one_of_each_picture(images["image_id"].to_pylist(), distinct), images["image_id"].type)
        images = images.filter(pc.is_in(images["image_id"], once))
        for spec in specs:
            told = _predictions(loaded, models, spec, images)
            tables.append(told)
            answers.append(answer(spec, target, told, (of_class, loaded.predictions), confidence, distinct))
    predictions, repeats = pa.concat_tables(tables), found - images.num_rows
    return AnswerSet(loaded, sentence, target, source, 1 - confidence, tuple(answers), images, predictions, repeats)


def _in_order(run: C2BRun) -> list[str]:
    """Returns the run's classifiers in the order of its config."""
    specs = run.config["classifier"]
    order = [specs] if isinstance(specs, str) else list(specs)
    return sorted(classifiers_of(run), key=order.index)


def _draws(run: C2BRun, models: Loaders, index: str | None) -> Draw:
    """Returns a function that finds or makes images of a sentence: by the run's index, or its generator."""
    images = run.config["images"]
    path = index or images.get("index")
    if path is not None:
        return lambda caption, n: _retrieved(caption, n, models, path)
    if images.get("generator") is not None:
        return lambda caption, n: _generated(caption, n, models, images["generator"], run.config["seed"])
    raise ConfigError(
        "--index",
        f"{run.path} is a run on labelled images, which holds none for a sentence of yours: name an "
        "index to look for them in (c2b index build makes one)",
    )


def _retrieved(caption: str, n: int, models: Loaders, path: str) -> tuple[pa.Table, dict[str, str]]:
    index = models.index(path)()
    captions = pa.table({"caption_id": ["sentence"], "text": [caption]})
    draws, wanted = retrieve(captions, models.encoder(index.encoder)(), index, n)
    images = fetch(wanted, index) if wanted.num_rows else IMAGES.empty_table()
    rows = {image_id: row for row, image_id in enumerate(images["image_id"].to_pylist())}
    nearest_first = images.take([rows[image_id] for image_id in draws["image_id"].to_pylist()])
    return nearest_first, {"source": "retrieve", "index": path, "revision": index.revision}


def _generated(caption: str, n: int, models: Loaders, spec: str, seed: int) -> tuple[pa.Table, dict[str, str]]:
    generator = models.image_generator(spec)()
    captions = pa.table({"caption_id": ["sentence"], "text": [caption]})
    _, wanted = generated(captions, generator.revision, n, seed)
    return generate(wanted, generator), {"source": "generate", "generator": spec, "revision": generator.revision}


def _predictions(run: C2BRun, models: Loaders, name: str, images: pa.Table) -> pa.Table:
    config = run.config
    noted = run.manifest.get("models", {}).get(f"{CLASSIFIER}{name}", {})
    classifier = models.classifier(noted.get("spec", name))()
    right = config.get("right", "among_classes")  # the rule of runs from before there were several
    asking = classification(name, classifier, config["classes"], config["label_map"], right)
    then = noted.get("revision")
    if then not in (None, asking.revision):
        raise RunError(
            f"{name} has other weights now (revision {asking.revision}) than in {run.path} ({then}), so the two cannot "
            "be held against each other: run its c2b audit again"
        )
    return predict(images, classifier, asking)
