"""A run of `c2b prompts`: its tables by name, each checked when it is read.

prompts.parquet        every prompt with its frequency under fresh seeds; methods.parquet: the result of each method
gains.parquet          each method against the language model's own prompts, over all values
associations.parquet   which words raise which value
modifiers.parquet      the effect of parts of a prompt
heads.parquet          accuracy of the heads by denoising step; heads/ contains the heads themselves
searches/ judged/ examples/   Parquet parts: results of searches, answers of the judge, pictures
written.parquet        prompts of the baselines
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.models import language_model_row, model_row, note_models, warn_of_assumptions
from c2b_ray.audits.kit.session import Steps
from c2b_ray.audits.prompts.config import PromptsConfig
from c2b_ray.audits.prompts.kind import AUDIT
from c2b_ray.audits.prompts.steps import judging
from c2b_ray.audits.prompts.steps.judging import Frequencies, ImageQuestions, JudgeModels, judge, pictures
from c2b_ray.audits.prompts.steps.tasks import (
    SearchModels,
    SearchPlan,
    Target,
    leaks_of_target,
    question_of,
    search,
    targets_of,
)
from c2b_ray.audits.prompts.steps.words import LeakWords
from c2b_ray.engine.images import OnProgress, of_revision
from c2b_ray.engine.stage import Rows, Runner, StageConfig, each_alone
from c2b_ray.roles import Captioner, ImageGenerator, LanguageModel, Question
from c2b_ray.storage.manifest import Manifest
from c2b_ray.storage.run import Run, TableOf, opener_of
from c2b_ray.tables import content_id, seed_of
from c2b_ray.tables.prompts import EXAMPLES, JUDGED, SEARCHES


class LeastEffect(BaseModel):
    """The least effect of a word on a value that would have been found; None where none would."""

    model_config = ConfigDict(extra="allow", frozen=True)

    attribute: str
    value: str
    effect: float | None


class WordSearch(BaseModel):
    """How words of one generator were tested. `words`: tested; `decided`: pairs of a word and a value that the last
    look decided. `least`: effects that are found with probability `power`, at best. `untested`: word → why it was
    not."""

    model_config = ConfigDict(extra="allow", frozen=True)

    generator: str
    words: int
    decided: int
    power: float
    least: list[LeastEffect]
    untested: dict[str, str]


class PromptsManifest(Manifest):
    """`notes`: remarks on the numbers for readers. `words`: how words were tested, of each generator."""

    notes: list[str] | None = None
    words: list[WordSearch] | None = None


class PromptsRun(Run):
    """A run of `c2b prompts`."""

    config: PromptsConfig

    SINCE: ClassVar = {"associations": ("look", "images_used")}

    prompts = TableOf()
    associations = TableOf()
    modifiers = TableOf()
    methods = TableOf()
    gains = TableOf()
    heads = TableOf()


open_prompts_run = opener_of(AUDIT, PromptsRun)
"""As `storage.run.open_run`, for a run of this kind."""


# The stages of `c2b prompts`: searches, judging, pictures. Each row is a unit of work, so that rows run side by
# side and resume.


def _images_stage(orders: pa.Table) -> list[int]:
    return [len(seeds) for seeds in orders["seeds"].to_pylist()]


# Searches and images of a large generator are slow, and a kill loses what is not written.
SEARCH = StageConfig(SEARCHES, stage="generate", rows_per_file=1, weigh=each_alone, most_weight=1)
JUDGE = StageConfig(JUDGED, stage="generate", rows_per_file=16, weigh=_images_stage, most_weight=128)
PICTURES = StageConfig(EXAMPLES, stage="generate", rows_per_file=16)
_BLOCK = 8


@dataclass(frozen=True)
class PromptStages:
    """The stages of one run, all run by `runner`."""

    runner: Runner

    def search(
        self, orders: pa.Table, models: Callable[[], SearchModels], plan: SearchPlan, out: str, tell: OnProgress
    ) -> None:
        """Writes a row of `tables.prompts.SEARCHES` per order into parts under `out`."""
        config = replace(SEARCH, total=orders.num_rows)
        self.runner.run(
            Rows.of(orders, 1), partial(search, plan=plan), models, out, id_column="search_id", config=config,
            on_progress=tell,
        )  # fmt: skip

    def judge(
        self, orders: pa.Table, models: Callable[[], JudgeModels], about: ImageQuestions, out: str, tell: OnProgress
    ) -> None:
        """Writes a row of `tables.prompts.JUDGED` per order into parts under `out`."""
        config = replace(JUDGE, total=orders.num_rows)
        self.runner.run(
            Rows.of(orders, _BLOCK), partial(judge, about=about), models, out, id_column="judged_id", config=config,
            on_progress=tell,
        )  # fmt: skip

    def pictures(
        self, orders: pa.Table, generator: Callable[[], ImageGenerator], name: str, out: str, tell: OnProgress
    ) -> None:
        """Writes a row of `tables.prompts.EXAMPLES` per order into parts under `out`."""
        config = replace(PICTURES, total=orders.num_rows)
        self.runner.run(
            Rows.of(orders, _BLOCK), partial(pictures, name=name), generator, out, id_column="example_id",
            config=config, on_progress=tell,
        )  # fmt: skip


# State that the parts of a run share while it works: its config, tables and targets, and its models' factories.


@dataclass(frozen=True)
class PromptsState:
    """`revisions`: of the generators, by name; `judge_revision`, `language_model_revision`: of these models. `notes`:
    remarks for readers of the numbers."""

    config: PromptsConfig
    run: PromptsRun
    models: Backend
    steps: Steps
    revisions: Mapping[str, str]
    judge_revision: str
    language_model_revision: str
    notes: list[str] = field(default_factory=list)

    @property
    def stages(self) -> PromptStages:
        return PromptStages(self.models.runner)

    @property
    def targets(self) -> list[Target]:
        return targets_of(self.config.attributes, self.config.intersections)

    @property
    def questions(self) -> dict[str, Question]:
        return {name: question_of(name, attribute) for name, attribute in self.config.attributes.items()}

    def leaks(self, target: Target) -> LeakWords:
        return leaks_of_target(target, self.config.attributes)

    def generator(self, name: str) -> Callable[[], ImageGenerator]:
        spec = self.config.generators[name]
        return partial(of_revision, self.models.image_generator(spec), self.revisions[name], spec)

    def judge(self) -> Callable[[], Captioner]:
        spec = self.config.judge
        return partial(of_revision, self.models.captioner(spec), self.judge_revision, spec)

    def language_model_there(self) -> Callable[[], LanguageModel]:
        spec = self.config.language_model
        return partial(of_revision, self.models.language_model_there(spec), self.language_model_revision, spec)

    def fresh_seeds(self, purpose: str, key: str, count: int) -> tuple[int, ...]:
        """Returns a prompt's seeds for one purpose, the same on every generator; no search has used them."""
        return tuple(seed_of("prompts", purpose, self.config.seed, key, n) for n in range(count))

    def judged(self, step: str, rows: Mapping[str, Sequence[tuple[str, Sequence[int]]]]) -> Frequencies:
        """Returns the judge's answers about the images of prompts under seeds, by generator; known answers are
        reused."""
        out = self.run.location("judged")
        for name, prompts_and_seeds in rows.items():
            orders = judging.judging_tasks(prompts_and_seeds, self._identity(name))
            if not orders.num_rows:
                continue
            with self.steps.step(step, judging.images_per_order(orders)) as on_progress:
                models = partial(_judge_models, self.generator(name), self.judge())
                self.run.begin_writing()
                self.stages.judge(orders, models, ImageQuestions(name, self.questions), out, on_progress)
        return Frequencies(self.run.read("judged"))

    def _identity(self, generator: str) -> str:
        of_questions = {name: [q.text, q.choices, q.texts] for name, q in self.questions.items()}
        return content_id(generator, self.revisions[generator], self.judge_revision, of_questions)


def begin(config: PromptsConfig, run: PromptsRun, models: Backend, steps: Steps) -> PromptsState:
    """Returns the work with its models described, and notes the models in the run. Raises RunError where one is another
    model than the run began with: its prompts are written once, and searches of both models would be read together."""
    work = described(config, run, models, steps)
    used = {f"generator {name}": ("image_generator", spec) for name, spec in config.generators.items()}
    used["judge"] = ("captioner", config.judge)
    if config.encoder is not None:
        used["encoder"] = ("encoder", config.encoder)
    rows: dict[str, Mapping[str, Any]] = {}
    for name, (role, spec) in used.items():
        description = models.describe(role, spec)
        rows[name] = model_row(spec, description)
        warn_of_assumptions(steps, name, description)
    rows["language model"] = {"spec": config.language_model, "revision": work.language_model_revision}
    if config.reader is not None:
        rows["reader"] = language_model_row(models, config.reader)
    note_models(run, rows)
    return work


def described(config: PromptsConfig, run: PromptsRun, models: Backend, steps: Steps) -> PromptsState:
    """Returns the work; writes nothing."""
    revisions = {name: models.describe("image_generator", spec).revision for name, spec in config.generators.items()}
    judge = models.describe("captioner", config.judge).revision
    language_model = models.describe("language_model", config.language_model).revision
    return PromptsState(config, run, models, steps, revisions, judge, language_model)


def _judge_models(generator: Callable[[], ImageGenerator], judge: Callable[[], Captioner]) -> JudgeModels:
    return JudgeModels(generator(), judge())
