"""The captioner's descriptions of the images that rounds kept. Each is written once; a resumed run reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pyarrow as pa

from c2b_ray.audits.kit.events import Steps
from c2b_ray.pipelines.rounds import describe_all
from c2b_ray.pipelines.stage import Runner
from c2b_ray.roles import Captioner
from c2b_ray.schemas import content_id
from c2b_ray.steps.discovery.clauses import statements
from c2b_ray.steps.discovery.sentences import usable
from c2b_ray.store.failures_run import FailuresRun

Image = tuple[str, bytes]
"""Its label, and its encoded bytes."""


class Describing:
    """Sentences of images, by a captioner of this revision."""

    def __init__(
        self, run: FailuresRun, runner: Runner, captioner: Callable[[], Captioner], revision: str, steps: Steps
    ) -> None:
        self._run, self._runner, self._captioner, self._revision = run, runner, captioner, revision
        self._steps = steps
        self._known: dict[str, str | None] | None = None
        self._dropped: set[tuple[str, str, str]] = set()

    @property
    def dropped(self) -> dict[str, int]:
        """Counts by reason the sentences about a label's images that were not used in a caption."""
        return dict(sorted(Counter(reason for _, _, reason in self._dropped).items()))

    def drop(self, label: str, sentence: str, reason: str) -> None:
        self._dropped.add((label, sentence, reason))

    def sentences(self, images: Sequence[Image]) -> list[tuple[str, ...]]:
        """Returns the sentences about each image besides its label; () where the captioner said nothing usable."""
        ids = [content_id("describe", self._revision, label, data) for label, data in images]
        known = self._read()
        missing = {one: image for one, image in zip(ids, images, strict=True) if one not in known}
        if missing:
            self._run.begin_writing()
            rows = pa.table(
                {
                    "description_id": list(missing),
                    "label": [label for label, _ in missing.values()],
                    "image": pa.array([data for _, data in missing.values()], pa.binary()),
                }
            )
            with self._steps.step("describe failures") as on_progress:
                out = self._run.location("descriptions")
                describe_all(self._runner, rows, self._captioner, out, on_progress)
            self._known = None
            known = self._read()
        texts = [known[one] for one in ids]
        labels = [label for label, _ in images]
        return [() if text is None else self._usable(text, of) for text, of in zip(texts, labels, strict=True)]

    def _read(self) -> dict[str, str | None]:
        if self._known is None:
            rows = self._run.read("descriptions", ["description_id", "text"])
            self._known = dict(zip(rows["description_id"].to_pylist(), rows["text"].to_pylist(), strict=True))
        return self._known

    def _usable(self, text: str, label: str) -> tuple[str, ...]:
        kept, dropped = usable(statements(text, label), label)
        for one in dropped:
            self.drop(label, one.sentence, one.reason)
        return tuple(kept)
