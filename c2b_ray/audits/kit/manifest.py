"""The part of a run's manifest about how it was made: counts of rows and of errors, versions of packages."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TypedDict

from c2b_ray.audits.kit.session import Steps
from c2b_ray.storage.run import Run

PACKAGES = (
    "c2b-ray", "ray", "torch", "torchvision", "timm", "open_clip_torch", "transformers", "diffusers", "peft",
    "faiss-cpu", "onnxruntime", "pyarrow", "numpy", "scipy", "pillow",
)  # fmt: skip


class Finished(TypedDict):
    """A manifest's entries about the end of its run."""

    status: str
    finished: str
    via: str
    seconds: dict[str, float]
    counts: dict[str, int]
    versions: dict[str, str]


def finished(via: str, steps: Steps, rows: Mapping[str, int]) -> Finished:
    """Returns the manifest's entries once a run's tables are whole. `rows`: the number of rows of each table."""
    return {
        "status": "finished",
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "via": via,
        "seconds": steps.seconds,
        "counts": dict(rows),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    result = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            result[package] = version(package)
        except PackageNotFoundError:
            continue
    return result


def counts(run: Run) -> dict[str, int]:
    """Returns the rows of each table, and the images and predictions that have errors."""
    result = {name: run.count(name) for name in ("proposals", "rejected", "captions", "draws", "scores")}
    for name, errors in (("images", "image_errors"), ("predictions", "prediction_errors")):
        result[name] = run.count(name)
        result[errors] = sum(len(part) - part["error"].null_count for part in run.each(name, ["error"]))
    return result
