"""What `c2b failures` says its budget can find: by the config alone, before anything is drawn."""

from __future__ import annotations

from typing import Any

import pytest

from c2b_ray.audits.failures.config import FailuresConfig
from c2b_ray.audits.failures.estimate import check, estimate, expected, least_rates
from c2b_ray.audits.failures.report.method import ratio_of, ratio_sentence
from c2b_ray.errors import ConfigError
from c2b_ray.world.scenes import CLASSES

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


def ratio_said(**changes: Any) -> str:
    known = expected(FailuresConfig.model_validate(CONFIG | changes))
    return ratio_sentence(known.smallest_ratio or 0.0, known.draws_of_ratio).replace("\u202f", " ")


def test_what_ratio_is_searched_for_is_said_with_what_it_takes() -> None:
    usual, smaller = ratio_said(), ratio_said(smallest_ratio=1.5)
    assert usual.startswith("captions that fail at least twice as often as the bare prompt are searched for, and ")
    assert smaller.startswith("captions that fail at least 1.5 times as often as the bare prompt are searched for")
    assert usual.endswith(
        "takes on average at most about 6,000 images to confirm one that fails exactly twice as often"
    )
    draws = [
        expected(FailuresConfig.model_validate(CONFIG | {"smallest_ratio": ratio})).draws_of_ratio or 0
        for ratio in (2.0, 1.5)
    ]
    assert draws[1] > 2 * draws[0]  # evidence grows with about the square of the excess
    assert ratio_sentence(1.5, None) == (
        "captions that fail at least 1.5 times as often as the label’s other images are searched for, "
        "and others given up"
    )


def test_the_page_says_the_ratio_of_its_run_also_of_one_from_before_there_was_a_choice() -> None:
    assert ratio_of(FailuresConfig.model_validate({**CONFIG, "smallest_ratio": 3})) == "3 times"
    assert ratio_of(FailuresConfig.model_validate(CONFIG)) == "twice"


def test_the_estimate_before_a_run_says_it() -> None:
    notes = [cost.note for cost in estimate({**CONFIG, "classifier": "world:resnet-planted-0", "smallest_ratio": 1.5})]
    assert any("1.5 times as often as the bare prompt" in note for note in notes)


def test_a_budget_that_does_not_reach_every_label_is_refused_with_the_one_that_does() -> None:
    """It drew two images of each label all the same, and took the draws that were then missing for draws to spare."""
    few = {"labels": list(CLASSES), "classifier": "world:resnet-control-0"}

    def config(draws: int) -> FailuresConfig:
        return FailuresConfig.model_validate(CONFIG | few | {"budget": {"draws": draws, "discovery": 0.1}})

    with pytest.raises(ConfigError, match=r"budget\.draws: 269 images are too few for 10 labels: give at least 270"):
        check(config(269))
    check(config(270))
