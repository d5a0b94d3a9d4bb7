"""State that the parts of a run share while it works: its config, tables and targets, and its models' factories."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.models import language_model_row, model_row, note_models, warn_of_assumptions
from c2b_ray.audits.kit.session import Steps
from c2b_ray.audits.prompts.config import PromptsConfig
from c2b_ray.audits.prompts.run import PromptsRun
from c2b_ray.audits.prompts.stages import PromptStages
from c2b_ray.audits.prompts.steps import judging
from c2b_ray.audits.prompts.steps.judging import Frequencies, ImageQuestions, JudgeModels
from c2b_ray.audits.prompts.steps.tasks import Target, leaks_of_target, question_of, targets_of
from c2b_ray.audits.prompts.steps.words import LeakWords
from c2b_ray.engine.images import of_revision
from c2b_ray.roles import Captioner, ImageGenerator, LanguageModel, Question
from c2b_ray.tables import content_id, seed_of


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
        return {name: question_of(name, about) for name, about in self.config.attributes.items()}

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
        for name, wanted in rows.items():
            orders = judging.judging_tasks(wanted, self._identity(name))
            if not orders.num_rows:
                continue
            with self.steps.step(step, judging.images_per_order(orders)) as tell:
                models = partial(_judge_models, self.generator(name), self.judge())
                self.run.begin_writing()
                self.stages.judge(orders, models, ImageQuestions(name, self.questions), out, tell)
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
        known = models.describe(role, spec)
        rows[name] = model_row(spec, known)
        warn_of_assumptions(steps, name, known)
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
