"""The simulated audits of `hostile`: the tables of an audit, made from known accuracies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from c2b_ray.audits.c2b.scoring.score import scored
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.c2b.verification.verified import VerifiedImages
from c2b_ray.steps.cells import ATTRIBUTE
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.steps.observe import CLASS
from c2b_ray.tables import CALIBRATION, CAPTIONS, DRAWS, PREDICTIONS, VERIFICATIONS

TAU, ALPHA = 0.05, 0.05
TARGET, OTHER = "bus", "snowplow"
Random = np.random.Generator


@dataclass
class Audit:
    """The tables of an audit of one class, added image by image, and the truth."""

    random: Random
    captions_per_cell: int = 1
    source: str = "generate"
    captions: list[dict] = field(default_factory=list)
    draws: list[dict] = field(default_factory=list)
    predictions: list[dict] = field(default_factory=list)
    verifications: list[dict] = field(default_factory=list)
    calibration: list[dict] = field(default_factory=list)
    copies: list[dict] = field(default_factory=list)
    truth: dict[tuple[str, str], float] = field(default_factory=dict)

    def tell(self, attribute: str, accuracy: np.ndarray) -> None:
        """Records the true accuracy of each value, and thereby φ."""
        phi = accuracy - (accuracy.sum() - accuracy) / (len(accuracy) - 1)
        self.truth |= {(attribute, f"{attribute}-{j}"): float(value) for j, value in enumerate(phi)}

    def caption(self, attribute: str, value: int, number: int) -> str:
        text = f"a photo of a bus, {attribute}-{value}, take {number}"
        names = {"proposal_id": attribute, "target_class": TARGET, "attribute": attribute, "kind": ATTRIBUTE}
        row = {**names, "bias_class": f"{attribute}-{value}", "number": number, "text": text, "caption_id": text}
        self.captions.append(row)
        return text

    def image(self, caption: str, right: bool, shows: dict[str, str] | None = None, is_class: bool = True) -> None:
        """Adds an image of a caption with the classifier's answer and, where it is verified, the verifier's answers."""
        name = f"image {len(self.draws)}"
        self.draws.append({"caption_id": caption, "image_id": name, "rank": len(self.draws), "source": self.source})
        answer = {"label": TARGET if right else OTHER, "predicted_class": TARGET if right else None}
        self.predictions.append({"prediction_id": name, "image_id": name, "classifier": "m", "revision": "1", **answer})
        if shows is not None:
            self.verifications.append(
                {
                    "verification_id": name,
                    "image_id": name,
                    "target_class": TARGET,
                    "revision": "1",
                    "class_shown": TARGET if is_class else "boat",
                    "attributes": list(shows),
                    "values": list(shows.values()),
                    "certainties": [None] * len(shows),
                }
            )

    def known(self, attribute: str, confusion: np.ndarray, images: int, source: str = "table") -> None:
        """Adds the calibration of a verifier with this confusion matrix, on `images` images of each value."""
        for j, row in enumerate(confusion):
            counts = self.random.multinomial(images, row)
            names = {"attribute": attribute, "value": f"{attribute}-{j}", "source": source}
            self.calibration += [
                {**names, "answer": f"{attribute}-{k}", "images": float(n)} for k, n in enumerate(counts) if n
            ]

    def known_class(self, right: float = 1.0, images: int = 400) -> None:
        for name, other in ((TARGET, "boat"), ("boat", TARGET)):
            good = self.random.binomial(images, right)
            for answer, n in ((name, good), (other, images - good)):
                if n:
                    row = {"attribute": CLASS, "value": name, "answer": answer, "images": float(n), "source": "table"}
                    self.calibration.append(row)

    def scores(self) -> list[dict]:
        ids = [row["image_id"] for row in self.draws]
        contents = self.copies or [{"image_id": i, "content": i, "fingerprint": b""} for i in ids]
        images = pa.table({name: [row[name] for row in contents] for name in ("image_id", "content", "fingerprint")})
        distinct = Distinct(images) if self.copies else None
        verified = None
        if self.verifications:
            tables = pa.Table.from_pylist(self.verifications, VERIFICATIONS)
            verified = VerifiedImages(tables, pa.Table.from_pylist(self.calibration, CALIBRATION), distinct)
        tables = (
            pa.Table.from_pylist(rows, schema)
            for rows, schema in ((self.captions, CAPTIONS), (self.draws, DRAWS), (self.predictions, PREDICTIONS))
        )
        return scored(*tables, ["m"], Thresholds(TAU, ALPHA), verified, distinct)[0].to_pylist()


def accuracies(random: Random, values: int, base: tuple[float, float] = (0.7, 0.97)) -> np.ndarray:
    """Draws accuracies of an attribute's values: equal in half of the cases, else one is lower by 0.02 to 0.4."""
    found = np.full(values, random.uniform(*base))
    if random.random() < 0.5:
        found[random.integers(values)] -= random.choice([0.02, 0.05, 0.1, 0.2, 0.3, 0.4])
    return found


def confusion(values: int, right: float) -> np.ndarray:
    return np.where(np.eye(values, dtype=bool), right, (1 - right) / (values - 1))


def said(random: Random, attribute: str, value: int, matrix: np.ndarray) -> str:
    return f"{attribute}-{random.choice(len(matrix), p=matrix[value])}"


def attributes(random: Random, most: int = 6) -> list[tuple[str, int]]:
    return [(f"a{i}", int(random.integers(2, most + 1))) for i in range(6)]


def labelled(random: Random, sizes: Callable[[], int], copies: int = 1) -> Audit:
    audit = Audit(random, source="labelled")
    for attribute, values in attributes(random):
        rates = accuracies(random, values)
        audit.tell(attribute, rates)
        for j, rate in enumerate(rates):
            caption = audit.caption(attribute, j, 0)
            for right in random.random(sizes()) < rate:
                start = len(audit.draws)
                for _ in range(copies):
                    audit.image(caption, bool(right))
                if copies > 1:
                    names = [row["image_id"] for row in audit.draws[start:]]
                    mark = random.integers(0, 256, 200, dtype=np.uint8).tobytes()
                    audit.copies += [
                        {"image_id": n, "content": f"{attribute} {start}", "fingerprint": mark} for n in names
                    ]
    return audit


def outside(random: Random) -> Audit:
    """The classifier has more labels than the audit has classes, and every wrong answer is one of the other labels."""
    return labelled(random, lambda: 200)


def unequal(random: Random) -> Audit:
    """One value has 20 images, another one 200."""
    return labelled(random, lambda: int(random.choice([20, 200])))


def duplicates(random: Random) -> Audit:
    """Each image appears four times, under different names."""
    return labelled(random, lambda: 100, copies=4)


def caption_effects(spread: float, n: int = 400) -> Callable[[Random], Audit]:
    def make(random: Random) -> Audit:
        """Accuracy differs between the captions of one cell."""
        audit = Audit(random)
        for attribute, values in attributes(random):
            rates = accuracies(random, values, (0.75, 0.9))
            audit.tell(attribute, rates)
            for j, rate in enumerate(rates):
                for number in range(5):
                    own = np.clip(random.normal(rate, spread), 0, 1)
                    caption = audit.caption(attribute, j, number)
                    for right in random.random(n // 5) < own:
                        audit.image(caption, bool(right))
        return audit

    return make


def purity(skill: float) -> Callable[[Random], Audit]:
    def make(random: Random) -> Audit:
        """The share of images that show the class at all differs by value, from .8 to .99."""
        audit = Audit(random)
        audit.known_class(skill)
        for attribute, values in attributes(random):
            rates, matrix = accuracies(random, values), confusion(values, skill)
            audit.tell(attribute, rates)
            audit.known(attribute, matrix, 150)
            for j, rate in enumerate(rates):
                share = random.uniform(0.8, 0.99)
                for number in range(5):
                    caption = audit.caption(attribute, j, number)
                    for shown in random.random(40) < share:
                        right = bool(shown and random.random() < rate)
                        says = bool(random.random() < skill) == bool(shown)
                        audit.image(caption, right, {attribute: said(random, attribute, j, matrix)}, says)
        return audit

    return make


def miscalibrated(true: float, claimed: float) -> Callable[[Random], Audit]:
    def make(random: Random) -> Audit:
        """The verifier was calibrated on images where it is right more often; a tenth of the images show another value
        than their caption names."""
        audit = Audit(random)
        audit.known_class()
        for attribute, values in attributes(random):
            rates, matrix = accuracies(random, values), confusion(values, true)
            audit.tell(attribute, rates)
            audit.known(attribute, confusion(values, claimed), 150)
            _drawn(audit, attribute, rates, matrix, 0.9)
        return audit

    return make


def overclaiming(random: Random) -> Audit:
    """A verifier without calibration claims a certainty of .98 and is right in .60 of the cases."""
    audit = Audit(random)
    for attribute, values in attributes(random):
        rates, matrix = accuracies(random, values), confusion(values, 0.6)
        audit.tell(attribute, rates)
        _drawn(audit, attribute, rates, matrix, 0.9)
    for row in audit.verifications:
        row["certainties"] = [0.98] * len(row["attributes"])
    return audit


def _drawn(audit: Audit, attribute: str, rates: np.ndarray, matrix: np.ndarray, shown: float) -> None:
    random, values = audit.random, len(rates)
    for j in range(values):
        for number in range(5):
            caption = audit.caption(attribute, j, number)
            for good in random.random(40) < shown:
                k = j if good else int(random.choice([v for v in range(values) if v != j]))
                right = bool(random.random() < rates[k])
                audit.image(caption, right, {attribute: said(random, attribute, k, matrix)})


def correlated(skill: float) -> Callable[[Random], Audit]:
    def make(random: Random) -> Audit:
        """Two attributes correlate (.2 against .8); one of them, verified with `skill`, is the cause."""
        audit = Audit(random)
        audit.known_class()
        effect = float(random.choice([-0.3, -0.2, 0.0]))
        base = random.uniform(0.75, 0.95)
        # φ is the effect of a value alone, all else being equal.
        audit.tell("cause", np.array([base, base + effect]))
        audit.tell("bystander", np.array([base, base]))
        matrices = {"cause": confusion(2, skill), "bystander": confusion(2, 0.95)}
        for name, matrix in matrices.items():
            audit.known(name, matrix, 150)
        for attribute, other in (("cause", "bystander"), ("bystander", "cause")):
            for j in range(2):
                for number in range(5):
                    caption = audit.caption(attribute, j, number)
                    for drawn in random.random(40) < (0.2, 0.8)[j]:
                        values = {attribute: j, other: int(drawn)}
                        right = bool(random.random() < base + effect * values["cause"])
                        shows = {name: said(random, name, values[name], matrices[name]) for name in values}
                        audit.image(caption, right, shows)
        return audit

    return make


SCENARIOS: dict[str, Callable[[Random], Audit]] = {
    "answers outside the classes": outside,
    "unequal n, 20 and 200": unequal,
    "each image four times": duplicates,
    "caption effects, SD .03": caption_effects(0.03),
    "caption effects, SD .05": caption_effects(0.05),
    "class purity .8 to .99, perfect verifier": purity(1.0),
    "class purity .8 to .99, verifier right .95": purity(0.95),
    "attributes .2/.8, cause verified": correlated(1.0),
    "attributes .2/.8, cause verified at .9": correlated(0.9),
    "attributes .2/.8, cause verified at .7": correlated(0.7),
    "verifier calibrated elsewhere, .95 for .80": miscalibrated(0.8, 0.95),
    "verifier claims .98, is right .60": overclaiming,
}
