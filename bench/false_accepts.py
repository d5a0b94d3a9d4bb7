"""Simulates audits of retrieved images whose verifier takes other things for a class: predictions, limits, findings.

    python bench/false_accepts.py [--audits 30] [--seed 100555] [--only NAME …]

A world has ten classes, of which three are listed, and three attributes; an index holds 12,000 images of it, a
calibration 4,000. How similar an image is to a caption depends on how alike its class is to the caption's, on its value
and on its own likeness, and so does whether the verifier takes it for the class; images of one value are taken for it
up to five times as often. Pools, draws, verifications, negatives and calibration are tables as an audit writes them,
and are scored as it scores them. Classifiers are right on every image of a class, or have a value that costs .3.

Prints for each case: the share of drawn images that show something else; of the limits of its prediction at 95 %, those
that lie below and above the true share; findings, those that are true, and audits with a false one; limits of φ that
hold, of cells without doubt; strong cells found; cells in doubt.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from unlike import STRONG, TAU, is_finding, same_sign, share

from c2b_ray.audits.c2b.scoring.score import scored
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.c2b.verification.false_accepts import FalseAccepts
from c2b_ray.audits.c2b.verification.verified import VerifiedImages
from c2b_ray.stats.scores import mean_of_others
from c2b_ray.steps.cells import ATTRIBUTE, images_of_cells
from c2b_ray.steps.observe import CLASS, OTHER
from c2b_ray.tables import CALIBRATION, CAPTIONS, DRAWS, NEGATIVES, PREDICTIONS, VERIFICATIONS

CLASSES = [f"class {number}" for number in range(10)]
LISTED = 3
VALUES = {f"attribute {a}": [f"value {a}{v}" for v in range(count)] for a, count in enumerate((3, 3, 2))}
CAPTIONS_PER_CELL, IMAGES, POOL = 2, 200, 1000
CALIBRATED_ON = 150  # images of each class and value, as in an audit
RIGHT_VALUE, UNRECOGNISED, LOSS = 0.95, 0.1, 0.3
ALIKE = 0.5  # the most that another class is like a listed one
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Case:
    """`rate`: of false accepts, of a class that is as alike as any; `by_value`: times it for the first value of the
    first attribute; `known`: images of the calibration; `shows`: whether it shows `all` classes or the `listed` ones
    alone; `index_shows`: the same of the index."""

    rate: float
    by_value: float = 1.0
    sensitivity: float = 0.97
    known: int = 4000
    shows: str = "all"
    index_shows: str = "all"
    perfect: bool = False


CASES = {
    "good verifier": Case(0.02),
    "false accepts by value, perfect classifier": Case(0.1, by_value=5, perfect=True),
    "false accepts by value": Case(0.1, by_value=5),
    "false accepts by value, 500 known images, perfect classifier": Case(0.1, by_value=5, known=500, perfect=True),
    "weak verifier, perfect classifier": Case(0.15, sensitivity=0.85, perfect=True),
    "weak verifier": Case(0.15, sensitivity=0.85),
    "calibration of the listed classes alone, perfect classifier": Case(0.1, 5, shows="listed", perfect=True),
    "index and calibration of the listed classes alone": Case(
        0.1, sensitivity=0.85, shows="listed", index_shows="listed"
    ),
}


class Images:
    """Images of the world, and what the verifier says of each: `taken` (listed classes, images), whether it takes it
    for the class; `said` (images, attributes), the values."""

    def __init__(self, case: Case, count: int, shown: int, alike: np.ndarray, random: np.random.Generator) -> None:
        self.target = random.integers(0, shown, count)
        self.value = np.stack([random.integers(0, len(values), count) for values in VALUES.values()], axis=1)
        self.likeness = random.normal(size=count)
        self.seed = int(random.integers(2**31))
        rate = case.rate * alike[:, self.target] / ALIKE * np.exp(self.likeness)
        rate = np.minimum(np.where(self.value[:, 0] == 0, case.by_value, 1.0) * rate, 0.95)
        is_class = self.target == np.arange(LISTED)[:, None]
        self.taken = random.random(rate.shape) < np.where(is_class, case.sensitivity, rate)
        self.recognised = random.random(count) >= UNRECOGNISED
        self.said = self.value.copy()
        for a, values in enumerate(VALUES.values()):
            wrong = random.random(count) >= RIGHT_VALUE
            self.said[wrong, a] = (self.said[wrong, a] + random.integers(1, len(values), wrong.sum())) % len(values)

    def similarity(self, alike: np.ndarray, caption: tuple[int, int, int, int]) -> np.ndarray:
        c, a, v, _ = caption
        noise = np.random.default_rng([self.seed, *caption]).normal(scale=0.7, size=len(self.target))
        shows = 2.0 * (self.value[:, a] == v)
        similarity: np.ndarray = 3.0 * alike[c, self.target] + shows + 0.5 * self.likeness + noise
        return similarity

    def named(self, image: int, c: int) -> str:
        """Returns which class the verifier names of an image that is checked for class `c`."""
        shown = int(self.target[image])
        if self.taken[c, image]:
            return CLASSES[c]
        return CLASSES[shown] if shown < LISTED and shown != c and self.recognised[image] else OTHER

    def verification(self, image: int, c: int, name: str) -> dict[str, Any]:
        values = [values[v] for values, v in zip(VALUES.values(), self.said[image], strict=True)]
        row = {"verification_id": f"{name} {c}", "image_id": name, "target_class": CLASSES[c], "revision": "1"}
        answers = {"attributes": list(VALUES), "values": values, "certainties": [None] * len(values)}
        return row | {"class_shown": self.named(image, c), **answers}


class Audit:
    """The tables of one audit, and its truth."""

    def __init__(self, case: Case, random: np.random.Generator) -> None:
        self.case, self.random = case, random
        self.alike = random.uniform(0, ALIKE, (LISTED, len(CLASSES)))
        np.fill_diagonal(self.alike, 1.0)
        shown = {"all": len(CLASSES), "listed": LISTED}
        self.index = Images(case, 12_000, shown[case.index_shows], self.alike, random)
        self.known = Images(case, case.known, shown[case.shows], self.alike, random)
        self.base = np.ones(LISTED) if case.perfect else random.uniform(0.75, 0.95, LISTED)
        self.worse = int(random.integers(3))  # of the first class, unless the classifier is perfect
        self.rows: list[dict[str, Any]] = []
        self.looked: list[dict[str, Any]] = []
        self.drawn: list[dict[str, Any]] = []
        self.near: dict[tuple[int, int], list[tuple[str, float]]] = defaultdict(list)
        order = random.permutation(len(self.index.target))
        for c in range(LISTED):
            for a, values in enumerate(VALUES.values()):
                for v in range(len(values)):
                    self._draw(c, a, v, order)

    def _draw(self, c: int, a: int, v: int, order: Ints) -> None:
        """Looks at the pools of a cell's captions by turns, in one random order of all images."""
        names, pools = [], []
        attribute = list(VALUES)[a]
        cell = {"target_class": CLASSES[c], "attribute": attribute, "bias_class": VALUES[attribute][v]}
        for number in range(CAPTIONS_PER_CELL):
            caption = (c, a, v, number)
            similarity = self.index.similarity(self.alike, caption)
            pool = np.argpartition(-similarity, POOL)[:POOL]
            name = " ".join(map(str, caption))
            self.rows.append(
                {"caption_id": name, "proposal_id": f"{c} {a}", "kind": ATTRIBUTE, "number": number, "text": name}
                | cell
            )
            names.append(name)
            pools.append(iter([(int(i), float(similarity[i])) for i in pool[np.argsort(order[pool])]]))
            of_known = self.known.similarity(self.alike, caption)
            for i in np.flatnonzero((of_known >= similarity[pool].min()) & (self.known.target != c)).tolist():
                self.near[i, c].append((name, float(of_known[i])))
        found: set[int] = set()
        turns = 0
        while len(found) < IMAGES and turns < CAPTIONS_PER_CELL * POOL:
            which = turns % CAPTIONS_PER_CELL
            turns += 1
            for image, similarity_of_image in pools[which]:
                if image in found:
                    continue
                row = {"caption_id": names[which], "image_id": str(image), "rank": 0, "source": "retrieve"}
                self.looked.append(row | {"similarity": similarity_of_image})
                if self.index.taken[c, image] and self.index.said[image, a] == v:
                    found.add(image)
                    self.drawn.append(self.looked[-1])
                    break

    @cached_property
    def verified(self) -> VerifiedImages:
        of_caption = {row["caption_id"]: CLASSES.index(row["target_class"]) for row in self.rows}
        pairs = sorted({(int(row["image_id"]), of_caption[row["caption_id"]]) for row in self.looked})
        rows = [self.index.verification(image, c, str(image)) for image, c in pairs]
        verified = VerifiedImages(pa.Table.from_pylist(rows, VERIFICATIONS), self.calibration())
        return verified.drawn_from(images_of_cells(self.captions, pa.Table.from_pylist(self.looked, DRAWS)))

    @cached_property
    def captions(self) -> pa.Table:
        return pa.Table.from_pylist(self.rows, CAPTIONS)

    @cached_property
    def draws(self) -> pa.Table:
        return pa.Table.from_pylist(self.drawn, DRAWS)

    def calibration(self) -> pa.Table:
        counts: dict[tuple[str, str, str], float] = defaultdict(float)
        listed = np.minimum(self.known.target, LISTED)
        for shown in range(LISTED + 1):
            for image in np.flatnonzero(listed == shown)[:CALIBRATED_ON].tolist():
                takes = np.flatnonzero(self.known.taken[:, image])
                answer = CLASSES[int(self.random.choice(takes))] if len(takes) else OTHER
                answer = CLASSES[shown] if shown in takes else answer
                counts[CLASS, CLASSES[shown] if shown < LISTED else OTHER, answer] += 1
        for a, (attribute, values) in enumerate(VALUES.items()):
            for v, value in enumerate(values):
                for image in np.flatnonzero(self.known.value[:, a] == v)[:CALIBRATED_ON].tolist():
                    counts[attribute, value, values[self.known.said[image, a]]] += 1
        names = ("attribute", "value", "answer")
        rows = [dict(zip(names, key, strict=True)) | {"images": n, "source": "table"} for key, n in counts.items()]
        return pa.Table.from_pylist(rows, CALIBRATION)

    @cached_property
    def false_accepts(self) -> FalseAccepts:
        rows = []
        for (image, c), near in self.near.items():
            captions, similarities = zip(*near, strict=True)
            row = {"negative_id": f"{image} {c}", "captions": list(captions), "similarities": list(similarities)}
            rows.append(self.known.verification(image, c, f"known {image}") | row)
        looked = pa.Table.from_pylist(self.looked, DRAWS)
        return FalseAccepts(self.verified, self.captions, looked, pa.Table.from_pylist(rows, NEGATIVES))

    def accuracy(self, c: int) -> np.ndarray:
        """Returns the true accuracy on each value of the first attribute; on those of the others it is `base`."""
        loss = LOSS * (np.arange(3) == self.worse) * (c == 0 and not self.case.perfect)
        accuracy: np.ndarray = self.base[c] - loss
        return accuracy

    def predictions(self) -> pa.Table:
        rows = []
        for image in sorted({int(row["image_id"]) for row in self.drawn}):
            shown = int(self.index.target[image])
            rate = self.accuracy(shown)[self.index.value[image, 0]] if shown < LISTED else 0.0
            answer = CLASSES[shown] if self.random.random() < rate else "nothing"
            row = {"prediction_id": str(image), "image_id": str(image), "classifier": "m", "revision": "1"}
            rows.append(row | {"predicted_class": answer})
        return pa.Table.from_pylist(rows, PREDICTIONS)

    def cells(self) -> list[tuple[dict, float]]:
        """Returns the rows of the scores, each with its true φ."""
        thresholds = Thresholds(TAU, 0.05)
        tables = self.captions, self.draws, self.predictions()
        table, _ = scored(*tables, ["m"], thresholds, self.verified, false_accepts=self.false_accepts)
        return [(row, self._true_phi(row)) for row in table.to_pylist()]

    def _true_phi(self, row: dict) -> float:
        if row["attribute"] != "attribute 0":
            return 0.0
        accuracy = self.accuracy(CLASSES.index(row["target_class"]))
        v = VALUES["attribute 0"].index(row["bias_class"])
        return float((accuracy - mean_of_others(accuracy[None], np.ones((1, 3), bool))[0])[v])

    def limits(self) -> list[tuple[float, float, float]]:
        """Returns of every cell the limits of its predicted share of false images at 95 %, and the true share."""
        false: dict[str, list[bool]] = defaultdict(list)
        for row in self.drawn:
            c, a, v, _ = map(int, row["caption_id"].split())
            false[f"{c} {a} {v}"].append(int(self.index.target[int(row["image_id"])]) != c)
        result = []
        for group in images_of_cells(self.captions, self.draws).groups:
            predicted = self.false_accepts.of(group)
            assert predicted is not None
            low, high = predicted.limits(0.95)
            c, a = CLASSES.index(group.target_class), list(VALUES).index(group.attribute)
            for i, value in enumerate(group.values):
                v = VALUES[group.attribute].index(value)
                result.append((float(low[i]), float(high[i]), float(np.mean(false[f"{c} {a} {v}"]))))
        return result


def judged(audits: list[Audit]) -> dict[str, object]:
    of_audits = [audit.cells() for audit in audits]
    limits = [row for audit in audits for row in audit.limits()]
    cells = [cell for of_audit in of_audits for cell in of_audit]
    strong = [(row, phi) for row, phi in cells if abs(phi) >= STRONG - 1e-9]

    def right(row: dict, phi: float) -> bool:
        return abs(phi) > TAU and same_sign(row, phi)

    false = [any(is_finding(row) and not right(row, phi) for row, phi in of_audit) for of_audit in of_audits]
    return {
        "false images": round(float(np.mean([true for *_, true in limits])), 3),
        "limits below": share([high < true for _, high, true in limits]),
        "limits above": share([low > true for low, _, true in limits]),
        "findings": sum(is_finding(row) for row, _ in cells),
        "findings true": share([right(row, phi) for row, phi in cells if is_finding(row)]),
        "audits with a false one": share(false),
        "limits of φ hold": share([row["phi_low"] <= phi <= row["phi_high"] for row, phi in cells if not row["doubt"]]),
        "strong found": share([is_finding(row) and right(row, phi) for row, phi in strong]),
        "in doubt": share([row["doubt"] is not None for row, _ in cells]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--audits", type=int, default=30)
    parser.add_argument("--seed", type=int, default=100_555)
    parser.add_argument("--only", nargs="*", default=[], help="cases whose names hold one of these")
    args = parser.parse_args()
    for number, (name, case) in enumerate(CASES.items()):
        if args.only and not any(word in name for word in args.only):
            continue
        began = time.process_time()
        audits = [Audit(case, np.random.default_rng([args.seed, number, i])) for i in range(args.audits)]
        print(json.dumps({"case": name, **judged(audits), "cpu_s": round(time.process_time() - began)}), flush=True)


if __name__ == "__main__":
    main()
