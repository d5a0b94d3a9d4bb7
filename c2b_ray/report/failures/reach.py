"""The likely findings of a budget of draws in words, shown before a run and on its page.

Knows the least rates of an estimate; knows neither their computation nor pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from c2b_ray.config.failures import SMALLEST_RATIO
from c2b_ray.report.kit import words
from c2b_ray.report.kit.method import mapping
from c2b_ray.steps.discovery.power import COMMON_RATE


def reach_sentence(least_rates: Sequence[Mapping[str, Any]]) -> str:
    """Returns one sentence from rows with `share` and `rate`; empty where there is none, or where one is not a
    number."""
    rows = [(one.get("share"), one.get("rate")) for one in least_rates]
    known = [(share, rate) for share, rate in rows if isinstance(share, float) and share > 0]
    reached = [(share, rate) for share, rate in known if isinstance(rate, float)]
    if not reached:
        return "this budget is not likely to find any failure: give it more draws" if known else ""
    (first, least), *others = reached
    more = "".join(f"; {words.rate(rate)} where 1 in {round(1 / share)} does" for share, rate in others)
    return (
        f"with this budget a failure is found 4 times in 5, at best, if it happens on at least {words.rate(least)} of "
        f"the images that show what it needs, where 1 in {round(1 / first)} images of the label shows that{more}. "
        "Rarer failures want draws in proportion"
    )


def ratio_sentence(ratio: float, draws: int | None) -> str:
    """Returns a sentence about the smallest ratio of rates that is searched for. `draws`: those that are expected to
    confirm a caption of this ratio where the bare prompt fails at `COMMON_RATE`; None for labelled images."""
    baseline = "the label’s other images" if draws is None else "the bare prompt"
    said = f"captions that fail at least {multiple(ratio)} as often as {baseline} are searched for, and others given up"
    if draws is None:
        return said
    return (
        f"{said}; where the bare prompt fails on 1 in {round(1 / COMMON_RATE)} images, it takes on average at most "
        f"about {words.count(int(float(f'{draws:.1e}')))} images to confirm one that fails exactly {multiple(ratio)} "
        "as often"
    )


def ratio_of(manifest: Mapping[str, Any]) -> str:
    """Returns the smallest ratio that a run searched for, such as "twice"."""
    ratio = mapping(manifest.get("config")).get("smallest_ratio")
    return multiple(ratio if isinstance(ratio, int | float) else SMALLEST_RATIO)


def multiple(ratio: float) -> str:
    return "twice" if ratio == SMALLEST_RATIO else f"{ratio:g} times"
