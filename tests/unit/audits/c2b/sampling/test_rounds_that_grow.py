from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.audits.c2b.sampling.selection import NEAREST, CellPools, cells_of
from c2b_ray.audits.c2b.sampling.settled import evidence_of
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.c2b.verification.verified import VerifiedImages
from c2b_ray.steps.caption import caption
from c2b_ray.steps.duplicates import DISTINCT_COLUMNS, Distinct
from c2b_ray.steps.propose import propose
from c2b_ray.tables import CALIBRATION, DRAWS, IMAGES, PREDICTIONS, VERIFICATIONS

LEVELS = Thresholds(0.05, 0.05)


class Known:
    """What is seen of images of which some are near-duplicates of others."""

    def __init__(self, marks):
        self.marks = marks

    def looked_at(self, image, caption):
        return True

    def accepts(self, image, caption):
        return True

    def fingerprint(self, image):
        return self.marks[image]


@dataclass(frozen=True)
class Images:
    """Of each image: its fingerprint, whether the classifier is right about it, and the value that it shows."""

    marks: dict[str, bytes]
    right: dict[str, bool]
    shown: dict[str, str]

    def distinct(self, names):
        rows = [{"image_id": name, "content": name, "fingerprint": self.marks[name]} for name in names]
        return Distinct(pa.Table.from_pylist(rows, pa.schema([IMAGES.field(column) for column in DISTINCT_COLUMNS])))

    def predictions(self, names):
        rows = [
            {"prediction_id": name, "image_id": name, "classifier": "m", "revision": "1",
             "predicted_class": "bus" if self.right[name] else "boat"}
            for name in names
        ]  # fmt: skip
        return pa.Table.from_pylist(rows, PREDICTIONS)

    def verifications(self, names):
        rows = [
            {"verification_id": name, "image_id": name, "target_class": "bus", "class_shown": "bus",
             "attributes": ["weather"], "values": [self.shown[name]], "certainties": [None]}
            for name in names
        ]  # fmt: skip
        return pa.Table.from_pylist(rows, VERIFICATIONS)


def grown(kind, targets, seed=0):
    """Looks at cells of three captions each, that share images, at growing targets."""
    rng = np.random.default_rng(seed)
    values = ["snow", "rain", "fog"]
    proposals, _ = propose("task", ["bus"], None, {"weather": values}, seed=0)
    one, _ = caption("task", proposals, None, 1, seed=0)
    captions = pa.Table.from_pylist(
        [row | {"caption_id": f"{row['caption_id']}{n}", "number": n, "text": f"{row['text']} {n}"}
         for row in one.to_pylist() for n in rng.permutation(3).tolist()],
        one.schema,
    )  # fmt: skip
    # Thumbnails of grey levels a step apart: each is a near-duplicate of the next, and not of the one after it.
    marks = {f"i{i:03}": bytes(8) + bytes([int(g)] * 192) for i, g in enumerate(rng.integers(0, 250, 150))}
    right = {image: bool(rng.random() < 0.7) for image in marks}
    rows = [
        {"caption_id": row["caption_id"], "image_id": image, "rank": rank, "similarity": 0.5, "source": source}
        for row in captions.to_pylist()
        for source, names in (("retrieve", list(marks)[:90]), ("generate", list(marks)[90:]))
        # The second source of one caption runs out early.
        for rank, image in enumerate(rng.permutation(names)[: 4 if row["number"] == 2 else 30].tolist())
    ]
    pools = [
        CellPools(captions, pa.Table.from_pylist([r for r in rows if r["source"] == source], DRAWS), NEAREST, seed)
        for source in ("retrieve", "generate")
    ]
    images = Images(marks, right, {image: str(rng.choice([*values, "sleet"])) for image in marks})
    for target in targets:
        granted = dict.fromkeys(cells_of(captions), target)
        draws = pa.concat_tables([pool.select(granted, Known(marks)).drawn for pool in pools])
        drawn = sorted(set(draws["image_id"].to_pylist()))
        distinct = images.distinct(drawn)
        seen = VerifiedImages(images.verifications(drawn), CALIBRATION.empty_table(), distinct)
        knowledge = {"plain": (None, None), "distinct": (None, distinct), "verified": (seen, distinct)}[kind]
        ((_, at),) = evidence_of(captions, draws, images.predictions(drawn), ["m"], LEVELS, *knowledge)
        (rounds,) = at.outcomes
        yield rounds


@pytest.mark.parametrize("kind", ["plain", "distinct", "verified"])
def test_a_round_that_was_looked_at_never_changes(kind):
    for seed in range(4):
        before = np.zeros((0, 3))
        for rounds in grown(kind, [1, 2, 3, 5, 8, 13, 20, 40], seed):
            assert len(rounds) >= len(before)
            np.testing.assert_array_equal(rounds[: len(before)], before)
            before = rounds
        assert len(before) > 8
