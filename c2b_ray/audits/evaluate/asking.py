"""Asks questions about images: pseudo-labels of the ground truth (Tables 3 and 4), and whether the images that a method
drew show what they were drawn for (App. F)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.evaluate.config import B2T, EvaluateConfig
from c2b_ray.audits.evaluate.methods import Method, folder_name
from c2b_ray.audits.evaluate.steps.pseudo import keyword_questions, pseudo_verdicts, vqa_table
from c2b_ray.audits.evaluate.steps.recall import shown_table
from c2b_ray.audits.evaluate.steps.truth import TARGET, once
from c2b_ray.audits.evaluate.truth import GroundTruth
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.session import Steps
from c2b_ray.engine.images import ImageStages, of_revision
from c2b_ray.report.words import source_of
from c2b_ray.roles import Captioner
from c2b_ray.steps.verify import WANTED, Checks, checks, wanted
from c2b_ray.storage.parts import read_stage
from c2b_ray.tables.evaluate import SHOWN, VQA


@dataclass
class QuestionTables:
    """Tables of `tables.evaluate.VQA` and of `SHOWN`, of each method."""

    vqa: list[pa.Table] = field(default_factory=lambda: [VQA.empty_table()])
    shown: list[pa.Table] = field(default_factory=lambda: [SHOWN.empty_table()])

    def tables(self) -> tuple[pa.Table, pa.Table]:
        return pa.concat_tables(self.vqa), pa.concat_tables(self.shown)


def ask(
    config: EvaluateConfig,
    truth: GroundTruth,
    methods: Sequence[Method],
    keywords: pa.Table | None,
    where: tuple[Backend, str, Steps],
) -> QuestionTables:
    """Asks about the ground truth's images everything that the methods propose, and about the images that they drew."""
    models, out, steps = where
    result = QuestionTables()
    if config.vqa is None:
        return result
    spec = config.vqa.model
    revision = models.describe("captioner", spec).revision
    asking = _Asking(models, partial(of_revision, models.captioner(spec), revision, spec), out, steps)
    rows = once(truth.wanted(config.vqa.images, config.seed), truth.pictures)
    levels = (config.tau, config.alpha)
    for method in methods:
        questions = checks(spec, revision, truth.classes, method.run.captions)
        seen = asking.of_truth(truth, rows.tolist(), questions, folder_name(method.name))
        verdicts = pseudo_verdicts(method.biases, seen, truth.row_of, truth.right, levels)
        result.vqa.append(vqa_table(method.name, verdicts))
        if config.vqa.drawn:
            result.shown.append(asking.of_method(method, questions, config))
    if keywords is not None:
        questions = keyword_questions(spec, revision, keywords, truth.classes)
        seen = asking.of_truth(truth, rows.tolist(), questions, folder_name(B2T))
        result.vqa.append(vqa_table(B2T, pseudo_verdicts(keywords, seen, truth.row_of, truth.right, levels)))
    return result


@dataclass(frozen=True)
class _Asking:
    models: Backend
    captioner: partial[Captioner]
    out: str
    steps: Steps

    def of_truth(self, truth: GroundTruth, rows: Sequence[int], questions: Checks, folder: str) -> pa.Table:
        images = {row: image for image, row in truth.row_of.items()}
        targets = truth.labels[TARGET].to_pylist()
        pairs = [(images[row], targets[row]) for row in rows]
        table = pa.Table.from_pylist(
            [{WANTED[0]: i, WANTED[1]: t, WANTED[2]: questions.verification_id(i, t)} for i, t in pairs],
            pa.schema([(name, pa.string()) for name in WANTED]),
        )
        return self._answers(truth.run, table, questions, f"{self.out}/pseudo_labels/{folder}")

    def of_method(self, method: Method, questions: Checks, config: EvaluateConfig) -> pa.Table:
        """Asks about the images drawn first for each caption."""
        assert config.vqa is not None
        draws = method.run.draws.filter(pc.less(method.run.draws["rank"], config.vqa.drawn))
        captions = method.run.captions
        captions = captions.filter(pc.is_in(captions["target_class"], pa.array(list(questions.classes.choices))))
        draws = draws.filter(pc.is_in(draws["caption_id"], captions["caption_id"].combine_chunks()))
        if method.run.config["images"]["source"] == "labelled" or not draws.num_rows:
            return SHOWN.empty_table()  # what labelled images show is known
        table = wanted(captions, draws, questions)
        folder = f"{self.out}/drawn/{folder_name(method.name)}"
        seen = self._answers(method.run, table, questions, folder)
        return shown_table(method.name, captions, draws, seen, 1 - config.alpha)

    def _answers(self, run: C2BRun, table: pa.Table, questions: Checks, out: str) -> pa.Table:
        with self.steps.step("ask about images") as on_progress:
            images, source = run.location("images"), source_of(run.config)
            ImageStages(self.models.runner).verify(images, table, self.captioner, questions, out, on_progress, source)
        answers = read_stage(out)
        return answers.filter(pc.is_in(answers["verification_id"], table["verification_id"].combine_chunks()))
