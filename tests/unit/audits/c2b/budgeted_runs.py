"""Runs on a budget: the source holds any number of images, and the classifier errs on two values."""

from contextlib import contextmanager

import pyarrow as pa

from c2b_ray.audits.c2b.budget import write_scores
from c2b_ray.audits.c2b.hypotheses.labelled import caption_pairs
from c2b_ray.audits.c2b.run import open_c2b_run
from c2b_ray.config import read_audit
from c2b_ray.steps.caption import caption
from c2b_ray.steps.cells import pairs
from c2b_ray.steps.propose import propose
from c2b_ray.storage import files
from c2b_ray.tables import DRAWS, PREDICTIONS

ATTRIBUTES = {"lighting": ["day", "night"], "size": ["small", "large"], "weather": ["snow", "rain", "fog"]}
BIASED = ("night", "rain")  # all answers are wrong for these values, and right for the others
ONE = {"source": "retrieve", "index": "i"}
BOTH = {"source": ["retrieve", "generate"], "index": "i", "generator": "g"}


def asked_of(budget=10_000, first=20, **changes):
    return read_audit(
        {
            "task": "Tell buses from boats.",
            "classes": ["bus"],
            "classifier": "m",
            "images": {"source": "retrieve", "index": "i"},
            "attributes": ATTRIBUTES,
            "budget": {"images": budget, "first": first} if budget else None,
            "captions_per_cell": 1,
            "images_per_caption": 100,
            **changes,
        }
    )


def captions_of(asked):
    proposals, _ = propose(asked.task, asked.classes, None, asked.attributes, asked.seed)
    captions, _ = caption(asked.task, proposals, None, asked.captions_per_cell, asked.seed)
    of_pairs, _ = caption_pairs(pairs(proposals, asked.intersections), captions, None, asked.seed)
    return proposals, pa.concat_tables([captions, of_pairs])


@contextmanager
def run_of(path, asked):
    with open_c2b_run(path / "run", "0123456789abcdef0123", asked.model_dump(mode="json")) as run:
        proposals, captions = captions_of(asked)
        run.write("proposals", proposals)
        run.write("captions", captions)
        yield run


def draw(run, grant, asked, most=10**6, every=None):
    """Writes draws, predictions and scores: as many images of each caption as were granted, at most `most`.

    `every`: value → k, where every k-th answer is wrong.
    """
    every = every or {}
    draws, predictions = [], []
    for row in run.captions.to_pylist():
        wrong_every = 1 if row["bias_class"] in BIASED else every.get(row["bias_class"], most + 1)
        for source in asked.images.sources:
            for rank in range(min(grant[row["caption_id"]], most)):
                image = f"{row['caption_id']}-{source}-{rank}"
                draws.append({"caption_id": row["caption_id"], "image_id": image, "rank": rank, "source": source})
                answer = {"prediction_id": image, "image_id": image, "classifier": "m", "revision": "1"}
                predictions.append({**answer, "predicted_class": "bus" if (rank + 1) % wrong_every else "boat"})
    run.write("draws", pa.Table.from_pylist(draws, DRAWS))
    files.make_directory(run.location("predictions"))
    files.write_table(run.location("predictions/part-0.parquet"), pa.Table.from_pylist(predictions, PREDICTIONS))
    write_scores(run, asked)


def by_value(run, grant):
    return {row["bias_class"]: grant[row["caption_id"]] for row in run.captions.to_pylist()}
