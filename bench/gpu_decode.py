"""Measures decoding of JPEGs on a GPU: images a second, and how far pixels and answers are from Pillow's.

    python bench/gpu_decode.py [--seconds S] [--batches N ...] [--real FOLDER] [--mobilenet FILE.safetensors]

It makes JPEGs of 500 × 375 pixels (`bench/photos.py`). For each decoder that is installed and each batch there are
four rates: `decode` alone; `shaped`, with resizing and cropping (shorter side 256, crop of 224); `whole`, through a
ResNet-50 with random weights in half precision, one batch being decoded while another is computed; and `header`,
reading the headers on one core. Then the pixels of all JPEGs are compared with Pillow's, decoded and after resizing.
With --mobilenet (torchvision's, for pixels scaled as x / 127.5 − 1) and --real, a folder of photographs, it prints the
share of images that get another answer. Without a GPU it says so and ends.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
import torchvision
from photos import photos
from torchvision.transforms._presets import ImageClassification

from c2b_ray.models import weights
from c2b_ray.models.batched_run import Runtime
from c2b_ray.models.gpu_files import decoding_files
from c2b_ray.models.pixels.gpu_decode import Decoder, GpuPreparation, by_nvimgcodec, by_torchvision, read_header
from c2b_ray.models.pixels.resize import shaped
from c2b_ray.models.torch_runtime import TorchClassifier
from c2b_ray.roles import Shape
from c2b_ray.steps.decode import decode, decoded

SHAPE = Shape(256, "bilinear", (224, 224))
DECODERS: dict[str, Decoder] = {"nvJPEG of torchvision": by_torchvision, "nvImageCodec": by_nvimgcodec}


def rate(seconds: float, images: int, run: Callable[[], Any]) -> float:
    for timed in (seconds / 4, seconds):  # the first pass loads and allocates
        began, rounds = time.perf_counter(), 0
        while time.perf_counter() - began < timed:
            run()
            rounds += 1
        torch.cuda.synchronize()
    return round(rounds * images / (time.perf_counter() - began), 1)


def labels(number: int) -> tuple[str, ...]:
    return tuple(map(str, range(number)))


def rates(by: Decoder, files: list[bytes], batch: int, seconds: float, device: torch.device) -> dict[str, float]:
    part = [files[i % len(files)] for i in range(batch)]
    prepare = GpuPreparation(SHAPE, device, decoded, by)
    runtime = Runtime(device, batch, torch.float16, decoder="gpu")
    model = TorchClassifier(
        timm.create_model("resnet50"), ImageClassification(crop_size=224), labels(1000), "", runtime
    )
    whole = decoding_files(model, "resnet50", decoded)
    whole._files._files = prepare  # this decoder, whichever the installation would take
    many = part * 8
    return {
        "header": rate(seconds / 4, batch, lambda: [read_header(data) for data in part]),
        "decode": rate(seconds, batch, lambda: by(part, device)),
        "shaped": rate(seconds, batch, lambda: prepare.prepared(part)),
        "whole": rate(seconds, len(many), lambda: whole.logits_of_files(many, [""] * len(many))),
    }


def pixels_apart(by: Decoder, files: list[bytes], device: torch.device) -> dict[str, float]:
    """Compares with Pillow's pixels, in levels of 255."""
    decoded_apart, shaped_apart = [], []
    prepare = GpuPreparation(SHAPE, device, decoded, by)
    for data in files:
        expected = decode(data).astype(np.int16)
        [there] = by([data], device)
        decoded_apart.append(np.abs(there.permute(1, 2, 0).cpu().numpy().astype(np.int16) - expected))
        block, _ = prepare.prepared([data])
        assert block is not None
        small = shaped(expected.astype(np.uint8), SHAPE).astype(np.int16)
        shaped_apart.append(np.abs(block[0].cpu().numpy().astype(np.int16) - small))
    result = {}
    for name, parts in (("decoded", decoded_apart), ("resized", shaped_apart)):
        values = np.concatenate([part.ravel() for part in parts])
        result[f"{name}_largest"] = int(values.max())
        result[f"{name}_mean"] = round(float(values.mean()), 4)
        result[f"{name}_changed"] = round(float((values > 0).mean()), 4)
    return result


def answers_changed(by: Decoder, file: str, files: Sequence[bytes], device: torch.device) -> dict[str, float]:
    """Compares MobileNetV2's answers, in float32, to files that this decoder and Pillow's library decode."""
    module = torchvision.models.mobilenet_v2(num_classes=1000)
    weights.load_into(module, weights.read_safetensors(Path(file)), Path(file))
    transform = ImageClassification(crop_size=224, resize_size=232, mean=(0.5,) * 3, std=(0.5,) * 3)
    model = TorchClassifier(module, transform, labels(1000), "", Runtime(device, 64, decoder="gpu"))
    there = decoding_files(model, "mobilenet", decoded)
    there._files._files = GpuPreparation(model.preparation.shape, device, decoded, by)
    by_gpu, errors = there.logits_of_files(files, [""] * len(files))
    by_cpu = model.logits([decode(data) for data in files], [""] * len(files))
    changed = by_gpu.argmax(1) != by_cpu.argmax(1)
    return {
        "images": len(files),
        "on_the_gpu": sum(header is not None and header.plain for header in map(read_header, files)),
        "errors": sum(error is not None for error in errors),
        "answers_changed": round(float(changed.mean()), 5),
        "largest_logit_change": round(float(np.abs(by_gpu - by_cpu).max()), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--batches", type=int, nargs="*", default=[64, 256])
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--real", help="a folder of photographs")
    parser.add_argument("--mobilenet", help="weights of the model whose answers are compared")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(1, f"no GPU: torch {torch.__version__} sees none\n")
    device = torch.device("cuda:0")
    files = list(photos(args.images, 100_101))
    report: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(),
        "kB": round(np.mean([len(f) for f in files]) / 1e3, 1),
    }
    real = [path.read_bytes() for path in sorted(Path(args.real).rglob("*.jp*g"))] if args.real else files
    for name, by in DECODERS.items():
        try:
            by(files[:2], device)
        except (RuntimeError, ImportError) as error:
            report[name] = f"absent: {str(error).splitlines()[0]}"
            continue
        report[name] = {f"batches of {n}": rates(by, files, n, args.seconds, device) for n in args.batches}
        report[name]["pixels"] = pixels_apart(by, files[:128], device)
        if args.mobilenet:
            report[name]["answers"] = answers_changed(by, args.mobilenet, real, device)
        print(json.dumps({name: report[name]}), flush=True)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
