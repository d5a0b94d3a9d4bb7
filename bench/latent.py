"""Measures how well `c2b latent` finds planted biases, and whether it finds any in unbiased classifiers.

    python bench/latent.py CACHE [--world sprites|dsprites|scenes] [--quick] [--seed 100] [--via here|actors]

Shipped generators are copied into CACHE; the other generators, the reader and the classifiers are trained there once.
All searches are kept, so that an interrupted run continues. The classifiers' seeds differ from those of the shipped
ones.

Behaviour decides whether a classifier counts as unbiased, not training: no attribute except its target, changed alone
in the same rendered pictures, may change P by the margin on average. Classifiers that fail this are left out and
counted.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import c2b_ray
from c2b_ray.audits.latent.run import LatentRun
from c2b_ray.models import catalog
from c2b_ray.world import latent_labels
from c2b_ray.world.training.latent import classifiers, family, grid
from c2b_ray.world.training.latent.grid import Setting
from c2b_ray.world.training.latent.worlds import world
from c2b_ray.world.zoo import WEIGHTS

OURS = "consistent"
METHODS = (OURS, "axes", "hessian")
QUICK_KINDS = ("vae", "beta-tc", "style")
MARGIN = 0.05
CONVERGED = classifiers.Recipe(steps=400)
RENDERED = 500
SEARCH: dict[str, Any] = {"iterations": 20, "batch": 32, "walk": 3, "starts": 1}
"""Faster than the config's default; on 14 development settings (shipped classifiers) all verdicts were equal."""
REACHES = 0.2  # |cos w_b| at which a baseline's result counts as a detection
LATENTS = 4000


@dataclass(frozen=True)
class Plan:
    """What the options ask for. `cache`: the folder of models and runs."""

    cache: Path
    world: str
    kinds: tuple[str, ...]
    seed: int
    via: str
    label_noise: float
    skew: float


def unchanged(setting: Setting) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Searched:
    """A run over settings. `known`: as in a problem of the config; `changes`: what changes in a setting's problem."""

    name: str
    methods: tuple[str, ...]
    known: str = "rest"
    changes: Callable[[Setting], dict[str, Any]] = unchanged
    search: Mapping[str, Any] = field(default_factory=lambda: SEARCH)


def main() -> None:
    args = arguments(__doc__.splitlines()[0])
    plan = plan_of(args)
    most, seeds = (24, 2) if args.quick else (args.most, args.unbiased_seeds)
    accuracies = prepare(plan)
    biased = grid.biased_settings(plan.world, accuracies, plan.skew, plan.seed, plan.label_noise)
    all_seeds = range(plan.seed, plan.seed + seeds)
    unbiased = grid.unbiased_settings(plan.world, accuracies, all_seeds, plan.label_noise)
    print(f"{len(biased.settings)} biased settings, {biased.left_out} left out below {grid.LEAST_ACCURACY}")
    settings = drawn(biased.settings, most)
    if not args.unbiased_only:
        rows, run = searched(plan, settings, Searched("biased", METHODS))
        judge_biased(rows, normals_of(run))
    few = drawn(unbiased.settings, most or args.most_unbiased)
    without, _ = searched(plan, few, Searched("unbiased", (OURS,), "none"))
    judge_unbiased(without)


def arguments(about: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--world", default="sprites")
    parser.add_argument("--kinds", nargs="*", default=None, help="kinds of generator; default: all")
    parser.add_argument("--seed", type=int, default=100, help="seed of the classifiers")
    parser.add_argument("--skew", type=float, default=0.9)
    parser.add_argument("--label-noise", type=float, default=0.05)
    parser.add_argument("--most", type=int, default=0, help="limit of biased settings, drawn at random; 0: all")
    parser.add_argument("--most-unbiased", type=int, default=0, help="limit of unbiased settings; 0: all")
    parser.add_argument("--unbiased-seeds", type=int, default=4, help="unbiased classifiers per target")
    parser.add_argument("--unbiased-only", action="store_true")
    parser.add_argument("--quick", action="store_true", help="three kinds of generator, 24 settings, 2 unbiased seeds")
    parser.add_argument("--via", default="here")
    return parser.parse_args()


def plan_of(args: argparse.Namespace) -> Plan:
    kinds = tuple(args.kinds or (QUICK_KINDS if args.quick else family.KINDS))
    return Plan(args.cache, args.world, kinds, args.seed, args.via, args.label_noise, args.skew)


def prepare(plan: Plan) -> dict[str, dict[str, float | None]]:
    """Fills the cache with generators, readers and labelled latents; returns the accuracies of hyperplanes."""
    of = world(plan.world)
    for kind in (*plan.kinds, "reader", "reader-2", "reader-3"):
        name = f"latent-{of.name}-{kind}"
        if (WEIGHTS / name).is_dir() and not (plan.cache / name).is_dir():
            shutil.copytree(WEIGHTS / name, plan.cache / name)
    family.train_generators(plan.cache, of, plan.kinds, seed=1)
    names_sides = [latent_labels.reader(directory) for directory in family.train_readers(plan.cache, of, seed=1)]
    table = plan.cache / f"{of.name}-latents.parquet"
    labelled = {}
    accuracies: dict[str, dict[str, float | None]] = {}
    for kind in plan.kinds:
        generator = catalog.latent_generator(family.generator_spec(plan.cache, of.name, kind))
        labelled[kind] = latent_labels.label(generator, names_sides, LATENTS, 5)
        measured = latent_labels.hyperplane_accuracies(labelled[kind], 5)
        accuracies[kind] = {name: about["accuracy"] for name, about in measured.items()}
        shown = {name: round(float(value.mean()), 3) for name, value in labelled[kind].shown.items()}
        print(f"{kind}: {json.dumps(accuracies[kind])}, labelled {json.dumps(shown)}", flush=True)
    latent_labels.write_labelled(labelled, table)
    return accuracies


def drawn(settings: Sequence[Setting], most: int) -> list[Setting]:
    if not most or len(settings) <= most:
        return list(settings)
    rows = np.random.default_rng(0).permutation(len(settings))[:most]
    return [settings[row] for row in sorted(rows)]


def searched(plan: Plan, settings: Sequence[Setting], what: Searched) -> tuple[list[dict[str, Any]], LatentRun]:
    """Runs a search; returns the first direction of each problem with the classifier's true bias, and the run.

    The true bias is the effect of changing one attribute in rendered pictures.
    """
    truths = {}
    for plant in grid.plants(settings):
        recipe = CONVERGED if plant.unbiased else None
        about = classifiers.make(plant, plan.cache / family.plant_name(plant), recipe, RENDERED)
        truths[family.plant_name(plant)] = about["truth"]
    config = {
        "generator": {kind: family.generator_spec(plan.cache, plan.world, kind) for kind in plan.kinds},
        "classifier": grid.classifier_specs(settings, plan.cache),
        "latents": str(plan.cache / f"{plan.world}-latents.parquet"),
        "problems": [grid.problem(setting, what.known) | what.changes(setting) for setting in settings],
        "methods": list(what.methods),
        "strips": {"latents": 0},
        "search": what.search,
    }
    out = plan.cache / "runs" / f"{plan.world}-{what.name}-{len(settings)}-{plan.seed}"
    run = c2b_ray.latent_directions(config, out, via=plan.via)
    rows: list[dict[str, Any]] = run.directions.to_pylist()
    return [row | {"truth": truths[row["classifier"]]} for row in rows if row["rank"] == 0], run


def normals_of(run: LatentRun) -> dict[tuple[str, str], Any]:
    """Returns the unit normal by (generator, attribute)."""
    return {(row["generator"], row["attribute"]): np.array(row["normal"]) for row in run.hyperplanes.to_pylist()}


def judge_biased(rows: list[dict[str, Any]], normals: dict[tuple[str, str], Any]) -> None:
    by = {method: {row["problem"]: row for row in rows if row["method"] == method} for method in METHODS}
    ours = by[OURS]
    deltas = {name: row["delta_cos"] for name, row in ours.items() if row["delta_cos"] is not None}
    print("\n| what | wanted | got |\n|---|---|---|")
    line("settings", "≥ 60", f"{len(ours)}, of {len({row['classifier'] for row in ours.values()})} classifiers")
    shift = [abs(row["truth"][row["biased"]]["shift"]) for row in ours.values()]
    line("true effect of the biased attribute, by rendering", "", f"{np.mean(shift):.3f} (least {min(shift):.3f})")
    told("Δcos, mean; lower 95 % limit (classifiers as clusters)", "> .12; > .05", deltas, ours)
    learned = {name: delta for name, delta in deltas.items() if not ours[name]["generator"].startswith("known")}
    told("the same in learned spaces: VAE, GAN, style", "", learned, ours)
    line("verdict found", "", f"{np.mean([row['verdict'] == 'found' for row in ours.values()]):.3f}")
    for method in METHODS[1:]:
        worth = [name for name, row in by[method].items() if (row["cos_bias"] or 0) >= REACHES and name in deltas]
        wins = {name: deltas[name] - by[method][name]["delta_cos"] for name in worth}
        told(f"Δcos over {method} where it reaches {REACHES}", "> 0", wins, ours)
    best = {name: best_axis(ours[name], normals) for name in deltas}
    line("Δcos of the best axis, chosen by the truth", "", f"{np.mean(list(best.values())):.3f}")
    told("Δcos over the best axis, chosen by the truth", "", {name: deltas[name] - best[name] for name in deltas}, ours)
    table_1(by)
    kinds = dict.fromkeys(row["generator"] for row in ours.values())
    print("\n| generator | settings | cos bias | cos target | Δcos |\n|---|---|---|---|---|")
    for kind in kinds:
        of_kind = [row for row in ours.values() if row["generator"] == kind]
        print(f"| {kind} | {len(of_kind)} | {' | '.join(spread(of_kind))} |")


def best_axis(row: dict[str, Any], normals: dict[tuple[str, str], Any]) -> float:
    bias, target = (np.abs(normals[row["generator"], row[name]]) for name in ("biased", "target"))
    return float((bias - target).max())


def told(what: str, wanted: str, values: dict[str, float], rows: dict[str, dict[str, Any]]) -> None:
    if len({rows[name]["classifier"] for name in values}) > 1:
        mean, low = clustered(values, {name: rows[name]["classifier"] for name in values})
        line(what, wanted, f"{mean:.3f}; {low:.3f} ({len(values)})")


def table_1(by: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Prints means ± standard deviations, and the share of settings in which each method is best."""
    shared = set.intersection(*(set(rows) for rows in by.values()))
    leads = [max(by, key=lambda method: by[method][name]["delta_cos"]) for name in sorted(shared)]
    print("\n| method | cos bias | cos target | Δcos | leads |\n|---|---|---|---|---|")
    for method, rows in by.items():
        share = np.mean([leader == method for leader in leads])
        print(f"| {method} | {' | '.join(spread(list(rows.values())))} | {share:.1%} |")


def judge_unbiased(rows: list[dict[str, Any]]) -> None:
    shifts = {row["classifier"]: largest_shift(row) for row in rows}
    leaning = {name: shift for name, shift in shifts.items() if shift >= MARGIN}
    line("trained without bias that lean by the margin, by rendering: left out", "", f"{len(leaning)} of {len(shifts)}")
    kept = [row for row in rows if row["classifier"] not in leaning]
    most = max(shift for name, shift in shifts.items() if name not in leaning)
    line("largest effect of another attribute on those kept, by rendering", f"< {MARGIN}", f"{most:.3f}")
    nothing = np.array([row["verdict"] == "nothing found" for row in kept])
    alone = np.mean([row["p_value"] > 0.05 for row in kept])
    line('"nothing found", of searches', "≥ .95", f"{nothing.mean():.3f} ({nothing.sum()} of {len(nothing)})")
    line("the same, each search a run of its own (no false discovery rate)", "≥ .95", f"{alone:.3f}")
    alarms = {row["classifier"] for row in kept if row["p_value"] <= MARGIN}
    of = len(shifts) - len(leaning)
    line("classifiers with an alarm of their own in any generator", "", f"{len(alarms)} of {of}")
    for row in (row for row in rows if row["p_value"] <= MARGIN):
        print(f"  {row['problem']}: {row['verdict']}, {row['reason']}")


def largest_shift(row: dict[str, Any]) -> float:
    return max(abs(about["shift"]) for name, about in row["truth"].items() if counts(name, about, row))


def counts(name: str, about: Any, row: dict[str, Any]) -> bool:
    return isinstance(about, dict) and name != row["target"]


def spread(rows: list[dict[str, Any]]) -> list[str]:
    columns = [[row[name] for row in rows if row[name] is not None] for name in ("cos_bias", "cos_target", "delta_cos")]
    return [f"{np.mean(values):.2f} ± {np.std(values):.2f}" for values in columns]


def clustered(values: dict[str, float], clusters: dict[str, str]) -> tuple[float, float]:
    """Returns the mean, and the lower 95 % limit (t) of the mean of clusters' means; settings of one classifier are
    dependent."""
    groups: dict[str, list[float]] = {}
    for name, value in values.items():
        groups.setdefault(clusters[name], []).append(value)
    means = np.array([np.mean(group) for group in groups.values()])
    error = means.std(ddof=1) / np.sqrt(len(means))
    return float(np.mean(list(values.values()))), float(means.mean() - stats.t.ppf(0.975, len(means) - 1) * error)


def line(what: str, wanted: str, got: str) -> None:
    print(f"| {what} | {wanted} | {got} |", flush=True)


if __name__ == "__main__":
    main()
