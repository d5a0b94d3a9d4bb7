"""The results of hardening: Table 7 of Wiles et al. 2022 as numbers, as JSON and as a page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.stats import t

from c2b_ray.report.dataset.hardened_page import hardened_page
from c2b_ray.store import files
from c2b_ray.text import finite

CONFIDENCE = 0.95
ARMS = ("as_it_is", "without", "with")


@dataclass(frozen=True)
class Accuracy:
    """Over `seeds` trainings: mean, and standard deviation between them (NaN for one)."""

    mean: float
    sd: float
    seeds: int
    images: int


@dataclass(frozen=True)
class Gain:
    """The gain of the trainings with the dataset over another arm; the interval is Student's, over seeds (NaN
    for one)."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Hardened:
    """`clean`, `dataset`: accuracy on the held-out images of either, by arm. `gains`: of `with` over each other arm, by
    arm and then clean or dataset. `about`: settings and split. `trainings`: of `TRAINED`."""

    clean: Mapping[str, Accuracy]
    dataset: Mapping[str, Accuracy]
    gains: Mapping[str, Mapping[str, Gain]]
    about: Mapping[str, Any]
    trainings: pa.Table

    def to_json(self) -> dict[str, Any]:
        arms = {arm: {"clean": asdict(self.clean[arm]), "dataset": asdict(self.dataset[arm])} for arm in self.clean}
        gains = {arm: {name: asdict(gain) for name, gain in of.items()} for arm, of in self.gains.items()}
        models = [row["spec"] for row in self.trainings.to_pylist() if row["arm"] == "with"]
        left_out = {name: int(self.trainings[f"{name}_left_out"][0].as_py()) for name in ("clean", "dataset")}
        whole = {"accuracy": arms, "gain_of_with_over": gains, "models": models, "left_out": left_out, **self.about}
        return dict(finite(whole))

    def write(self, out: str) -> None:
        files.write_table(f"{out}/trainings.parquet", self.trainings)
        files.write_bytes(
            f"{out}/results.json", json.dumps(self.to_json(), ensure_ascii=False, indent=1).encode() + b"\n"
        )
        files.write_bytes(f"{out}/index.html", hardened_page(self.to_json()).encode())


def summary_of(trainings: pa.Table, about: Mapping[str, Any]) -> Hardened:
    arms = [arm for arm in ARMS if arm in trainings["arm"].to_pylist()]
    rows = {arm: trainings.filter(pc.equal(trainings["arm"], arm)) for arm in arms}
    clean, dataset = ({arm: _accuracy(rows[arm], name) for arm in arms} for name in ("clean", "dataset"))
    gains = {
        arm: {name: _gain(_rates(rows["with"], name), _rates(rows[arm], name)) for name in ("clean", "dataset")}
        for arm in arms
        if arm != "with"
    }
    return Hardened(clean, dataset, gains, about, trainings)


def _rates(rows: pa.Table, name: str) -> Any:
    return rows[f"{name}_right"].to_numpy() / np.maximum(rows[f"{name}_images"].to_numpy(), 1)


def _accuracy(rows: pa.Table, name: str) -> Accuracy:
    rates = _rates(rows, name)
    sd = float(rates.std(ddof=1)) if len(rates) > 1 else float("nan")
    return Accuracy(float(rates.mean()), sd, len(rates), int(rows[f"{name}_images"][0].as_py()))


def _gain(after: Any, before: Any) -> Gain:
    """Returns the gain, seed by seed where both have as many; otherwise over the mean before."""
    differences = after - before if len(after) == len(before) else after - before.mean()
    mean = float(differences.mean())
    if len(differences) < 2:
        return Gain(mean, float("nan"), float("nan"))
    reach = float(
        t.ppf((1 + CONFIDENCE) / 2, len(differences) - 1) * differences.std(ddof=1) / np.sqrt(len(differences))
    )
    return Gain(mean, max(mean - reach, -1.0), min(mean + reach, 1.0))
