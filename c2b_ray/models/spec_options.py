"""Options that the specs of several models share, read and checked; label names; batches.

It knows no library of models, so a loader that needs no PyTorch does not import it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from c2b_ray.errors import InputError, SpecError
from c2b_ray.filesystems.documents import read_json
from c2b_ray.models.catalog import Spec
from c2b_ray.roles import Pixels

BATCH = 64
"""Rows that go through a model at once, where the spec's `batch=` does not say otherwise."""
GPU_BATCH = 256
"""The default batch on a GPU, which smaller batches leave idle."""


def positive(spec: Spec, option: str, default: int) -> int:
    """Returns a whole number above 0 from a spec's options."""
    text = spec.options.get(option, str(default))
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise SpecError(f"{spec.text}: {option}={text!r} is not a whole number above 0")
    return int(text)


def numbers(spec: Spec, option: str) -> list[float] | None:
    """Returns one finite number, or three separated by commas, as three; None where the option is absent."""
    if option not in spec.options:
        return None
    try:
        values = [float(part) for part in spec.options[option].split(",")]
    except ValueError:
        values = []
    if len(values) not in (1, 3) or not np.isfinite(values).all():
        raise SpecError(
            f"{spec.text}: {option}={spec.options[option]!r} is neither a number nor three (red,green,blue)"
        )
    if option == "std" and 0 in values:
        raise SpecError(f"{spec.text}: std of 0")
    return values * 3 if len(values) == 1 else values


def truth(spec: Spec, option: str, default: bool) -> bool:
    """Returns an option that is true or false. Raises SpecError for any other text."""
    text = spec.options.get(option, str(default).lower())
    if text not in ("true", "false"):
        raise SpecError(f"{spec.text}: {option}={text!r} is neither true nor false")
    return text == "true"


def read_labels(path: str | Path) -> tuple[str, ...]:
    """Reads label names from a file: a JSON list of strings, or one name a line (an empty last line is ignored).

    Raises SpecError where it cannot be read.
    """
    try:
        if Path(path).suffix.lower() != ".json":
            text = Path(path).read_text(encoding="utf-8-sig")
            return tuple(line.strip() for line in text.strip("\r\n").splitlines())
        names = read_json(path)
    except (OSError, ValueError, InputError) as error:
        raise SpecError(f"labels {path}: {error}") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SpecError(f"labels {path}: expected a JSON list of strings")
    return tuple(names)


def label_names(spec: Spec, count: int, usual: Sequence[str] | None) -> tuple[str, ...]:
    """Returns `labels=` of the spec, else the model's own names (`usual`), else label_0, label_1, …; always `count`
    names."""
    path = spec.options.get("labels")
    names = read_labels(path) if path else tuple(usual or (f"label_{i}" for i in range(count)))
    if len(names) != count:
        raise SpecError(f"{spec.text}: {len(names)} label names for {count} outputs; give them with ?labels=PATH")
    return names


def batches(rows: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def to_pil(image: Pixels) -> Image.Image:
    """Converts a picture to the input of the libraries' preprocessing."""
    return Image.fromarray(np.ascontiguousarray(image))
