"""Pictures whose first pixel encodes what they show, a captioner that reads it, and the questions of verification."""

from io import BytesIO

import numpy as np
import pyarrow as pa
from PIL import Image

from c2b_ray.models.scripted import ScriptedCaptioner
from c2b_ray.roles import Answer
from c2b_ray.steps.caption import caption
from c2b_ray.steps.observe import checks
from c2b_ray.steps.propose import propose
from c2b_ray.tables import IMAGES

CLASSES = ["bus", "boat"]
WEATHER = ["snow", "rain"]


def captions_of(classes=CLASSES, attributes=None):
    proposals, _ = propose("task", classes, None, attributes or {"weather": WEATHER}, seed=0)
    return caption("task", proposals, None, 1, seed=0)[0]


def asked_of(classes=CLASSES, attributes=None):
    return checks("toy:eye", "r1", classes, captions_of(classes, attributes))


def png(target, value):
    """Returns a picture whose first pixel holds the indices of the class and the value that it shows."""
    pixels = np.zeros((9, 9, 3), np.uint8)
    pixels[0, 0, :2] = target, value
    data = BytesIO()
    Image.fromarray(pixels).save(data, "PNG")
    return data.getvalue()


def see(certainty=None):
    """Returns a captioner that reads such pictures; with a certainty, its answers have probabilities."""

    def answer(asked):
        pixels, question = asked
        place = int(pixels[0, 0, 0 if question.text == "What does the picture show?" else 1])
        if place >= len(question.choices):
            return Answer(None, error="named no choice")
        if certainty is None:
            return Answer(question.choices[place])
        rest = (1 - certainty) / (len(question.choices) - 1)
        probabilities = tuple(certainty if i == place else rest for i in range(len(question.choices)))
        return Answer(question.choices[place], probabilities)

    return ScriptedCaptioner(answers=answer)


def images_of(rows, asked):
    """Returns the images to verify. `rows`: (name, bytes, error, target class)."""
    names, data, errors, targets = zip(*rows, strict=True)
    table = pa.table({"image_id": names, "key": names, "bytes": pa.array(data, pa.binary()), "error": errors})
    ids = [asked.verification_id(name, target) for name, target in zip(names, targets, strict=True)]
    table = pa.Table.from_pylist(table.to_pylist(), IMAGES)
    return table.append_column("target_class", [targets]).append_column("verification_id", [ids])
