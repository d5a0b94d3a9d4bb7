"""The first look at labelled images, and whether its answers show that a classifier was set up wrongly."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.budget import call_with_run
from c2b_ray.audits.c2b.hypotheses.labelled import RowDraws, TableRows
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.c2b.sampling.selection import Draws, Selection
from c2b_ray.audits.kit.session import Steps
from c2b_ray.config import AuditConfig
from c2b_ray.engine.images import OnProgress
from c2b_ray.engine.progress import Progress
from c2b_ray.engine.stage import Runner
from c2b_ray.errors import ConfigError
from c2b_ray.steps.classify import Classification
from c2b_ray.steps.draw import ImageIds, codes, wide
from c2b_ray.steps.duplicates import DISTINCT_COLUMNS, Distinct
from c2b_ray.steps.setup import SetupFinding, detected, hopeless, sentences, setup_finding
from c2b_ray.steps.setup_maps import Ints, LabelledAnswers, positions
from c2b_ray.storage.parts import absent, opened
from c2b_ray.tables import seed_of

# Whether a run's answers show that a classifier was set up wrongly: label names in another order, a wrong label
# map, a head without weights.


MOST_IMAGES_TRIED = 20_000
"""The most images that are looked at: those whose ids, which are hashes, come first."""

_ANSWER = ["image_id", "classifier", "revision", "label", "predicted_class", "answered", "error"]


def note_setup(
    config: AuditConfig, run: C2BRun, askings: Sequence[Classification], runner: Runner
) -> list[SetupFinding]:
    """Writes what the answers so far show into the run's manifest, as `setup`, and returns it."""
    look = partial(setup_findings, askings=askings, specs=config.specs)
    findings = call_with_run(look, run, config, runner)
    run.update({"setup": findings})
    return findings


def setup_findings(run: C2BRun, askings: Sequence[Classification], specs: Mapping[str, str]) -> list[SetupFinding]:
    """Returns what is wrong with each classifier's set-up. `specs`: by the classifiers' names.

    Nothing is looked for where a classifier gives each label on its own: what it should have answered in place of a
    label, by which labels in another order are recognised, is then no one answer.
    """
    askings = [question for question in askings if question.head == "softmax"]
    if not askings:
        return []
    images, labelled = _drawn(run)
    rows = []
    for question, answers in zip(askings, _answers(run, askings, images), strict=True):
        truth = codes(images["target_class"], pa.array(question.classes, pa.large_string()))
        is_labelled = (answers >= NO_ANSWER) & (truth >= 0)
        is_table = specs[question.classifier].startswith("table:")
        kinds_found = detected(question, LabelledAnswers(truth[is_labelled], answers[is_labelled]), is_table)
        rows += [setup_finding(kind, question, labelled, is_table) for kind in kinds_found]
    return rows


def _drawn(run: C2BRun) -> tuple[pa.Table, bool]:
    """Returns the columns `image_id` and `target_class` of some of the drawn images, in random order and no picture
    twice, or where none was drawn, of those that are perturbed; and whether they are labelled."""
    captions = run.read("captions", ["caption_id", "target_class"])
    tables, sources = [], set()
    for part in run.each("draws", ["image_id", "caption_id", "source"]):
        sources |= set(part["source"].unique().to_pylist())
        targets = captions["target_class"].take(
            pc.index_in(part["caption_id"], captions["caption_id"].combine_chunks())
        )
        tables.append(pa.table({"image_id": wide(part["image_id"]), "target_class": wide(targets)}))
        tables = [_first_tried(pa.concat_tables(tables))]
    perturbed = run.read("perturbed_images", ["image_id", "target_class"])
    images = (
        tables[0]
        if tables[0].num_rows
        else _first_tried(pa.table({name: wide(perturbed[name]) for name in perturbed.schema.names}))
    )
    ids = ImageIds(images["image_id"].combine_chunks())
    pictures = pa.concat_tables(
        [part.filter(pc.is_in(wide(part["image_id"]), ids.ids)) for part in run.each("images", DISTINCT_COLUMNS)]
    )
    classes = codes(images["target_class"], images["target_class"].unique())
    _, first = np.unique(Distinct(pictures, (ids, classes)).pictures(ids), return_index=True)
    return images.take(np.sort(first)), sources <= {"labelled"}


def _first_tried(images: pa.Table) -> pa.Table:
    """Returns the first images by their ids, each once."""
    images = images.take(pc.sort_indices(images, [("image_id", "ascending"), ("target_class", "ascending")]))
    _, first = np.unique(codes(images["image_id"], images["image_id"].unique()), return_index=True)
    return images.take(np.sort(first)[:MOST_IMAGES_TRIED])


NO_ANSWER, FAILED = -1, -2
"""No single answer; and none at all, as of a picture that cannot be read."""


def _answers(run: C2BRun, questions: Sequence[Classification], images: pa.Table) -> list[Ints]:
    """Returns the position of the label that each classifier gave each image."""
    ids = images["image_id"].combine_chunks()
    result = [np.full(len(ids), FAILED, np.int64) for _ in questions]
    for part in run.each("predictions", _ANSWER):
        part = part.filter(pc.is_in(wide(part["image_id"]), ids))
        for question, answers in zip(questions, result, strict=True):
            is_own = pc.and_(
                pc.equal(part["classifier"], question.classifier), pc.equal(part["revision"], question.revision)
            )
            rows = part.filter(pc.and_(is_own, pc.is_null(part["error"])))
            image_numbers = codes(rows["image_id"], ids)
            answers[image_numbers] = _positions(rows, question, images["target_class"].take(image_numbers).to_pylist())
    return result


def _positions(rows: pa.Table, question: Classification, targets: Sequence[str]) -> Ints:
    """Returns the position of each answer's label. Answers that are right by the rule have a label of their class."""
    of_label, of_class = positions(question.labels), dict(zip(question.classes, question.labels_of_class, strict=True))
    has_repeats = len(of_label) < len(question.labels)
    result = []
    columns = (rows[name].to_pylist() for name in ("label", "predicted_class", "answered"))
    for label, predicted, answered, target in zip(*columns, targets, strict=True):
        if answered is not None and target in answered:
            predicted = target
        elif answered is not None:
            predicted = None
        own_labels = of_class.get(predicted, ())
        position = of_label.get(label, NO_ANSWER)
        if own_labels and (position not in own_labels or has_repeats) and question.right != "top1":
            position = own_labels[0]
        elif own_labels and has_repeats:
            position = next((i for i in own_labels if question.labels[i] == label), position)
        elif not own_labels and question.right == "among_classes":
            position = NO_ANSWER
        result.append(position)
    return np.array(result, np.int64)


IMAGES, MOST_IMAGES = 400, 2_000
OF_A_CLASS = 4
"""Images of each class, where so many classes would have fewer of IMAGES."""


def must_look(config: AuditConfig, run: C2BRun) -> bool:
    """Tells whether the audit has yet to look: its images are labelled with attributes, and none was scored."""
    labelled = config.images.sources == ("labelled",) and run.count("captions") > 0
    return config.check and labelled and not run.has("scores")


def some_of_each_class(config: AuditConfig, run: C2BRun) -> Callable[[Selection], Selection]:
    """Returns a function that takes about as many images of each class from an audit's draws, chosen at random."""
    captions: dict[str, list[str]] = defaultdict(list)
    for row in run.read("captions", ["caption_id", "target_class"]).to_pylist():
        captions[row["target_class"]].append(row["caption_id"])
    images = min(MOST_IMAGES, max(IMAGES, OF_A_CLASS * len(captions)))
    images_per_class = -(-images // max(1, len(captions)))

    def some(selection: Selection) -> Selection:
        if isinstance(selection.drawn, RowDraws):
            rows = [
                _some(
                    np.concatenate([selection.drawn.rows[name] for name in names]),
                    images_per_class,
                    ("look", target, config.seed),
                )
                for target, names in captions.items()
            ]
            sampled = np.unique(np.concatenate(rows))
            return Selection(*(_of_rows(draws, sampled) for draws in _parts(selection)))
        ids = [_first(selection.drawn, names, images_per_class) for names in captions.values()]
        return Selection(
            *(draws.filter(pc.is_in(draws["image_id"], pa.concat_arrays(ids))) for draws in _parts(selection))
        )

    return some


class FirstLook:
    """Looks at the answers to some of each class, which a stage gives first, while it answers the others; so its
    models are loaded once.

    `judge`: raises an exception where the answers are hopeless, which ends the stage; it is called once.
    """

    def __init__(
        self,
        some: Callable[[Selection], Selection],
        judge: Callable[[], None],
        run: C2BRun,
        askings: Sequence[Classification],
    ) -> None:
        self.some = some
        self._judge, self._run, self._askings = judge, run, askings
        self._over = False

    def at_answers_to(self, draws: Draws) -> OnProgress:
        if isinstance(draws, RowDraws):
            ids = draws.image_ids()
        else:
            assert isinstance(draws, pa.Table)
            ids = draws["image_id"].unique()
        prediction_ids = pa.concat_arrays(
            [pa.array(question.prediction_ids(ids.to_pylist()), pa.string()) for question in self._askings]
        )
        due = self._lacking(prediction_ids)  # rows to be written before the missing ones are counted again

        def told(progress: Progress) -> None:
            nonlocal due
            if not self._over and progress.rows >= due:
                missing = self._lacking(prediction_ids)
                due = progress.rows + missing
                if not missing:
                    self.finish()

        return told

    def _lacking(self, prediction_ids: pa.Array) -> int:
        return int(absent(prediction_ids, opened(self._run.location("predictions")).census("prediction_id").ids).sum())

    def finish(self) -> None:
        """Judges the answers so far, where that was not done."""
        if not self._over:
            self._over = True
            self._judge()


def refuse_hopeless(
    config: AuditConfig, run: C2BRun, questions: Sequence[Classification], runner: Runner, steps: Steps
) -> None:
    """Raises ConfigError where the answers so far show that every classifier is set up wrongly; warns of what else they
    show."""
    findings = note_setup(config, run, questions, runner)
    texts = [sentences(finding, len(questions) > 1) for finding in findings]
    if not hopeless(findings, config.classifiers):
        for text in texts:
            steps.warn(text)
        return
    reason = " ".join(texts)
    run.update({"status": "failed", "failure": reason})
    raise ConfigError(
        "classifier",
        f"{reason} So the audit stopped after a first look at {_looked_at(run):,} images; their answers are kept in "
        f"{run.path}. To go on anyway, add `check: false` to the audit file",
    )


def _looked_at(run: C2BRun) -> int:
    table = "draws" if run.count("draws") else "perturbed_images"
    return len(run.read(table, ["image_id"])["image_id"].unique())


def _parts(selection: Selection) -> tuple[Any, Any, Any]:
    """Returns three `RowDraws`, or three tables."""
    return selection.drawn, selection.looked, selection.missing


def _some(rows: TableRows, most: int, seed: tuple[object, ...]) -> TableRows:
    rows = np.unique(rows)
    return np.random.default_rng(seed_of(*seed)).permutation(rows)[:most]


def _of_rows(draws: RowDraws, row_numbers: TableRows) -> RowDraws:
    return RowDraws({name: rows[np.isin(rows, row_numbers)] for name, rows in draws.rows.items()}, draws.revision)


def _first(draws: pa.Table, captions: Sequence[str], most: int) -> pa.Array:
    """Returns the first images of these captions by their ids, which are hashes."""
    ids = draws.filter(pc.is_in(draws["caption_id"], pa.array(captions, pa.string())))["image_id"].unique()
    return ids.take(pc.array_sort_indices(ids)[:most])


# Checks whether a run's images were answered at all: scores of a few answered images are no audit.


LEAST = 0.5
"""The least share of the drawn images that each classifier must have answered."""

NEVER_SHOWN = "the classifier was never shown it"

_LONGEST = 300
_VARYING = re.compile(r"\S*[/\\]\S*|\S+\.\w{2,4}\b|'[^']*'|\d+")  # paths, files, quoted names, numbers


def unanswered(draws: pa.Table, images: pa.Table, predictions: pa.Table, classifiers: Sequence[str]) -> str | None:
    """Returns a problem report where a classifier answered less than `LEAST` of the drawn images: how many it answered,
    and the most frequent reason; None where each classifier answered enough.

    `images`: `image_id` and `error` of `tables.IMAGES`; `draws`, `predictions`: tables of their schemas.
    """
    drawn_ids, _ = ImageIds.numbered(draws["image_id"])
    if not len(drawn_ids):
        return "no image was drawn, so nothing was audited"
    broken = _errors(drawn_ids, images)
    problems = []
    for classifier in classifiers:
        predicted = predictions.filter(pc.equal(predictions["classifier"], classifier)).select(["image_id", "error"])
        is_answered = np.zeros(len(drawn_ids), bool)
        is_answered[(numbers := drawn_ids.numbers(predicted["image_id"]))[numbers >= 0]] = True
        errors = _errors(drawn_ids, predicted) | broken
        errors |= {i: NEVER_SHOWN for i in np.flatnonzero(~is_answered).tolist() if i not in errors}
        answered = len(drawn_ids) - len(errors)
        if answered < LEAST * len(drawn_ids):
            count, example = _commonest(list(errors.values()))
            problems.append(
                f"{classifier} answered {answered:,} of the {len(drawn_ids):,} images drawn; the commonest reason, of "
                f"{count:,}: {example}"
            )
    return "; ".join(problems) or None


def _errors(ids: ImageIds, rows: pa.Table) -> dict[int, str]:
    """Returns the number → error of these images that have one. `rows`: with `image_id` and `error`."""
    failed = rows.filter(pc.is_valid(rows["error"]))
    numbers, errors = ids.numbers(failed["image_id"]).tolist(), failed["error"].to_pylist()
    return {number: error for number, error in zip(numbers, errors, strict=True) if number >= 0}


def _commonest(reasons: Sequence[str]) -> tuple[int, str]:
    """Returns how many reasons are of the most frequent kind, whatever file or number they name, and the first of them
    in alphabetical order."""
    kinds = Counter(map(_kind, reasons))
    examples = defaultdict(list)
    for reason in reasons:
        examples[_kind(reason)].append(reason)
    kind, count = min(kinds.items(), key=lambda item: (-item[1], item[0]))
    example = " ".join(min(examples[kind]).split())
    return count, example if len(example) <= _LONGEST else example[: _LONGEST - 1] + "…"


def _kind(reason: str) -> str:
    return _VARYING.sub("…", reason)
