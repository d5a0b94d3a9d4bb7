"""Times decoding of JPEGs to a model's pixels on one core, ours against Pillow; checks whether answers change.

    python bench/decode.py [FOLDER] [--mobilenet FILE.safetensors] [--also FOLDER] [--n N]

FOLDER: the JPEGs to time; without it the script makes them (`bench/photos.py`). It measures CPU seconds, which other
work on the machine changes little. They cover decoding, resizing and cropping, up to uint8, for torchvision's
preprocessing (shorter side 256, bilinear, crop of 224) and for CLIP's (224, bicubic). Pillow and ours take turns, 32
images at a time. With --mobilenet (torchvision's MobileNetV2 for pixels scaled as x / 127.5 − 1, 1,000 classes), the
script also prints the share of images, those of --also included, on which both get the same answer.
"""

from __future__ import annotations

import argparse
import json
import time
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
import torchvision
from open_clip.transform import PreprocessCfg, image_transform_v2
from photos import photos
from PIL import Image
from torchvision import transforms
from torchvision.transforms import functional as F
from torchvision.transforms._presets import ImageClassification

from c2b_ray.models import weights
from c2b_ray.models.pixels.preprocess import OnArrays, batched
from c2b_ray.models.torch_runtime import Runtime, TorchClassifier
from c2b_ray.steps.decode import decode

AT_ONCE = 32
Bilinear = transforms.InterpolationMode.BILINEAR
Bicubic = transforms.InterpolationMode.BICUBIC
KINDS = {
    "torchvision": (ImageClassification(crop_size=224), 256, Bilinear),
    "clip": (image_transform_v2(PreprocessCfg(), is_train=False), 224, Bicubic),
}


def by_pillow(data: bytes, size: int, interpolation: transforms.InterpolationMode) -> torch.Tensor:
    image = Image.open(BytesIO(data)).convert("RGB")
    return F.pil_to_tensor(F.center_crop(F.resize(image, size, interpolation=interpolation), 224))


def speeds(files: list[bytes]) -> dict[str, dict[str, float]]:
    found = {}
    for kind, (transform, size, interpolation) in KINDS.items():
        ours = batched(transform)
        assert isinstance(ours, OnArrays)
        ours.shaped(decode(files[0]))  # loads the compiled functions
        seconds = {"pillow": 0.0, "ours": 0.0}
        for start in range(0, len(files), AT_ONCE):
            part = files[start : start + AT_ONCE]
            began = time.process_time()
            for data in part:
                by_pillow(data, size, interpolation)
            middle = time.process_time()
            for data in part:
                ours.shaped(decode(data))
            seconds["pillow"] += middle - began
            seconds["ours"] += time.process_time() - middle
        rates = {f"{side}_per_s": round(len(files) / spent, 1) for side, spent in seconds.items()}
        found[kind] = {**rates, "ratio": round(seconds["pillow"] / seconds["ours"], 3)}
    return found


def answers_alike(file: str, inputs: list[bytes]) -> dict[str, float]:
    """Compares the answers of one MobileNetV2 to Pillow's image, by torchvision's own transform, and to ours."""
    module = torchvision.models.mobilenet_v2(num_classes=1000)
    weights.load_into(module, weights.read_safetensors(Path(file)), Path(file))
    transform = ImageClassification(crop_size=224, resize_size=232, mean=(0.5,) * 3, std=(0.5,) * 3)
    labels, cpu = tuple(map(str, range(1000))), Runtime(torch.device("cpu"), AT_ONCE)
    ours = TorchClassifier(module, transform, labels, "", cpu)
    # TorchClassifier calls a transform that it does not know with the PIL image, pixel for pixel as decoded.
    theirs = TorchClassifier(module, lambda image: transform(image), labels, "", cpu)
    alike, change = 0, 0.0
    for start in range(0, len(inputs), AT_ONCE):
        part = inputs[start : start + AT_ONCE]
        seen = [np.asarray(Image.open(BytesIO(data)).convert("RGB")) for data in part]
        before = theirs.logits(seen, [""] * len(part))
        after = ours.logits([decode(data) for data in part], [""] * len(part))
        alike += int((before.argmax(axis=1) == after.argmax(axis=1)).sum())
        change = max(change, float(np.abs(before - after).max()))
    return {"images": len(inputs), "alike": round(alike / len(inputs), 5), "largest_logit_change": round(change, 3)}


def read(folder: str) -> list[bytes]:
    return [file.read_bytes() for file in sorted(Path(folder).glob("*.jpg"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--mobilenet", help="weights of the model whose answers are compared")
    parser.add_argument("--also", help="a folder of more images to compare answers on")
    parser.add_argument("--n", type=int, default=1024)
    args = parser.parse_args()
    torch.set_num_threads(1)
    files = (read(args.folder) if args.folder else list(photos(args.n, 100_101)))[: args.n]
    report: dict = {"images": len(files), "kB": round(np.mean([len(data) for data in files]) / 1000, 1)}
    report["speed"] = speeds(files)
    if args.mobilenet:
        report["answers"] = answers_alike(args.mobilenet, files + (read(args.also) if args.also else []))
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
