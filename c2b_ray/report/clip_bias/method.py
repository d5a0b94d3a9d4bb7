"""How a run of `c2b clip-bias` was made: its settings in words, beside what runs of every kind have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from c2b_ray.report.kit import words
from c2b_ray.report.kit.method import Method, Row, mapping, method_of, times
from c2b_ray.report.kit.redact import clean, clean_setting

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
    named = {
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
    for name, value in named.items():
        if isinstance(value, bool | int | float):
            yield name, words.decimal(value) if isinstance(value, float) else words.count(value)
        elif value is not None:
            yield name, clean_setting(str(value)) if name.startswith("LIC") else clean(str(value))
    yield from times(manifest)
