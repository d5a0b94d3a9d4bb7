"""Audits CLIP models of the world: their order by skew, a bias in one locality, and its transfer downstream.

    python bench/clip_bias.py [order] [locality] [transfer] [--quick] [--work DIR] [--seed N] [--zoo-seed N]
                              [--models NAME=SPEC@SKEW ...]

The default is all three. Models, embeddings and measurements stay in DIR, so a second call resumes. Scenes have seeds
of 100,000 and above, on which nothing was trained or tuned. With a zoo seed, the zoo's models are trained anew from
other data and other initial weights; without one, the shipped models are used.

`order`: Spearman's correlation between each metric's global value and the skew that each model was trained with. It has
two intervals: Fisher's with Bonett and Wright's standard error, for other models of the same kind, and the audit's
bootstrap, for the same models on other images. Then the audit compares pairs of models with equal skew and pairs with
different skews.

`locality`: each of several data sets has a bias planted in one locality, and an unskewed model is audited on it. The
audit succeeds where that locality's group has q <= .05 and the global interval contains 0.

`transfer`: see `clip_bias_transfer.py`.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from clip_bias_transfer import transfer

import c2b_ray
from c2b_ray.stats.resampling import rank_correlation, rank_correlations
from c2b_ray.world import table
from c2b_ray.world.clip_zoo_members import MEMBERS, neutral_texts
from c2b_ray.world.table import TableOptions, write
from c2b_ray.world.training.train_clip_zoo import train_clip_zoo
from c2b_ray.world.zoo import names

WHAT = ["order", "locality", "transfer"]
WORK = Path(tempfile.gettempdir()) / "c2b-ray-bench-clip-bias"
SEED = 100_000
SEEDS = 5
CONTROL = "clip-00"
_FEWER = {"permutations": 500, "resamples": 200}
ATTRIBUTE = "companion"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", choices=[[], *WHAT], help="parts to run; default: all")
    parser.add_argument("--quick", action="store_true", help="fewer scenes")
    parser.add_argument("--work", type=Path, default=WORK, help="the folder of data, models and runs")
    parser.add_argument("--models", nargs="*", default=[], help="NAME=SPEC@SKEW, instead of the shipped zoo")
    parser.add_argument("--seed", type=int, default=SEED, help="seed of the scenes of `order`")
    parser.add_argument("--zoo-seed", type=int, help="seed of models that are trained anew")
    options = parser.parse_args()
    what = options.what or WHAT
    print("| what | wanted | got |\n|---|---|---|", flush=True)
    work = options.work / ("quick" if options.quick else "whole")
    skews = _models(options.models, options.zoo_seed, options.work)
    if "order" in what:
        named = f"order-{options.seed}" + (f"-{options.zoo_seed}" if options.zoo_seed is not None else "")
        order(work / named, skews, 1500 if options.quick else 5000, options.seed)
    if "locality" in what:
        locality(work / "locality", 1800 if options.quick else 4200)
    if "transfer" in what:
        transfer(work / "transfer", {name: spec for name, (spec, _) in skews.items()}, 600 if options.quick else 1200)


def _models(named: list[str], zoo_seed: int | None, work: Path) -> dict[str, tuple[str, float]]:
    """Returns spec and skew by name: of the named models, of the zoo trained anew, or of the shipped zoo."""
    if named:
        return dict(_named(text) for text in named)
    if zoo_seed is None:
        return {name: (f"world:{name}", MEMBERS[name].skew.words) for name in names("encoder") if name in MEMBERS}
    out = work / f"zoo-{zoo_seed}"
    zoo = [replace(member, seed=zoo_seed + number) for number, member in enumerate(MEMBERS.values())]
    train_clip_zoo(out, zoo_seed, zoo)
    return {member.name: (f"open_clip:local-dir:{out / member.name}", member.skew.words) for member in zoo}


def order(work: Path, skews: dict[str, tuple[str, float]], n: int, seed: int) -> None:
    write(work / "data", TableOptions(n, seed))
    run = c2b_ray.clip_bias(_config({name: spec for name, (spec, _) in skews.items()}, work), work / "run", "here")
    rows = [row for row in run.biases.to_pylist() if row["view"] == "global" and row["stage"] == "pretraining"]
    planted = np.array([skews[name][1] for name in skews])
    for metric in sorted({row["metric"] for row in rows}):
        measured = {row["model"]: row["value"] for row in rows if row["metric"] == metric}
        rho = rank_correlation(np.array([measured[name] for name in skews]), planted)
        values = ", ".join(
            f"{skews[name][1]:g}: {measured[name]:.4f}" for name in sorted(skews, key=lambda m: skews[m][1])
        )
        images = _over_images(run, skews, metric, planted)
        reach = f"[{rho.low:.2f}, {rho.high:.2f}], of these models on other images [{images[0]:.2f}, {images[1]:.2f}]"
        print(f"| order by {metric}, {len(skews)} models | rho >= 0.8, low > 0.4 | {rho.rho:.2f} {reach} |")
        print(f"| … its values by skew | | {values} |", flush=True)
    _pairs(run, skews)


def _over_images(run: Any, skews: dict[str, tuple[str, float]], metric: str, planted: np.ndarray) -> np.ndarray:
    """Returns limits of the correlation over bootstrap samples of the images; all models get the same samples."""
    rows = {row["model"]: row["values"] for row in run.read("replicates").to_pylist() if row["metric"] == metric}
    drawn = np.array([rows[name] for name in skews])
    rhos = rank_correlations(drawn.T, planted[None]).rho[:, 0]
    limits: np.ndarray = np.quantile(rhos, [0.025, 0.975])
    return limits


def _pairs(run: Any, skews: dict[str, tuple[str, float]]) -> None:
    """Prints how the audit compares models of equal skew and training, and models whose skews lie far apart."""
    rows = [row for row in run.model_pairs.to_pylist() if {row["model_a"], row["model_b"]} <= set(skews)]
    for row in rows:
        a, b = row["model_a"], row["model_b"]
        if _made(a) is not None and _made(a) == _made(b):
            reach = f"[{row['difference_low']:+.4f}, {row['difference_high']:+.4f}]"
            verdict = f"{row['verdict']}, {row['difference']:+.4f} {reach}"
            print(f"| {a} and {b}, skew {skews[a][1]:g}, {row['metric']} | not told apart | {verdict} |")
    far = [row for row in rows if abs(skews[row["model_a"]][1] - skews[row["model_b"]][1]) >= 0.4]
    apart = sum(row["verdict"] == "apart" for row in far)
    print(f"| comparisons of skews 0.4 apart or more that are told apart | | {apart} of {len(far)} |", flush=True)


def _made(name: str) -> tuple[object, ...] | None:
    member = MEMBERS.get(name)
    return (member.size, member.pairs, member.skew) if member else None


def locality(work: Path, n: int) -> None:
    hits = 0
    for seed in range(SEED + 1, SEED + 1 + SEEDS):
        directory = work / str(seed)
        write(directory / "data", TableOptions(n, seed, localities=6, planted=0.4))
        run = c2b_ray.clip_bias(
            _config({CONTROL: f"world:{CONTROL}"}, directory, texts=False), directory / "run", "here"
        )
        hits += _held(run, directory, seed)
    what = "a bias in one locality: found there (q <= .05) while the global interval holds 0"
    print(f"| {what} | 4 of 5 | {hits} of {SEEDS} |")


def _held(run: Any, directory: Path, seed: int) -> bool:
    clusters = run.read("clusters").to_pylist()
    planted = _planted(directory / "data" / "table.parquet")
    shares = {group: np.mean([row["key"] in planted for row in clusters if row["group"] == group])
              for group in {row["group"] for row in clusters} - {None}}  # fmt: skip
    rows = [row for row in run.biases.to_pylist() if row["stage"] == "pretraining"]
    whole = next(row for row in rows if row["view"] == "global")
    best = max(shares, key=lambda group: float(shares[group])) if shares else None
    local = next((row for row in rows if row["view"] == "local" and row["group"] == best), None)
    holds = whole["value_low"] <= 0
    seen = local is not None and local["q_value"] <= 0.05
    about = f"group {best}, {shares[best]:.0%} of it planted, q {local['q_value']:.2g}" if local else "no group"
    print(f"| … seed {seed} | | {about}; global [{whole['value_low']:.5f}, {whole['value_high']:.5f}] |", flush=True)
    return holds and seen


def _planted(path: Path) -> set[str]:
    """Returns the keys of the images in the locality with the planted bias."""
    rows = pq.read_table(path, columns=["key", "locality"]).to_pylist()
    return {row["key"] for row in rows if row["locality"] == ", ".join(table.locality(0))}


def _config(models: dict[str, str], work: Path, texts: bool = True) -> dict[str, Any]:
    data = {"table": str(work / "data" / "table.parquet"), "attributes": [ATTRIBUTE]}
    return {
        "models": models,
        "datasets": {"scenes": {**data, "texts": neutral_texts() if texts else []}},
        "groups": {"k": 1 if texts else 6},
        "chance": _FEWER,
    }


def _named(text: str) -> tuple[str, tuple[str, float]]:
    name, _, rest = text.partition("=")
    spec, _, skew = rest.rpartition("@")
    return name, (spec, float(skew))


if __name__ == "__main__":
    main()
