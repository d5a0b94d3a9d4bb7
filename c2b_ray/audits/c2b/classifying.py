"""The classifiers of an audit: their questions, and their answers to the images drawn, all in one pass.

It loads none of them: what they are is known from their descriptions, and they answer where their stage runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.config import AuditConfig
from c2b_ray.pipelines.images import Contestant, ImageStages, OnProgress, prediction_ids
from c2b_ray.steps.predict import classification
from c2b_ray.store.c2b_run import CLASSIFIER, C2BRun
from c2b_ray.store.memory import Gathered
from c2b_ray.store.parts import DIGEST, Digests, absent, digests, distinct, opened


def contestants(config: AuditConfig, run: C2BRun, models: Backend) -> list[Contestant]:
    """The classifiers of an audit, noted in its run. ConfigError where one has no label for a class."""
    label_map = config.label_map if isinstance(config.label_map, dict) else None
    contestants = []
    for name, spec in config.specs.items():
        known = models.describe("classifier", spec)
        asking = classification(name, known, config.classes, label_map, config.right)
        run.update({"models": {f"{CLASSIFIER}{name}": {"spec": spec, "revision": asking.revision}}})
        contestants.append(Contestant(models.classifier(spec), asking))
    return contestants


def classify(classifiers: Sequence[Contestant], run: C2BRun, models: Backend, on_progress: OnProgress) -> None:
    """The predictions of all images that the run has drawn, those that it lacks."""
    drawn = _drawn(run)
    if _lacks_any(run, drawn, classifiers):
        run.begin_writing()
    images, out = run.location("images"), run.location("predictions")
    ImageStages(models.runner).classify(images, drawn, classifiers, out, on_progress)


def _drawn(run: C2BRun) -> Digests:
    """Digests of the images that were drawn, sorted, each once: not of those that were looked at and left."""
    marks = Gathered(DIGEST)
    for name in ("draws", "confirmation"):
        for table in run.each(name, ["image_id"]):
            marks.add(digests(table["image_id"]))
    ids = marks.whole()
    ids.sort()  # in place: of millions of images each copy counts
    return distinct(ids)


def _lacks_any(run: C2BRun, drawn: Digests, classifiers: Sequence[Contestant]) -> bool:
    if not run.has("predictions"):
        return True
    done = opened(run.location("predictions")).census("prediction_id").ids
    ids = prediction_ids([one.question for one in classifiers], opened(run.location("images")), drawn)
    return any(absent(some, done).any() for some in ids)
