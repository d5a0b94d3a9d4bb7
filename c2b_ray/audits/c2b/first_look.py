"""The first look at labelled images: a few hundred of all classes are answered, and a hopeless audit stops there.

The images are among those that the audit draws anyway, so that their answers are kept. A resumed run looks at the same
ones.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.hypotheses.labelled import RowDraws, Rows
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.c2b.sampling.selection import Draws, Selection
from c2b_ray.audits.c2b.setup import note_setup
from c2b_ray.audits.kit.session import Steps
from c2b_ray.config import AuditConfig
from c2b_ray.engine.images import OnProgress
from c2b_ray.engine.progress import Progress
from c2b_ray.engine.stage import Runner
from c2b_ray.errors import ConfigError
from c2b_ray.steps.classify import Classification
from c2b_ray.steps.draw import ImageIds
from c2b_ray.steps.setup import hopeless, sentences
from c2b_ray.storage.parts import absent, opened
from c2b_ray.tables import seed_of

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


def _some(rows: Rows, most: int, seed: tuple[object, ...]) -> Rows:
    rows = np.unique(rows)
    return np.random.default_rng(seed_of(*seed)).permutation(rows)[:most]


def _of_rows(draws: RowDraws, row_numbers: Rows) -> RowDraws:
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
