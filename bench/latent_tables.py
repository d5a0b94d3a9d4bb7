"""Repeats the other tables and figures of Li & Xu with `c2b latent`, on a few settings of `bench/latent.py`.

    python bench/latent_tables.py CACHE [--most 8] [--world sprites] [--kinds style vae]

They are Table 2 (ablation of both penalties), Table 3 (labels supervised, and by pseudo-ground truth with nothing
known), Figure 5 and Appendix C (known attributes: none, one, four).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from latent import OURS, Plan, Searched, arguments, drawn, plan_of, prepare, searched, spread

from c2b_ray.world.training.latent import grid
from c2b_ray.world.training.latent.grid import Setting
from c2b_ray.world.training.latent.worlds import world

ABLATION = (OURS, "total-variation", "no-penalty", "no-penalty+hessian", "hessian-penalty")
LONGER = {"iterations": 40, "batch": 32, "walk": 5, "starts": 1}
"""A longer search, for methods that start in any direction."""


def main() -> None:
    args = arguments(__doc__.splitlines()[0])
    plan = plan_of(args)
    accuracies = prepare(plan)
    settings = grid.biased_settings(plan.world, accuracies, plan.skew, plan.seed, plan.label_noise).settings
    few = drawn(settings, args.most or 8)
    print(", ".join(setting.name for setting in few))
    known_attributes(plan, few, accuracies)
    pseudo(plan, few)
    ablation(plan, few)


def ablation(plan: Plan, settings: list[Setting]) -> None:
    rows, _ = searched(plan, settings, Searched("ablation", ABLATION, search=LONGER))
    print("\n| Table 2 | cos bias | cos target | Δcos |\n|---|---|---|---|")
    for method in ABLATION:
        print(f"| {method} | {' | '.join(spread([row for row in rows if row['method'] == method]))} |", flush=True)


def pseudo(plan: Plan, settings: list[Setting]) -> None:
    """Compares two judgements: by the planted attribute, and by the attribute that changes the answers most."""
    planted, _ = searched(plan, settings, Searched("planted", (OURS, "hessian"), "none"))
    stand_in, _ = searched(
        plan, settings, Searched("pseudo", (OURS, "hessian"), "none", lambda _: {"biased": "pseudo"})
    )
    same = [a["biased"] == b["biased"] for a, b in zip(planted, stand_in, strict=True) if a["method"] == OURS]
    print("\n| Table 3 | truth | cos bias | cos target | Δcos |\n|---|---|---|---|---|")
    for truth, rows in (("planted", planted), ("pseudo", stand_in)):
        for method in (OURS, "hessian"):
            print(f"| {method} | {truth} | {' | '.join(spread([row for row in rows if row['method'] == method]))} |")
    print(f"pseudo-ground truth is the planted attribute in {sum(same)} of {len(same)} settings", flush=True)


def known_attributes(plan: Plan, settings: list[Setting], accuracies: dict[str, dict[str, float | None]]) -> None:
    """Prints results with no known attribute, with one that is not the bias, with all others, and with the bias too."""
    print("\n| Figure 5, appendix C: known | found | cos bias | cos target | Δcos |\n|---|---|---|---|---|")
    names = list(world(plan.world).attributes)

    def others(setting: Setting) -> list[str]:
        apart = (setting.plant.target, setting.plant.biased)
        separated = accuracies[setting.kind]
        return [name for name in names if name not in apart and (separated[name] or 0) >= grid.LEAST_ACCURACY]

    def with_bias(setting: Setting) -> dict[str, Any]:
        return {"known": [*others(setting), setting.plant.biased], "biased": None}

    for what, changes in (
        ("none", lambda _: {"known": "none"}),
        ("one other", lambda setting: {"known": others(setting)[:1]}),
        ("all others", lambda setting: {"known": others(setting)}),
        ("all others and the bias", with_bias),
    ):
        rows, _ = searched(plan, settings, Searched(f"known-{what.replace(' ', '-')}", (OURS,), changes=changes))
        found = np.mean([row["verdict"] == "found" for row in rows])
        cosines = spread(rows) if what != "all others and the bias" else ["", "", ""]
        print(f"| {what} | {found:.2f} | {' | '.join(cosines)} |", flush=True)


if __name__ == "__main__":
    main()
