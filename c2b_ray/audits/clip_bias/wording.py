"""How a run of `c2b clip-bias` was made: its settings in words, beside what runs of every kind have."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from c2b_ray.report import words
from c2b_ray.report.method import Method, Row, mapping, method_of, times
from c2b_ray.report.redact import clean, clean_setting

_COUNTS = {
    "clip_bias": "Biases",
    "transfer": "Correlations of transfer",
    "locality": "Correlations of local with global",
    "rates": "Rates",
    "model_pairs": "Comparisons of models",
    "gaps": "Gaps",
    "convergence": "Pairs of spaces",
    "clusters": "Images in groups or none",
}
COMMAND = "c2b clip-bias clip_bias.yaml --out RUN"


def method(manifest: Mapping[str, Any]) -> Method:
    return method_of(manifest, tuple(_settings(manifest)), _COUNTS, COMMAND)


def _settings(manifest: Mapping[str, Any]) -> Iterator[Row]:
    config = mapping(manifest.get("config"))
    groups, chance, leakage = (mapping(config.get(name)) for name in ("groups", "chance", "leakage"))
    settings = {
        "R@k": config.get("recall_k"),
        "A hit": config.get("hit"),
        "MaxSkew@k": config.get("skew_k"),
        "… share of images at most": config.get("skew_share"),
        "MaxSkew’s rule": config.get("skew_rule"),
        "Clusters": groups.get("k"),
        "Images of a group": groups.get("least"),
        "Clusters may serve": {"shared": "several groups", "once": "one group"}.get(str(groups.get("reuse"))),
        "Independent pairs count": {"code": "0", "formula": "−1"}.get(str(config.get("amplification"))),
        "LIC guesses by": leakage.get("guesser"),
        "… folds": leakage.get("folds"),
        "… draws of folds": leakage.get("seeds"),
        "Permutations": chance.get("permutations"),
        "Bootstrap samples": chance.get("resamples"),
        "α, false discovery rate": config.get("alpha"),
        "Two models differ by more than, of MaxSkew": config.get("margin"),
        "Seed": config.get("seed"),
        "Run": manifest.get("run_id"),
    }
    for name, value in settings.items():
        if isinstance(value, bool | int | float):
            yield name, words.decimal(value) if isinstance(value, float) else words.count(value)
        elif value is not None:
            yield name, clean_setting(str(value)) if name.startswith("LIC") else clean(str(value))
    yield from times(manifest)


# Metrics, values and views in words.


ALL = "all"
_NAMES = {
    "vqa_accuracy": "VQA accuracy",
    "cider": "CIDEr",
    "dba": "directional bias amplification",
    "lic": "LIC",
}


def metric(name: str) -> str:
    """Words a metric: kl_recall@5 → KL of R@5."""
    if name.startswith("kl_"):
        return f"KL of {score(name.removeprefix('kl_'))}"
    if match := re.fullmatch(r"max_skew@(\d+)", name):
        return f"MaxSkew@{match[1]}"
    return _NAMES.get(name, name)


def score(name: str) -> str:
    if match := re.fullmatch(r"recall@(\d+)", name):
        return f"R@{match[1]}"
    return _NAMES.get(name, name)


def group(name: str) -> str:
    if name == ALL:
        return "all images"
    return f"group {name}" if name.isdigit() else f"group “{clean(name)}”"


def amount(value: float) -> str:
    """Formats a bias to three significant digits; small ones as 2.4·10⁻⁵."""
    if math.isnan(value):
        return words.UNKNOWN
    if value == 0 or abs(value) >= 0.001:
        return f"{value:.3g}".replace("-", words.MINUS)
    digits, power = f"{value:.1e}".split("e")
    raised = str(abs(int(power))).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{digits}·10⁻{raised}".replace("-", words.MINUS)


def amounts(low: float, high: float) -> str:
    if math.isnan(low) or math.isnan(high):
        return words.UNKNOWN
    return f"{amount(low)} to {amount(high)}"
