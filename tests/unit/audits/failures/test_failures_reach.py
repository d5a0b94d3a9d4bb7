"""What `c2b failures` says its budget can find: by the config alone, before anything is drawn."""

from __future__ import annotations

from typing import Any

from c2b_ray.audits.failures.estimate import expected, least_rates
from c2b_ray.config.failures import FailuresConfig

CONFIG: dict[str, Any] = {
    "labels": ["bus"],
    "classifier": "world:biased",
    "images": {"generate": {"model": "world:renderer"}},
    "captioner": "world:clip",
    "budget": {"draws": 200_000},
}


def rates_of(**changes: Any) -> list[float]:
    rows = least_rates(FailuresConfig.model_validate(CONFIG | changes)) or []
    return [one.rate or 1.0 for one in rows]


def test_more_labels_and_fewer_draws_find_less() -> None:
    usual = rates_of()
    assert all(a < b for a, b in zip(usual, rates_of(labels=["bus", "boat", "mug"]), strict=True))
    assert all(a < b for a, b in zip(rates_of(budget={"draws": 2_000_000}), usual, strict=True))


def test_the_default_budget_does_not_find_one_in_ten_thousand_and_says_so() -> None:
    assert min(rates_of()) > 1e-4
    said = expected(FailuresConfig.model_validate(CONFIG)).model_dump()["least_rates"]
    assert [row["rate"] for row in said] == rates_of()


def test_a_caption_of_ones_own_needs_no_failure_of_the_baseline_to_be_come_upon() -> None:
    common, rare = rates_of(captioner=None, captions=["a bus at night"])
    assert rare <= rates_of()[1]
    assert common <= rates_of()[0]
    assert rare < common  # the rarer at the baseline, the plainer


def test_labelled_images_are_counted_not_drawn() -> None:
    images = {"labelled": {"table": "images.csv"}}
    assert least_rates(FailuresConfig.model_validate(CONFIG | {"images": images, "captioner": None})) is None
