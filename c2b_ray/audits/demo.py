"""The demo: audits planted classifiers of the embedded world, from a sentence, on images that it renders itself."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from c2b_ray.audits import index
from c2b_ray.audits.c2b.audit import audit
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.kit.session import Session, Steps
from c2b_ray.world.scenes import CLASSES
from c2b_ray.world.table import write_sample

TASK = "Classify pictures of everyday objects outdoors."
LANGUAGE_MODEL, ENCODER = "world:lm", "world:clip"
CLASSIFIERS = ["world:resnet-planted-0", "world:resnet-control-0"]
SEED = 2026
POOL, IMAGES_PER_CAPTION = 64, 8
"""About 500 of 5,000 scenes show a class, and 80 a class in one of six colours; a cell wants 40."""
CALIBRATION = 1500
"""Scenes that the verifier is measured on, drawn with another seed than those that are audited."""


def demo(out: Path, images: int, session: Session) -> C2BRun:
    """Renders `images` scenes, indexes them and audits `CLASSIFIERS` on images from the index; everything is under
    `out`."""
    table, calibration, indexed = out / "scenes.parquet", out / "calibration.parquet", out / "index"
    steps, session = Steps(session.listener), replace(session, via=session.chosen(lambda: images))
    # The models start in other processes, so this one has time to render.
    with ThreadPoolExecutor(1) as background:
        rendered = background.submit(_render, {table: (images, SEED), calibration: (CALIBRATION, SEED + 1)})
        # Kept open until the audit is over: the encoder that builds the index also answers the audit.
        with session.backend(lambda: images) as models:
            with steps.step("start the models, render scenes"):
                models.start(LANGUAGE_MODEL, ENCODER, ENCODER)
                rendered.result()
            if not (indexed / "manifest.json").exists():
                index.build(str(table), ENCODER, str(indexed), session)
            config = {
                "task": TASK,
                "classes": list(CLASSES),
                "classifier": CLASSIFIERS,
                "language_model": LANGUAGE_MODEL,
                "images": {"source": "retrieve", "index": str(indexed), "pool": POOL},
                "images_per_caption": IMAGES_PER_CAPTION,
                "verification": {"model": ENCODER, "calibration": str(calibration)},
            }
            return audit(config, out / "run", session.via, session.listener, session.placement)


def _render(tables: dict[Path, tuple[int, int]]) -> None:
    for path, (images, seed) in tables.items():
        if not path.exists():
            write_sample(path, images, seed)
