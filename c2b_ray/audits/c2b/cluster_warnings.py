"""Asks, once the images of a labelled table are answered, whether they come in clusters that the config does not name.

It reads the run and the table; `audits.c2b.scoring.clusters` decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.budget import call_with_run, duplicates
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.c2b.scoring.clusters import FEWEST_IMAGES, FEWEST_VALUES, answered_alike
from c2b_ray.audits.kit.session import Steps
from c2b_ray.config import AuditConfig
from c2b_ray.engine.stage import Runner
from c2b_ray.errors import ConfigError
from c2b_ray.names import normalise
from c2b_ray.steps.answers import answers_of
from c2b_ray.steps.cells import images_of_cells
from c2b_ray.steps.draw import image_ids
from c2b_ray.steps.image_ids import Ints, codes, distinct_count
from c2b_ray.steps.labels import TARGET
from c2b_ray.storage.labelled import FOLDER, LabelledTable


def warn_of_clusters(config: AuditConfig, run: C2BRun, runner: Runner, steps: Steps) -> None:
    """Warns of columns, and of folders, by which images are answered alike; the run's manifest keeps the warnings."""
    if config.images.sources != ("labelled",) or config.images.cluster is not None:
        return
    said = call_with_run(partial(_warnings, config=config), run, config, runner)
    for warning in said:
        steps.warn(warning)
    if said:
        run.update({"warnings": [*run.manifest.get("warnings", []), *said]})


def _warnings(run: C2BRun, config: AuditConfig) -> list[str]:
    table = LabelledTable(str(config.images.table), columns=config.images.renamed, root=config.images.root)
    captions = _annotated(run.captions, [one["attribute"] for one in run.manifest.get("derived", [])])
    compared = {normalise(name) for name in captions["attribute"].unique().to_pylist()}
    of_rows = {name: numbers for name, numbers in _numbers(table).items() if normalise(name) not in compared}
    if not of_rows:
        return []
    cells = images_of_cells(captions, run.draws)
    revision = run.manifest["models"]["table"]["revision"]
    image = cells.ids.numbers(image_ids(np.arange(len(table)), revision))  # of each row, -1 where it was not drawn
    columns = {name: np.full(len(cells.ids), -1, np.int64) for name in of_rows}
    for name, numbers in of_rows.items():
        columns[name][image[image >= 0]] = numbers[image >= 0]
    predictions = run.predictions
    answers = {name: answers_of(predictions, name).to(cells) for name in config.classifiers}
    return [str(one) for one in answered_alike(answers, duplicates(run).pictures(cells.ids), columns)]


def _annotated(captions: pa.Table, derived: Sequence[str]) -> pa.Table:
    """Returns the captions with all derived attributes as one, of one value: with ten measured properties hardly two
    images have the same values, and nothing could be compared."""
    of_derived = pc.is_in(captions["attribute"], pa.array(derived, pa.string()))
    for name in ("attribute", "bias_class"):
        column = pc.if_else(of_derived, "every image", captions[name])
        captions = captions.set_column(captions.column_names.index(name), name, column)
    return captions


def _numbers(table: LabelledTable) -> dict[str, Ints]:
    """Returns the number of each row's value, -1 for none, in every column that may tell clusters, folders included.
    Of columns that tell the same, the first."""
    names = [name for name in table.labels.column_names if name != TARGET]
    numbers: dict[str, Ints] = {}
    for name in dict.fromkeys([*names, FOLDER]):
        try:
            column = table.clusters(name)
        except ConfigError:  # its images have no paths
            continue
        values = column.unique().drop_null()
        if FEWEST_VALUES <= len(values) <= len(table) / FEWEST_IMAGES:
            of_column = codes(column, values.cast(pa.large_string()))
            if not any(_same(of_column, other) for other in numbers.values()):
                numbers[name] = of_column
    return numbers


def _same(one: Ints, other: Ints) -> bool:
    pairs = distinct_count((one + 1) * (int(other.max()) + 2) + other + 1)
    return pairs == distinct_count(one) == distinct_count(other)
