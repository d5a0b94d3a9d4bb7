"""Metrics, groups and numbers of `c2b clip-bias` in words."""

from __future__ import annotations

import math
import re

from c2b_ray.audits.clip_bias.steps.measure import ALL
from c2b_ray.report import words
from c2b_ray.report.redact import clean

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


def bias(name: str, attribute: str) -> str:
    """Words the bias of an attribute by a metric."""
    return f"{metric(name)}, {clean(attribute)}"


def score(name: str) -> str:
    if match := re.fullmatch(r"recall@(\d+)", name):
        return f"R@{match[1]}"
    return _NAMES.get(name, name)


def group(name: str) -> str:
    if name == ALL:
        return "all images"
    return f"group {name}" if name.isdigit() else f"group “{clean(name)}”"


def amount(value: float, digits: int = 3) -> str:
    """Formats a bias to three significant digits, or as many as `digits`; small ones as 2.4·10⁻⁵, to one less."""
    if math.isnan(value):
        return words.UNKNOWN
    if value == 0 or abs(value) >= 0.001:
        return f"{value:.{digits}g}".replace("-", words.MINUS)
    mantissa, power = f"{value:.{digits - 2}e}".split("e")
    raised = str(abs(int(power))).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa}·10⁻{raised}".replace("-", words.MINUS)


def amounts(low: float, high: float) -> str:
    if math.isnan(low) or math.isnan(high):
        return words.UNKNOWN
    return f"{amount(low)} to {amount(high)}"
