"""How a run of `c2b failures` was made: its settings in words, beside what runs of every kind have.

Reads the manifest, any part of which may be absent. Knows nothing of rates or pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from c2b_ray.report.kit import words
from c2b_ray.report.kit.method import Method, Row, mapping, method_of, times
from c2b_ray.report.kit.redact import clean, clean_setting

RULES = {
    "top1": "the likeliest of all the classifier’s labels is another one",
    "top1_parent": "the likeliest of all the classifier’s labels is another one, of another parent in the hierarchy",
    "top3": "the label is none of the classifier’s three likeliest",
    "top3_parent": "none of the classifier’s three likeliest labels is the label or has its parent in the hierarchy",
}
_COUNTS = {
    "candidates": "Captions",
    "rounds": "Rounds of draws",
    "hypotheses": "Hypotheses",
    "draws": "Draws",
    "unusable": "Draws that could not be used",
}
COMMAND = "c2b failures failures.yaml --out RUN"


def method(manifest: Mapping[str, Any]) -> Method:
    return method_of(manifest, tuple(_settings(manifest)), _COUNTS, COMMAND)


def rule_line(config: Mapping[str, Any], rule: str = "") -> str:
    """Returns a sentence that tells when an answer is a failure; empty where neither the config nor `rule`
    defines it."""
    name = str(config.get("rule") or rule)
    if name not in RULES:
        return ""
    least = config.get("confidence")
    sure = f" and has a probability of at least {words.decimal(float(least))}" if least else ""
    most = config.get("true_below")
    unsure = f", and the true label one of at most {words.decimal(float(most))}" if most and most < 1 else ""
    return f"An answer is a failure when {RULES[name]}{sure}{unsure} (rule: {name})."


def _settings(manifest: Mapping[str, Any]) -> Iterator[Row]:
    config = mapping(manifest.get("config"))
    budget = mapping(config.get("budget"))
    named = {
        "Rule": config.get("rule"),
        "Independent samples": mapping(mapping(config.get("images")).get("labelled")).get("cluster"),
        "Hierarchy": config.get("hierarchy"),
        "Prompt": config.get("prompt"),
        "Budget, in images": budget.get("draws"),
        "α, false discovery rate": config.get("alpha"),
        "Seed": config.get("seed"),
        "Run": manifest.get("run_id"),
    }
    for name, value in named.items():
        if isinstance(value, bool | int | float):
            yield name, words.decimal(value) if isinstance(value, float) else words.count(value)
        elif value is not None:
            yield name, clean_setting(str(value)) if name == "Hierarchy" else clean(str(value))
    yield from times(manifest)
