"""Measures how CLIP's bias transfers to models built on it: the `transfer` of `clip_bias.py`.

On each of several CLIP models, a captioner and answerer is trained in two stages over one frozen language model; all
else is equal. Two attributes are audited: the one in which the skews were planted, and one without a planted bias. The
rows show what was trained, the biases of the captioners, correlations (within and across attributes, over all models
and over models of similar accuracy), quadrants of gaps before and after, and how similar the embedding spaces are
before and after. Trained models are kept for later calls.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import c2b_ray
from c2b_ray.audits.clip_bias.audit import read_clip_bias_config
from c2b_ray.world.table import TableOptions
from c2b_ray.world.training.clip_zoo import downstream
from c2b_ray.world.training.clip_zoo.connector import Stage
from c2b_ray.world.zoo import WEIGHTS

SEED = 100_050
CAPTIONERS = 6
RECIPE = downstream.Recipe(scenes=4000, captions=Stage(200, 64, 3e-3), answers=Stage(200, 64, 3e-3))
ALSO = ("size",)
WIDTH = 0.04  # of the range of accuracies that count as similar


def transfer(work: Path, models: dict[str, str], n: int) -> None:
    chosen = _spread(models)
    plan = downstream.Plan(chosen, WEIGHTS / "lm", TableOptions(n, SEED, captions=3), recipe=RECIPE, also=ALSO)
    downstream.run(work, plan)
    trained = [json.loads((work / name / "metrics.json").read_text()) for name in chosen]
    _say("captioners and answerers: accuracy of answers, by model", "", _each(chosen, [m["accuracy"] for m in trained]))
    config = read_clip_bias_config(str(work / "clip-bias.yaml"))
    run = c2b_ray.clip_bias(config, work / "run", "here")
    _biases(run)
    _correlations(run, "all")
    window = _window(config.performance or {})
    held = c2b_ray.clip_bias(config.model_copy(update={"window": window}), work / "window", "here", reuse=run)
    _correlations(held, f"zero-shot accuracy {window[0]:.3f} to {window[1]:.3f} (Fig. 6)")
    _quadrants(run)
    _spaces(run)


def _spread(models: dict[str, str]) -> dict[str, str]:
    """Returns `CAPTIONERS` of the models at even steps, the first and the last included."""
    names = list(models)
    at = np.unique(np.linspace(0, len(names) - 1, min(CAPTIONERS, len(names))).round().astype(int))
    return {names[k]: models[names[k]] for k in at}


def _window(performance: dict[str, float]) -> tuple[float, float]:
    """Returns the range of this width that holds the most models."""
    values = np.array(sorted(performance.values()))
    start = max(values, key=lambda low: ((values >= low) & (values <= low + WIDTH)).sum())
    return float(start), float(start + WIDTH)


def _biases(run: Any) -> None:
    rows = [row for row in run.biases.to_pylist() if row["view"] == "global"]
    for metric, attribute in sorted({(row["metric"], row["attribute"]) for row in rows}):
        some = [row for row in rows if (row["metric"], row["attribute"]) == (metric, attribute)]
        found = sum(row["q_value"] <= 0.05 for row in some)
        values = _each([row["model"] for row in some], [row["value"] for row in some])
        _say(f"{metric} of {attribute}, by model", "", f"{values}; {found} of {len(some)} at q <= .05")


def _correlations(run: Any, which: str) -> None:
    rows = [row for row in run.transfer.to_pylist() if np.isfinite(row["rho"])]
    whole = [row for row in rows if row["view"] == "global"]
    for kind, some in (("all images", whole), ("groups", [row for row in rows if row["view"] != "global"])):
        what = f"transfer, {which}, {kind}"
        if not some:
            _say(what, "shown", "no correlation")
            continue
        sizes = sorted({row["n_models"] for row in some})
        across = sum(row["pretraining_attribute"] != row["downstream_attribute"] for row in some)
        count = f"{len(some)} correlations of {'/'.join(map(str, sizes))} models, {across} of them across attributes"
        least = min(some, key=lambda row: row["p_value"])
        low = sum(row["p_value"] <= 0.05 for row in some)
        _say(what, "shown", f"{count}; {low} with p <= .05, least q {min(row['q_value'] for row in some):.2f}")
        _say("… the one of least p", "", f"{_pair(least)}: {_rho(least)}")
    for row in sorted(whole, key=lambda row: -abs(row["rho"]))[:5]:
        _say(f"… {_pair(row)}", "", _rho(row))


def _pair(row: dict[str, Any]) -> str:
    before, after = (
        f"{row[f'{stage}_metric']} of {row[f'{stage}_attribute']}" for stage in ("pretraining", "downstream")
    )
    return f"{before} → {after}"


def _rho(row: dict[str, Any]) -> str:
    reach = f"{row['rho_low']:+.2f} to {row['rho_high']:+.2f}"
    return f"{row['rho']:+.2f} ({reach}), p {row['p_value']:.3f}, q {row['q_value']:.2f}"


def _quadrants(run: Any) -> None:
    rows = run.read("gaps").to_pylist()
    for metric in sorted({row["downstream_metric"] for row in rows}):
        some = [row for row in rows if row["downstream_metric"] == metric]
        sure = [
            row
            for row in some
            if all(abs(row[f"{stage}_gap"]) > row[f"{stage}_reach"] for stage in ("pretraining", "downstream"))
        ]
        of_all, of_sure = (Counter(row["quadrant"] for row in part) for part in (some, sure))
        got = ", ".join(f"{name} {of_all[name]}" for name in ("I", "II", "III", "IV"))
        alike = of_sure["I"] + of_sure["III"]
        _say(f"quadrants of gaps, R@5 against {metric} (Fig. 7)", "I, III: the same group fares better",
             f"{got}; both gaps beyond chance: {len(sure)}, {alike} of them in I or III")  # fmt: skip


def _spaces(run: Any) -> None:
    rows = run.convergence.to_pylist()
    first = np.array([row["similarity"] for row in rows if row["stage"] == "before"])
    for stage in ("before", "after"):
        some = [row for row in rows if row["stage"] == stage]
        values = np.array([row["similarity"] for row in some])
        worst = some[int(values.argmin())]
        got = f"{values.mean():.4f} ± {values.std():.4f}; centred {np.mean([row['centred'] for row in some]):.3f}"
        got += f"; worst {worst['model_a']}, {worst['model_b']}: {values.min():.4f}"
        if stage == "after":
            got += f", {(values.min() - first.mean()) / first.std():+.2f} spreads from the mean before"
        _say(f"similarity of {len(values)} pairs of spaces {stage} training (Fig. 8)", "rises", got)


def _each(names: Any, values: Any) -> str:
    return ", ".join(f"{name.removeprefix('clip-')}: {value:.4f}" for name, value in zip(names, values, strict=True))


def _say(what: str, wanted: str, got: str) -> None:
    print(f"| {what} | {wanted} | {got} |", flush=True)
