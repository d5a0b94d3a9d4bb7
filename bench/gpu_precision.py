"""Measures what number formats and compilation bring on a GPU, and how many answers they change.

    python bench/gpu_precision.py [--seconds S] [--batch N] [--real FOLDER --mobilenet FILE.safetensors]

Rates are of ResNet-50 and ViT-B/16 of timm and of open_clip's ViT-B-32 with random weights, for batches on the device:
float32, TF32 (float32 whose products are rounded to 10 bits), bfloat16 and float16, channels first and last, and
compiled in several ways, with the seconds of the first batch. With --mobilenet (torchvision's, for pixels scaled as
x / 127.5 − 1) and --real, a folder of photographs, it prints the share of images whose answer differs from float32's,
and how near to a tie those were. Without a GPU it says so and ends.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import timm
import torch
import torchvision
from torch import nn
from torchvision.transforms._presets import ImageClassification

from c2b_ray.models import weights
from c2b_ray.models.batched_run import COMPILER, Runtime
from c2b_ray.models.torch_runtime import DTYPES, TorchClassifier, placed
from c2b_ray.steps.decode import decode

COMPILED: dict[str, dict[str, Any]] = {
    "default": {},
    "freezing": {"options": {"freezing": True}},
    "autotune, freezing": {"options": {"max_autotune": True, "freezing": True}},
    "autotune, freezing, channels": {"options": {"max_autotune": True, "freezing": True, "layout_optimization": True}},
    "autotune, freezing, coordinate descent": {
        "options": {"max_autotune": True, "freezing": True, "coordinate_descent_tuning": True}
    },
    "CUDA graphs": {"mode": "reduce-overhead"},
    "autotune, CUDA graphs": {"mode": "max-autotune"},
}


def encoder() -> nn.Module:
    return open_clip.create_model("ViT-B-32").visual


MODELS: dict[str, Callable[[], nn.Module]] = {
    "ResNet-50": lambda: timm.create_model("resnet50"),
    "ViT-B/16": lambda: timm.create_model("vit_base_patch16_224"),
    "open_clip ViT-B-32": encoder,
}


def rate(call: Callable[[torch.Tensor], Any], batch: torch.Tensor, seconds: float) -> float:
    with torch.inference_mode():
        for timed in (seconds / 4, seconds):
            began, rounds = time.perf_counter(), 0
            while time.perf_counter() - began < timed:
                for _ in range(4):
                    call(batch)
                    rounds += 1
                torch.cuda.synchronize()
    return round(rounds * len(batch) / (time.perf_counter() - began), 1)


def tf32(allowed: bool) -> None:
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = allowed


def rates(make: Callable[[], nn.Module], size: int, seconds: float, device: torch.device) -> dict[str, float]:
    first = make()
    result = {}
    for name in ("fp32", "tf32", "bf16", "fp16"):
        dtype = DTYPES.get(name, torch.float32)  # type: ignore[call-overload]
        for layout in (torch.channels_last, torch.contiguous_format):
            module = placed(copy.deepcopy(first), Runtime(device, size, dtype), layout)
            tf32(name == "tf32")
            batch = torch.randn(size, 3, 224, 224, device=device, dtype=dtype).to(memory_format=layout)
            where = "channels last" if layout == torch.channels_last else "channels first"
            result[f"{name}, {where}"] = rate(module, batch, seconds)
    return result


def compiled_rates(
    make: Callable[[], nn.Module], size: int, seconds: float, device: torch.device, dtype: torch.dtype
) -> dict[str, Any]:
    module = placed(make(), Runtime(device, size, dtype), torch.channels_last)
    batch = torch.randn(size, 3, 224, 224, device=device, dtype=dtype).to(memory_format=torch.channels_last)
    with torch.inference_mode():
        expected = module(batch).float()
    eager = rate(module, batch, seconds)
    result: dict[str, Any] = {"eager": eager}
    for name, options in COMPILED.items():
        torch._dynamo.reset()
        began = time.perf_counter()
        try:
            call = torch.compile(copy.deepcopy(module), dynamic=False, **options)
            with torch.inference_mode():
                apart = float((call(batch).float() - expected).abs().max() / expected.std())
            torch.cuda.synchronize()
            start = round(time.perf_counter() - began, 1)
            speed = rate(call, batch, seconds)
        except Exception as error:  # one way that fails must not end the others
            result[name] = f"failed: {str(error).splitlines()[0][:200]}"
            continue
        mine = " (the product's)" if options.get("options", {}) == COMPILER and "mode" not in options else ""
        result[name + mine] = {
            "rate": speed, "over_eager": round(speed / eager, 2), "start_s": start, "apart": round(apart, 4)
        }  # fmt: skip
    return result


def answers_changed(file: str, folder: str, device: torch.device) -> dict[str, Any]:
    pictures = [
        decode(path.read_bytes()) for path in sorted(Path(folder).rglob("*")) if path.suffix in (".png", ".jpg")
    ]
    transform = ImageClassification(crop_size=224, resize_size=232, mean=(0.5,) * 3, std=(0.5,) * 3)
    answers = {}
    for name in ("fp32", "tf32", "bf16", "fp16"):
        module = torchvision.models.mobilenet_v2(num_classes=1000)
        weights.load_into(module, weights.read_safetensors(Path(file)), Path(file))
        dtype = DTYPES.get(name, torch.float32)  # type: ignore[call-overload]
        model = TorchClassifier(module, transform, tuple(map(str, range(1000))), "", Runtime(device, 64, dtype))
        tf32(name == "tf32")
        answers[name] = model.logits(pictures, [""] * len(pictures))
    exact = answers.pop("fp32")
    two = np.sort(exact, axis=1)[:, -2:]
    margins = two[:, 1] - two[:, 0]
    result: dict[str, Any] = {"images": len(pictures)}
    for name, logits in answers.items():
        changed = logits.argmax(1) != exact.argmax(1)
        result[name] = {
            "answers_changed": round(float(changed.mean()), 5),
            "largest_margin_of_a_changed_answer": round(float(margins[changed].max()), 4) if changed.any() else 0.0,
            "largest_logit_change": round(float(np.abs(logits - exact).max()), 4),
            "mean_logit_change": round(float(np.abs(logits - exact).mean()), 5),
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--models", nargs="*", default=list(MODELS), help="of " + ", ".join(MODELS))
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--compile-with", nargs="*", help="ways of compiling, by name; all by default")
    parser.add_argument("--real")
    parser.add_argument("--mobilenet")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(1, f"no GPU: torch {torch.__version__} sees none\n")
    if args.compile_with:
        for name in set(COMPILED) - set(args.compile_with):
            del COMPILED[name]
    device = torch.device("cuda:0")
    report: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "batch": args.batch}
    if args.mobilenet and args.real:
        report["answers"] = answers_changed(args.mobilenet, args.real, device)
        print(json.dumps(report["answers"]), flush=True)
    for name in args.models:
        report[name] = rates(MODELS[name], args.batch, args.seconds, device)
        print(json.dumps({name: report[name]}), flush=True)
        if not args.no_compile:
            report[f"{name}, fp16 compiled"] = compiled_rates(
                MODELS[name], args.batch, args.seconds, device, torch.float16
            )
            print(json.dumps({name: report[f"{name}, fp16 compiled"]}), flush=True)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
