"""The classifiers of an audit: their questions, and their answers to the drawn images, in one pass.

It loads no classifier: their descriptions suffice, and they answer where their stage runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from c2b_ray.audits.kit.events import Steps
from c2b_ray.audits.kit.facts import model_row, warn_of_assumptions
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.config import AuditConfig
from c2b_ray.pipelines.images import Contestant, ImageStages, OnProgress, Selection, prediction_ids, selected
from c2b_ray.steps.in_place import Load
from c2b_ray.steps.predict import classification
from c2b_ray.store.c2b_run import CLASSIFIER, C2BRun
from c2b_ray.store.digests import Digests, absent, digests
from c2b_ray.store.parts import opened


def contestants(config: AuditConfig, run: C2BRun, models: Backend, steps: Steps) -> list[Contestant]:
    """Returns the classifiers of an audit and notes them in its run. Raises ConfigError where one has no label for a
    class."""
    label_map = config.label_map if isinstance(config.label_map, dict) else None
    contestants = []
    for name, spec in config.specs.items():
        known = models.describe("classifier", spec)
        asking = classification(name, known, config.classes, label_map, config.right)
        run.update({"models": {f"{CLASSIFIER}{name}": model_row(spec, known)}})
        warn_of_assumptions(steps, name, known)
        contestants.append(Contestant(models.classifier(spec), asking, known.shape, known.takes_files))
    return contestants


def classifying(config: AuditConfig) -> str:
    """Returns the name of the step in which the classifiers answer."""
    return f"classify: {', '.join(config.specs)}"


def classify(
    classifiers: Sequence[Contestant], run: C2BRun, models: Backend, on_progress: OnProgress, source: Load | None
) -> None:
    """Writes the missing predictions of all images that the run has drawn. `source`: of those whose bytes it does not
    hold."""
    images = selected(run.location("images"), partial(_drawn, run))
    if _lacks_any(run, classifiers, images):
        run.begin_writing()
    ImageStages(models.runner).classify(images, classifiers, run.location("predictions"), on_progress, source)


def _drawn(run: C2BRun) -> Iterator[Digests]:
    """Yields the digests of the images that are answered, some at a time. Images that were looked at but not drawn are
    left out."""
    for name in ("draws", "confirmation", "perturbed_images"):
        for table in run.each(name, ["image_id"]):
            yield digests(table["image_id"])


def _lacks_any(run: C2BRun, classifiers: Sequence[Contestant], images: Selection) -> bool:
    if not run.has("predictions"):
        return True
    done = opened(run.location("predictions")).census("prediction_id").ids
    return any(absent(some, done).any() for some in prediction_ids([one.question for one in classifiers], images))
