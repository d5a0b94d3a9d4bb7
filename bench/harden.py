"""Measures the gain of `c2b dataset harden` on the world over five seeds.

    nice python bench/harden.py [planted gap]

planted: world:resnet-planted-1, which was taught its failures, is fine-tuned and retrained on clean renders.

gap: a classifier whose training data lack boats at night and striped mugs is retrained on the same data; this measures
the effect of the dataset itself, as in Table 7 of Wiles et al. 2022.

Target (issue 11), over five seeds: the accuracy on the dataset rises by 0.3, and the clean accuracy falls by at most
0.02.
"""

from __future__ import annotations

import csv
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import c2b_ray
from c2b_ray.audits.dataset.harden import Hardening, HardeningResult, harden
from c2b_ray.audits.dataset.harden_images import CleanImages
from c2b_ray.audits.kit.session import Session
from c2b_ray.models.training import Pool, Recipe, fit, trainable
from c2b_ray.storage import files
from c2b_ray.world.captions import PHRASES
from c2b_ray.world.scenes import CLASSES, sample
from c2b_ray.world.truth import render_all

HERE = Session("here")
PLANTED = "world:resnet-planted-1"
CELLS = [("boat", "lighting", "night"), ("mug", "pattern", "striped")]
SEEDS, STEPS, GAP_STEPS = 5, 500, 220
POOL, GAP_POOL = 16_000, 12_000


def captions(path: Path) -> None:
    """Returns 32 captions: one for each failing cell in each setting and weather."""
    from c2b_ray.world.scenes import ATTRIBUTES

    with path.open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["label", "caption"])
        for label, name, value in CELLS:
            for setting in ATTRIBUTES["setting"]:
                for weather in ATTRIBUTES["weather"]:
                    words = [PHRASES[n][v][0] for n, v in ((name, value), ("setting", setting), ("weather", weather))]
                    rows.writerow([label, f"a photo of a {label}, {', '.join(words)}"])


def build(folder: Path, classifier: str) -> str:
    captions(folder / "captions.csv")
    config = {
        "captions": {"file": str(folder / "captions.csv")},
        "classifier": classifier,
        "images": {"generate": {"model": "world:renderer"}},
        "draws_per_caption": 60,
    }
    built = c2b_ray.build_dataset(config, folder / "dataset", "here")
    print(f"dataset: {built.rows} failures of {built.draws} draws, dropped {built.drops}", flush=True)
    return str(folder / "dataset")


def gap(folder: Path) -> tuple[str, CleanImages]:
    """Returns a classifier trained on scenes without the failing cells, and the tables that measure it: its training
    scenes, and test scenes of all cells."""
    scenes = [
        s
        for s in sample(GAP_POOL * 11 // 10, 3)
        if all((s.target_class, s.attribute(n)) != (c, v) for c, n, v in CELLS)
    ]
    scenes = scenes[:GAP_POOL]
    images = render_all(scenes)
    model = trainable("world:resnet-control-0")
    labels = np.array([CLASSES.index(scene.target_class) for scene in scenes])
    pools = (Pool(model.shaped(list(images)), labels), None)
    module = fit(model.fresh(0), model.prepare, pools, Recipe(GAP_STEPS, 96, 4e-3), 0)
    for name, data in model.save(module).items():
        files.write_under(f"{folder}/model/{name}", data)
    tests = sample(2000, 1003)
    for name, of in (("train", scenes), ("test", tests)):
        pictures = images if name == "train" else render_all(of)
        files.write_table(f"{folder}/{name}.parquet", table(of, pictures))
    return f"timm:{folder}/model", CleanImages(f"{folder}/train.parquet", f"{folder}/test.parquet")


def table(scenes, images: np.ndarray) -> pa.Table:
    from io import BytesIO

    from PIL import Image

    encoded = []
    for image in images:
        buffer = BytesIO()
        Image.fromarray(image).save(buffer, "PNG", compress_level=1)
        encoded.append(buffer.getvalue())
    return pa.table({"image": pa.array(encoded, pa.binary()), "target_class": [scene.target_class for scene in scenes]})


def show(name: str, result: HardeningResult, began: float) -> None:
    print(f"\n{name}: {time.time() - began:.0f} s")
    for arm, clean in result.clean.items():
        failures = result.dataset[arm]
        print(f"  {arm:9} clean {clean.mean:.4f} ± {clean.sd:.4f}   dataset {failures.mean:.4f} ± {failures.sd:.4f}")
    for arm, gains in result.gains.items():
        of = {k: f"{g.mean:+.3f} ({g.low:+.3f} … {g.high:+.3f})" for k, g in gains.items()}
        print(f"  with over {arm}: dataset {of['dataset']}, clean {of['clean']}", flush=True)


def main(wanted: list[str]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="c2b-harden-"))
    try:
        if "planted" in wanted:
            (folder / "planted").mkdir()
            dataset = build(folder / "planted", PLANTED)
            for mode, steps in (("finetune", 150), ("retrain", STEPS)):
                began = time.time()
                options = Hardening(mode, SEEDS, steps=steps)
                result = harden(dataset, f"{folder}/{mode}", PLANTED, CleanImages(f"world:{POOL}"), options, HERE)
                show(f"planted, {mode}", result, began)
        if "gap" in wanted:
            (folder / "gap").mkdir()
            spec, clean = gap(folder / "gap")
            dataset = build(folder / "gap", spec)
            began = time.time()
            result = harden(
                dataset, f"{folder}/gap-retrain", spec, clean, Hardening("retrain", SEEDS, steps=GAP_STEPS), HERE
            )
            show("gap, retrain", result, began)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1:] or ["planted", "gap"])
