"""The classifiers of an audit: their questions, and their answers to the drawn images, in one pass.

It loads no classifier: their descriptions suffice, and they answer where their stage runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.config import AuditConfig
from c2b_ray.pipelines.images import Contestant, ImageStages, OnProgress, prediction_ids
from c2b_ray.steps.predict import classification
from c2b_ray.store.c2b_run import CLASSIFIER, C2BRun
from c2b_ray.store.memory import Gathered
from c2b_ray.store.parts import DIGEST, Digests, absent, digests, distinct, opened


def contestants(config: AuditConfig, run: C2BRun, models: Backend) -> list[Contestant]:
    """Returns the classifiers of an audit and notes them in its run. Raises ConfigError where one has no label for a
    class."""
    label_map = config.label_map if isinstance(config.label_map, dict) else None
    contestants = []
    for name, spec in config.specs.items():
        known = models.describe("classifier", spec)
        asking = classification(name, known, config.classes, label_map, config.right)
        run.update({"models": {f"{CLASSIFIER}{name}": {"spec": spec, "revision": asking.revision}}})
        contestants.append(Contestant(models.classifier(spec), asking))
    return contestants


def classify(classifiers: Sequence[Contestant], run: C2BRun, models: Backend, on_progress: OnProgress) -> None:
    """Writes the missing predictions of all images that the run has drawn."""
    if _lacks_any(run, classifiers):
        run.begin_writing()
    images, out = run.location("images"), run.location("predictions")
    ImageStages(models.runner).classify(images, partial(_drawn, run), classifiers, out, on_progress)


def _drawn(run: C2BRun) -> Digests:
    """Returns the sorted, distinct digests of the drawn images. Images that were looked at but not drawn are
    left out."""
    marks = Gathered(DIGEST)
    for name in ("draws", "confirmation"):
        for table in run.each(name, ["image_id"]):
            marks.add(digests(table["image_id"]))
    ids = marks.whole()
    ids.sort()  # in place: of millions of images each copy counts
    return distinct(ids)


def _lacks_any(run: C2BRun, classifiers: Sequence[Contestant]) -> bool:
    if not run.has("predictions"):
        return True
    done = opened(run.location("predictions")).census("prediction_id").ids
    ids = prediction_ids([one.question for one in classifiers], opened(run.location("images")), partial(_drawn, run))
    return any(absent(some, done).any() for some in ids)
