"""A worker of a build: it holds the models and makes the shards whose numbers it gets.

    first    draws a shard's images, has them judged, and keeps the failures
    finish   leaves out what the second pass excluded, and writes a shard's rows and drops
    restore  draws again the rows of a shard that its drops prove were there

A task depends on the dataset's files only: any worker may do any task, again, and at the same time as another.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.dataset.shard_files import CANDIDATES, DROPS, ENDING, SHARDS, PlannedCaptions, ShardFiles
from c2b_ray.audits.dataset.shard_files import DRAWS as OF_DRAWS
from c2b_ray.audits.dataset.shards.second import SecondPass
from c2b_ray.audits.dataset.steps.copies import within_cap
from c2b_ray.audits.dataset.steps.plan import Ints, Plan, caption_of, seed_of_draw
from c2b_ray.audits.dataset.steps.shard import (
    CODE,
    NEAR_DUPLICATE,
    NO_IMAGE,
    OVER_CAP,
    DatasetModels,
    DrawSource,
    FromTable,
    GeneratedSource,
    Judge,
    LabelCheck,
    Nearest,
    Outcome,
    PlannedSample,
    ShardDraws,
    draw_batch,
    rows,
)
from c2b_ray.audits.failures.config import FailureRule
from c2b_ray.audits.failures.discovery.rounds import Truth
from c2b_ray.errors import InputError, RunError
from c2b_ray.roles import Captioner, Classifier, ImageGenerator, ImageIndex, TextEncoder
from c2b_ray.steps.classify import check_revision
from c2b_ray.steps.draw import ImageSource
from c2b_ray.storage.tables import RowsFile
from c2b_ray.tables.dataset import CANDIDATE, DATASET_ROWS, with_keys

# Counts the work of a build live, in each process that works on it. It knows only names and numbers.


DRAWS, KEPT, DROPPED = "draws", "kept", "dropped"
IMAGES, SECONDS = "images", "seconds"
BECAUSE = "because"
"""Names of counters: alone, or followed by a colon and what they count, such as `dropped:not_failed` or
`images:generate`. After `because:` stand a few reasons why there was no image."""


class Counters:
    """Sums by name. Several threads may add."""

    def __init__(self) -> None:
        self._sums: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, sums: Mapping[str, float]) -> None:
        with self._lock:
            for name, value in sums.items():
                self._sums[name] += value  # type: ignore[assignment]

    def snapshot(self) -> dict[str, float]:
        with self._lock:
            return dict(self._sums)


MOST_REASONS = 3


@dataclass(frozen=True)
class Recipe:
    """What a worker needs to know about a dataset. `load` loads the models; `sources`: how many sources draw in turn.

    `format`: of dataset.json; it decides how near-duplicates are recognised (`second.Second`).
    """

    files: ShardFiles
    plan: Plan
    load: Callable[[], DatasetModels]
    sources: int
    seed: int
    distance: int | None
    cap: int
    format: int = 3


@dataclass(frozen=True)
class Task:
    """`method` of a `TaskWorker`, with the number of a shard, group or bucket."""

    method: str
    number: int
    argument: Any = None

    @property
    def name(self) -> str:
        return f"{self.method}-{self.number:06d}"


class Cancelled(Exception):
    """Raised where the build has to stop."""


class TaskWorker:
    """Does tasks, several at once in several threads. `check` is called before each batch, and may raise."""

    def __init__(self, recipe: Recipe, counters: Counters, check: Callable[[], None]) -> None:
        self._recipe, self._files, self._plan = recipe, recipe.files, recipe.plan
        self._counters, self._check = counters, check
        self._captions = PlannedCaptions(recipe.files)
        self._second = SecondPass(recipe.files, recipe.plan, self._captions, recipe.distance, recipe.format)
        self._loaded: DatasetModels | None = None
        self._loading = threading.Lock()
        self._reasons: set[str] = set()

    def do(self, task: Task) -> Any:
        with self._files.busy(task.name):
            match task.method:
                case "first":
                    return self.first(task.number)
                case "finish":
                    return self.finish(task.number, task.argument)
                case "restore":
                    return self.restore(task.number)
            return self._second.do(task.method, task.number, task.argument)

    def first(self, number: int) -> None:
        name, plan = self._plan.name(number), self._plan
        start, stop = plan.bounds(number)
        captions, draws = caption_of(self._captions.firsts, np.arange(start, stop))
        labels = self._captions.label_numbers[captions]
        shard = ShardDraws(stop - start, self._recipe.distance, self._recipe.cap)
        with self._files.rows(f"{CANDIDATES}/{name}{ENDING}", DATASET_ROWS) as rows_file:
            for first, end in plan.batches(number):
                piece = slice(first - start, end - start)
                outcome = self._draw(captions[piece], draws[piece])
                self._count(outcome)
                rows_file.add(rows(shard.add(outcome, labels[piece]), self._models().rule))
        written = rows_file.written
        description = {"rows": written.rows, "bytes": written.bytes, "sha256": written.sha256}
        self._files.put_table(f"{CANDIDATES}/{name}{OF_DRAWS}{ENDING}", shard.table(captions, draws), description)

    def finish(self, number: int, before: int) -> None:
        """`before`: how many failures of the shard's first caption are in earlier shards, repeats left out."""
        name = self._plan.name(number)
        of_draws = self._files.read(f"{CANDIDATES}/{name}{OF_DRAWS}{ENDING}")
        failed = pc.equal(of_draws["reason"], CANDIDATE).to_numpy()
        start, _ = self._plan.bounds(number)
        indices = np.flatnonzero(failed)
        repeats = self._second.repeats_of(number)
        earliest = [repeats.get(start + index) for index in indices.tolist()]
        unique = np.array([position is None for position in earliest], bool)
        kept = within_cap(of_draws["caption_number"].to_numpy()[indices], unique, self._recipe.cap, before)
        reasons, details = of_draws["reason"].to_pylist(), of_draws["detail"].to_pylist()
        for index, is_kept, repeated in zip(indices.tolist(), kept.tolist(), earliest, strict=True):
            if not is_kept:
                reasons[index] = OVER_CAP if repeated is None else NEAR_DUPLICATE
                details[index] = repeated
        positions = start + indices[kept]
        with self._files.rows(f"{SHARDS}/{name}{ENDING}", DATASET_ROWS) as out:
            self._copy(number, positions, out)
        changed = of_draws.set_column(2, of_draws.schema.field(2), pa.array(reasons, pa.string()))
        changed = changed.set_column(3, changed.schema.field(3), pa.array(details, pa.string()))
        is_dropped = np.ones(len(reasons), bool)
        is_dropped[indices[kept]] = False
        self._put_drops(name, changed.filter(pa.array(is_dropped)), out)
        left_out = Counter(f"{DROPPED}:{reasons[index]}" for index in indices[~kept].tolist())
        self._counters.add({KEPT: len(positions), **left_out})

    def restore(self, number: int) -> None:
        name = self._plan.name(number)
        drops = self._files.read(f"{DROPS}/{name}{ENDING}")
        start, stop = self._plan.bounds(number)
        drop_positions = self._captions.positions(drops)
        with self._files.rows(f"{SHARDS}/{name}{ENDING}", DATASET_ROWS) as out:
            for table in self._drawn_anew(number, np.setdiff1d(np.arange(start, stop), drop_positions)):
                out.add(table)
        self._files.remove(f"{DROPS}/{name}{ENDING}")
        self._put_drops(name, drops, out)

    def _put_drops(self, name: str, drops: pa.Table, out: RowsFile) -> None:
        reasons = dict(sorted(Counter(drops["reason"].to_pylist()).items()))
        written = out.written
        shard = {"rows": written.rows, "bytes": written.bytes, "sha256": written.sha256}
        self._files.put_table(f"{DROPS}/{name}{ENDING}", drops, {"shard": shard, "reasons": reasons})

    def _copy(self, number: int, positions: Ints, out: RowsFile) -> None:
        """Writes the rows at these positions: those that the first pass kept, and the others drawn again."""
        name = f"{CANDIDATES}/{self._plan.name(number)}{ENDING}"
        stored = self._positions_of(number, name)
        if stored is not None and np.isin(positions, stored).all():
            for table in map(with_keys, self._files.pieces(name)):
                mask = np.isin(self._captions.positions(table), positions)
                out.add(table.filter(pa.array(mask)))
            return
        stored_positions = np.zeros(0, np.int64) if stored is None else stored
        stored_tables = [] if stored is None else list(map(with_keys, self._files.pieces(name)))
        drawn_again = self._drawn_anew(number, np.setdiff1d(positions, stored_positions))
        all_rows = pa.concat_tables([DATASET_ROWS.empty_table(), *stored_tables, *drawn_again])
        order = np.argsort(self._captions.positions(all_rows), kind="stable")
        all_rows = all_rows.take(pa.array(order))
        out.add(all_rows.filter(pa.array(np.isin(self._captions.positions(all_rows), positions))))

    def _positions_of(self, number: int, name: str) -> Ints | None:
        """Returns the positions of the rows that the first pass kept; None where the file is gone or damaged."""
        description = self._files.about(f"{CANDIDATES}/{self._plan.name(number)}{OF_DRAWS}{ENDING}")
        try:
            if self._files.digest(name).sha256 != description["sha256"]:
                return None
            return self._captions.positions(self._files.read(name, ["caption_number", "draw"]))
        except InputError:
            return None

    def _drawn_anew(self, number: int, positions: Ints) -> Iterator[pa.Table]:
        """Draws the rows at these positions again, in whole batches, because an answer depends on its batch."""
        for first, end in self._plan.batches(number):
            indices = positions[(positions >= first) & (positions < end)] - first
            if not len(indices):
                continue
            outcome = self._draw(*caption_of(self._captions.firsts, np.arange(first, end)))
            if not (outcome.codes[indices] == CODE[CANDIDATE]).all():
                name = self._plan.name(number)
                raise RunError(
                    f"{self._files.location}: images of shard {name} are no failures here, as they were when it was "
                    f"made: its models answer otherwise on this machine; delete {DROPS}/{name}{ENDING} as well, and "
                    "the shard is made anew by what they answer now",
                    run=self._files.location,
                )
            wanted_indices = set(indices.tolist())
            yield rows(
                [candidate for candidate in outcome.candidates if candidate.index in wanted_indices],
                self._models().rule,
            )

    def _draw(self, captions: Ints, draws: Ints) -> Outcome:
        self._check()
        models, sources = self._models(), self._recipe.sources
        samples = []
        for number, draw in zip(captions.tolist(), draws.tolist(), strict=True):
            caption = self._captions[number]
            samples.append(
                PlannedSample(caption, draw, draw // sources, seed_of_draw(self._recipe.seed, caption.text, draw))
            )
        return draw_batch(samples, models, self._staged)

    def _count(self, outcome: Outcome) -> None:
        drops = Counter(f"{DROPPED}:{reason}" for reason in outcome.reasons() if reason != CANDIDATE)
        self._counters.add({DRAWS: len(outcome.codes), **drops})
        if drops and len(self._reasons) < MOST_REASONS:
            indices = np.flatnonzero(outcome.codes == CODE[NO_IMAGE]).tolist()[:1]
            self._reasons |= {f"{BECAUSE}:{outcome.details[index]}" for index in indices}
            self._counters.add(dict.fromkeys(self._reasons, 0))

    def _staged(self, stage: str, images: int, seconds: float) -> None:
        self._counters.add({f"{IMAGES}:{stage}": images, f"{SECONDS}:{stage}": seconds})

    def _models(self) -> DatasetModels:
        with self._loading:
            if self._loaded is None:
                self._loaded = self._recipe.load()
            return self._loaded


# Loads the models of a dataset in the worker that uses them, from factories that can be sent there.


@dataclass(frozen=True)
class GeneratorThere:
    name: str
    revision: str
    load: Callable[[], ImageGenerator]

    def source(self) -> DrawSource:
        generator = self.load()
        check_revision(self.name, generator.revision, self.revision)
        return GeneratedSource(self.name, generator)


@dataclass(frozen=True)
class IndexThere:
    name: str
    revision: str
    index: Callable[[], ImageIndex]
    encoder: Callable[[], TextEncoder]
    most: int

    def source(self) -> DrawSource:
        index = self.index()
        check_revision(self.name, index.revision, self.revision)
        return Nearest(self.name, self.encoder(), index, self.most)


@dataclass(frozen=True)
class TableThere:
    name: str
    revision: str
    table: Callable[[], ImageSource]

    def source(self) -> DrawSource:
        table = self.table()
        check_revision(self.name, table.revision, self.revision)
        return FromTable(self.name, table)


@dataclass(frozen=True)
class JudgeThere:
    """`truths`: for each label of the dataset, the classifier's labels that count as right."""

    name: str
    revision: str
    names: tuple[str, ...]
    truths: dict[str, Truth]
    load: Callable[[], Classifier]

    def judge(self) -> Judge:
        classifier = self.load()
        check_revision(self.name, classifier.revision, self.revision)
        return Judge(self.name, self.revision, self.names, self.truths, classifier)


@dataclass(frozen=True)
class VerifierThere:
    name: str
    revision: str
    labels: tuple[str, ...]
    load: Callable[[], Captioner]

    def check(self) -> LabelCheck:
        captioner = self.load()
        check_revision(self.name, captioner.revision, self.revision)
        return LabelCheck(captioner, self.labels)


@dataclass(frozen=True)
class ModelFactories:
    """All models of a dataset, and what counts as a failure. `load` loads them."""

    sources: tuple[GeneratorThere | IndexThere | TableThere, ...]
    judges: tuple[JudgeThere, ...]
    verifier: VerifierThere | None
    rule: FailureRule
    confidence: float
    true_below: float = 1.0

    def load(self) -> DatasetModels:
        return DatasetModels(
            tuple(loader.source() for loader in self.sources),
            tuple(loader.judge() for loader in self.judges),
            None if self.verifier is None else self.verifier.check(),
            self.rule,
            self.confidence,
            self.true_below,
        )

    def revisions(self) -> dict[str, str]:
        """Returns the revision of each model, by its task and its name."""
        result = {f"images {loader.name}": loader.revision for loader in self.sources}
        result |= {f"classifier {loader.name}": loader.revision for loader in self.judges}
        return result if self.verifier is None else {**result, f"verifier {self.verifier.name}": self.verifier.revision}

    def named(self, names: Sequence[str]) -> ModelFactories:
        """Returns the same models under other names, in the order of `revisions`."""
        remaining = iter(names)
        return replace(
            self,
            sources=tuple(replace(loader, name=next(remaining)) for loader in self.sources),
            judges=tuple(replace(loader, name=next(remaining)) for loader in self.judges),
            verifier=None if self.verifier is None else replace(self.verifier, name=next(remaining)),
        )
