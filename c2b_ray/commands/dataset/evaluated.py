"""The results of an evaluation as tables, as JSON and as a page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from c2b_ray.commands.dataset.contestants import Contestant
from c2b_ray.commands.dataset.evaluate_features import Compared
from c2b_ray.report.dataset.evaluation_page import evaluation_page
from c2b_ray.report.dataset.neighbour_view import Shown
from c2b_ray.store import files
from c2b_ray.store.failure_dataset import FailureDataset, classifiers_of
from c2b_ray.store.labelled import LabelledTable
from c2b_ray.text import finite

SHOWN = 5
"""The number of failures whose neighbours the page shows."""


@dataclass(frozen=True)
class Evaluated:
    """`rates`: of `schemas.FAILURE_RATES`. `consistency`: of `schemas.CONSISTENCY`. `changed`: by classifier of the
    build, images that it failed then and has right now. `copies`: images of the reference that are copies of others."""

    dataset: FailureDataset
    contestants: tuple[Contestant, ...]
    rates: pa.Table
    consistency: pa.Table
    changed: Mapping[str, int]
    captions: int
    compared: Compared | None
    reference: LabelledTable | None
    copies: int = 0

    def to_json(self) -> dict[str, Any]:
        classifiers = [
            {"name": one.name, "spec": one.spec, "family": one.family, "revision": one.question.revision}
            for one in self.contestants
        ]
        whole: dict[str, Any] = {
            "dataset": self.dataset.location,
            "images": self.dataset.rows,
            "captions": self.captions,
            "rule": self.dataset.config.get("rule", "top1"),
            "classifiers": classifiers,
            "rates": self.rates.to_pylist(),
            "consistency": self.consistency.to_pylist(),
            "built": classifiers_of(self.dataset),
            "right_now": dict(self.changed),
            "similarity": None,
            "copies_in_reference": self.copies,
        }
        if self.compared is not None:
            known = {name: value for name, value in vars(self.compared).items() if name != "neighbours"}
            whole["similarity"] = known | {"reference": self.reference.location if self.reference else None}
        return dict(finite(whole))

    def write(self, out: str) -> None:
        files.write_table(f"{out}/rates.parquet", self.rates)
        files.write_table(f"{out}/consistency.parquet", self.consistency)
        if self.compared is not None:
            files.write_table(f"{out}/neighbours.parquet", self.compared.neighbours)
        results = self.to_json()
        files.write_bytes(f"{out}/results.json", json.dumps(results, ensure_ascii=False, indent=1).encode() + b"\n")
        files.write_bytes(f"{out}/index.html", evaluation_page(results, self._shown()).encode())

    def _shown(self) -> list[Shown]:
        """Returns a few failures with the bytes of their nearest reference images."""
        if self.compared is None or self.reference is None or not self.compared.neighbours.num_rows:
            return []
        rows = self.compared.neighbours.to_pylist()
        kinds = {(row["label"], row["predicted"]): row["image_id"] for row in reversed(rows)}  # the first of each kind
        chosen = list(dict.fromkeys([*reversed(kinds.values()), *(row["image_id"] for row in rows)]))[:SHOWN]
        images: dict[str, bytes] = {}
        for table in self.dataset.tables([shard.name for shard in self.dataset.shards], ["image_id", "image"]):
            images |= {row["image_id"]: row["image"] for row in table.to_pylist() if row["image_id"] in chosen}
            if len(images) == len(chosen):
                break
        neighbours = [row for row in rows if row["image_id"] in chosen]
        numbers = sorted({row["row"] for row in neighbours})
        pictures = dict(zip(numbers, self.reference.fetch(numbers)["bytes"].to_pylist(), strict=True))
        return [
            Shown(images[name], [row for row in neighbours if row["image_id"] == name], pictures)
            for name in chosen
            if name in images
        ]
