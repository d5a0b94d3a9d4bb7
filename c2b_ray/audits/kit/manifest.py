"""What a run's manifest says of how it was made: counts of rows and of errors, versions of what ran."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from c2b_ray.store.run import Run

PACKAGES = (
    "c2b-ray", "ray", "torch", "torchvision", "timm", "open_clip_torch", "transformers", "faiss-cpu", "onnxruntime",
    "pyarrow", "numpy", "scipy", "pillow",
)  # fmt: skip


def versions() -> dict[str, str]:
    result = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            result[package] = version(package)
        except PackageNotFoundError:
            continue
    return result


def counts(run: Run) -> dict[str, int]:
    """Rows of each table, and the images and predictions that came to nothing."""
    result = {name: run.count(name) for name in ("proposals", "rejected", "captions", "draws", "scores")}
    for name, errors in (("images", "image_errors"), ("predictions", "prediction_errors")):
        result[name] = run.count(name)
        result[errors] = sum(len(part) - part["error"].null_count for part in run.each(name, ["error"]))
    return result
