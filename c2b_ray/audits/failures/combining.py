"""Finds clusters of failures and the sentences that describe each best. The result is written once; a resumed run reads
it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from c2b_ray.audits.kit.events import Steps
from c2b_ray.pipelines.combinations import combine_all
from c2b_ray.pipelines.stage import Runner
from c2b_ray.roles import Captioner, TextImageEncoder
from c2b_ray.schemas import content_id
from c2b_ray.steps.discovery.mining import Sentences
from c2b_ray.store.failures_run import FailuresRun

_IMAGES, _SENTENCES = pa.list_(pa.binary()), pa.list_(pa.list_(pa.string()))
_AT_ONCE = 32  # groups whose images the driver holds twice


@dataclass(frozen=True)
class Group:
    """Failures of one kind: their encoded images, the sentences about each, and ordinary images of the label."""

    prompt: str
    images: Sequence[bytes]
    said: Sequence[Sentences]
    reference: Sequence[bytes]


@dataclass(frozen=True)
class Combining:
    """Combines sentences by a captioner, and by an encoder where there is one. `revisions`: of these models."""

    run: FailuresRun
    runner: Runner
    captioner: Callable[[], Captioner]
    encoder: Callable[[], TextImageEncoder] | None
    revisions: Sequence[str]
    steps: Steps

    def sentences(self, groups: Sequence[Group]) -> list[list[Sentences]]:
        """Returns for each group the sentences of its clusters, largest cluster first; [] where no model scores
        captions."""
        ids = [self._id(group) for group in groups]
        known = self._known()
        missing = {one: group for one, group in zip(ids, groups, strict=True) if one not in known}
        for start in range(0, len(missing), _AT_ONCE):
            self._combine(dict(list(missing.items())[start : start + _AT_ONCE]))
        known = self._known()
        return [known[one] for one in ids]

    def _combine(self, groups: Mapping[str, Group]) -> None:
        self.run.begin_writing()
        rows = pa.table(
            {
                "combination_id": list(groups),
                "prompt": [group.prompt for group in groups.values()],
                "images": pa.array([list(group.images) for group in groups.values()], _IMAGES),
                "sentences": pa.array([list(map(list, group.said)) for group in groups.values()], _SENTENCES),
                "reference": pa.array([list(group.reference) for group in groups.values()], _IMAGES),
            }
        )
        with self.steps.step("combine sentences") as on_progress:
            out = self.run.location("combinations")
            combine_all(self.runner, rows, self.captioner, self.encoder, out, on_progress)

    def _id(self, group: Group) -> str:
        parts = [group.prompt, [list(one) for one in group.said], *group.images, "reference", *group.reference]
        return content_id("combine", list(self.revisions), *parts)

    def _known(self) -> dict[str, list[Sentences]]:
        rows = self.run.read("combinations").to_pylist()
        return {
            row["combination_id"]: [tuple(one["sentences"]) for one in row["clusters"] if one["sentences"]]
            for row in rows
        }
