"""Numbers the captions of a plan in their order, each once, with the position of its first draw. It knows texts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from c2b_ray.schemas.dataset import PLANNED
from c2b_ray.schemas.dataset_rows import PlannedRow

AT_ONCE = 4096


@dataclass
class Numbered:
    """Numbers captions in their order, each text of a label once. `labels`: those that have occurred."""

    draws: int
    labels: dict[str, int] = field(default_factory=dict)
    captions: int = 0
    total: int = 0
    repeated: int = 0
    _met: set[bytes] = field(default_factory=set)

    def tables(self, pairs: Iterable[tuple[str, str, list[int] | None]]) -> Iterator[pa.Table]:
        """Yields tables of `schemas.dataset.PLANNED` for (label, caption, rows). A caption with rows has a draw for
        each."""
        held: list[PlannedRow] = []
        for label, caption, rows in pairs:
            mark = hashlib.blake2b(f"{label}\0{caption}".encode(), digest_size=12).digest()
            if mark in self._met:
                self.repeated += 1
                continue
            self._met.add(mark)
            number = self.labels.setdefault(label, len(self.labels))
            draws = self.draws if rows is None else len(rows)
            held.append(
                {
                    "label": label, "caption": caption, "label_number": number, "first": self.total, "draws": draws,
                    "rows": rows,
                }
            )  # fmt: skip
            self.captions, self.total = self.captions + 1, self.total + draws
            if len(held) == AT_ONCE:
                yield pa.Table.from_pylist(held, PLANNED)
                held = []
        if held:
            yield pa.Table.from_pylist(held, PLANNED)
