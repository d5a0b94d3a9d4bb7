"""Images of buses in two weathers, what a verifier says that they show, and their scores."""

import numpy as np
import pyarrow as pa

from c2b_ray.audits.c2b.scoring.score import scored
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.c2b.verification.verified import VerifiedImages
from c2b_ray.steps.caption import caption
from c2b_ray.steps.cells import images_of_cells
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.steps.observe import CLASS
from c2b_ray.steps.propose import propose
from c2b_ray.tables import CALIBRATION, DRAWS, PREDICTIONS, VERIFICATIONS

LEVELS = Thresholds(0.05, 0.05)
PERFECT = {(value, value): 4000.0 for value in ("snow", "rain", "bus", "boat")}


def mark(seed):
    return np.random.default_rng(seed).integers(0, 256, 200, dtype=np.uint8).tobytes()


class Made:
    """Tables of images of buses in two weathers, row by row."""

    def __init__(self, classes=("bus",), values=("snow", "rain"), captions=1):
        proposals, _ = propose("task", list(classes), None, {"weather": list(values)}, seed=0)
        self.captions, _ = caption("task", proposals, None, captions, seed=0)
        self.ids = {
            (r["target_class"], r["bias_class"], r["number"]): r["caption_id"] for r in self.captions.to_pylist()
        }
        self.draws, self.predictions, self.verifications, self.images = [], [], [], {}

    def add(self, drawn, shows, n, right, class_shown="bus", marks=None, target="bus", name=None, light=None, number=0):
        """Adds `n` images drawn for the value `drawn`; the verifier says `shows`; `right` of the answers are right.

        `light`: the verifier's answer about lighting. `number`: the caption of the cell that drew the images.
        """
        for i in range(n):
            image = name or f"{target}-{drawn}-{len(self.draws):04}"
            self.draws.append(
                {"caption_id": self.ids[target, drawn, number], "image_id": image, "rank": i, "source": "retrieve"}
            )
            self.verifications.append(
                {
                    "verification_id": f"{image} {target}",
                    "image_id": image,
                    "target_class": target,
                    "class_shown": class_shown,
                    "attributes": ["lighting", "weather"],
                    "values": [light, shows],
                    "certainties": [None, None],
                }
            )
            mark_of = marks or mark(len(self.draws))
            self.images[image] = {"image_id": image, "content": str(hash(mark_of)), "fingerprint": mark_of}
            row = {"prediction_id": image, "image_id": image, "classifier": "m", "revision": "1"}
            self.predictions.append({**row, "predicted_class": target if i < right else "mug"})
        return self

    def distinct(self):
        return Distinct(pa.Table.from_pylist(list(self.images.values())))

    def verified(self, calibration):
        rows = [
            {"attribute": CLASS if value in ("bus", "boat") else "weather", "value": value, "answer": answer}
            | {"images": n, "source": "table"}
            for (value, answer), n in calibration.items()
        ]
        table = pa.Table.from_pylist(self.verifications, VERIFICATIONS)
        return VerifiedImages(table, pa.Table.from_pylist(rows, CALIBRATION), self.distinct())

    def cells(self):
        return images_of_cells(self.captions, pa.Table.from_pylist(self.draws, DRAWS))

    def scores(self, calibration=None):
        tables = pa.Table.from_pylist(self.draws, DRAWS), pa.Table.from_pylist(self.predictions, PREDICTIONS)
        verified = None if calibration is None else self.verified(calibration)
        rows = scored(self.captions, *tables, ["m"], Thresholds(0.05, 0.05), verified, self.distinct())[0].to_pylist()
        return {(row["target_class"], row["bias_class"]): row for row in rows}
