"""Measures CLIP embeddings of a folder in images per second: the stage of `c2b index build`, and clip-retrieval.

    python bench/clip_retrieval.py ENVIRONMENT [--side ours|theirs] [--precision fp32|bf16] [--n N] [--place FOLDER]

ENVIRONMENT: a folder into which the script installs clip-retrieval 2.44 and the packages that it imports, without their
dependencies. Everything else comes from the running interpreter, because clip-retrieval pins an older torch: so both
sides use the same torch, open_clip and Pillow. Both sides read one folder of photographs (`bench/photos.py`) and one
file of ViT-B-32 weights; the weights are random, since speed does not depend on them.

Theirs is `clip_inference` with its defaults: float32, one loader per core. Its rate excludes start-up, as it divides by
the seconds that it logs for its batches. Our rate excludes start-up too: the time of a run on 128 images is subtracted
from the time of the run on all images.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import open_clip
import torch
from photos import photos
from safetensors.torch import save_file

from c2b_ray.audits.kit.backend import backend
from c2b_ray.engine.index import embed_source
from c2b_ray.engine.sources.datasets import read
from c2b_ray.engine.stage import Runner
from c2b_ray.roles import TextImageEncoder
from c2b_ray.storage.parts import read_stage

MODEL = "ViT-B-32"
PACKAGES = (
    *("clip-retrieval==2.44.0", "all-clip==1.3.0", "clip-anytorch==2.6.0", "fire==0.7.1", "termcolor==3.3.0"),
    *("braceexpand==0.1.7", "webdataset==1.0.2", "sentence-transformers==5.7.0", "wandb==0.31.0", "xxhash==4.1.0"),
    *("autofaiss==2.18.0", "embedding-reader==1.8.1", "img2dataset==1.47.0", "exifread-nocycle==3.0.1", "h5py==3.16.0"),
    *("flask==3.1.3", "flask-restful==0.3.10", "flask-cors==6.0.5", "werkzeug==3.1.9", "itsdangerous==2.2.0"),
    *("blinker==1.9.0", "aniso8601==10.0.1", "pytz==2026.6", "setuptools==79.0.1"),
)
FEW = 128
CORES = len(os.sched_getaffinity(0))
THEIRS = """
import sys
from clip_retrieval.clip_inference.main import main
if __name__ == "__main__":
    images, out, model, workers = sys.argv[1:]
    main(images, out, clip_model=model, enable_text=False, num_prepro_workers=int(workers))
"""


def prepared(place: Path, n: int) -> tuple[Path, Path]:
    """Returns a folder of photographs and a file of weights; makes what is missing."""
    folder, weights = place / f"photos-{n}", place / f"{MODEL}.safetensors"
    if not folder.is_dir():
        folder.mkdir(parents=True)
        for i, data in enumerate(photos(n, 100_101)):
            (folder / f"{i:05d}.jpg").write_bytes(data)
    if not weights.is_file():
        torch.manual_seed(100_102)
        save_file(open_clip.create_model(MODEL).state_dict(), weights)
    return folder, weights


def theirs(environment: Path, folder: Path, weights: Path, out: Path) -> tuple[float, np.ndarray]:
    if not environment.is_dir():
        install = ["uv", "pip", "install", "--python", sys.executable, "--target", str(environment), "--no-deps"]
        subprocess.run([*install, *PACKAGES], check=True)
    script = out / "theirs.py"
    script.write_text(THEIRS)
    # The --target folder comes last, so that only packages that are missing here come from it.
    # This file's folder is left out: this file has the name of their package.
    paths = [path for path in sys.path if path and Path(path).resolve() != Path(__file__).resolve().parent]
    paths.append(str(environment))
    command = [sys.executable, str(script), str(folder), str(out), f"open_clip:{MODEL}/{weights}", str(CORES)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "WANDB_MODE": "off"})
    stats = json.loads(next((out / "stats").glob("[0-9]*.json")).read_text())
    embeddings = np.concatenate([np.load(file) for file in sorted((out / "img_emb").glob("*.npy"))])
    return stats["sample_count"] / stats["total_duration"], embeddings.astype(np.float32)


def ours(folder: Path, weights: Path, precision: str, out: Path) -> tuple[float, np.ndarray]:
    spec = f"open_clip:{MODEL}?weights={weights}&precision={precision}"
    few = out / "few"
    few.mkdir()
    for file in sorted(folder.glob("*.jpg"))[:FEW]:
        (few / file.name).symlink_to(file)
    with backend("actors") as models:
        encoder = models.encoder(spec)
        before = _stage(models.runner, few, encoder, f"{out}/before")
        seconds = _stage(models.runner, folder, encoder, f"{out}/index") - before
    rows = read_stage(f"{out}/index.building", ["key", "embedding"]).sort_by("key")
    return (rows.num_rows - FEW) / seconds, np.stack(rows["embedding"].to_numpy())


def _stage(runner: Runner, folder: Path, encoder: Callable[[], TextImageEncoder], out: str) -> float:
    began = time.perf_counter()
    embed_source(runner, read(str(folder)), encoder, {"dimension": 512}, out)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("environment", type=Path)
    parser.add_argument("--side", choices=("ours", "theirs"))
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--place", type=Path, default=Path("/var/tmp/c2b-bench"))
    args = parser.parse_args()
    folder, weights = prepared(args.place, args.n)
    rates, found = {}, {}
    for side in [args.side] if args.side else ["theirs", "ours"]:
        with tempfile.TemporaryDirectory() as out:
            if side == "theirs":
                rates[side], found[side] = theirs(args.environment, folder, weights, Path(out))
            else:
                rates[side], found[side] = ours(folder, weights, args.precision, Path(out))
        np.save(args.place / f"{side}-{args.precision}.npy", found[side])
    report: dict = {"images": args.n, "images_per_s": {side: round(rate, 2) for side, rate in rates.items()}}
    if len(rates) == 2:
        cosines = (found["ours"] * found["theirs"]).sum(axis=1) / np.linalg.norm(found["theirs"], axis=1)
        report |= {"ratio": round(rates["ours"] / rates["theirs"], 3), "lowest_cosine": round(float(cosines.min()), 5)}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
