"""The rounds of a run: draws what its decisions ask for, where the models are, and counts the outcomes.

A round that the run already holds is not drawn again. A run therefore resumes after any death, and its decisions, which
depend on rounds alone, come out the same. This module knows orders and counts, not why a caption is drawn.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.failures.discovery.candidates import Candidate
from c2b_ray.audits.failures.discovery.rounds import (
    ORDERS,
    SAMPLE,
    AnswerRules,
    Draws,
    GeneratedDraws,
    LabelledDraws,
    OrderRow,
    kind_of,
)
from c2b_ray.audits.failures.discovery.rounds_stage import RoundStage
from c2b_ray.audits.failures.run import FailuresRun
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.session import Steps
from c2b_ray.engine.images import OnProgress, of_revision
from c2b_ray.engine.progress import Progress, StageTotal
from c2b_ray.roles import ImageGenerator, ImageIndex
from c2b_ray.storage.parts import opened
from c2b_ray.tables import content_id
from c2b_ray.tables.failures import ExampleRow, RoundRow

DISCOVERY, CONFIRMATION = "discovery", "confirmation"
SEARCH, TEST, MEASURE = "search", "test", "measure"
ENOUGH = 24
"""Failures of one kind whose images are kept and described."""


class Source(Protocol):
    """Where the draws of a caption come from. `name`: as tables call it. `revision`: of its weights or rows."""

    @property
    def name(self) -> str: ...

    @property
    def revision(self) -> str: ...

    def rows(self, caption: Candidate, stage: str) -> Sequence[int] | None:
        """Of an index, the images that stand in for the draws, in their order; None where draws have no end."""
        ...


@dataclass
class Counts:
    """The outcomes of one caption's rounds, for one classifier."""

    draws: int = 0
    failures: int = 0
    unusable: int = 0
    taken_for: Counter[str] = field(default_factory=Counter)

    def add(self, other: Counts) -> None:
        self.draws += other.draws
        self.failures += other.failures
        self.unusable += other.unusable
        self.taken_for.update(other.taken_for)

    def towards(self, target: str | None) -> int:
        """Returns the failures whose wrong label is the target; all failures where it is None."""
        return self.failures if target is None else self.taken_for[target]


@dataclass(frozen=True)
class WantedDraws:
    """A number of draws of a caption. `examples`: how many images a round keeps of each kind of failure."""

    caption: Candidate
    stage: str
    part: str
    draws: int
    examples: int = 1


class RoundDrawing:
    """Draws rounds of one source and counts them. `most`: the most draws of the whole run, for its progress."""

    def __init__(
        self,
        run: FailuresRun,
        stage: RoundStage,
        source: Source,
        deciders: Sequence[AnswerRules],
        size: int,
        most: int | None = None,
    ) -> None:
        self._run, self.stage, self._source, self._size, self._most = run, stage, source, size, most
        self.deciders = tuple(deciders)
        self.source = source.name
        self._next: Counter[tuple[str, str]] = Counter()
        self._counts: dict[tuple[str, str, str, str], Counts] = defaultdict(Counts)
        self._examples: dict[tuple[str, str], list[ExampleRow]] = defaultdict(list)
        self._rounds: dict[tuple[str, str, str], list[tuple[int, Counts]]] = defaultdict(list)
        self._samples: dict[str, dict[int, list[ExampleRow]]] = defaultdict(dict)
        self.known: dict[str, RoundRow] = {}
        self._read: set[str] = set()
        self.spent: Counter[tuple[str, str]] = Counter()

    def draw(self, wanted: Sequence[WantedDraws], steps: Steps, doing: str) -> None:
        """Draws and counts. An index gives as many draws as it has images."""
        orders = [order for drawing_order in wanted for order in self._orders(drawing_order)]
        if not orders:
            return
        table = pa.Table.from_pylist(orders, ORDERS)
        self._read_new()
        ids = pc.list_flatten(table["round_id"]).to_pylist()
        if missing := set(ids).difference(self.known):
            is_missing = [bool(missing.intersection(order["round_id"])) for order in orders]
            self._run.begin_writing()
            with steps.step(doing, images_per_row=1) as on_progress:
                remaining = table.filter(pa.array(is_missing))
                self.stage.run(remaining, self._in_images(on_progress, pc.sum(remaining["draws"]).as_py()))
                self._read_new()
                steps.count(_outcomes([self.known[round_id] for round_id in missing]))
        for order in orders:
            for round_id in order["round_id"]:
                self._add(self.known[round_id])

    def _in_images(self, on_progress: OnProgress, images: int) -> OnProgress:
        """Tells of images, of `images` in this step, where the stage tells of a round of each classifier. Rounds of a
        step are of about one size."""
        before = sum(self.spent.values()) - images

        def tell(progress: Progress) -> None:
            images_per_row = images / progress.total if progress.total else 0.0
            rows, resumed, done = (
                round(count * images_per_row) for count in (progress.rows, progress.resumed, progress.done)
            )
            rate = progress.rows_per_second * images_per_row
            total = None if self._most is None else StageTotal(before + done, self._most)
            on_progress(Progress(rows, progress.errors, resumed, images, rate, done - resumed, "images", total))

        return tell

    def counts(self, caption: Candidate, classifier: str, stage: str, part: str) -> Counts:
        return self._counts[caption.caption_id, stage, part, classifier]

    def rates(self, caption: Candidate, classifier: str, part: str, target: str | None) -> list[float]:
        """Returns the failure rate of each round of a part, in order; rounds without images are left out."""
        rounds = sorted(self._rounds[caption.caption_id, part, classifier], key=lambda item: item[0])
        return [counts.towards(target) / counts.draws for _, counts in rounds if counts.draws]

    def examples(self, caption: Candidate, classifier: str) -> list[ExampleRow]:
        """Returns the failures of discovery whose images were kept (`tables.EXAMPLE`)."""
        return self._examples[caption.caption_id, classifier]

    def sample(self, caption: Candidate) -> list[ExampleRow]:
        """Returns the images of the part `sample` (`tables.EXAMPLE`), failures and others."""
        rounds = self._samples[caption.caption_id]
        return [image for first in sorted(rounds) for image in rounds[first]]

    def left(self, caption: Candidate, stage: str) -> int | None:
        """Returns how many draws an index still has for a caption; None where draws have no end."""
        rows = self._source.rows(caption, stage)
        return None if rows is None else len(rows) - self._next[caption.caption_id, stage]

    def _orders(self, wanted: WantedDraws) -> list[OrderRow]:
        key, remaining = (wanted.caption.caption_id, wanted.stage), self.left(wanted.caption, wanted.stage)
        draws = wanted.draws if remaining is None else min(wanted.draws, remaining)
        begin, end = self._next[key], self._next[key] + draws
        self._next[key] = end
        self.spent[wanted.stage, wanted.part] += draws
        starts = range(begin, end, self._size)
        return [self._order(wanted, first, min(self._size, end - first)) for first in starts]

    def _order(self, wanted: WantedDraws, first: int, draws: int) -> OrderRow:
        caption = wanted.caption
        rows = self._source.rows(caption, wanted.stage)
        own_rows = None if rows is None else list(rows[first : first + draws])
        complete_kinds = self._enough(caption)
        settings = (
            caption.caption_id,
            caption.text,
            wanted.stage,
            wanted.part,
            first,
            draws,
            wanted.examples,
            complete_kinds,
            own_rows,
        )
        order_id = content_id("order", self._source.name, self._source.revision, self.stage.seed, *settings)
        return {
            "round_id": [decider.round_id(order_id, caption.label) for decider in self.deciders],
            "order_id": order_id,
            "caption_id": caption.caption_id,
            "label": caption.label,
            "text": caption.text,
            "stage": wanted.stage,
            "part": wanted.part,
            "generator": self._source.name,
            "first": first,
            "draws": draws,
            "examples": wanted.examples,
            "enough": complete_kinds,
            "rows": own_rows,
        }

    def _enough(self, caption: Candidate) -> list[str]:
        kinds = Counter(
            kind_of(decider.classifier, example["predicted"])
            for decider in self.deciders
            for example in self._examples[caption.caption_id, decider.classifier]
        )
        return sorted(kind for kind, count in kinds.items() if count >= ENOUGH)

    def _read_new(self) -> None:
        """Reads the rounds that the run holds and this process has not read."""
        if not self._run.has("rounds"):
            return
        parts = opened(self._run.location("rounds"))
        for name in parts.names():
            if name not in self._read:
                self._read.add(name)
                self.known.update({row["round_id"]: row for row in parts.read(name).to_pylist()})

    def _add(self, row: RoundRow) -> None:
        counts = self._counts[row["caption_id"], row["stage"], row["part"], row["classifier"]]
        taken_for = Counter(dict(zip(row["predicted"], row["counts"], strict=True)))
        of_round = Counts(row["draws"], row["failures"], row["unusable"], taken_for)
        counts.add(of_round)
        self._rounds[row["caption_id"], row["part"], row["classifier"]].append((row["first"], of_round))
        if row["part"] == SAMPLE:
            self._samples[row["caption_id"]][row["first"]] = row["examples"]  # the same of every classifier
        elif row["stage"] == DISCOVERY:
            self._examples[row["caption_id"], row["classifier"]] += row["examples"]


def _outcomes(rounds: Sequence[RoundRow]) -> Counter[str]:
    """Counts draws by stage and outcome for each classifier: "discovery failed", "discovery passed", …"""
    counts: Counter[str] = Counter()
    for row in rounds:
        failed, unusable = row["failures"], row["unusable"]
        passed = row["draws"] - failed
        for outcome, count in (("failed", failed), ("passed", passed), ("unusable", unusable)):
            counts[f"{row['stage']} {outcome}"] += count
    return counts


# Where the images of a run come from: a generator, whose draws have no end, or the nearest images of an index.


@dataclass(frozen=True)
class GeneratorSource:
    """`name`: the generator's spec. `load`: makes its draws where the stage runs."""

    name: str
    revision: str
    load: Callable[[], Draws]

    def rows(self, caption: Candidate, stage: str) -> Sequence[int] | None:
        return None


def generated(spec: str, models: Backend, seed: int) -> GeneratorSource:
    revision = models.describe("image_generator", spec).revision
    factory = partial(of_revision, models.image_generator(spec), revision, spec)
    return GeneratorSource(spec, revision, partial(_draws, factory, seed))


def _draws(generator: Callable[[], ImageGenerator], seed: int) -> Draws:
    return GeneratedDraws(generator(), seed)


@dataclass(frozen=True)
class IndexSource:
    """The images of an index nearest to a caption, in random order. `name`: the index's path."""

    name: str
    revision: str
    load: Callable[[], Draws]
    nearest: Mapping[str, Sequence[int]]

    def rows(self, caption: Candidate, stage: str) -> Sequence[int] | None:
        return self.nearest[caption.caption_id]


def indexed(path: str, captions: Sequence[Candidate], images: int, models: Backend) -> IndexSource:
    """`images` of the index for each caption."""
    index = models.index(path)()
    embeddings = models.text_encoder(index.encoder).encode_texts([caption.text for caption in captions])
    ids = index.search(embeddings, images).ids
    nearest = {}
    for caption, row in zip(captions, ids.tolist(), strict=True):
        hits = [image for image in row if image >= 0]
        nearest[caption.caption_id] = sorted(hits, key=lambda image: content_id("order", caption.caption_id, image))
    return IndexSource(path, index.revision, partial(_of_index, models.index(path)), nearest)


def _of_index(index: Callable[[], ImageIndex]) -> Draws:
    return LabelledDraws(index())
