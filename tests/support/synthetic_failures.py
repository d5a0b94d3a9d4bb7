"""A synthetic run of `c2b failures`: planted causes with known rates, drawn as binomial counts, pictures by Pillow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from failures_recipes import Cause, Recipe
from synthetic_pictures import draw_picture

from c2b_ray.audits.failures.run import FailuresRun, open_failures_run
from c2b_ray.stats.rates import Trials, failure_rates, rate_ratios
from c2b_ray.storage.parts import writing
from c2b_ray.tables import content_id
from c2b_ray.tables.failures import CANDIDATES, HYPOTHESES, RELIABILITY, ROUNDS, TRANSFERS


class _Maker:
    """Draws counts and collects rows."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.random = np.random.default_rng(0)
        self.candidates: list[dict[str, Any]] = []
        self.rounds: list[dict[str, Any]] = []
        self.hypotheses: list[dict[str, Any]] = []
        self.transfers: list[dict[str, Any]] = []

    def prompt(self, label: str) -> str:
        parent = self.recipe.parents.get(label)
        return f"a realistic photograph of a {label}{f' ({parent})' if parent else ''}."

    def candidate(self, label: str, sentences: tuple[str, ...], origin: str, parent: str | None) -> dict[str, Any]:
        text = " ".join([self.prompt(label), *(f"{sentence}." for sentence in sentences)])
        row = {
            "caption_id": content_id("caption", label, text),
            "label": label,
            "text": text,
            "sentences": list(sentences),
            "parent_caption": parent,
            "origin": origin,
        }
        self.candidates.append(row)
        return row

    def round(
        self, candidate: Mapping[str, Any], stage: str, part: str, generator: str, classifier: str, draws: int,
        towards: tuple[str, float], anyhow: float,
    ) -> Counter[str]:  # fmt: skip
        target, rate = towards
        others = ["spider", "cabbage butterfly", "cup", *(f"label {number}" for number in range(17))]
        shares = np.arange(len(others), 0, -1) ** 2.0
        counts = Counter({target: int(self.random.binomial(draws, rate))})
        rest = int(self.random.binomial(draws, max(anyhow - rate, 0.0)))
        counts.update(dict(zip(others, self.random.multinomial(rest, shares / shares.sum()).tolist(), strict=True)))
        counts = +counts
        self.rounds.append(
            {
                "round_id": content_id("round", candidate["caption_id"], stage, part, generator, classifier),
                "caption_id": candidate["caption_id"],
                "stage": stage,
                "part": part,
                "generator": generator,
                "classifier": classifier,
                "first": 0,
                "draws": draws,
                "unusable": 3 if part == "search" else 0,
                "reasons": ["a black image"] if part == "search" else [],
                "failures": sum(counts.values()),
                "predicted": list(counts),
                "counts": list(counts.values()),
                "examples": list(self.examples(candidate["label"], counts)),
                "seconds": draws / 400,
            }
        )
        return counts

    def examples(self, label: str, counts: Counter[str]) -> Iterator[dict[str, Any]]:
        names = [name for name, count in counts.items() for _ in range(min(count, 8))]
        for number, name in enumerate(names[:14] if self.recipe.pictures else []):
            shape = ("bus", "boat", "umbrella")[len(label) % 3]
            image = draw_picture(shape, "sunset" if name == names[0] else "day", number)
            key = f"photos/{label}-{number}.jpg" if "labelled" in self.recipe.config.get("images", {}) else None
            yield {"seed": number, "key": key, "predicted": name, "top3": [name, "a", "b"],
                   "confidence": 0.9 - number / 50, "image": image}  # fmt: skip

    def hypothesis(self, candidate: Mapping[str, Any], classifier: str, cause: Cause, target: str | None) -> None:
        own, base = (self.counted(each, classifier) for each in (candidate, self.baseline(cause.label)))
        failures, base_failures = (
            sum(counts.values()) if target is None else counts[target] for counts, _ in (own, base)
        )
        tested = self.counted(candidate, classifier, "test")
        seen = sum(tested[0].values()) if target is None else tested[0][target]
        high = seen / tested[1] > 2 * base_failures / base[1] and seen > 5
        verdict = "failure" if high else "undetermined" if seen > 5 else "not_shown"
        self.hypotheses.append(
            {
                "classifier": classifier,
                "generator": self.recipe.generator,
                "rule": "top3_parent",
                "label": cause.label,
                "target": target,
                "caption": candidate["text"],
                "parent_caption": candidate["parent_caption"],
                "stage": "confirmation",
                "draws": own[1],
                "failures": failures,
                "any_failures": sum(own[0].values()),
                **_rates((failures, own[1]), (base_failures, base[1])),
                "p_value": 1e-6 if high else 0.4,
                "e_value": 3.2e9 if high else 2.5,
                "q_value": 1e-5 if high else 0.8,
                "verdict": verdict,
                "caption_id": candidate["caption_id"],
                "origin": candidate["origin"],
                "baseline_draws": base[1],
                "baseline_failures": base_failures,
                "spent": 2 * own[1],
                "doubts": list(self.recipe.doubts) if cause.label == "crayfish" else [],
            }
        )

    def counted(self, candidate: Mapping[str, Any], classifier: str, part: str = "measure") -> tuple[Counter[str], int]:
        counts, draws = Counter[str](), 0
        for row in self.rounds:
            key = row["caption_id"], row["classifier"], row["part"], row["generator"]
            if key == (candidate["caption_id"], classifier, part, self.recipe.generator):
                counts.update(dict(zip(row["predicted"], row["counts"], strict=True)))
                draws += row["draws"]
        return counts, draws

    def baseline(self, label: str) -> Mapping[str, Any]:
        return next(row for row in self.candidates if row["label"] == label and row["origin"] == "baseline")


def _rates(own: tuple[int, int], base: tuple[int, int]) -> dict[str, float]:
    """Returns the rate, the baseline's rate and their ratio, of (failures, draws)."""
    rate, ratio = failure_rates(*own), rate_ratios(Trials.of(*own), Trials.of(*base))
    return {
        "rate": float(rate.value),
        "rate_low": float(rate.low),
        "rate_high": float(rate.high),
        "baseline_rate": base[0] / base[1],
        "ratio": float(ratio.value),
        "ratio_low": float(ratio.low),
        "ratio_high": float(ratio.high),
    }


def make_run(path: Path, recipe: Recipe) -> FailuresRun:
    """Writes a finished run to `path`."""
    maker = _Maker(recipe)
    for label in recipe.labels:
        _label(maker, label)
    config = {
        "labels": recipe.labels,
        "classifier": list(recipe.classifiers),
        "rule": "top3_parent",
        "images": {"generate": {"model": recipe.generator}},
        "budget": {"draws": 1_000_000},
        "alpha": 0.05,
        "seed": 0,
    }
    with open_failures_run(path, "synthetic", {**config, **recipe.config}) as run:
        run.write("candidates", pa.Table.from_pylist(maker.candidates, CANDIDATES))
        with writing(run.location("rounds")) as parts:
            parts.write(pa.Table.from_pylist(maker.rounds, ROUNDS), "round_id")
        run.write("hypotheses", pa.Table.from_pylist(maker.hypotheses, HYPOTHESES))
        run.write("reliability", pa.Table.from_pylist(list(_reliability(recipe)), RELIABILITY))
        run.write("transfers", pa.Table.from_pylist(maker.transfers, TRANSFERS))
        run.update(
            {
                "status": "finished",
                "finished": "2026-11-22T11:30:00+00:00",
                "versions": {"c2b-ray": "0.1"},
                "seconds": {"discovery": 640.0, "confirmation": 1_800.0},
                "counts": {"candidates": len(maker.candidates)},
                **recipe.manifest,
            }
        )
    return run


def _label(maker: _Maker, label: str) -> None:
    recipe = maker.recipe
    baseline = maker.candidate(label, (), "baseline", None)
    causes = [cause for cause in recipe.causes if cause.label == label]
    first = causes[0] if causes else Cause(label, "cup", "", 0.0, 0.0, 0.0)
    for classifier in recipe.classifiers:
        for stage, part in (("discovery", "search"), ("confirmation", "test"), ("confirmation", "measure")):
            towards = first.target, first.baseline
            maker.round(baseline, stage, part, recipe.generator, classifier, recipe.baseline_draws, towards, 0.0048)
    for cause in causes:
        _cause(maker, cause, baseline["text"])


def _cause(maker: _Maker, cause: Cause, baseline: str) -> None:
    recipe = maker.recipe
    blurred = "the background is blurred"
    whole = maker.candidate(cause.label, (cause.sentence, blurred), "cluster", baseline)
    alone = maker.candidate(cause.label, (cause.sentence,), "sentence", whole["text"])
    other = maker.candidate(cause.label, (blurred,), "sentence", whole["text"])
    for candidate, strong in ((whole, 1.1), (alone, 1.0), (other, 0.0)):
        for classifier in recipe.classifiers:
            works = strong * (classifier not in recipe.blind)
            rate = works * cause.rate + (works == 0) * cause.baseline
            anyhow = cause.anyhow if works else 0.0048
            for stage, part in (("discovery", "search"), ("confirmation", "test"), ("confirmation", "measure")):
                if part == "measure" and cause.label in recipe.unmeasured:
                    continue
                maker.round(
                    candidate, stage, part, recipe.generator, classifier, recipe.draws, (cause.target, rate), anyhow
                )
            for target in (cause.target, None):
                maker.hypothesis(candidate, classifier, cause, target)
    for source in recipe.others:
        _elsewhere(maker, cause, alone, source)


def _elsewhere(maker: _Maker, cause: Cause, candidate: Mapping[str, Any], source: str) -> None:
    classifier = maker.recipe.classifiers[0]
    if not source.startswith("index:"):
        maker.round(
            candidate, "confirmation", "measure", source, classifier, 1_000, (cause.target, cause.rate), cause.anyhow
        )
    rates, baseline_rates = (
        (maker.random.binomial(100, rate, 10) / 100).tolist() for rate in (5 * cause.rate, cause.baseline)
    )
    maker.transfers.append(
        {
            "caption_id": candidate["caption_id"],
            "label": cause.label,
            "target": cause.target,
            "source": source,
            "classifier": classifier,
            "draws": 1_000,
            "failures": round(1_000 * float(np.mean(rates))),
            "any_failures": 61,
            "baseline_draws": 1_000,
            "baseline_failures": round(1_000 * float(np.mean(baseline_rates))),
            "rates": rates,
            "baseline_rates": baseline_rates,
            "p_value": 1.08e-5 if np.mean(rates) > 0.01 else 0.2,
        }
    )


def _reliability(recipe: Recipe) -> Iterator[dict[str, Any]]:
    for label in recipe.labels if recipe.verified else ():
        shown = round(100 * recipe.reliable.get(label, 0.95))
        rows = [(None, None, shown), ("colour", "red", 54), ("colour", "blue", 9), ("colour", "brown", 37)]
        for attribute, value, images in rows:
            limits = failure_rates(images, 100)
            yield {
                "generator": recipe.generator,
                "label": label,
                "attribute": attribute,
                "value": value,
                "images": 100,
                "shown": images,
                "parent_shown": min(images + 2, 100) if attribute is None else None,
                "rate": images / 100,
                "rate_low": float(limits.low),
                "rate_high": float(limits.high),
            }
