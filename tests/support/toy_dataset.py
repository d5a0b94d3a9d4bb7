"""A dataset of failures of toy models, built by both passes without a command."""

from functools import partial

import numpy as np

from c2b_ray.audits.dataset.directory import building
from c2b_ray.audits.dataset.shard_files import PlannedCaptions, write_captions
from c2b_ray.audits.dataset.shards.passes import BuildPasses, ThreadWorkers
from c2b_ray.audits.dataset.shards.workers import Recipe
from c2b_ray.audits.dataset.steps.plan import NumberedCaptions, Plan
from c2b_ray.audits.dataset.steps.shard import DatasetModels, GeneratedSource, Judge, LabelCheck
from c2b_ray.audits.failures.discovery.rounds import Truth
from c2b_ray.roles import Answer, GeneratedImage

LABELS = ("boat", "mug")
CAPTIONS = [("boat", "a boat"), ("mug", "a mug"), ("boat", "a boat at night"), ("boat", "a red boat"), ("mug", "mugs")]
DRAWS, CAP = 23, 5
BLACK, NAN, UNVERIFIED = 3, 4, 5


def kind(seed):
    """Returns which of 16 kinds the draw with this seed is."""
    return seed % 16


def picture(seed):
    """Returns one of 60 pictures, which changes every 16 seeds, so that many draws are near-duplicates."""
    cells = np.random.default_rng(seed // 16 % 60).integers(0, 256, (8, 8, 3), np.uint8)
    cells[0, 0] = kind(seed)
    return cells.repeat(8, axis=0).repeat(8, axis=1)


class Generator:
    revision = "1"

    def generate(self, requests):
        made = [picture(request.seed) * (kind(request.seed) != BLACK) for request in requests]
        return [GeneratedImage(pixels.astype(np.uint8)) for pixels in made]


class Mover:
    """Draws one of six pictures for each seed; half of the draws are moved by one pixel."""

    revision = "1"

    def generate(self, requests):
        return [GeneratedImage(self._picture(request.seed)) for request in requests]

    def _picture(self, seed):
        cells = np.random.default_rng(seed % 6).integers(0, 80, (8, 8, 3), np.uint8)
        cells[0, 0] = seed % 6
        whole = cells.repeat(8, axis=0).repeat(8, axis=1)
        return np.pad(whole, ((0, 0), (1, 0), (0, 0)), mode="edge")[:, :-1] if seed // 6 % 2 else whole


class Classifier:
    """Answers mug for pictures of an even kind and boat for others; gives no answer for the kind `NAN`."""

    labels, revision = LABELS, "1"

    def logits(self, images, keys):
        kinds = np.array([image[0, 0, 0] for image in images])
        logits = np.stack([kinds % 2, 1 - kinds % 2], axis=1).astype(np.float32)
        logits[kinds == NAN] = np.nan
        return logits


class Captioner:
    revision = "1"

    def answer(self, images, questions):
        kinds = [int(image[0, 0, 0]) for image in images]
        return [Answer("something else") if kind == UNVERIFIED else Answer(None, error="dim") for kind in kinds]


def toy_models(verified=False, generator=Generator):
    truths = {label: Truth(np.array([label == name for name in LABELS])) for label in LABELS}
    check = LabelCheck(Captioner(), LABELS) if verified else None
    return DatasetModels(
        (GeneratedSource("toy", generator()),), (Judge("toy", "1", LABELS, truths, Classifier()),), check, "top1", 0.0
    )


TWO_THREADS = partial(ThreadWorkers, threads=2)


def build(out, shard_draws=9, make_workers=TWO_THREADS, distance=4, make=toy_models, format=3):
    """Builds the dataset; returns rows and drops as Python values, and the workers that did the work."""
    with building(str(out)) as directory:
        if not directory.files.exists("captions.parquet"):
            texts = ((label, text, None) for label, text in CAPTIONS)
            write_captions(directory.files, NumberedCaptions(DRAWS).tables(texts))
        plan = Plan("toy", DRAWS * len(CAPTIONS), shard_draws, 4)
        recipe = Recipe(directory.files, plan, make, 1, 0, distance, CAP, format)
        workers = make_workers(recipe)
        passes = BuildPasses(recipe, workers, PlannedCaptions(directory.files))
        passes.run_first(lambda done, total, sums: None)
        passes.run_second(lambda done, total, sums: None)
        names = [f"{plan.name(number)}.parquet" for number in range(plan.shards)]
        rows = [row for name in names for row in directory.files.read(f"shards/{name}").to_pylist()]
        drops = [row for name in names for row in directory.files.read(f"drops/{name}").to_pylist()]
        workers.close()
    return rows, drops, workers
