"""Runs `c2b latent` on MobileNetV2 and photographs, in the space of a small VAE of the cue-conflict images.

    python bench/latent_real.py CACHE [--real ../shared/real] [--steps 1500] [--quick]

There are two problems. The first asks whether an animal is shown; the shapes in the file names label the latents. The
second asks for the label that MobileNetV2 gives most often and knows no other attribute, as Li & Xu do where every
image of a generator shows the target (section 5.3).
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
from PIL import Image

import c2b_ray
from c2b_ray.audits.latent.run import LatentRun
from c2b_ray.models import catalog
from c2b_ray.models.gradients import gradient_classifier
from c2b_ray.models.latent_generators import NetworkConfig, network, write

SIZE, DIMENSION = 32, 16
ANIMALS = {"bear", "bird", "cat", "dog", "elephant"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cache", type=Path)
    parser.add_argument("--real", type=Path, default=Path("../shared/real"))
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--quick", action="store_true", help="a tenth of the steps, few latents")
    args = parser.parse_args()
    files = sorted((args.real / "cue-conflict").glob("*.jpg"))
    images = np.stack(
        [np.asarray(Image.open(file).convert("RGB").resize((SIZE, SIZE), Image.BICUBIC)) for file in files]
    )
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    trained = args.cache / "vae"
    if not (trained / "config.json").is_file():
        train(pixels, trained, args.steps // 10 if args.quick else args.steps)
    generator = f"vae:local-dir:{trained.resolve()}"
    label_latents(generator, pixels, files, args.cache / "latents.parquet")
    classifier = f"torchvision:mobilenet_v2?weights={(args.real / 'mobilenet_v2_imagenet1k.safetensors').resolve()}"
    most = commonest(generator, classifier, 32 if args.quick else 128)
    config = {
        "generator": generator,
        "classifier": classifier,
        "latents": str(args.cache / "latents.parquet"),
        "problems": [
            {"name": "animals", "label": most, "target": "animal"},
            {"name": "every image", "label": most},
        ],
        "methods": ["consistent", "axes"],
        "search": {"iterations": 20, "batch": 8, "walk": 3, "starts": 1},
        "evidence": {"latents": 60 if args.quick else 300},
        "strips": {"latents": 2, "positions": 5},
    }
    run = c2b_ray.latent_directions(config, args.cache / "run", via="here")
    show(run, most)


def show(run: LatentRun, label: str) -> None:
    """Prints a row for each direction and for each problem that was left out, then the report's path."""
    print("| problem | method | verdict | effect | interval |\n|---|---|---|---|---|")
    for row in run.directions.to_pylist():
        effect = "" if row["effect"] is None else f"{row['effect']:+.4f}"
        limits = "" if row["effect"] is None else f"{row['effect_low']:+.4f} to {row['effect_high']:+.4f}"
        print(f"| {row['problem']}, P({label}) | {row['method']} | {row['verdict']} | {effect} | {limits} |")
    for row in run.problems.to_pylist():
        if row["status"] == "excluded":
            print(f"| {row['problem']} | | left out: {row['reason']} | | | |")
    print(run.report)


def train(pixels: torch.Tensor, out: Path, steps: int, seed: int = 0) -> None:
    """Trains a VAE of the images: squared error over a pixel variance of 0.02, plus the KL divergence."""
    config = NetworkConfig(
        kind="vae", dimension=DIMENSION, size=SIZE, width=16, encoder=True, about={"seed": seed, "steps": steps}
    )
    torch.manual_seed(seed)
    model = network(config)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 2e-3 * min(1.0, 2 * (steps - step) / steps)
        batch = pixels[torch.randint(0, len(pixels), (32,))]
        batch = torch.where(torch.rand(32, 1, 1, 1) < 0.5, batch, batch.flip(3))
        mean, log_variance = model.encode(batch)
        latents = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        near = F.mse_loss(model.decode(latents), batch, reduction="none").sum(dim=(1, 2, 3)) / (2 * 0.02)
        divergence = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(dim=1)
        optimizer.zero_grad()
        (near + divergence).mean().backward()
        optimizer.step()
        if step % 100 == 99:
            print(f"vae {step + 1}/{steps} {near.mean():.1f} + {divergence.mean():.1f}", flush=True)
    write(model, config, out)


def label_latents(generator: str, pixels: torch.Tensor, files: list[Path], out: Path) -> None:
    """Writes the means of the images' latents, and whether each image shows an animal's shape."""
    with torch.no_grad():
        latents = catalog.latent_generator(generator).encode(pixels).numpy()  # type: ignore[attr-defined]
    shapes = [re.match(r"[a-z]+", file.stem)[0] for file in files]  # type: ignore[index]
    animal = [shape in ANIMALS for shape in shapes]
    pq.write_table(pa.table({"latent": pa.array(list(latents), pa.list_(pa.float32())), "animal": animal}), out)


def commonest(generator: str, classifier: str, count: int) -> str:
    """Returns the label with the largest mean probability over images drawn from the prior."""
    loaded, answers = catalog.latent_generator(generator), gradient_classifier(classifier)
    with torch.no_grad():
        images = loaded.images(torch.from_numpy(loaded.sample(count, 1)))
        mean = torch.cat([answers.probabilities(part) for part in images.split(8)]).mean(dim=0)  # type: ignore[no-untyped-call]
    return answers.labels[int(mean.argmax())]


if __name__ == "__main__":
    main()
