"""The method section of a C2B run: its settings in words, beside the models, counts and times that all runs have.

Reads the manifest, any part of which may be absent. Knows nothing of scores or pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from c2b_ray.report.c2b.derived import DerivedValues
from c2b_ray.report.kit import words
from c2b_ray.report.kit.method import Method, Row, mapping, method_of, times
from c2b_ray.report.kit.redact import clean

_RIGHT = {
    "top1": "the likeliest of all the classifier's labels stands for the class (right: top1)",
    "top5": "one of the five likeliest of all its labels stands for the class (right: top5)",
    "among_classes": "the class is the likeliest of the audit's classes alone, whatever other labels are likelier "
    "(right: among_classes)",
}
_COUNTS = {
    "proposals": "Attributes proposed",
    "rejected": "Replies rejected",
    "captions": "Captions",
    "draws": "Draws",
    "images": "Images",
    "image_errors": "Images that could not be read or made",
    "predictions": "Predictions",
    "prediction_errors": "Predictions that failed",
}


def method(manifest: Mapping[str, Any]) -> Method:
    config = mapping(manifest.get("config"))
    settings = tuple(_settings(manifest, {name: value for name, value in config.items() if value is not None}))
    return method_of(manifest, settings, _COUNTS, "c2b audit audit.yaml --out RUN")


def right_line(config: Mapping[str, Any]) -> str:
    """Returns a sentence that tells when an answer counts as right; empty where the config does not contain the
    rule."""
    rule = _RIGHT.get(str(config.get("right")))
    return f"An answer is right when {rule}." if rule else ""


def _settings(manifest: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[Row]:
    source = mapping(config.get("images")).get("source")
    kinds = {
        "retrieve": "retrieved by caption from an index",
        "generate": "made from each caption",
        "labelled": "labelled, from a table",
    }
    named_source = " and ".join(kinds.get(str(one), str(one)) for one in _several(source))
    named = {
        "Task": config.get("task"),
        "An answer is right when": _RIGHT.get(str(config.get("right"))),
        "Images": named_source or None,
        "Independent samples": mapping(config.get("images")).get("cluster"),
        "Attributes that nobody annotated": DerivedValues(manifest).setting() or None,
        "Images per caption": config.get("images_per_caption"),
        "Captions per cell": config.get("captions_per_cell"),
        "Seed": config.get("seed"),
        "τ, smallest |φ| that counts": config.get("tau"),
        "α, false discovery rate": config.get("alpha"),
        "Run": manifest.get("run_id"),
    }
    for name, value in named.items():
        if value is not None:
            yield name, clean(words.decimal(value) if isinstance(value, float) else str(value))
    yield from times(manifest)


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
