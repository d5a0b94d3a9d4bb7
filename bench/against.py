"""Measures images per second, from a folder of JPEGs through a classifier to Parquet: ours, plain Ray Data, and Daft.

    python bench/against.py WEIGHTS.safetensors [--daft PYTHON] [--few F] [--n N] [--rounds R] [--place FOLDER]

WEIGHTS: weights of torchvision's MobileNetV2 for pixels scaled as x / 127.5 − 1. PYTHON: the interpreter of an
environment that holds `daft` and the packages of this one. The plain jobs follow the documentation and benchmarks of
their own projects: `read_images`, a transform by row and a class in `map_batches` (Ray Data); `url.download`,
`image.decode`, `apply` and a `daft.cls` (Daft), both with torchvision's transform and batches of 100. All sides get the
same model, files and cores, and no GPU.

Each side runs in its own process, and the sides take turns --rounds times. In a process, a first call loads everything;
then a call classifies the few images and another all of them. The difference of these two gives the time of one image.
The script prints medians over the rounds, and how often a side gives the same label as ours.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
from cpu_time import Stretch, steady, watched
from photos import photos

BATCH, CROP, SHORTER = 100, 224, 232
SIDES = ("ours", "ray_data", "daft")
OPEN = ExitStack()  # open until the process ends


def folder(place: Path, n: int) -> str:
    out = place / f"jpegs-{n}"
    if not out.is_dir():
        out.mkdir(parents=True)
        for i, data in enumerate(photos(n, 100_101)):
            (out / f"{i:06}.jpg").write_bytes(data)
    return str(out)


def transform() -> Any:
    from torchvision import transforms
    from torchvision.transforms._presets import ImageClassification

    of_weights = ImageClassification(crop_size=CROP, resize_size=SHORTER, mean=(0.5,) * 3, std=(0.5,) * 3)
    return transforms.Compose([transforms.ToTensor(), of_weights])


def network(weights: str) -> Any:
    import torchvision
    from safetensors.torch import load_file

    module = torchvision.models.mobilenet_v2(num_classes=1000)
    module.load_state_dict(load_file(weights))
    return module.eval()


def answered(module: Any, images: Any) -> list[str]:
    import torch
    from torchvision.models import MobileNet_V2_Weights

    names = MobileNet_V2_Weights.DEFAULT.meta["categories"]
    with torch.inference_mode():
        return [names[i] for i in module(torch.from_numpy(images)).argmax(dim=1).tolist()]


def ours(weights: str) -> Callable[[str, str], None]:
    from c2b_ray.engine.cluster import ensure_ray
    from c2b_ray.engine.images import CLASSIFY
    from c2b_ray.engine.ray_stage import OnRay
    from c2b_ray.engine.sources.datasets import read
    from c2b_ray.engine.stage import Rows
    from c2b_ray.models import catalog
    from c2b_ray.steps.classify import classification, predict

    OPEN.enter_context(ensure_ray(object_store_mb=1024))
    spec = f"torchvision:mobilenet_v2?weights={weights}&mean=0.5&std=0.5"
    classifier = catalog.classifier(spec)
    names = {label: [i] for i, label in enumerate(classifier.labels[:10])}
    asked = classification(spec, classifier, list(names), names)

    def named(block: pa.Table, expand: Callable[[pa.Table], Iterator[pa.Table]]) -> Iterator[pa.Table]:
        for rows in expand(block):
            yield rows.append_column("image_id", rows["key"])

    def step(batch: pa.Table, role: Any) -> pa.Table:
        return predict(batch, role, asked)

    def once(source: str, out: str) -> None:
        rows = read(source)
        assert rows.expand is not None
        images = Rows(rows.blocks, partial(named, expand=rows.expand), rows.total)
        factory = partial(catalog.classifier, spec)
        OnRay().run(images, step, factory, out, id_column="image_id", config=CLASSIFY)

    return once


def ray_data(weights: str) -> Callable[[str, str], None]:
    import ray

    ray.init(address="local", object_store_memory=2**30, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    prepare = transform()

    def prepared(row: dict[str, Any]) -> dict[str, Any]:
        row["norm_image"] = prepare(row["image"]).numpy()
        return row

    class Classifier:
        def __init__(self) -> None:
            self.module = network(weights)

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            batch["label"] = np.array(answered(self.module, batch["norm_image"]))
            return batch

    def once(source: str, out: str) -> None:
        images = ray.data.read_images(source, include_paths=True, mode="RGB").map(prepared)
        # One process holds the model and reserves one CPU; the other CPU reads and prepares.
        labelled = images.map_batches(Classifier, batch_size=BATCH, compute=ray.data.ActorPoolStrategy(size=1))
        labelled.select_columns(["path", "label"]).write_parquet(out)

    return once


def daft(weights: str) -> Callable[[str, str], None]:
    import daft

    prepare = transform()
    pixels = daft.DataType.tensor(daft.DataType.float32(), shape=(3, CROP, CROP))

    @daft.cls(max_concurrency=1)
    class Classifier:
        def __init__(self) -> None:
            self.module = network(weights)

        @daft.method.batch(return_dtype=daft.DataType.string(), batch_size=BATCH)
        def __call__(self, images: Any) -> list[str]:
            return answered(self.module, np.array(images.to_pylist())) if len(images) else []

    def once(source: str, out: str) -> None:
        frame = daft.from_glob_path(f"{source}/*.jpg").select("path")
        frame = frame.with_column("image", frame["path"].download().decode_image(mode=daft.ImageMode.RGB))
        frame = frame.with_column("norm_image", frame["image"].apply(lambda i: prepare(i).numpy(), return_dtype=pixels))
        frame = frame.with_column("label", Classifier()(frame["norm_image"]))
        frame.select("path", "label").write_parquet(out)

    return once


def labels(out: str) -> dict[str, str]:
    """Returns the label of each file."""
    table = pyarrow.dataset.dataset(out, format="parquet", exclude_invalid_files=True).to_table()
    paths = table["path" if "path" in table.column_names else "image_id"].to_pylist()
    return dict(zip((path.rpartition("/")[2] for path in paths), table["label"].to_pylist(), strict=True))


def side(name: str, weights: str, sources: tuple[str, str], place: Path) -> None:
    once = {"ours": ours, "ray_data": ray_data, "daft": daft}[name](weights)
    spans = {}
    for stretch, source in (("loading", sources[0]), ("few", sources[0]), ("all", sources[1])):
        with tempfile.TemporaryDirectory(dir=place) as out:
            began = time.time()
            once(source, f"{out}/answers")
            spans[stretch] = (began, time.time())
            (place / f"labels-{name}.json").write_text(json.dumps(labels(f"{out}/answers")))
    print(json.dumps(spans))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weights")
    parser.add_argument("--side", choices=SIDES, help="run only this side, in this process")
    parser.add_argument("--daft", help="the Python interpreter of an environment with daft")
    parser.add_argument("--few", type=int, default=1000)
    parser.add_argument("--n", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--place", type=Path, default=Path("/var/tmp/c2b-bench"))
    args = parser.parse_args()
    sources = folder(args.place, args.few), folder(args.place, args.n)
    if args.side:
        side(args.side, args.weights, sources, args.place)
        return
    pythons = {"ours": sys.executable, "ray_data": sys.executable, **({"daft": args.daft} if args.daft else {})}
    rounds: dict[str, list[dict[str, Stretch]]] = {name: [] for name in pythons}
    for name in [*pythons] * args.rounds:
        sizes = ["--few", str(args.few), "--n", str(args.n), "--place", str(args.place)]
        rounds[name].append(watched([pythons[name], __file__, args.weights, "--side", name, *sizes]))
        print(name, rounds[name][-1], os.getloadavg()[0], file=sys.stderr, flush=True)
    reference = json.loads((args.place / "labels-ours.json").read_text())
    report = {}
    for name in pythons:
        per_image = {
            what: median(steady(w, args.n - args.few, what) for w in rounds[name]) for what in ("cpu", "seconds")
        }
        theirs = json.loads((args.place / f"labels-{name}.json").read_text())
        report[name] = {
            "cpu_ms": round(1000 * per_image["cpu"], 2),
            "images_per_s": round(1 / per_image["seconds"], 1),
            "labels_as_ours": round(sum(theirs[key] == value for key, value in reference.items()) / len(reference), 4),
        }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
