"""`c2b dark-images`: which share of the images of each class is dark?

The whole audit: a config, a function that writes one table, and the findings that it gives. Its command, the endpoint's
form and pages, gates, comparisons, exports and the report follow from `AUDIT`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import Field

from c2b_ray.audits.audit import Audit
from c2b_ray.audits.gate import GateCell
from c2b_ray.audits.kit.progress import Listener
from c2b_ray.audits.kit.session import Steps, finished
from c2b_ray.config.named import StrictModel, TablePath
from c2b_ray.config.reading import ConfigFile
from c2b_ray.stats import wilson_interval
from c2b_ray.steps.decode import decode_batch
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.storage.run import Run, open_run
from c2b_ray.tables import content_id

AT_ONCE = 256


class DarkImagesConfig(StrictModel):
    """The fields of a file of `c2b dark-images`."""

    images: TablePath = Field(description="A table of labelled images, or a folder with a folder for each class.")
    below: int = Field(60, ge=0, le=255, description="An image is dark whose mean value is below this.")
    tolerated: float = Field(0.1, ge=0, lt=1, description="The share of dark images of a class that is no finding.")
    alpha: float = Field(0.05, gt=0, lt=1, description="Intervals have the level 1 - alpha.")


AUDIT = Audit(
    name="dark-images",
    question="Which share of the images of each class is dark?",
    about="Count the dark images of each class of a labelled table or folder.",
    config="dark_images:DarkImagesConfig",
    run="dark_images:dark_images",
    tables={"counts": pa.schema([("target_class", pa.string()), ("dark", pa.int64()), ("n", pa.int64())])},
    needed=frozenset({"counts"}),
    findings="dark_images:findings",
    same=("below", "tolerated", "alpha"),
    estimate="dark_images:estimate",
    models="",
)


def dark_images(
    config: Any,
    out: str | Path | None = None,
    via: str = "auto",
    listener: Listener | None = None,
    placement: object = None,
) -> Run:
    """Counts the dark images of each class, and returns the run. It loads no model, so `via` changes nothing."""
    read, table = _opened(config)
    fields, steps = read.model_dump(mode="json"), Steps(listener)
    run_id = content_id(AUDIT.name, fields, table.revision)
    with open_run(out or f"runs/{AUDIT.name}-{run_id}", run_id, fields, AUDIT) as run:
        with steps.step("look at images"):
            rows = _counted(table, read.below)
            run.write("counts", pa.Table.from_pylist(rows, AUDIT.tables["counts"]))
        run.update(finished("here", steps, {"counts": len(rows)}))
        AUDIT.write_report(run)
    return run


def findings(run: Run, classifier: str | None = None) -> list[GateCell]:
    """Returns the share of dark images of each class, whose name is the finding's. The run has no classifier."""
    config, result = DarkImagesConfig.model_validate(run.config), []
    for row in run.read("counts").to_pylist():
        low, high = wilson_interval(row["dark"], row["n"], 1 - config.alpha)
        verdict = "found" if low > config.tolerated else "none" if high <= config.tolerated else "undetermined"
        share = row["dark"] / row["n"] if row["n"] else None
        values = {"verdict": verdict, "value": share, "value_low": low, "value_high": high, "n": row["n"]}
        result.append(GateCell("images", row["target_class"], values))
    return result


def estimate(file: str, via: str) -> Any:
    """Returns how many images a run decodes."""
    from c2b_ray.report.words import Summary

    images = len(_opened(file)[1])
    return Summary("", [], [], [], [f"It decodes {images} images."], to_json={"images": images})


def _opened(config: Any) -> tuple[DarkImagesConfig, LabelledTable]:
    read = ConfigFile(DarkImagesConfig, AUDIT.command).read(config)
    return read, LabelledTable(read.images, "images")


def _counted(table: LabelledTable, below: int) -> list[dict[str, Any]]:
    """Returns a row for each class. An image without a class, or that cannot be decoded, is not counted."""
    of, dark = Counter[str](), Counter[str]()
    classes = table.labels["target_class"].cast(pa.string()).to_pylist()
    for start in range(0, len(table), AT_ONCE):
        ids = range(start, min(start + AT_ONCE, len(table)))
        for number, pixels in zip(ids, decode_batch(table.read(list(ids))[1])[0], strict=True):
            if pixels is not None and (name := classes[number]) is not None:
                of[name] += 1
                dark[name] += bool(pixels.mean() < below)
    return [{"target_class": name, "dark": dark[name], "n": of[name]} for name in sorted(of)]
