"""The first look at labelled images: a few hundred of all classes are answered, and a hopeless audit stops there.

The images are among those that the audit draws anyway, so that their answers are kept. A resumed run looks at the same
ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.setup import note_setup
from c2b_ray.audits.kit.events import Steps
from c2b_ray.config import AuditConfig
from c2b_ray.errors import ConfigError
from c2b_ray.pipelines.stage import Runner
from c2b_ray.schemas import seed_of
from c2b_ray.steps.labelled_images import RowDraws, Rows
from c2b_ray.steps.predict import Classification
from c2b_ray.steps.select import Selection
from c2b_ray.steps.setup_words import hopeless, sentences
from c2b_ray.store.c2b_run import C2BRun

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
    wanted = min(MOST_IMAGES, max(IMAGES, OF_A_CLASS * len(captions)))
    each = -(-wanted // max(1, len(captions)))

    def some(selection: Selection) -> Selection:
        if isinstance(selection.drawn, RowDraws):
            rows = [
                _some(np.concatenate([selection.drawn.rows[name] for name in names]), each, ("look", of, config.seed))
                for of, names in captions.items()
            ]
            kept = np.unique(np.concatenate(rows))
            return Selection(*(_of_rows(draws, kept) for draws in _parts(selection)))
        ids = [_first(selection.drawn, names, each) for names in captions.values()]
        return Selection(
            *(draws.filter(pc.is_in(draws["image_id"], pa.concat_arrays(ids))) for draws in _parts(selection))
        )

    return some


def refuse_hopeless(
    config: AuditConfig, run: C2BRun, askings: Sequence[Classification], runner: Runner, steps: Steps
) -> None:
    """Raises ConfigError where the answers so far show that every classifier is set up wrongly; warns of what else they
    show."""
    found = note_setup(config, run, askings, runner)
    texts = [sentences(one, len(askings) > 1) for one in found]
    if not hopeless(found, config.classifiers):
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


def _of_rows(draws: RowDraws, kept: Rows) -> RowDraws:
    return RowDraws({name: rows[np.isin(rows, kept)] for name, rows in draws.rows.items()}, draws.revision)


def _first(draws: pa.Table, captions: Sequence[str], most: int) -> pa.Array:
    """Returns the first images of these captions by their ids, which are hashes."""
    ids = draws.filter(pc.is_in(draws["caption_id"], pa.array(captions, pa.string())))["image_id"].unique()
    return ids.take(pc.array_sort_indices(ids)[:most])
